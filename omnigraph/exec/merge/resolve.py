"""Conflict resolution: entities that both sides changed, by property, by side, or by an answer.

Invariant: a conflict is settled only as the caller asked. A merge by property settles an
update when no property was changed on both sides to different values; everything else waits for
`resolve`, and without an answer stays a conflict. An answer is read as a load reads a value. One
for an entity without a conflict is refused, never ignored.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.model import NodeType, Type
from omnigraph.errors import BadRequest, MergeConflict
from omnigraph.exec.changes.entities import differ_in
from omnigraph.exec.changes.images import Image, images
from omnigraph.exec.merge.threeway import (
    DELETE_VS_UPDATE,
    DIVERGENT_UPDATE,
    TypeMerge,
    Undecided,
    one_column,
)
from omnigraph.exec.values.columns import with_columns
from omnigraph.exec.values.from_input import Unfit, column, stored
from omnigraph.exec.values.named_ids import named_id
from omnigraph.types import ID_TYPE, Kind, ValueType

OURS, THEIRS = "ours", "theirs"
ENTITY, PROPERTY = "entity", "property"

Answer = str | Mapping[str, Any] | None
"""`ours`, `theirs`, properties to set on the entity, or None: it stays a conflict."""

EntityName = tuple[str, str]
"""Type and id."""

Resolve = str | Mapping[tuple[str, str], Answer] | Callable[[MergeConflict], Answer] | None

_TEXTS = {
    "divergent_insert": "divergent insert for id '{}'",
    "divergent_update": "divergent update for id '{}'",
    "delete_vs_update": "delete/update conflict for id '{}'",
}


@dataclass
class Settled:
    """The outcome for one type: rows made by hand or by property, and open conflicts."""

    made: list[pa.Table] = field(default_factory=list)
    made_rows: list[pa.Array] = field(default_factory=list)  # the target's row each replaces
    open: list[MergeConflict] = field(default_factory=list)
    asked: set[EntityName] = field(default_factory=set)  # conflicts that an answer was looked for
    kept: dict[str, list[str]] = field(default_factory=dict)
    """Entities that an answer keeps although one side deleted them, by that side."""

    def add(self, rows: pa.Table, target_rows: pa.Array) -> None:
        """Put rows that neither side has into the result."""
        self.made.append(rows)
        self.made_rows.append(target_rows)


def check_options(types: Iterable[Type], by: str, resolve: Resolve) -> None:
    """Pass for options that mean something. `types` are those of both sides."""
    if by not in (ENTITY, PROPERTY):
        raise BadRequest(f"a merge is by entity or by property, not by '{by}'")
    if isinstance(resolve, str) and resolve not in (OURS, THEIRS):
        raise BadRequest(f"'{resolve}' resolves nothing", "use ours, theirs, a mapping or a call")
    if not isinstance(resolve, Mapping):
        return
    for entity in resolve:
        if not (isinstance(entity, tuple) and list(map(type, entity)) == [str, str]):
            raise BadRequest(f"{entity!r} names no entity", 'answer by ("Type", "id")')
    names = {owner.name for owner in types}
    unknown = frozenset(entity for entity in resolve if entity[0] not in names)
    if unknown:
        raise BadRequest(
            f"answers for types that the schema does not have: {_listed(unknown)}",
            "name the entity of a conflict by its type and its id",
        )


class _ById(dict[EntityName, Answer]):
    """Answers under the ids of their entities; what else a mapping answers is asked of it."""

    def __init__(self, answers: Mapping[EntityName, Answer], named: Mapping[str, NodeType]) -> None:
        self._others = answers
        super().__init__((_named(entity, named), answers[entity]) for entity in answers)

    def __missing__(self, entity: EntityName) -> Answer:
        return self._others[entity]


def by_ids(types: Iterable[Type], resolve: Resolve) -> Resolve:
    """The same answers, those to nodes by id: a key may be spelled as its types have it."""
    if not isinstance(resolve, Mapping):
        return resolve
    return _ById(resolve, {each.name: each for each in types if isinstance(each, NodeType)})


def _named(entity: EntityName, nodes: Mapping[str, NodeType]) -> EntityName:
    type_name, text = entity
    node = nodes.get(type_name)
    return entity if node is None else (type_name, named_id(node, text))


def require_asked(named: frozenset[EntityName], asked: set[EntityName]) -> None:
    """Pass only when every answer is for a conflict."""
    if unasked := named - asked:
        raise BadRequest(
            f"answers for entities without a conflict: {_listed(unasked)}",
            "leave them out; nothing was merged",
        )


def _listed(entities: frozenset[EntityName]) -> str:
    return ", ".join(f"{type_name} '{entity}'" for type_name, entity in sorted(entities))


def no_answer(conflict: MergeConflict) -> Answer:
    """None: the conflict stays."""
    return None


def settle(
    merge: TypeMerge,
    undecided: Undecided,
    by: str,
    resolve: Resolve,
    to: Settled,
    unanswered: Callable[[MergeConflict], Answer],
) -> None:
    """Settle conflicts by the options, and list the rest as open. `unanswered` gives the answer to
    a conflict that the options say nothing about."""
    clashes = _clashes(undecided) if by == PROPERTY else None
    fitting = []
    for position, conflict in enumerate(_conflicts(merge, undecided, clashes)):
        if clashes is not None and conflict.kind == DIVERGENT_UPDATE and not clashes[position]:
            fitting.append(position)
        else:
            to.asked.add((conflict.type_name, conflict.entity_id or ""))
            answer = answer_of(resolve, conflict)
            if answer is None:
                answer = unanswered(conflict)
            _apply(merge, undecided, position, conflict, answer, to)
            _note_kept(conflict, answer, to)
    if fitting:
        positions = pa.array(fitting)
        to.add(_by_property(merge, undecided, positions), undecided.target_rows.take(positions))


def _conflicts(
    merge: TypeMerge, undecided: Undecided, clashes: list[list[str]] | None
) -> list[MergeConflict]:
    owner = merge.owner
    sides = [images(owner, s.rows) for s in (undecided.base, undecided.ours, undecided.theirs)]
    conflicts = []
    for position, kind in enumerate(undecided.kinds()):
        name = undecided.ids[position].as_py()
        message = _TEXTS[kind].format(name)
        if clashes is not None and kind == DIVERGENT_UPDATE and clashes[position]:
            message = f"{message} in {', '.join(clashes[position])}"
        base, ours, theirs = (_shown(side[position]) for side in sides)
        if undecided.baseless[position]:
            base = None
        conflicts.append(
            MergeConflict(str(owner.kind), owner.name, name, kind, message, base, ours, theirs)
        )
    return conflicts


def _shown(image: Image | None) -> dict[str, Any] | None:
    return None if image is None else image.to_json("iso")


def answer_of(resolve: Resolve, conflict: MergeConflict) -> Answer:
    """The answer that the options give to a conflict; None if they give none."""
    if resolve is None or isinstance(resolve, str):
        return resolve
    if isinstance(resolve, Mapping):
        try:
            return resolve[conflict.type_name, conflict.entity_id or ""]
        except KeyError:
            return None
    return resolve(conflict)


def _apply(
    merge: TypeMerge,
    undecided: Undecided,
    position: int,
    conflict: MergeConflict,
    answer: Answer,
    to: Settled,
) -> None:
    match answer:
        case None:
            to.open.append(conflict)
        case "ours":
            pass
        case "theirs":
            one = undecided.source_rows.slice(position, 1), undecided.target_rows.slice(position, 1)
            merge.taken.add(*one)
        case Mapping():
            to.add(
                _by_hand(merge, undecided, position, answer),
                undecided.target_rows.slice(position, 1),
            )
        case _:
            raise BadRequest(f"'{answer}' resolves nothing", "answer ours, theirs or properties")


def _note_kept(conflict: MergeConflict, answer: Answer, to: Settled) -> None:
    if conflict.kind != DELETE_VS_UPDATE or answer is None:
        return
    deleted_by = THEIRS if conflict.theirs is None else OURS
    if answer != deleted_by:
        to.kept.setdefault(deleted_by, []).append(conflict.entity_id or "")


# ---- rows that neither side has


def _clashes(undecided: Undecided) -> list[list[str]]:
    """For each entity the columns that both sides changed, to different values."""
    clashes: list[list[str]] = [[] for _ in range(len(undecided.ids))]
    for name in undecided.ours.rows.column_names:
        both = (
            differ_in(undecided.theirs, undecided.base, name)
            & differ_in(undecided.ours, undecided.base, name)
            & differ_in(undecided.theirs, undecided.ours, name)
        )
        for position in np.flatnonzero(both | undecided.baseless):
            clashes[position].append(name)
    return clashes


def _by_property(merge: TypeMerge, undecided: Undecided, positions: pa.Array) -> pa.Table:
    """The target's rows with the properties that the source changed."""
    ours = merge.target.stageable(undecided.target_rows.take(positions))
    theirs = merge.source.stageable(undecided.source_rows.take(positions))
    count = len(positions)
    made = {}
    for name in undecided.ours.rows.column_names:
        from_source = differ_in(undecided.theirs, undecided.base, name)[positions.to_numpy()]
        chosen = pa.array(np.arange(count) + np.where(from_source, count, 0))
        made[name] = one_column(ours[name], theirs[name]).take(chosen)
    return with_columns(ours, made)


def _by_hand(
    merge: TypeMerge, undecided: Undecided, position: int, values: Mapping[str, Any]
) -> pa.Table:
    """The target's row, or the source's where the target has none, with properties set."""
    target_rows = undecided.target_rows.slice(position, 1)
    if target_rows.null_count:
        row = merge.source.stageable(undecided.source_rows.slice(position, 1))
    else:
        row = merge.target.stageable(target_rows)
    return with_columns(row, {n: _cells(merge, row, n, value) for n, value in values.items()})


def _cells(merge: TypeMerge, row: pa.Table, name: str, value: Any) -> pa.Array:
    """The answer for one property of the row, read as a load reads a value."""
    owner = merge.owner
    if name == "id" or name in owner.key:
        raise BadRequest(f"a resolution cannot change {owner.name}.{name}", "leave out the key")
    value_type = _type_of(owner, name)
    index = -1 if value_type is None else row.schema.get_field_index(name)
    if value_type is None or index < 0:
        raise BadRequest(f"{owner.name} has no property '{name}'")
    field = row.schema.field(index)
    try:
        cells = column([stored(_plain(value), value_type)], value_type)
    except Unfit as cause:
        entity = row.column("id")[0].as_py()
        text = f"the value for {owner.name}.{name} of '{entity}' does not fit ({cause.text})"
        raise BadRequest(text, "give a value of the property's type") from None
    storage = getattr(field.type, "storage_type", field.type)
    if storage is not field.type:
        cells = pa.ExtensionArray.from_storage(field.type, pa.array(cells.to_pylist(), storage))
    return cells


def _type_of(owner: Type, name: str) -> ValueType | None:
    if owner.kind is Kind.EDGE and name in ("src", "dst"):
        return ID_TYPE
    prop = owner.property(name)
    return None if prop is None else prop.type


def _plain(value: Any) -> Any:
    """A value of numpy as Python has it."""
    return value.tolist() if hasattr(value, "tolist") else value
