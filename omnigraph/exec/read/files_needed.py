"""Derived files that a plan walks over, made before other processes map them (warm-up).

Invariant: making them changes no answer; a table that is small, or whose entities have no one type,
is left to whoever reads it.
"""

from collections.abc import Iterator

from omnigraph.exec.memory.filed_tables import FiledNodes
from omnigraph.exec.memory.view import TablesView
from omnigraph.exec.read.context import ColumnsRead
from omnigraph.exec.topology.build import Step
from omnigraph.plan import ir
from omnigraph.types import TableKey


def leave_files(view: TablesView, plan: ir.ReadPlan, columns: ColumnsRead) -> None:
    """Make the topology of every step, the ids of every scan, and the columns that are read."""
    tables = dict[ir.Var, TableKey]()
    steps = tuple(dict.fromkeys(_steps(plan.pattern, tables)))
    known = view.snapshot.tables
    nodes = [table for table in dict.fromkeys(tables.values()) if table in known]
    view.leave_files(tuple(step for step in steps if all(t in known for t in step)), *nodes)
    for var, read in columns.items():
        table = tables.get(var)
        resident = None if table not in known else view.resident_nodes(table)
        if not isinstance(resident, FiledNodes):
            continue
        for column in read:
            name = resident.source.columns.name_of(column)
            if name is not None and not resident.is_id(column):
                resident.columns.get(name, build=True)


def _steps(ops: tuple[ir.PatternOp, ...], tables: dict[ir.Var, TableKey]) -> Iterator[Step]:
    """Every edge table with the tables at its ends; node tables are noted by variable."""
    for op in ops:
        match op:
            case ir.NodeScan(out=out, table=table) if op.members is None:
                tables[out] = table
            case ir.Expand() | ir.ExpandEdges():
                if op.source in tables:
                    ends = (tables[op.source], op.target)
                    yield (op.edge, *(ends[::-1] if op.direction is ir.Direction.IN else ends))
                tables.setdefault(op.out, op.target)
            case ir.ExpandPaths(legs=legs):
                for leg in legs:
                    ends = (leg.source, leg.target)
                    yield (leg.edge, *(ends[::-1] if leg.direction is ir.Direction.IN else ends))
            case ir.SemiJoin(inner=inner) | ir.Matches(inner=inner) | ir.LeftJoin(inner=inner):
                yield from _steps(inner, tables)
            case _:
                pass
