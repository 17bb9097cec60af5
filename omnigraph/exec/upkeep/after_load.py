"""Last stage of a bulk load: secondary indexes and topology files for the tables it touched.

Invariant: the commit of the load stands, whatever happens here: a failure is a fact of the report,
and every read answers the same without. The indexes are a commit of the index writer, or none; a
stage that was killed is made up for by the same load `once` again, the next load, and optimize.
"""

from collections.abc import Iterable, Mapping

from omnigraph import environment
from omnigraph.catalog.model import Catalog
from omnigraph.errors import OmnigraphError
from omnigraph.exec.load.request import IndexTiming, LoadIndexes
from omnigraph.exec.topology.build import NO_ENDS, topology_after
from omnigraph.exec.topology.end_numbers import LoadedEnds
from omnigraph.exec.topology.table_ends import EndsTasks
from omnigraph.exec.upkeep.optimize import Optimizer, Run
from omnigraph.storage.records import CommitNote
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

WAY_OUT = "`omnigraph optimize` builds them, and so does the next large load"


def after_load(
    store: Store,
    catalog: Catalog,
    branch: str,
    touched: Iterable[TableKey],
    *,
    indexes: IndexTiming,
    actor: str | None = None,
    run: Run | None = None,
    parts: int = 1,
    ends: Mapping[TableKey, LoadedEnds] = NO_ENDS,
    tasks: EndsTasks | None = None,
) -> LoadIndexes:
    """Build what the tables of a load lack. `run` and `parts` are those of the optimizer; `ends`
    are the numbers that the load gave to the ends of its edges, and `tasks` number others."""
    tables = frozenset(touched)
    built = LoadIndexes()
    if indexes == "now":
        built = _indexed(store, catalog, branch, tables, actor, run, parts)
    topology_after(store, catalog, branch, touched=tables, ends=ends, tasks=tasks)
    return built


def _indexed(
    store: Store,
    catalog: Catalog,
    branch: str,
    tables: frozenset[TableKey],
    actor: str | None,
    run: Run | None,
    parts: int,
) -> LoadIndexes:
    try:
        pins = store.snapshot(branch).tables
        least = environment.INDEX_ROWS.read()
        large = frozenset(key for key in tables if key in pins and pins[key].row_count >= least)
        if not large:
            return LoadIndexes()
        note = CommitNote(actor=actor)
        optimizer = Optimizer(store, catalog, branch, note, run=run, parts=parts, loaded=large)
        report = optimizer.index_loaded()
    except (OmnigraphError, OSError) as cause:
        store.stats.event("load.unindexed", cause=str(cause))
        return LoadIndexes(missing=f"the indexes were not built: {cause}; {WAY_OUT}")
    skipped = [each.skipped for each in report.tables if each.skipped is not None]
    missing = f"the indexes were not built: {skipped[0]}; {WAY_OUT}" if skipped else None
    built = tuple(note for each in report.tables for note in each.built)
    return LoadIndexes(built, report.commit_id, missing)
