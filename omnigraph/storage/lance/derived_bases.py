"""Base files of table versions: the derived file nearest to a version, and the rows since.

Invariant: a base and its touched rows make up exactly the version that was asked for. A file counts
only with the fingerprint of the version it names, which no other graph, branch or version shares. A
base is used while the rows since are fewer than a tenth of its own; then it is made anew.
"""

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import number_arrays
from omnigraph.costs import COSTS
from omnigraph.errors import NotFound, OmnigraphError, Reclaimed
from omnigraph.light_dataclass import dataclass
from omnigraph.lru import Lru
from omnigraph.storage.derived.column_file import ColumnFile, column_kind
from omnigraph.storage.derived.derived_folder import (
    EDGES,
    NODES,
    DerivedEntry,
    DerivedFiles,
    is_of,
    line_name,
    pin_of,
)
from omnigraph.storage.derived.edge_delta_file import EDGE_DELTAS, EdgeDeltaFile
from omnigraph.storage.derived.edge_file import EdgeFile, Way
from omnigraph.storage.derived.mapped_file import DamagedFile, MappedFile
from omnigraph.storage.derived.node_file import NO_ROW, NodeFile
from omnigraph.storage.derived.parsed_files import ParsedFiles
from omnigraph.storage.lance.columns import KEY
from omnigraph.storage.lance.datasets import Datasets, Handle, files_of
from omnigraph.storage.lance.delta import Deltas
from omnigraph.storage.lance.rowids import rows_by_id
from omnigraph.storage.lance.spans import AFTER, BEFORE, TOUCHED, composed
from omnigraph.storage.records import TablePin, TopologyState

_BASE_BYTES = 512 << 10
"""What a base weighs beside the rows since, so that those of few rows are few hundred."""

_ENDS = ("src", "dst")


@dataclass(frozen=True, slots=True)
class NodeBase:
    """A node file, the version it is of, and the ids written or removed since. `is_exact` says
    that the rows lie where they lay then."""

    file: NodeFile
    pin: TablePin
    touched: pa.Table
    is_exact: bool


@dataclass(frozen=True, slots=True)
class EdgeBase:
    """An edge file, with the delta over it that is nearest, the version of the two, and the edges
    written or removed since. `is_exact` says that the rows lie where they lay then."""

    file: EdgeFile
    pin: TablePin
    touched: pa.Table
    is_exact: bool
    delta: EdgeDeltaFile | None = None

    @property
    def ends(self) -> tuple[str, str]:
        """The digests of the node files whose numbers file and delta use."""
        return self.file.ends if self.delta is None else self.delta.ends

    @property
    def in_order(self) -> bool:
        """Whether positions are the order of the rows."""
        return self.file.in_order and self.is_exact and self.delta is None


_Base = NodeBase | EdgeBase
_Listed = tuple[str, ...]
Ends = tuple[Collection[str], Collection[str]]
"""The lineages of the node files at both ends of an edge table."""


def fingerprint(handle: Handle) -> str:
    """A hash of the files of one table version, deletions included: their names are random, so no
    other version of any table has the same."""
    digest = hashlib.blake2b(digest_size=16)
    for fragment in handle.get_fragments():
        facts = (fragment.fragment_id, files_of(fragment), fragment.deletion_file())
        digest.update(repr(facts).encode())
    return digest.hexdigest()


class DerivedBases:
    """The bases of a graph's table versions. Safe to share between threads."""

    def __init__(self, datasets: Datasets, deltas: Deltas, files: DerivedFiles) -> None:
        self._datasets = datasets
        self._deltas = deltas
        self.files = files
        self._known: Lru[tuple[TablePin, object], tuple[_Listed, _Base | None]] = Lru(
            COSTS.bases_bytes_max, lambda entry: _weight(entry[1])
        )
        self._newest: Lru[object, tuple[_Listed, TablePin, _Base]] = Lru(
            COSTS.bases_bytes_max, lambda entry: _weight(entry[2])
        )
        self._parsed = ParsedFiles(files)

    # Bases

    def nodes(self, pin: TablePin) -> NodeBase | None:
        """The base of a node table version."""
        base = self._base(NODES, pin, None)
        return base if isinstance(base, NodeBase) else None

    def numbering(self, pin: TablePin) -> NodeFile | None:
        """A node file of an earlier version, however far it is behind: an id that it has keeps its
        number, so edge files over those numbers stay good."""
        entries = [each for each in self.files.listed(pin) if each.name.kind == NODES]
        for entry, base in self._candidates(pin, entries):
            try:
                file = self.files.opened(entry)
                if file is None or not is_of(file, NODES, base, self.fingerprint(base)):
                    continue
                parsed = self._parsed.read(file, NODES)
            except DamagedFile as damaged:
                self.files.reject(damaged)
                continue
            except OmnigraphError:
                continue  # its version was reclaimed
            if isinstance(parsed, NodeFile):
                return parsed
        return None

    def edges(self, pin: TablePin, ends: Ends) -> EdgeBase | None:
        """The base of an edge table version whose neighbours are numbers of these lineages."""
        base = self._base(EDGES, pin, ends)
        return base if isinstance(base, EdgeBase) else None

    def column(
        self, base: TablePin, nodes: NodeFile, property_id: int, stored: str, *, fetch: bool
    ) -> ColumnFile | None:
        """The file of a column of a node file's own version, by that file's numbers. From an object
        store it is copied only to `fetch` it."""
        kind, line = column_kind(property_id), line_name(base)
        for entry in self.files.listed(base):
            name = entry.name
            if (name.kind, name.line, name.version) != (kind, line, base.version):
                continue
            file = self.files.opened(entry) if fetch or entry.path.exists() else None
            if file is None:
                continue
            try:
                if not is_of(file, kind, base, self.fingerprint(base)):
                    raise DamagedFile(entry.path, "it is of another version")
                column = ColumnFile(file)
            except DamagedFile as damaged:
                self.files.reject(damaged)
                continue
            if (column.nodes, column.type, column.count) == (nodes.digest, stored, nodes.count):
                return column
        return None

    def fingerprint(self, pin: TablePin) -> str:
        """The fingerprint of a table version."""
        return fingerprint(self._datasets.handle(pin))

    def reject(self, damaged: DamagedFile) -> None:
        """Use a file no more."""
        self.files.reject(damaged)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._newest.clear()
        self._parsed.clear()

    # Upkeep

    def state(self, pin: TablePin) -> TopologyState | None:
        """The file that a table version is read by, and how far it is behind."""
        kind = NODES if pin.location.startswith(f"{NODES}/") else EDGES
        base = self._base(kind, pin, None)
        if base is None:
            return None
        size = base.file.file.size
        if isinstance(base, EdgeBase) and base.delta is not None:
            size += base.delta.file.size
        return TopologyState(base.pin.version, size, base.touched.num_rows, base.pin.branch)

    def unreadable(self, entry: DerivedEntry) -> bool:
        """Whether nobody can use a file: it is damaged, or its version is gone."""
        if not self.files.is_present(entry):
            return False
        try:
            file = MappedFile(entry.path, entry.name.digest)
            pin = pin_of(file)
            if not is_of(file, entry.name.kind, pin, fingerprint(self._datasets.own(pin))):
                return True
            return (
                entry.name.kind == EDGE_DELTAS
                and self._parsed.under(EdgeDeltaFile(file), pin) is None
            )
        except DamagedFile as damaged:
            return not damaged.is_unreadable
        except (NotFound, Reclaimed):
            return True
        except OmnigraphError:
            return False  # it cannot be told now

    def remove_unreadable(self) -> tuple[int, int]:
        """Remove the files that nobody can use: how many, and their bytes."""
        return self.files.remove(self.unreadable)

    def _base(self, kind: str, pin: TablePin, ends: Ends | None) -> _Base | None:
        key = (pin, None if ends is None else (frozenset(ends[0]), frozenset(ends[1])))
        listed, base = self._known.get(key, ((), None))
        if base is not None:
            return base
        kinds = (kind, EDGE_DELTAS) if kind == EDGES else (kind,)
        entries = [each for each in self.files.listed(pin) if each.name.kind in kinds]
        names = tuple(str(each.name) for each in entries)
        if not names or names == listed:
            return None
        line = (pin.location, pin.branch, pin.fork, key[1])
        base = self._followed(line, names, pin) or self._nearest(kind, pin, entries, ends)
        self._known.put(key, (names, base))
        if base is not None:
            self._newest.put(line, (names, pin, base))
        return base

    def _followed(self, line: object, names: _Listed, pin: TablePin) -> _Base | None:
        """The base of an earlier version of the line that this process looked at last, with what
        was touched between: a writer of many small commits pays for each of them once."""
        known = self._newest.get(line)
        if known is None or known[0] != names or known[1].version >= pin.version:
            return None
        _, before, base = known
        columns = None if isinstance(base, NodeBase) else _ENDS
        try:
            step = self._deltas.touched(before, pin, columns=columns)
        except OmnigraphError:
            return None
        touched = composed(base.touched, step)
        touched = touched.combine_chunks()
        touched = touched.filter(pc.or_(touched[BEFORE].is_valid(), touched[AFTER].is_valid()))
        if touched.num_rows > max(COSTS.delta_rows_few, base.pin.row_count // COSTS.delta_share):
            return None
        is_exact = base.is_exact and not touched.num_rows
        is_exact = is_exact and self.fingerprint(before) == self.fingerprint(pin)
        return replace(base, touched=touched, is_exact=is_exact)

    def _nearest(
        self, kind: str, pin: TablePin, entries: list[DerivedEntry], ends: Ends | None
    ) -> _Base | None:
        for entry, candidate in self._candidates(pin, entries):
            try:
                base = self._joined(kind, pin, entry, candidate, ends)
            except DamagedFile as damaged:
                self.files.reject(damaged)
                continue
            except OmnigraphError:
                continue  # a version between was reclaimed: the file cannot be brought up to date
            if base is not None:
                return base
        return None

    def _candidates(
        self, pin: TablePin, entries: list[DerivedEntry]
    ) -> Iterator[tuple[DerivedEntry, TablePin]]:
        """Files of the version's own line, the nearest before it first, then of its ancestors'."""
        own = [each for each in entries if each.name.line == line_name(pin)]
        older = [each for each in own if each.name.version <= pin.version]
        newer = [each for each in own if each.name.version > pin.version]
        for entry in [*_last_two(older), *sorted(newer, key=_order)[:1]]:
            yield entry, replace(pin, version=entry.name.version)
        if pin.branch is None:
            return
        try:
            ancestors = self._deltas.ancestors(pin)
        except OmnigraphError:
            return
        for point in ancestors:
            line = line_name(point)
            shared = [e for e in entries if e.name.line == line and e.name.version <= point.version]
            for entry in _last_two(shared):
                yield entry, replace(point, version=entry.name.version)

    def _joined(
        self, kind: str, pin: TablePin, entry: DerivedEntry, base: TablePin, ends: Ends | None
    ) -> _Base | None:
        file = self.files.opened(entry)
        if file is None:
            return None
        base = replace(base, row_count=int(file.facts.get("rows", 0)))
        most = max(COSTS.delta_rows_few, base.row_count // COSTS.delta_share)
        if abs(base.row_count - pin.row_count) > most:
            return None
        # A version that only got indexes has the same files: the one before it is not opened.
        now = self.fingerprint(pin)
        is_exact = now == file.facts.get("fingerprint")
        own = now if is_exact else self.fingerprint(base)
        if not is_of(file, entry.name.kind, base, own):
            raise DamagedFile(entry.path, "it is of another version")
        parsed = self._parsed.read(file, entry.name.kind)
        delta = parsed if isinstance(parsed, EdgeDeltaFile) else None
        whole = self._parsed.under(parsed, pin) if isinstance(parsed, EdgeDeltaFile) else parsed
        if whole is None or (delta is not None and not _joins(delta, ends)):
            return None
        if isinstance(whole, EdgeFile) and not _joins(whole, ends):
            return None
        touched = TOUCHED.empty_table()
        if not is_exact:
            touched = self._deltas.touched(base, pin, columns=None if kind == NODES else _ENDS)
        if touched.num_rows > most:
            return None
        if isinstance(whole, NodeFile):
            return NodeBase(whole, base, touched, is_exact)
        return EdgeBase(whole, base, touched, is_exact, delta)

    # Lookups

    def row_ids(self, pin: TablePin, ids: pa.Array) -> np.ndarray | None:
        """The row id of each of these node ids in a version, `NO_ROW` where it has none; None when
        no file can tell."""
        base = self.nodes(pin)
        if base is None:
            return None
        try:
            return _row_ids(base, ids)
        except DamagedFile as damaged:
            self.reject(damaged)
            return None

    def edge_row_ids(self, pin: TablePin, end: str, ids: pa.Array) -> np.ndarray | None:
        """The row ids of the edges of a version that have one of these nodes at an end; None when
        no file can tell."""
        base = self._base(EDGES, pin, None)
        if not isinstance(base, EdgeBase):
            return None
        try:
            nodes = self._parsed.numbering(base.ends[_ENDS.index(end)])
            if nodes is None:
                return None
            row_ids = _edges_of(base, nodes, Way.OUT if end == "src" else Way.IN, ids)
            return np.concatenate((row_ids, self._since(base, pin, end, ids)))
        except DamagedFile as damaged:
            self.reject(damaged)
        except OmnigraphError:
            return None  # the rows since cannot be read
        return None

    def _since(self, base: EdgeBase, pin: TablePin, end: str, ids: pa.Array) -> np.ndarray:
        """The row ids of such edges that were written after the base."""
        after = base.touched[AFTER].drop_null().combine_chunks()
        if not len(after):
            return np.empty(0, np.uint64)
        rows = rows_by_id(self._datasets.handle(pin), after, [end])
        hits = pc.is_in(rows[end].combine_chunks(), value_set=ids)
        row_ids: np.ndarray = after.filter(hits).to_numpy()
        return row_ids


def _weight(base: _Base | None) -> int:
    return _BASE_BYTES + (0 if base is None else int(base.touched.nbytes))


def _joins(file: EdgeFile | EdgeDeltaFile, ends: Ends | None) -> bool:
    return ends is None or (file.ends[0] in ends[0] and file.ends[1] in ends[1])


def _edges_of(base: EdgeBase, nodes: NodeFile, way: Way, ids: pa.Array) -> np.ndarray:
    """The row ids of such edges in the base, without those touched since."""
    numbers = _numbers(nodes, ids)
    lists = base.file.multiple[way]
    assert lists.edges is not None
    first, counts = lists.bounds(number_arrays.distinct(numbers[numbers >= 0]))
    ends = np.cumsum(counts)
    indexes = np.arange(ends[-1] if len(ends) else 0)
    indexes += np.repeat(first - (ends - counts), counts)
    positions = lists.edges.take(indexes)
    if base.delta is not None:
        positions = positions[~number_arrays.are_among(positions, base.delta.removed)]
    row_ids = base.file.row_ids.take(positions)
    if base.delta is not None:
        row_ids = np.concatenate((row_ids, base.delta.row_ids_of(base.file, way, numbers)))
    touched = number_arrays.from_arrow(base.touched[BEFORE].drop_null().combine_chunks())
    untouched: np.ndarray = row_ids[~number_arrays.are_among(row_ids, touched)]
    return untouched


def _numbers(file: NodeFile, ids: pa.Array) -> np.ndarray:
    if len(ids) > COSTS.delta_ids_one_by_one_max:
        return file.locate(ids)
    texts = (each.encode("utf-8", "surrogatepass") for each in ids.drop_null().to_pylist())
    return np.array([file.find(each) for each in texts], np.int64)


def _last_two(entries: list[DerivedEntry]) -> list[DerivedEntry]:
    """The files of the last two versions that have any, the last first. A version of edges may have
    several: one for each lineage of its nodes."""
    versions = sorted({entry.name.version for entry in entries})[-2:]
    return sorted((e for e in entries if e.name.version in versions), key=_order, reverse=True)


def _order(entry: DerivedEntry) -> tuple[int, bool]:
    """By version; of one version a file that needs no other comes last."""
    return entry.name.version, entry.name.kind != EDGE_DELTAS


def _row_ids(base: NodeBase, ids: pa.Array) -> np.ndarray:
    file = base.file
    numbers = _numbers(file, ids)
    row_ids = np.full(len(ids), NO_ROW)
    known = numbers >= 0
    row_ids[known] = file.row_ids.take(numbers[known])
    if base.touched.num_rows:
        touched = _among(base.touched.combine_chunks(), ids)
        rows = pc.index_in(ids, value_set=touched[KEY].combine_chunks())
        changed = np.flatnonzero(rows.is_valid().to_numpy(zero_copy_only=False))
        after = touched[AFTER].take(rows.drop_null()).fill_null(pa.scalar(int(NO_ROW), pa.uint64()))
        row_ids[changed] = after.to_numpy()
    return row_ids


def _among(touched: pa.Table, ids: pa.Array) -> pa.Table:
    """The rows of few ids, so that no hash table of all that was touched is made for them."""
    if len(ids) >= touched.num_rows:
        return touched
    return touched.filter(pc.is_in(touched[KEY], value_set=ids))
