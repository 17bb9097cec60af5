"""Best-practice texts for agents, and what a session says of itself at its start.

Invariant: each topic is one short Markdown file beside this module.
"""

from functools import cache
from pathlib import Path

_TEXTS = Path(__file__).parent / "texts"

INSTRUCTIONS = (
    "OmniGraph is a typed property graph with Git-style branches. Call schema_get before writing a "
    "query. Reads: search, query, entity_get, neighbours. To change something: work on a branch "
    "(branches_create, or the session's own), mutate or load there, look at diff, try "
    "branches_merge with dry_run, then merge. Errors say what to do; the resources "
    "omnigraph://best-practices/{topic} say more."
)


@cache
def topics() -> dict[str, str]:
    """Every text, by its topic."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(_TEXTS.glob("*.md"))}


def title_of(topic: str) -> str:
    """The heading of a text."""
    return topics()[topic].partition("\n")[0].removeprefix("# ")
