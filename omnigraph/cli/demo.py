"""stub"""


def demo() -> None:
    """Walk through."""
