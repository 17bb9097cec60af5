"""Ages of commits for people, in the largest whole unit."""

import time

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def ago(moment: int) -> str:
    """Return how long ago a moment in microseconds since the epoch was."""
    seconds = max(0, int(time.time() - moment / 1e6))
    for size, unit in _UNITS:
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"
