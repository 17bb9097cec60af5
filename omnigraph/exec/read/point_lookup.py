"""Fast path of: read/walk — point lookup of one node by its id, whose plain columns are returned.

A walk makes a frame, a reader of cells and a watch for every query. Of a lookup by id nothing of
that is used: its row is one number of a node file, and each value one cell of a column file.

Reference: `read/walk` with `read/walk_result`.
Held equal by: `test_a_point_lookup_gives_the_row_of_the_walk` and
`test_every_way_of_running_a_query_gives_the_same_rows`.
Falls back: until a walk has answered the plan in this snapshot, for tables and columns without a
mapped file, and for nodes that were written since their file.

Invariant: everything a bound lookup reads is mapped, so it opens no table and waits for nobody.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any

from omnigraph.exec.memory.filed_tables import FiledNodes
from omnigraph.exec.memory.view import TablesView
from omnigraph.exec.profile import Profile
from omnigraph.exec.read.key_lookup import points_in
from omnigraph.exec.read.result import PythonColumn
from omnigraph.exec.read.walk_result import Tail
from omnigraph.exec.read.walk_rows import Side
from omnigraph.exec.values.constants import CONSTANTS, Given
from omnigraph.plan import ir
from omnigraph.types import TableKey

_Cell = Callable[[int], Any] | None
"""Reads a value by the number of its node; None for the id itself."""

Row = tuple[tuple[PythonColumn, ...], int, Profile]
"""The columns of a result, its length and its profile."""


class PointLookup:
    """A plan that returns plain columns of the node with one id."""

    def __init__(self, plan: ir.ReadPlan, op: ir.NodeScan, subject: Side, value: ir.Expr) -> None:
        self._table: TableKey = op.table
        self._op, self._subject, self._value = op, subject, value
        self._columns = tuple(column.value for column in plan.columns)
        # The lines of a profile after the pattern: project, order, and cut.
        self._stages = 1 + bool(plan.order) + (plan.limit is not None)

    def bind(self, tables: TablesView) -> None:
        """Remember in a view where the values are, if all of them are mapped."""
        nodes = tables.resident_nodes(self._table)
        if not isinstance(nodes, FiledNodes) or not _is_id(self._subject, nodes):
            return
        cells: list[_Cell] = []
        for side in self._columns:
            assert isinstance(side, Side)
            name = None if isinstance(side, ir.EntityId) else nodes.source.columns.name_of(side)
            if _is_id(side, nodes):
                cells.append(None)
            elif name is None:
                cells.append(_absent)
            else:
                column = nodes.columns.get(name)
                if column is None:
                    return
                cells.append(column.value)
        tables.steps[self] = nodes, tuple(cells)

    def row(self, tables: TablesView, given: Given) -> Row | None:
        """The row of a bound lookup, or none of them; None where a walk must find it."""
        bound: tuple[FiledNodes, tuple[_Cell, ...]] | None = tables.steps.get(self)
        if bound is None:
            return None
        profile = Profile()
        nodes, cells = bound
        key = given.of(self._value)
        id_ = None if key is None else str(key)
        number = -1 if id_ is None else nodes.ids.find(id_)
        if number < 0:
            return tuple(PythonColumn([]) for _ in cells), 0, self._ended(profile, 0)
        if not nodes.is_as_filed(number):
            return None
        values = tuple(PythonColumn([id_ if cell is None else cell(number)]) for cell in cells)
        return values, 1, self._ended(profile, 1)

    def _ended(self, profile: Profile, rows: int) -> Profile:
        since = profile.operator(self._op, rows, profile.started)
        profile.stage(rows, perf_counter() - since)
        for _ in range(self._stages - 1):
            profile.stage(rows, 0.0)
        return profile


def _absent(_number: int) -> None:
    """A property that the version of the table lacks."""


def _is_id(side: Side, nodes: FiledNodes) -> bool:
    """Whether an expression is the id of its node: every node file has its text."""
    if isinstance(side, ir.EntityId):
        return True
    name = nodes.source.columns.name_of(side)
    return name is not None and side.type.is_text and nodes.is_id(side)


def point_lookup_of(plan: ir.ReadPlan, tail: Tail | None) -> PointLookup | None:
    """The lookup that a plan is, if it is nothing else."""
    if tail is None or plan.scores or plan.limit == 0 or plan.offset or len(plan.pattern) != 1:
        return None
    op = plan.pattern[0]
    if not isinstance(op, ir.NodeScan) or op.members is not None or op.where is None:
        return None
    points = points_in(op.where)
    if points != [op.where]:
        return None
    subject, value = points[0].left, points[0].right
    if isinstance(subject, CONSTANTS):
        subject, value = value, subject
    assert isinstance(subject, Side)
    return PointLookup(plan, op, subject, value)
