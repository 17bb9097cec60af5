"""Rule checks of a merged graph, over the rows in which the two sides differ.

Both sides satisfy the schema by themselves. So rows that break a rule together come from different
sides, and both differ between the sides: nothing else is looked at. Only a row that neither side
has, made by property or by hand, is compared with everything.

Invariant: a merge without a violation here leaves a graph the schema allows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import EdgeType, Type
from omnigraph.errors import MergeConflict, Violation
from omnigraph.exec.changes.entities import Entities
from omnigraph.exec.merge.threeway import TypeMerge
from omnigraph.exec.rules.key_rules import check_keys, missing_ends
from omnigraph.exec.rules.row_rules import check_rows
from omnigraph.exec.rules.rules import EdgesPerSource, Endpoint, RuleViolations, TypeRules, Unique
from omnigraph.exec.values.selection import rows_by_key, rows_by_values, without_ids
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.spans import AFTER, BEFORE
from omnigraph.types import Kind, TableKey, table_key

_KINDS = {
    "endpoint": "orphan_edge",
    "unique": "unique_violation",
    "cardinality": "cardinality_violation",
}
_VALUE = "value_constraint_violation"


@dataclass(frozen=True, slots=True)
class Merged:
    """One type as the merge leaves it, where the two sides differed."""

    merge: TypeMerge
    source_rows: pa.Array  # taken from the source, null: removed
    target_rows: pa.Array  # the rows they replace, null: none
    made: pa.Table  # rows that neither side has
    made_rows: pa.Array

    def incoming(self, columns: list[str]) -> pa.Table:
        """The rows that come into the target."""
        taken = self.merge.source.columns(self.source_rows.drop_null(), columns)
        return pa.concat_tables([taken, self.made.select(columns).cast(taken.schema)])

    def staying(self, columns: list[str]) -> pa.Table:
        """The target's rows that the source may not have, and that stay."""
        rows = self.merge.touched[AFTER].combine_chunks().drop_null()
        return self.merge.target.columns(_without(rows, self.leaving()), columns)

    def leaving(self) -> pa.Array:
        """The target's rows that are replaced or removed."""
        return pa.concat_arrays([self.target_rows, self.made_rows]).drop_null()

    def updated_count(self) -> int:
        """How many of the target's rows get other values, and stay."""
        taken = pc.and_(self.source_rows.is_valid(), self.target_rows.is_valid())
        made = len(self.made_rows) - self.made_rows.null_count
        return int(pc.sum(taken).as_py() or 0) + int(made)

    def addresses(self) -> pa.Array | None:
        """Where in the target's version the leaving rows are, if that is known of all."""
        known = self.merge.taken.addresses
        if known is None or len(self.made_rows.drop_null()):
            return None
        return pa.concat_arrays([pa.array([], pa.uint64()), *known]).drop_null()

    @property
    def changes_rows(self) -> bool:
        """Whether any row of the target is added, replaced or removed."""
        return bool(len(self.leaving()) or len(self.source_rows.drop_null()) or self.made.num_rows)

    @property
    def counts(self) -> dict[str, int]:
        """How many rows of the target are inserted, updated and deleted."""
        added = len(self.source_rows.drop_null()) + self.made.num_rows
        updated = self.updated_count()
        deleted = len(self.leaving()) - updated
        return {"inserted": added - updated, "updated": updated, "deleted": deleted}

    def added(self, target: Entities) -> pa.Table:
        """The rows that come into the target, as this version of its table holds them."""
        incoming = target.stored(self.merge.incoming())
        if not self.made.num_rows:
            return incoming
        return pa.concat_tables([incoming, target.stored(self.made)])

    def removed(self, columns: list[str]) -> pa.Table:
        """The target's rows that are removed for good."""
        gone = self.target_rows.filter(self.source_rows.is_null())
        return self.merge.target.columns(gone, columns)

    def dropped(self, columns: list[str]) -> pa.Table:
        """The source's rows that the target had removed, and that stay away."""
        touched = self.merge.touched
        away = touched.filter(pc.is_null(touched[AFTER]))[BEFORE].combine_chunks()
        rows = self.merge.source.columns(_without(away, self.source_rows), columns)
        return without_ids(rows, _ids(self.made))


@dataclass(frozen=True, slots=True)
class MergedGraph:
    """The types in which the sides differ, the target's version of any, and the edge types that the
    source does not have: it was written under an older schema."""

    parts: Mapping[TableKey, Merged]
    target: Callable[[TableKey], TableReader]
    target_only: Sequence[EdgeType] = ()


def violations(graph: MergedGraph, rules: Mapping[TableKey, TypeRules]) -> Iterator[MergeConflict]:
    """Every rule that the merged graph breaks."""
    for table, part in graph.parts.items():
        for broken in _broken(graph, part, rules[table]):
            for violation in broken.violations:
                yield conflict_of(part.merge.owner, violation)
    for owner in graph.target_only:
        for endpoint in rules[owner.table].endpoints:
            for violation in _left_behind(graph, owner, endpoint).violations:
                yield conflict_of(owner, violation)


def conflict_of(owner: Type, violation: Violation) -> MergeConflict:
    """A rule that the merged graph breaks, as a conflict."""
    kind = _KINDS.get(violation.rule, _VALUE)
    entity = None if kind == "cardinality_violation" else violation.id
    return MergeConflict(str(owner.kind), owner.name, entity, kind, violation.text)


def _broken(graph: MergedGraph, part: Merged, rules: TypeRules) -> Iterator[RuleViolations]:
    if part.made.num_rows:
        yield check_rows(rules.rows, part.made, listed=None)
    for unique in rules.uniques:
        yield _unique(part, unique)
    for endpoint in rules.endpoints:
        yield _endpoint(graph, part, endpoint)
    if rules.cardinality is not None:
        yield _cardinality(graph, part, rules.cardinality)


def _unique(part: Merged, rule: Unique) -> RuleViolations:
    columns = ["id", *rule.columns]
    incoming = part.incoming(columns).drop_null()
    if not incoming.num_rows:
        return RuleViolations()
    committed = part.staying(columns)
    known = {*part.merge.target.reader.schema.names}
    if part.made.num_rows and known.issuperset(columns):
        tuples = part.made.select(list(rule.columns)).drop_null()
        rivals = rows_by_values(part.merge.target.reader, part.merge.owner, tuples, columns)
        gone = part.merge.target.columns(part.leaving(), ["id"])
        rivals = without_ids(without_ids(rivals, _ids(gone)), _ids(committed))
        committed = pa.concat_tables([committed, rivals.cast(committed.schema)])
    return check_keys(incoming, without_ids(committed, _ids(incoming)), rule, listed=None)


# ---- edges


def _endpoint(graph: MergedGraph, part: Merged, rule: Endpoint) -> RuleViolations:
    """Each edge that has lost the node at one end."""
    missing = missing_nodes(graph.parts, rule.node_table)
    columns = ["id", rule.end]
    lost = [
        rows.filter(pc.is_in(rows[rule.end], value_set=missing))
        for rows in (part.incoming(columns), part.staying(columns))
    ]
    if part.made.num_rows:
        lost.append(_unknown_ends(graph, part, rule))
    return missing_ends(pa.concat_tables([rows.cast(lost[0].schema) for rows in lost]), rule)


def _left_behind(graph: MergedGraph, owner: EdgeType, rule: Endpoint) -> RuleViolations:
    """Edges of a type that only the target has, and whose node is removed."""
    nodes = graph.parts.get(rule.node_table)
    gone = pa.array([], pa.string()) if nodes is None else _ids(nodes.removed(["id"]))
    if not len(gone):
        return RuleViolations()
    reader = graph.target(owner.table)
    return missing_ends(rows_by_key(reader, rule.end, gone, ["id", rule.end]), rule)


def missing_nodes(parts: Mapping[TableKey, Merged], node_table: TableKey) -> pa.Array:
    """The nodes that one side has and the merged graph does not."""
    nodes = parts.get(node_table)
    if nodes is None:
        return pa.array([], pa.string())
    return pa.concat_arrays([_ids(nodes.removed(["id"])), _ids(nodes.dropped(["id"]))])


def _unknown_ends(graph: MergedGraph, part: Merged, rule: Endpoint) -> pa.Table:
    """Edges made by hand whose end no side has."""
    rows = part.made.select(["id", rule.end])
    ends = pc.unique(rows[rule.end]).drop_null()
    nodes = graph.parts.get(rule.node_table)
    existing = _ids(rows_by_key(graph.target(rule.node_table), "id", ends, ["id"]))
    added = existing.slice(0, 0) if nodes is None else _ids(nodes.incoming(["id"]))
    missing = missing_nodes(graph.parts, rule.node_table)  # reported there
    known = pa.concat_arrays([existing, added, missing])
    return rows.filter(pc.invert(pc.is_in(rows[rule.end], value_set=known)))


def _cardinality(graph: MergedGraph, part: Merged, rule: EdgesPerSource) -> RuleViolations:
    """Sources whose edges both sides changed. One that only one side touched is as it has it."""
    columns = ["id", "src"]
    incoming = part.incoming(columns)
    replaced = part.merge.target.columns(part.leaving(), columns)
    ours = _sources(part.staying(columns), part.dropped(columns), part.made.select(columns))
    theirs = _sources(incoming, replaced)
    both = ours.filter(pc.is_in(ours, value_set=theirs))
    owner = part.merge.owner
    assert isinstance(owner, EdgeType)
    both = _without(both, missing_nodes(graph.parts, table_key(Kind.NODE, owner.source)))
    if not len(both):
        return RuleViolations()
    committed = rows_by_key(part.merge.target.reader, "src", both, columns)
    committed = without_ids(without_ids(committed, _ids(replaced)), _ids(incoming))
    touching = pa.table({"id": pa.nulls(len(both), pa.string()), "src": both})
    counted = incoming.filter(pc.is_in(incoming["src"], value_set=both))
    counted = pa.concat_tables([counted.cast(touching.schema), touching])
    return check_keys(counted, committed, rule, listed=None)


def _sources(*parts: pa.Table) -> pa.Array:
    chunks = [chunk for part in parts for chunk in part["src"].chunks]
    return pc.unique(pa.chunked_array(chunks, pa.string()))


def _ids(rows: pa.Table) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *rows["id"].chunks])


def _without(values: pa.Array, others: pa.Array) -> pa.Array:
    return values.filter(pc.invert(pc.is_in(values, value_set=others.drop_null())))
