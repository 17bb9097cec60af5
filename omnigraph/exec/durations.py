"""Durations as callers write them: a number of seconds, `7d`, or a `timedelta`.

Invariant: a duration is zero or positive.
"""

import re
from datetime import timedelta

from omnigraph.errors import BadRequest

GRACE = "10m"
"""A commit that was a head within this time may have readers."""

Duration = str | int | float | timedelta

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = r"(\d+)([smhdw]?)"


def seconds(duration: Duration) -> int:
    """Parse a duration: seconds, or a number with s, m, h, d or w."""
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    text = str(duration).strip() if isinstance(duration, str | int) else ""
    match = re.fullmatch(_DURATION, text)
    if match is not None and not isinstance(duration, bool):
        return int(match[1]) * _UNITS[match[2]]
    if isinstance(duration, float) and duration >= 0:
        return int(duration)
    raise BadRequest(f"'{duration}' is no duration", "write a number and s, m, h, d or w: 7d")
