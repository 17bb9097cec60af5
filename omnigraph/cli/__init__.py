"""How does a terminal say it? Each command opens, makes one call and shows one result.

Results go to standard output, everything else to standard error. This room alone imports typer.
"""
