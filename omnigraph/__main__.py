"""`python -m omnigraph`: the command, where its own name is not on the path."""

from omnigraph.cli.start import program

if __name__ == "__main__":
    program()
