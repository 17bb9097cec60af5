"""Dates and timestamps: ISO 8601 text, and the epoch numbers they are stored as.

Invariant: a Date is whole days and a DateTime whole milliseconds since 1970-01-01 UTC. What the
readers accept, the writers print back to the same number.
"""

import re
from datetime import UTC, date, datetime, timedelta

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DATETIME = re.compile(
    r"\d{4}-\d{2}-\d{2}"
    r"(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|z|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)


def parse_date(text: str) -> int:
    """Days since the epoch of `YYYY-MM-DD`. ValueError when it is no date."""
    if not _DATE.fullmatch(text):
        raise ValueError(f"'{text}' is not a date like 2024-01-31")
    try:
        return days_of(date.fromisoformat(text))
    except ValueError as cause:
        raise ValueError(f"'{text}' is not a date: {cause}") from None


def parse_datetime(text: str) -> int:
    """Milliseconds since the epoch of an ISO-8601 moment; without an offset it is UTC.

    Digits past the millisecond are cut off. ValueError when it is no moment.
    """
    if not _DATETIME.fullmatch(text):
        raise ValueError(f"'{text}' is not a moment like 2024-01-31T10:00:00Z")
    try:
        return milliseconds_of(datetime.fromisoformat(text.replace("z", "Z")))
    except ValueError as cause:
        raise ValueError(f"'{text}' is not a moment: {cause}") from None
    except OverflowError:
        raise ValueError(f"'{text}' lies outside the years 1 to 9999") from None


def days_of(day: date) -> int:
    """Days since the epoch."""
    return (day - _EPOCH_DAY).days


def milliseconds_of(moment: datetime) -> int:
    """Milliseconds since the epoch; a moment without a zone is UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


def format_date(days: int) -> str:
    """`YYYY-MM-DD`."""
    return (_EPOCH_DAY + timedelta(days=days)).isoformat()


def format_datetime(milliseconds: int) -> str:
    """`YYYY-MM-DDTHH:MM:SS.mmmZ`, always UTC with three decimals."""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
