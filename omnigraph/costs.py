"""Thresholds (cost model): constants that choose between code paths by size or amount.

Invariant: a threshold decides how an answer is computed, never which one. Modules read `COSTS.name`
at the moment of the decision and keep no copy of it, so that tests can lower every threshold in one
process, in its children and in Spark's workers (`omnigraph.testing.lower_thresholds`).

Names end with their unit and bound: `rows_max` is the largest number of rows of the first path,
`bytes_min` the smallest size of the second one, `share` a fraction of one in so many.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

VARIABLE = "OMNIGRAPH_TEST_THRESHOLDS"
"""For tests only: a JSON object of thresholds and values, read when this module is imported."""

UNMEASURED = "no measurement on record"

Value = TypeVar("Value", int, float)
Number = int | float


class Threshold(Generic[Value]):
    """Declaration of a threshold: its value, the path it chooses, and safe low values."""

    __slots__ = ("decides", "low", "measured", "value")

    def __init__(self, value: Value, low: tuple[Value, Value], decides: str, measured: str) -> None:
        self.value: Value = value
        self.low: tuple[Value, Value] = low
        self.decides = decides
        self.measured = measured


def _threshold(
    value: Value, *, low: tuple[Value, Value], decides: str, measured: str = UNMEASURED
) -> Value:
    """Declare an attribute of `Costs`. `low` is the range of values that tests draw from: graphs of
    some dozen rows cross each of them, and every answer stays the same."""
    return Threshold(value, low, decides, measured)  # type: ignore[return-value]


class Costs:
    """Values of all thresholds in this process."""

    # Derived files

    topology_rows_min = _threshold(
        10_000,
        low=(1, 24),
        decides="rows from which a table gets topology files (`OMNIGRAPH_TOPOLOGY_ROWS_MIN`)",
    )
    delta_rows_few = _threshold(
        1_024,
        low=(0, 6),
        decides="rows changed since a derived file that are read with it, however small the file",
    )
    commit_file_rows_max = _threshold(
        1_024,
        low=(0, 6),
        decides="rows that a commit changes, or that a derived file lacks, up to which no new file "
        "is written",
    )
    followed_rows_max = _threshold(
        1_024,
        low=(0, 6),
        decides="rows that differ from the resident version of a table with derived files up to "
        "which the resident one is brought up to date",
    )
    delta_share = _threshold(
        10,
        low=(2, 10),
        decides="a derived file serves while fewer than one in so many of its rows have changed",
    )
    delta_ids_one_by_one_max = _threshold(
        64,
        low=(0, 4),
        decides="changed ids that are looked up one by one; more are searched together",
    )
    edge_delta_fold_share = _threshold(
        10,
        low=(2, 10),
        decides="a delta file of more than one in so many of the edges of its file is folded into "
        "a new edge file",
    )
    node_gone_share = _threshold(
        10,
        low=(2, 10),
        decides="numbers without a row stay in a node file while they are fewer than one in so "
        "many",
    )
    state_copy_commits_min = _threshold(
        4,
        low=(1, 3),
        decides="commits that a checkpoint of the manifest on an object store lacks before it is "
        "written again",
        measured="each is up to three calls to whoever opens the graph (bench/s3_calls.py)",
    )

    # Filters and lookups by key

    filter_keys_max = _threshold(
        10_000,
        low=(1, 12),
        decides="keys that go into one filter of Lance; more are met by reading the key column",
    )
    filter_keys_few = _threshold(
        100,
        low=(0, 6),
        decides="keys that always go into a filter, however small the table",
    )
    filter_rows_per_key = _threshold(
        50,
        low=(1, 8),
        decides="rows that are read in the time one key of a filter takes: a fiftieth of a table's "
        "rows is the largest filter",
        measured="one key of a filter takes the time of about 50 rows of a scan",
    )
    filter_row_ids_max = _threshold(
        10_000,
        low=(1, 12),
        decides="row ids in one filter; more are read by several filters",
    )
    rows_per_read_row_max = _threshold(
        2,
        low=(1, 4),
        decides="rows of a new fragment per requested row up to which the fragment is read whole",
        measured="a filter with a thousand row ids costs more than the rows",
    )
    rows_by_fragment_min = _threshold(
        64,
        low=(1, 8),
        decides="requested rows from which new fragments are considered for reading whole",
    )
    id_search_rows_min = _threshold(
        20_000,
        low=(0, 24),
        decides="rows of a table from which an id is searched where ids ascend; a filter scans "
        "fewer in less time",
    )
    id_index_rows_max = _threshold(
        10_000_000,
        low=(8, 200),
        decides="ids that the index of ids holds for all tables of an open graph",
        measured="about 40 bytes an id: 400 MB at most",
    )
    id_index_rows_per_lookup = _threshold(
        20_000,
        low=(0, 16),
        decides="rows that are read into the index of ids in the time of one lookup by a filter",
    )
    id_index_ids_per_lookup = _threshold(
        200,
        low=(1, 6),
        decides="ids of an upsert that take as long as one lookup",
    )

    # Direct reads of data files

    direct_read_listed_rows_max = _threshold(
        50_000,
        low=(4, 40),
        decides="rows of a fragment whose row ids are sorted for reads from its file; larger ones "
        "are read by a filter unless their row ids are one range",
    )
    direct_read_fragments_max = _threshold(
        512,
        low=(1, 4),
        decides="fragments whose row ids are cached",
    )
    direct_read_files_max = _threshold(
        16,
        low=(1, 3),
        decides="data files that are kept open",
    )
    direct_read_batch_rows = _threshold(
        65_536,
        low=(1, 16),
        decides="rows of a batch when whole columns of files are read",
    )
    direct_read_rows_per_file = _threshold(
        64,
        low=(1, 6),
        decides="requested rows per file, on average, from which files are opened",
        measured="a filter with hundreds of row ids took Lance longer to plan than the rows to "
        "read",
    )
    file_scan_rows_min = _threshold(
        50_000,
        low=(1, 16),
        decides="rows of a table, and of a fragment on average, from which a condition is "
        "evaluated on columns read from the files",
        measured="Lance's scan of one column of a million rows takes ten times as long as reading "
        "the column from its file",
    )
    file_scan_candidates_max = _threshold(
        2_000,
        low=(1, 12),
        decides="candidates of a file scan that are read by their row ids; more are faster by "
        "Lance's scan",
    )

    # Loads

    index_rows_min = _threshold(
        10_000,
        low=(1, 24),
        decides="rows without an index from which a load builds it (`OMNIGRAPH_INDEX_ROWS_MIN`)",
    )
    upsert_rows_max = _threshold(
        10_000,
        low=(0, 12),
        decides="rows of a merge load that are found by the index of ids; more are matched by jobs "
        "over the fragments, which write deletion files",
    )
    upsert_job_rows = _threshold(
        1 << 20,
        low=(1, 24),
        decides="rows, roughly, of the fragments that one job of a load matches or scans",
    )
    committed_keys_max = _threshold(
        10_000,
        low=(0, 12),
        decides="distinct incoming keys whose committed rows are looked up; for more the key "
        "columns are read",
    )
    mentioned_keys_max = _threshold(
        200_000,
        low=(1, 40),
        decides="incoming keys up to which the distinct ones are counted, to look them up if they "
        "are few",
    )
    parallel_edges_rows_max = _threshold(
        10_000,
        low=(0, 12),
        decides="new edges of a merge load whose equal edges are counted",
    )
    recheck_inserted_rows_max = _threshold(
        100_000,
        low=(0, 12),
        decides="rows inserted by another writer that a load compares again; after more it is "
        "prepared again",
    )
    key_bucket_bytes = _threshold(
        64 << 20,
        low=(200, 4_000),
        decides="bytes of input for one bucket of keys",
        measured="four million keys in one bucket took most of the memory of a large load of "
        "Parquet",
    )
    fragment_rows_max = _threshold(
        1 << 20,
        low=(3, 24),
        decides="rows that a load writes as one fragment",
    )
    fragment_bytes_max = _threshold(
        96 << 20,
        low=(400, 8_000),
        decides="bytes of rows that a load writes as one fragment",
    )
    joined_rows_max = _threshold(
        (1 << 20) // 16,
        low=(0, 12),
        decides="rows of a part of the input below which they are written together with those of "
        "other parts",
    )
    joined_bytes_max = _threshold(
        8 << 20,
        low=(100, 4_000),
        decides="bytes of such a part",
    )
    joined_parts = _threshold(
        64,
        low=(1, 3),
        decides="parts whose rows are written together, when each has too few for a fragment",
    )

    # Folding of small fragments

    fold_fragments_min = _threshold(
        16,
        low=(2, 6),
        decides="fragments from which a commit folds a table or manifest",
    )
    fold_class_fragments_min = _threshold(
        8,
        low=(2, 4),
        decides="fragments of one size class from which the class is folded",
    )
    fold_class_rows = _threshold(
        256,
        low=(2, 24),
        decides="rows of fragments of the first size class",
    )
    fold_class_growth = _threshold(
        16,
        low=(2, 4),
        decides="how many times larger each of the four size classes is",
        measured="a row is rewritten a few times a class (bench/results/small_commits.json)",
    )
    audit_fragments_min = _threshold(
        32,
        low=(1, 3),
        decides="fragments of the audit of recoveries from which it is compacted",
    )
    exact_versions = _threshold(
        128,
        low=(2, 12),
        decides="versions whose rows keep exact version stamps when fragments are folded; a graph "
        "must be read with at most the value it was written with",
    )
    joined_runs_rows_max = _threshold(
        1_024,
        low=(2, 48),
        decides="rows of fragments that are rewritten to join their runs of row versions",
    )
    runs_few = _threshold(
        8,
        low=(0, 2),
        decides="runs of row versions that a fragment keeps as they are",
    )
    runs_many = _threshold(
        64,
        low=(2, 6),
        decides="old runs beside recent ones from which a fragment is rewritten",
    )

    # Reads

    frontier_rows_max = _threshold(
        1_024,
        low=(0, 8),
        decides="sources of a hop that are looked up one by one "
        "(`OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER`)",
    )
    order_partition_rows_min = _threshold(
        1_024,
        low=(1, 12),
        decides="rows from which a short `limit` partitions before it sorts",
    )
    inserted_ids_max = _threshold(
        1_024,
        low=(0, 6),
        decides="new ids that are inserted into a sorted array; with more it is sorted again",
    )

    def __init__(self) -> None:
        for name, declared in THRESHOLDS.items():
            setattr(self, name, declared.value)


THRESHOLDS: Mapping[str, Threshold[int] | Threshold[float]] = {
    name: value for name, value in vars(Costs).items() if isinstance(value, Threshold)
}
"""Every threshold by its name, in the order of declaration."""

COSTS = Costs()


def changed() -> dict[str, Number]:
    """Return the thresholds of this process that differ from their declaration."""
    values = {name: getattr(COSTS, name) for name in THRESHOLDS}
    return {name: value for name, value in values.items() if value != THRESHOLDS[name].value}


def use(values: Mapping[str, Number]) -> None:
    """Set thresholds of this process, and all others to their declared values.

    Raises ValueError if a name is unknown or a value is negative or of another type.
    """
    for name, value in values.items():
        _check(name, value)
    for name, declared in THRESHOLDS.items():
        setattr(COSTS, name, values.get(name, declared.value))


def use_environment() -> None:
    """Set the thresholds that the environment of this process names."""
    text = os.environ.get(VARIABLE)
    use(_parsed(text) if text else {})


@contextmanager
def overridden(values: Mapping[str, Number]) -> Iterator[None]:
    """Change thresholds in this process and, by its environment, in processes that it starts.

    Blocks nest; each restores what it found.
    """
    before, variable = changed(), os.environ.get(VARIABLE)
    use({**before, **values})
    os.environ[VARIABLE] = json.dumps(changed())
    try:
        yield
    finally:
        use(before)
        if variable is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = variable


def _check(name: str, value: object) -> None:
    declared = THRESHOLDS.get(name)
    if declared is None:
        raise ValueError(f"unknown threshold '{name}': see omnigraph/costs.py for their names")
    kind = type(declared.value)
    if isinstance(value, bool) or not isinstance(value, kind) or value < 0:
        raise ValueError(
            f"invalid value {value!r} of threshold '{name}': expected {kind.__name__} from 0 on"
        )


def _parsed(text: str) -> Mapping[str, Number]:
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"invalid {VARIABLE}: expected a JSON object; unset it: it is for tests")
    return values


use_environment()
