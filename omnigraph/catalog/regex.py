"""RE2 validation of the regular expressions of `@check`.

Invariant: a pattern accepted here compiles in the engine that will run it, because it is the same
engine (RE2, through Arrow).
"""


def regex_error(pattern: str) -> str | None:
    """The reason why a pattern is no RE2 expression, or None."""
    # Loading Arrow takes longer than reading most schemas, and most have no @check.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        pc.match_substring_regex(pa.array([""]), pattern=pattern)
    except pa.ArrowInvalid as cause:
        return str(cause).removeprefix("Invalid regular expression: ")
    return None
