"""Diffs, changes and merge conflicts as lines of text for a terminal.

Invariant: a null is written `<null>` and a value that is not there `<absent>`, so neither can be
taken for text. Colours are for terminals alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from omnigraph.cli.terminal import painted
from omnigraph.grid import flat

if TYPE_CHECKING:
    from omnigraph.errors import MergeConflict, MergeConflicts
    from omnigraph.exec.changes.diff import Change
    from omnigraph.exec.changes.images import Image
    from omnigraph.exec.merge.kept_edges import KeptEdge
    from omnigraph.storage.records import Commit
    from omnigraph.types import SchemaStep

_COLOURS = {"insert": "green", "delete": "red", "update": "yellow"}
_SIGNS = {"insert": "+", "delete": "-", "update": "~"}
_CONFLICTS_SHOWN = 50
_WIDTH_MIN, _NAME_WIDTH_MAX = 60, 20
_MISSING = object()


def value_text(value: Any) -> str:
    """One value on one line."""
    if value is _MISSING:
        return "<absent>"
    if value is None:
        return "<null>"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return flat(text.replace("\\", "\\\\").replace("\r", "\\r"))


def coloured(text: str, op: str, stream: IO[str] | None = None) -> str:
    """The text in the colour of an operation, where a terminal shows it."""
    return painted(text, _COLOURS[op], stream)


# ---- changes


def cause_lines(cause: Commit) -> Iterator[str]:
    """The commit behind a block of changes, as lines."""
    yield f"commit {cause.id}"
    if cause.merged_parent is not None:
        yield f"merged: {cause.merged_parent}"
    yield f"branch: {cause.branch or 'main'}"
    if cause.actor is not None:
        yield f"actor: {cause.actor}"
    if cause.message is not None:
        yield f"message: {cause.message}"
    yield from schema_lines(cause.schema_steps)


def change_lines(change: Change) -> Iterator[str]:
    """One change as lines: the operation and entity, an edge's ends, each value that differs."""
    yield f"{change.op} {change.kind} {change.type} {change.id}"
    yield from _inside(change)


def schema_lines(steps: Iterable[SchemaStep]) -> Iterator[str]:
    """Schema steps as a diff or a preview shows them."""
    return (f"schema: {step}" for step in steps)


def diff_lines(change: Change) -> Iterator[str]:
    """One change as a diff shows it."""
    sign = _SIGNS[change.op]
    yield coloured(f"{sign} {change.kind} {change.type} {change.id}", change.op)
    for line in _inside(change):
        yield coloured(f"  {line}", change.op) if change.op != "update" else f"  {line}"


def _inside(change: Change) -> Iterator[str]:
    ends = _ends_text(change)
    if ends:
        yield f"  {ends}"
    was, now = (_properties(image) for image in (change.before, change.after))
    for name in [*was, *(name for name in now if name not in was)]:
        old, new = was.get(name, _MISSING), now.get(name, _MISSING)
        if change.op == "insert":
            yield f"  + {name}: {value_text(new)}"
        elif change.op == "delete":
            yield f"  - {name}: {value_text(old)}"
        elif not _same(old, new):
            yield f"  {name}: {value_text(old)} -> {value_text(new)}"


def _ends_text(change: Change) -> str | None:
    ends = [i.endpoints for i in (change.before, change.after) if i is not None and i.endpoints]
    texts = list(dict.fromkeys(f"{source} -> {target}" for source, target in ends))
    return " => ".join(texts) or None


def _properties(image: Image | None) -> dict[str, Any]:
    return {} if image is None else image.properties


def _same(one: Any, other: Any) -> bool:
    # NaN is the only value that is not equal to itself.
    return bool(one is other or one == other or (one != one and other != other))


# ---- conflicts


_COUNT_SIGNS = (("insert", "+"), ("update", "~"), ("delete", "-"))
_DONE = {"merge": "merged", "revert": "reverted", "restore": "restored"}


def preview_lines(
    counts: Mapping[tuple[str, str, str], int], steps: Sequence[SchemaStep] = ()
) -> Iterator[str]:
    """Schema steps, and counts of changes by type: `node Person  +1 ~0 -2`."""
    yield from schema_lines(steps)
    types = dict.fromkeys((kind, name) for kind, name, _ in counts)
    if not types and not steps:
        yield "no changes"
    for kind, name in types:
        each = (f"{sign}{counts.get((kind, name, op), 0)}" for op, sign in _COUNT_SIGNS)
        yield f"{kind} {name}  {' '.join(each)}"


_ANSWER_CHARS_MAX = 40
_KEPT_SHOWN = 10


def kept_edge_lines(edges: Sequence[KeptEdge]) -> Iterator[str]:
    """The edges that an answer keeps with their node."""
    for edge in edges[:_KEPT_SHOWN]:
        ends = f"{edge.src} -> {edge.dst}"
        yield (
            f"keeps edge {edge.type_name} {edge.entity_id} ({ends}) "
            f"with node {edge.node_type} {edge.node_id}"
        )
    if len(edges) > _KEPT_SHOWN:
        yield f"and {len(edges) - _KEPT_SHOWN} more edges, which --json lists"


def conflict_lines(refused: MergeConflicts, ours: str, theirs: str) -> Iterator[str]:
    """Every conflict with its three sides beside each other, and how to go on."""
    for conflict in refused.conflicts[:_CONFLICTS_SHOWN]:
        yield from _conflict(conflict, ours, theirs)
        yield ""
    more = len(refused.conflicts) - _CONFLICTS_SHOWN
    if more > 0:
        yield f"and {more} more, which --json lists"
        yield ""
    counts = ", ".join(f"{count} {kind}" for kind, count in refused.counts.items())
    total = len(refused.conflicts)
    plural = "conflict" if total == 1 else "conflicts"
    yield f"{total} {plural} ({counts}); nothing was {_DONE.get(refused.of, 'changed')}"
    yield from _ways_out(refused, ours, theirs)


def _conflict(conflict: MergeConflict, ours: str, theirs: str) -> Iterator[str]:
    name = f" {conflict.entity_id}" if conflict.entity_id is not None else ""
    yield f"{conflict.kind}: {conflict.entity_kind} {conflict.type_name}{name}"
    sides = conflict.base, conflict.ours, conflict.theirs
    if all(side is None for side in sides):
        yield f"  {conflict.message}"
        return
    heads = ["base", f"ours ({ours})", f"theirs ({theirs})"]
    rows = [[name, *values] for name, values in _differing(sides)]
    yield from _columns(["", *heads], rows)


def _differing(sides: Sequence[dict[str, Any] | None]) -> Iterator[tuple[str, list[str]]]:
    """Each value in which the sides are not all equal, as each has it."""
    flat = [None if side is None else _flat(side) for side in sides]
    present = [side for side in flat if side is not None]
    names = list(dict.fromkeys(name for side in present for name in side))
    differing = [
        name
        for name in names
        if any(not _same(present[0].get(name), side.get(name)) for side in present[1:])
    ]
    if None in flat:
        shown = ["(not there)" if side is None else "(there)" for side in flat]
        yield "entity", shown
    for name in differing:
        values = ["" if s is None else value_text(s.get(name, _MISSING)) for s in flat]
        yield name, values


def _flat(image: dict[str, Any]) -> dict[str, Any]:
    return {**image.get("endpoints", {}), **image["properties"]}


def _columns(heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    """A small table that fits the terminal: long values are cut."""
    width = max(_WIDTH_MIN, shutil.get_terminal_size().columns)
    first = min(_NAME_WIDTH_MAX, max((len(row[0]) for row in rows), default=0))
    room = (width - 2 - first - 2 * (len(heads) - 1)) // (len(heads) - 1)
    widths = [first]
    for column in range(1, len(heads)):
        widths.append(min(room, max(len(row[column]) for row in [heads, *rows])))
    for row in [heads, *rows]:
        cells = [_cut(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield f"  {'  '.join(cells)}".rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def _changed_by(conflict: MergeConflict) -> tuple[set[str], set[str]]:
    """The properties that one side changed, and those that both changed, each in its way."""
    if conflict.base is None or conflict.ours is None or conflict.theirs is None:
        return set(), set()
    base, ours, theirs = map(_flat, (conflict.base, conflict.ours, conflict.theirs))
    differing = {name for name in {*ours, *theirs} if not _same(ours.get(name), theirs.get(name))}
    both = {
        name
        for name in differing
        if not _same(base.get(name), ours.get(name)) and not _same(base.get(name), theirs.get(name))
    }
    return differing - both, both


def _by_hand(conflict: MergeConflict) -> str:
    """An answer that sets what both changed as theirs has it; a pattern where that is long."""
    _, both = _changed_by(conflict)
    if conflict.theirs is None or not both:
        return '{"…": …}'
    theirs = _flat(conflict.theirs)
    shown = json.dumps({name: theirs.get(name) for name in sorted(both)}, ensure_ascii=False)
    return shown if len(shown) <= _ANSWER_CHARS_MAX and "'" not in shown else '{"…": …}'


def _ways_out(refused: MergeConflicts, ours: str, theirs: str) -> Iterator[str]:
    answerable = [c for c in refused.conflicts if c.ours is not None or c.theirs is not None]
    if not answerable:
        if refused.hint:
            yield refused.hint
        else:
            yield f"change {ours} or {theirs} so that the rule holds, and merge again"
        return
    one = f"{answerable[0].type_name}/{answerable[0].entity_id}"
    side = "one side" if refused.of == "merge" else ours
    yield f"change {side} and {refused.of} again, or decide:"
    yield f"  --resolve ours|theirs      take each whole, as {ours} or as {theirs} has it"
    yield f"  --resolve '{one}=theirs'   decide one; may be repeated"
    yield f"  --resolve '{one}={_by_hand(answerable[0])}'   set some properties, keep the others"
    changed = [_changed_by(each) for each in answerable if each.kind == "divergent_update"]
    if any(one_side and not both for one_side, both in changed):
        yield "  --by property              merge where the sides changed different properties"
