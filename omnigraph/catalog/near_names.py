"""Did-you-mean hints: the known name that is nearest to one that is not known (edit distance).

Invariant: pure. A hint names only what is known.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from omnigraph.catalog.model import Catalog

_LISTED_MAX = 8
_LIKENESS_MIN = 0.65  # below it names share letters by chance: `entity` and `init`


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a name, whatever its case; None if none is like it."""
    folded = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), folded, n=1, cutoff=_LIKENESS_MIN)
    return folded[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str], *, listed: bool = True) -> str:
    """A hint with the known name that is nearest, or else with all of them if they are listed."""
    known = tuple(known)
    near = nearest(name, known)
    if near is not None:
        return f"did you mean '{near}'?"
    if not listed:
        return ""
    every = sorted(set(known))
    more = len(every) - _LISTED_MAX
    tail = f" and {more} more" if more > 0 else ""
    return f"known: {', '.join(every[:_LISTED_MAX])}{tail}" if every else "the schema declares none"


def family_hint(name: str, catalog: Catalog) -> str:
    """A hint with the edge types that a family is; none for a name of anything else."""
    members = catalog.families.get(name, ())
    listed = ", ".join(edge.name for edge in members)
    return f"it has an interface at an end: name one of {listed}" if members else ""


def near_edge(name: str, catalog: Catalog) -> str:
    """A hint about a name that is no edge type."""
    return family_hint(name, catalog) or did_you_mean(name, catalog.edges)
