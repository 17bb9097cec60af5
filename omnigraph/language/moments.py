"""Dates and timestamps: ISO 8601 text, and the epoch numbers they are stored as.

Invariant: a Date is whole days and a DateTime whole milliseconds since 1970-01-01 UTC, both within
the years 1 to 9999 of UTC. What the readers accept, the writers print back to the same number. A
moment finer than a millisecond is cut toward the past (floor), and its number says so: `CutMoment`.
"""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_DAY_MS = 86_400_000
_ERA_YEARS, _ERA_DAYS = 400, 146_097  # the Gregorian calendar repeats after them

DAYS = ((date.min - _EPOCH_DAY).days, (date.max - _EPOCH_DAY).days)
"""The first and the last Date."""

MILLISECONDS = (
    (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND,
    (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND,
)
"""The first and the last DateTime."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DATETIME = re.compile(
    r"\d{4}-\d{2}-\d{2}"
    r"(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.(?P<fraction>\d{1,9}))?)?(?:Z|z|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)


class CutMoment(int):
    """Milliseconds since the epoch of a moment that was finer: the parts of one were cut off.

    An integer like any other, so that whoever stores it can count what was lost.
    """

    __slots__ = ()


def cut_count(values: Iterable[object]) -> int:
    """How many of the values, and of the items of lists among them, are moments that were cut."""
    return sum(
        cut_count(value) if isinstance(value, list) else isinstance(value, CutMoment)
        for value in values
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

    Digits past the millisecond are cut off (`CutMoment`). ValueError when it is no moment.
    """
    shape = _DATETIME.fullmatch(text)
    if shape is None:
        raise ValueError(f"'{text}' is not a moment like 2024-01-31T10:00:00Z")
    try:
        moment = datetime.fromisoformat(text.replace("z", "Z"))
    except ValueError as cause:
        raise ValueError(f"'{text}' is not a moment: {cause}") from None
    number = milliseconds_of(moment, said=text)
    # Python's datetime ends at microseconds, and the text may not.
    return CutMoment(number) if (shape["fraction"] or "")[3:].strip("0") else number


def days_of(day: date) -> int:
    """Days since the epoch."""
    return (day - _EPOCH_DAY).days


def milliseconds_of(moment: datetime, *, said: str | None = None) -> int:
    """Milliseconds since the epoch; a moment without a zone is UTC.

    Parts of a millisecond are cut off (`CutMoment`). ValueError, which calls the moment `said`,
    when its offset leads out of the years 1 to 9999.
    """
    text = moment if said is None else said
    if moment != moment:  # NaT of pandas, which is a datetime
        raise ValueError(f"'{text}' is not a moment")
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    try:
        number, rest = divmod(aware - _EPOCH, _MILLISECOND)
    except (OverflowError, ValueError):
        raise ValueError(f"'{text}' is not a moment that can be stored") from None
    if not MILLISECONDS[0] <= number <= MILLISECONDS[1]:
        raise ValueError(f"'{text}' lies outside the years 1 to 9999")
    return CutMoment(number) if rest else int(number)


def format_date(days: int) -> str:
    """`YYYY-MM-DD`; outside the years 1 to 9999, where no reader accepts it, `±YYYYYY-MM-DD`."""
    if DAYS[0] <= days <= DAYS[1]:
        return (_EPOCH_DAY + timedelta(days=days)).isoformat()
    eras, day = divmod(days, _ERA_DAYS)
    near = _EPOCH_DAY + timedelta(days=day)
    return f"{near.year + eras * _ERA_YEARS:+07}{near.isoformat()[4:]}"


def format_datetime(milliseconds: int) -> str:
    """`YYYY-MM-DDTHH:MM:SS.mmmZ`, always UTC with three decimals; the year as in `format_date`."""
    days, rest = divmod(milliseconds, _DAY_MS)
    time = (_EPOCH + timedelta(milliseconds=rest)).replace(tzinfo=None)
    return f"{format_date(days)}{time.isoformat(timespec='milliseconds')[10:]}Z"
