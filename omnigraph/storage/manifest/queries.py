"""Manifest queries: commits and past table versions, looked up in the rows of `__manifest`.

Invariant: reads alone. A branch that is deleted while it is read is `NotFound`, never a failure of
its files.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import LanceFragment

from omnigraph.storage.lance.columns import ADDRESS, CREATED
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.lance.strict_commit import known_fragments
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.marks import MarkIndex
from omnigraph.storage.manifest.published_at import among, between, chosen, versions_of
from omnigraph.storage.manifest.state import STATE_COLUMNS, State
from omnigraph.storage.manifest.timeline import TableHistory
from omnigraph.storage.records import (
    GRAPH_COMMIT,
    TABLE_TOMBSTONE,
    TABLE_VERSION,
    Commit,
    CommitId,
    TablePin,
    decode_commit,
    decode_mark,
    decode_pin,
)

Fragment = LanceFragment
ALL_COMMITS = f"object_type = '{GRAPH_COMMIT}'"


class Queries:
    """Lookups in the manifest of one graph."""

    def __init__(self, datasets: Datasets, manifest: Manifest) -> None:
        self._datasets = datasets
        self._manifest = manifest
        self.marks = MarkIndex()

    def find(self, state: State, ids: Iterable[CommitId]) -> tuple[Commit, ...]:
        """Those of the commits that a branch has, looked up without reading the whole lineage."""
        listed = ", ".join(f"'{_quoted(commit_id)}'" for commit_id in ids)
        return self.commits(state, f"{ALL_COMMITS} AND object_id IN ({listed})")

    def beginning_with(self, state: State, prefix: str, limit: int) -> tuple[Commit, ...]:
        """The first commits of a branch whose ids begin with a text."""
        return self.commits(
            state, f"{ALL_COMMITS} AND starts_with(object_id, '{_quoted(prefix)}')", limit
        )

    def commits_of_versions(self, state: State, versions: range) -> tuple[Commit, ...]:
        """The commits that a branch has from a range of its manifest versions."""
        rows = self._lineage(state, f"{ALL_COMMITS} AND {between(state.handle, versions)}")
        first, end = pa.scalar(versions.start), pa.scalar(versions.stop)
        return _commits(
            chosen(rows, lambda each: pc.and_(pc.greater_equal(each, first), pc.less(each, end)))
        )

    def commits_at(self, state: State, versions: Iterable[int]) -> tuple[Commit, ...]:
        """The commits that these manifest versions of a branch published."""
        numbers = list(versions)
        if not numbers:
            return ()
        rows = self._lineage(state, f"{ALL_COMMITS} AND {among(state.handle, numbers)}")
        listed = pa.array(numbers, pa.int64())
        return _commits(chosen(rows, lambda each: pc.is_in(each, value_set=listed)))

    def marked(self, state: State, mark: str) -> Commit | None:
        """The commit of a branch that carries a mark."""
        versions = self.marks.versions(
            known_fragments(state.handle), mark, partial(self._read_marks, state)
        )
        candidates = self.commits_at(state, versions) if versions else ()
        return next((commit for commit in candidates if commit.mark == mark), None)

    def _read_marks(
        self, state: State, fragments: Sequence[Fragment]
    ) -> list[tuple[int, str, int]]:
        """The marked commits in some fragments: fragment, mark and manifest version of each."""
        with (
            self._manifest.reading(state.branch, state.identity),
            self._datasets.lance_call("scan_marks", state.branch),
        ):
            rows = state.handle.scanner(
                columns=["metadata", CREATED, ADDRESS],
                filter=f"{ALL_COMMITS} AND contains(metadata, '\"mark\":')",
                fragments=list(fragments),
            ).to_table()
        marked = ((row, decode_mark(row)) for row in _dated(rows).to_pylist())
        return [
            (row[ADDRESS] >> 32, mark, row[CREATED]) for row, mark in marked if mark is not None
        ]

    def commits(
        self, state: State, filter: str = ALL_COMMITS, limit: int | None = None
    ) -> tuple[Commit, ...]:
        """The commits that match, or the first of them."""
        return _commits(_dated(self._lineage(state, filter, limit)))

    def _lineage(self, state: State, filter: str, limit: int | None = None) -> pa.Table:
        with (
            self._manifest.reading(state.branch, state.identity),
            self._datasets.lance_call("scan_lineage", state.branch),
        ):
            return state.handle.scanner(
                columns=["object_id", "metadata", CREATED], filter=filter, limit=limit
            ).to_table()

    def commits_by_fragment(
        self, state: State, fragments: Sequence[Fragment]
    ) -> dict[int, dict[CommitId, Commit]]:
        """Every commit in the given fragments, by the number of its fragment."""
        with (
            self._manifest.reading(state.branch, state.identity),
            self._datasets.lance_call("scan_lineage", state.branch),
        ):
            rows = state.handle.scanner(
                columns=["object_id", "metadata", CREATED, ADDRESS],
                filter=ALL_COMMITS,
                fragments=fragments,
            ).to_table()
        commits: dict[int, dict[CommitId, Commit]] = {f.fragment_id: {} for f in fragments}
        for row in _dated(rows).to_pylist():
            commit = decode_commit(row, row[CREATED])
            commits[row[ADDRESS] >> 32][commit.id] = commit
        return commits

    def versions_of_table(
        self, state: State, location: str, versions: range
    ) -> list[tuple[int, TablePin]]:
        """The versions of one table that a range of manifest versions of a branch showed first,
        newest first, each with the manifest version that did."""
        with (
            self._manifest.reading(state.branch, state.identity),
            self._datasets.lance_call("scan_table_history", state.branch),
        ):
            rows = state.handle.scanner(
                columns=[*STATE_COLUMNS, CREATED],
                filter=(
                    f"object_type = '{TABLE_VERSION}' AND location = '{_quoted(location)}' "
                    f"AND {between(state.handle, versions)}"
                ),
            ).to_table()
        first, end = pa.scalar(versions.start), pa.scalar(versions.stop)
        rows = chosen(rows, lambda each: pc.and_(pc.greater_equal(each, first), pc.less(each, end)))
        pins = [(row[CREATED], decode_pin(row)) for row in rows.to_pylist()]
        return sorted(pins, key=lambda each: (each[0], each[1].version), reverse=True)

    def table_history(self, state: State) -> TableHistory:
        """Every version of every table that a branch has or had, and when it became visible."""
        with (
            self._manifest.reading(state.branch, state.identity),
            self._datasets.lance_call("scan_table_history", state.branch),
        ):
            rows = state.handle.scanner(
                columns=[*STATE_COLUMNS, CREATED],
                filter=f"object_type IN ('{TABLE_VERSION}', '{TABLE_TOMBSTONE}')",
            ).to_table()
        return TableHistory(_dated(rows))


def _dated(rows: pa.Table) -> pa.Table:
    """Rows with their manifest version in the place of the stamp."""
    return rows.set_column(rows.column_names.index(CREATED), CREATED, versions_of(rows))


def _commits(rows: pa.Table) -> tuple[Commit, ...]:
    return tuple(decode_commit(row, row[CREATED]) for row in rows.to_pylist())


def _quoted(text: str) -> str:
    return text.replace("'", "''")
