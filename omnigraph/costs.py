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
        measured="the same runs of bench/results/scale.md",
    )
    commit_file_rows_max = _threshold(
        1_024,
        low=(0, 6),
        decides="rows that a commit changes, or that a derived file lacks, up to which no new file "
        "is written",
        measured="first hop of a new process 1,000 edges behind its file: + 0.01 CPU s, 121,000 "
        "behind: + 1.5 (bench/results/scale.md)",
    )
    followed_rows_max = _threshold(
        1_024,
        low=(0, 6),
        decides="rows that differ from the resident version of a table with derived files up to "
        "which the resident one is brought up to date",
        measured="the same runs of bench/results/scale.md",
    )
    delta_share = _threshold(
        10,
        low=(2, 10),
        decides="a derived file serves while fewer than one in so many of its rows have changed",
        measured="a reader pays at most a tenth more than for a file of its version",
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
        measured="readers map the delta beside its file, so a reader pays at most a tenth more",
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
    derived_files_kept = _threshold(
        4,
        low=(1, 3),
        decides="files of one line that are kept: older versions are read by way of the next "
        "newer one",
    )
    verify_whole_reads_min = _threshold(
        4096,
        low=(0, 8),
        decides="scattered reads of a mapped array from which its blocks are verified at once",
    )
    radix_rows_min = _threshold(
        1024,
        low=(0, 6),
        decides="numbers from which pairs are sorted by their digits; fewer are compared by Arrow",
        measured="61 µs of CPU instead of 45 for 1,024 pairs, 137 instead of 660 for 4,096",
    )
    radix_rows_together = _threshold(
        1 << 16,
        low=(1, 8),
        decides="numbers whose digits are taken together",
    )
    hash_texts_together = _threshold(
        32_768,
        low=(1, 8),
        decides="texts that are hashed together",
    )
    bases_bytes_max = _threshold(
        128 << 20,
        low=(524_288, 3_145_728),
        decides="bytes of derived files and rows since them that are followed; each counts half a "
        "MiB at least",
    )

    # Filters and lookups by key

    filter_keys_max = _threshold(
        10_000,
        low=(1, 12),
        decides="keys that go into one filter of Lance; more are met by reading the key column",
        measured="of 200,000 rows a filter of 10,000 keys takes 39 ms of CPU, reading the key "
        "column 14 ms",
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
        measured="of 200,000 rows a filter of 1,000 keys takes 10 ms of CPU as reading the key "
        "column does, one of 4,000 (a fiftieth) 19 ms beside 12",
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
        measured="reading a table must not cost more than the lookups that were made in it",
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
    block_copy_bytes = _threshold(
        8 << 20,
        low=(1_000, 4_000),
        decides="bytes that are copied at a time from an object store",
    )
    distinct_share_max = _threshold(
        0.7,
        low=(0.0, 0.7),
        decides="share of distinct ends of edges up to which they are dictionary-encoded",
        measured="five million edges take 8.6 CPU seconds from NDJSON instead of 11.5 where "
        "distinct ends are not encoded",
    )
    distinct_sample_rows = _threshold(
        4_096,
        low=(1, 8),
        decides="rows of the sample that estimates this share",
    )
    record_piece_rows = _threshold(
        20_000,
        low=(1, 8),
        decides="Python records that are decoded together",
    )
    stream_read_bytes = _threshold(
        8 << 20,
        low=(20, 400),
        decides="bytes that are read at a time from a stream",
    )
    large_load_bytes_min = _threshold(
        8 << 20,
        low=(0, 4_000),
        decides="bytes of input from which a load returns free memory of its threads after each "
        "stage",
        measured="peak of the bench's load of Parquet 598 MiB before, 571 after",
    )
    line_block_bytes = _threshold(
        8 << 20,
        low=(40, 800),
        decides="bytes of lines that are decoded together",
    )
    input_batch_rows_max = _threshold(
        65_536,
        low=(1, 16),
        decides="rows of columnar input that are decoded together, at most",
    )
    input_batch_rows_min = _threshold(
        1_024,
        low=(1, 4),
        decides="rows of wide columnar input that are decoded together, at least",
    )
    input_batch_bytes_max = _threshold(
        8 << 20,
        low=(100, 4_000),
        decides="bytes of columnar input that are decoded together, between these two",
        measured="a batch of 65,536 rows with 1,536 floats each is 400 MB, and several are under "
        "way",
    )
    spill_memory_bytes_max = _threshold(
        64 << 20,
        low=(0, 2_000),
        decides="bytes of buckets in memory at which a load spills them to files",
    )
    coarse_bucket_bytes = _threshold(
        16 << 20,
        low=(50, 2_000),
        decides="bytes of a bucket below which two buckets are read as one",
    )
    csv_read_bytes = _threshold(
        1 << 20,
        low=(16, 200),
        decides="bytes that are read at a time from CSV",
    )
    list_items_together = _threshold(
        1 << 15,
        low=(1, 16),
        decides="list items of uniform JSON lines that are cut together",
        measured="their offsets stay in the cache of a core",
    )
    json_block_bytes = _threshold(
        1 << 20,
        low=(64, 400),
        decides="bytes of a block that Arrow parses as JSON",
    )
    doubles_together = _threshold(
        1 << 15,
        low=(1, 8),
        decides="doubles that are compared together",
        measured="what is made of them stays in the cache of a core",
    )
    texts_checked_together = _threshold(
        1_024,
        low=(1, 8),
        decides="rows whose texts are checked together before single ones",
    )
    cast_rows_together = _threshold(
        1_024,
        low=(1, 8),
        decides="rows that are cast together where the whole column cannot be; fewer are cast one "
        "by one",
        measured="100,000 people with 64 floats took 8 s of CPU from Parquet where each value was "
        "read by itself",
    )
    float_items_min = _threshold(
        16,
        low=(0, 4),
        decides="items of a list of floats from which an array converts them",
        measured="items as an array took 0.24 s of CPU instead of 1.46; below it an array costs "
        "more than it saves",
    )
    key_reason_rows_max = _threshold(
        20_000,
        low=(0, 8),
        decides="rows for which a broken key rule is ruled out without DataFusion",
        measured="starting the engine costs more than all else a small write does",
    )
    rekey_chunk_rows = _threshold(
        100_000,
        low=(1, 8),
        decides="rows whose ids are rewritten together when a key changes",
    )
    embed_page_rows = _threshold(
        2_000,
        low=(1, 8),
        decides="rows that `embed` reads at a time",
    )
    coalesced_writes_max = _threshold(
        1_000,
        low=(1, 4),
        decides="concurrent mutations that share one commit, at most",
    )
    embed_texts_per_call = _threshold(
        64,
        low=(1, 3),
        decides="texts that are sent to a provider in one request",
    )
    end_nodes_per_edge = _threshold(
        64,
        low=(1, 8),
        decides="nodes per edge of a first batch from which a load does not number the ends of "
        "edges itself",
        measured="a table of all ids costs more than one edge in so many nodes saves",
    )
    end_edges_kept_max = _threshold(
        1 << 26,
        low=(0, 12),
        decides="edges whose end numbers a load keeps in memory",
        measured="eight bytes each: 512 MiB at most",
    )
    short_id_bytes_max = _threshold(
        64,
        low=(1, 24),
        decides="bytes of the longest id with which ids are hashed as fixed words",
    )
    short_ids_together = _threshold(
        1 << 18,
        low=(1, 8),
        decides="ids whose bytes are laid out together",
    )
    shared_scan_rows_min = _threshold(
        1 << 20,
        low=(1, 24),
        decides="edges of a table from which Spark's tasks number their ends",
        measured="a smaller table is scanned sooner than tasks are started for it",
    )

    # Folding of small fragments

    fold_fragments_min = _threshold(
        16,
        low=(2, 6),
        decides="fragments from which a commit folds a table or manifest",
        measured="every read and upsert pays for each fragment (bench/results/small_commits.json)",
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
        measured="a commit's bytes do not grow with the history (bench/results/small_commits.json)",
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

    schemas_max = _threshold(
        256,
        low=(1, 3),
        decides="schemas that an open graph keeps",
    )
    schema_pairs_max = _threshold(
        1_000,
        low=(1, 4),
        decides="pairs of schemas whose differences are kept",
    )
    schema_branches_max = _threshold(
        1_000,
        low=(1, 3),
        decides="branches whose schema an open graph keeps",
    )
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
        measured="limit 10: 10 µs of CPU instead of 9 for 256 rows, 11 instead of 14 for 1,024, "
        "14 instead of 33 for 4,096",
    )
    inserted_ids_max = _threshold(
        1_024,
        low=(0, 6),
        decides="new ids that are inserted into a sorted array; with more it is sorted again",
        measured="1,024 insertions into 100,000 ids take 9.9 ms of CPU, sorting them again 2.6 "
        "ms: inserting pays for some 200 of 100,000, in proportion to the array",
    )
    batch_rows_max = _threshold(
        1 << 18,
        low=(1, 16),
        decides="rows that an operator passes on at a time",
    )
    columns_one_by_one_max = _threshold(
        8,
        low=(0, 3),
        decides="columns that are loaded one by one; more come by one scan",
    )
    cost_search_cells_min = _threshold(
        1 << 10,
        low=(1, 4),
        decides="cells that a search by cost continues from together, or an eighth of those that "
        "wait",
    )
    count_all_share = _threshold(
        4,
        low=(1, 8),
        decides="counted walks start from all nodes where more than one in so many are bound",
    )
    count_edges_together = _threshold(
        1 << 20,
        low=(1, 16),
        decides="edges that a count of walks looks at together",
    )
    count_nodes_together = _threshold(
        1 << 18,
        low=(1, 8),
        decides="nodes whose degrees are multiplied together",
    )
    search_cells_per_row = _threshold(
        4,
        low=(1, 4),
        decides="nodes per row of a batch that a search over several hops may hold",
    )
    edge_lookup_ids_max = _threshold(
        4096,
        low=(1, 6),
        decides="ids in one filter of edges",
    )
    search_marks_max = _threshold(
        1 << 24,
        low=(1, 64),
        decides="cells of a block up to which a search marks what it has visited; a larger one "
        "sorts",
    )
    search_block_rows = _threshold(
        16,
        low=(1, 4),
        decides="sources of the first block where marks are too many",
    )
    key_passes_max = _threshold(
        1,
        low=(0, 2),
        decides="searches of a column before it is sorted",
        measured="a pass costs less than a sort",
    )
    path_cells_max = _threshold(
        1 << 24,
        low=(1, 200),
        decides="cells of a block of path searches",
    )
    path_cells_weighted_max = _threshold(
        1 << 22,
        low=(1, 200),
        decides="cells of a block of path searches by weight, which hold more of each",
    )
    path_rows_first = _threshold(
        64,
        low=(1, 4),
        decides="rows from which paths are searched first, when they leave in batches",
    )
    few_rows_max = _threshold(
        128,
        low=(0, 6),
        decides="rows of a pattern that are walked with Python's integers",
        measured="a point lookup took 0.3 ms, most of it fixed costs of numpy and Arrow calls",
    )
    prepared_parts_max = _threshold(
        1 << 18,
        low=(1, 64),
        decides="parts of prepared plans that are kept, some 200 bytes each",
    )
    prepared_plans_max = _threshold(
        1024,
        low=(1, 4),
        decides="prepared plans that an open graph keeps",
    )
    views_max = _threshold(
        8,
        low=(1, 3),
        decides="snapshots whose looked-up tables an open graph keeps",
    )
    scan_whole_rows_max = _threshold(
        16_384,
        low=(0, 8),
        decides="rows of a table that is read whole rather than share by share",
    )
    scan_kept_share_min = _threshold(
        0.75,
        low=(0.1, 0.9),
        decides="share of rows that a condition keeps up to which the next one looks at the kept "
        "ones alone",
    )
    ordered_together_rows_max = _threshold(
        256,
        low=(0, 6),
        decides="rows whose ids and returned columns come by one call",
    )
    filter_items_max = _threshold(
        10_000,
        low=(1, 6),
        decides="items of a list in a filter of Lance",
    )

    # Changes and exports

    change_page_bytes_max = _threshold(
        4 << 20,
        low=(1, 600),
        decides="bytes of values at which a page of changes ends before its limit of changes",
    )
    together_rows_min = _threshold(
        2_000,
        low=(0, 12),
        decides="rows from which both sides of a comparison are read in two threads",
        measured="a few rows are read in less time than a thread takes to start",
    )
    change_first_rows = _threshold(
        256,
        low=(1, 4),
        decides="ids that a page of changes compares first",
    )
    change_first_rows_of_all = _threshold(
        2_048,
        low=(1, 4),
        decides="ids that a walk over all changes compares first",
    )
    entity_payload_bytes_max = _threshold(
        8 << 20,
        low=(1, 200),
        decides="bytes of large values that a comparison reads at a time",
    )
    entity_chunk_bytes_max = _threshold(
        4 << 20,
        low=(100, 4_000),
        decides="bytes of rows that a comparison reads at a time, between the two numbers of rows",
    )
    entity_chunk_rows_min = _threshold(
        1_000,
        low=(1, 4),
        decides="rows that a comparison reads at a time, at least",
        measured="a filter with a thousand row ids costs more than the rows",
    )
    entity_chunk_rows_max = _threshold(
        10_000,
        low=(1, 12),
        decides="rows that a comparison reads at a time, at most",
    )
    export_batch_rows = _threshold(
        8_192,
        low=(1, 8),
        decides="rows of a batch of an export",
    )
    export_file_rows = _threshold(
        1 << 20,
        low=(3, 40),
        decides="rows from which an export of Parquet begins another file",
    )
    schema_merge_chunk_rows = _threshold(
        10_000,
        low=(1, 8),
        decides="unchanged rows that a merge of schemas converts at a time",
    )
    unnamed_commits_max = _threshold(
        100,
        low=(0, 4),
        decides="commits without a recorded schema whose schemas are searched; with more all "
        "schemas stay",
    )

    # Rows in memory

    edges_searched_together = _threshold(
        1 << 20,
        low=(1, 16),
        decides="pairs of nodes that are searched for an edge together",
    )
    cache_uses_max = _threshold(
        4096,
        low=(1, 8),
        decides="keys whose uses are counted before all counts are dropped",
    )
    filed_ids_one_by_one_max = _threshold(
        64,
        low=(0, 4),
        decides="ids that are looked up one by one in a node file; more are hashed together",
    )
    neighbours_counted_together = _threshold(
        1 << 20,
        low=(1, 24),
        decides="neighbours of both directions that are merged together to be counted",
    )
    column_fetch_cost_rows = _threshold(
        32_768,
        low=(1, 40),
        decides="rows of a whole column that are read in the time of one fetch: fetches are "
        "counted until the column is loaded",
    )
    column_fetch_row_cost_rows = _threshold(
        256,
        low=(0, 8),
        decides="the same for each row of a fetch",
    )
    column_fetch_rows_max = _threshold(
        4096,
        low=(0, 6),
        decides="rows of which a column is fetched; for more it is loaded whole",
    )
    column_cells_max = _threshold(
        4096,
        low=(1, 8),
        decides="fetched values of a column that are kept",
    )
    inverted_follow_share_max = _threshold(
        0.2,
        low=(0.0, 0.2),
        decides="share of a table that may be written before its inverted column is built again",
    )
    list_garbage_factor = _threshold(
        2,
        low=(0, 2),
        decides="rows of dropped neighbour lists per live row at which lists are compacted",
        measured="with 10M friendships, after 3,000 one-row commits, an insert went from 39 to 7 "
        "ms",
    )
    list_values_min = _threshold(
        256,
        low=(1, 8),
        decides="rows of neighbour lists that may always be garbage",
        measured="the same run",
    )
    id_search_cost_ids = _threshold(
        100,
        low=(1, 8),
        decides="ids that are hashed in the time of one binary search",
    )
    resident_follow_share_max = _threshold(
        0.2,
        low=(0.0, 0.2),
        decides="share of a table that may be written before it is read again instead of brought "
        "up to date",
    )
    follow_base_rows = _threshold(
        100,
        low=(1, 12),
        decides="rows of which a smaller table counts in both shares",
    )
    vector_fetch_rows_max = _threshold(
        4096,
        low=(0, 6),
        decides="rows of which a vector column is fetched; for more it is loaded whole",
    )
    columns_together_bytes = _threshold(
        32 << 20,
        low=(0, 2_000),
        decides="bytes of columns that one scan reads together",
        measured="a scan was planned for each column: eight hundred properties of ten rows took "
        "seconds",
    )
    version_lookup_ids_max = _threshold(
        4096,
        low=(1, 6),
        decides="ids in one filter of a table that is not in memory",
    )
    scan_cost_rows = _threshold(
        262_144,
        low=(1, 40),
        decides="rows that are loaded in the time of one filter without an index: lookups are "
        "counted until the table is loaded",
        measured="a filter that Lance answers by a scan costs about as much as loading this many "
        "rows",
    )
    lookup_cost_rows = _threshold(
        16_384,
        low=(1, 20),
        decides="the same for a filter that an index answers",
        measured="loading sorts ids and numbers edges",
    )
    remote_load_rows_max = _threshold(
        16_384,
        low=(0, 12),
        decides="rows of a table on an object store that is loaded at its first lookup",
        measured="a lookup takes the calls that loading takes (bench/results/s3_calls.md)",
    )
    remote_read_ahead_rows_max = _threshold(
        1024,
        low=(0, 12),
        decides="rows of a table on an object store whose columns are read with its ids",
        measured="14 calls for the first hop (bench/results/s3_calls.md)",
    )
    open_versions_max = _threshold(
        64,
        low=(1, 3),
        decides="table versions that stay open for reading",
        measured="an open version takes tens of kilobytes",
    )

    # Search

    vector_index_rows_min = _threshold(
        256,
        low=(8, 24),
        decides="vectors from which a vector index is built",
        measured="below it a scan of all vectors is faster than an index lookup",
    )
    vectors_per_partition = _threshold(
        4096,
        low=(4, 16),
        decides="vectors per partition of a vector index",
    )
    index_behind_share_max = _threshold(
        0.1,
        low=(0.0, 0.1),
        decides="share of rows that an index may lack before it is extended",
    )
    vector_scan_bytes_max = _threshold(
        64 << 20,
        low=(0, 2_000),
        decides="bytes of vectors that are compared exactly even where the cache keeps nothing",
    )
    disk_words_max = _threshold(
        64,
        low=(0, 4),
        decides="words of a search that are looked up in the index on disk; more are searched in "
        "the inverted column, because a lookup there knows no deadline",
    )
    inverted_build_uses = _threshold(
        3,
        low=(0, 2),
        decides="searches through a full-text index on disk before the column is inverted in "
        "memory",
    )
    vector_components_kept_max = _threshold(
        8 << 20,
        low=(1, 64),
        decides="components of vectors of texts that are kept",
        measured="32 MiB at most",
    )
    distance_rows_together = _threshold(
        1 << 14,
        low=(1, 8),
        decides="rows whose exact distances are computed together",
    )
    products_together = _threshold(
        1 << 17,
        low=(1, 64),
        decides="products of components that are computed together",
    )
    kth_block_rows = _threshold(
        256,
        low=(1, 4),
        decides="numbers of a block whose least one bounds the k-th smallest",
    )
    embed_batch_texts_max = _threshold(
        64,
        low=(1, 3),
        decides="texts of written rows that are sent to a provider in one request",
    )
    embed_batch_characters_max = _threshold(
        100_000,
        low=(1, 200),
        decides="characters of those texts",
    )
    edit_words_together = _threshold(
        1 << 16,
        low=(1, 8),
        decides="words whose edit distances are computed together",
    )

    # Spark

    spark_export_rows = _threshold(
        1 << 18,
        low=(1, 24),
        decides="rows, roughly, of the fragments that share a file of an export",
        measured="a file's rows are sorted in memory",
    )
    spark_share_rows = _threshold(
        1 << 15,
        low=(4, 24),
        decides="rows of a pattern's tables per task, while there are few tasks a core",
    )
    spark_share_rows_max = _threshold(
        1 << 23,
        low=(16, 64),
        decides="rows per task, however many tasks that makes",
        measured="some tenths of a second; a task costs some hundredths by itself",
    )
    shuffle_task_bytes = _threshold(
        32 << 20,
        low=(1, 2_000),
        decides="bytes, roughly, of the buckets that one task reads",
    )
    shuffle_block_bytes = _threshold(
        16 << 20,
        low=(100, 2_000),
        decides="bytes that a map task collects before it cuts them into blocks",
    )
    shuffle_inbox_bytes_max = _threshold(
        64 << 20,
        low=(200, 2_000),
        decides="bytes of delivered blocks at which a task spills them to files",
    )
    spark_partition_rows = _threshold(
        1 << 16,
        low=(1, 24),
        decides="rows of fragments that share a partition",
        measured="a task costs more than reading them",
    )
    spark_change_rows = _threshold(
        1 << 16,
        low=(1, 24),
        decides="rows of a baseline, roughly, that one task gives",
    )
    spark_small_load_bytes_max = _threshold(
        64 << 20,
        low=(0, 4_000),
        decides="bytes of input up to which a load starts an interactive Spark session rather "
        "than one for much data",
    )
    spark_part_bytes_min = _threshold(
        4 << 20,
        low=(60, 2_000),
        decides="bytes of a part of the input that a task reads, at least",
    )
    spark_part_bytes_max = _threshold(
        128 << 20,
        low=(200, 8_000),
        decides="bytes of a part of the input that a task reads, at most",
    )
    spark_buckets_min = _threshold(
        64,
        low=(1, 2),
        decides="buckets of keys of a DataFrame, at least; a power of two",
    )
    spark_bucket_bytes = _threshold(
        128 << 20,
        low=(80, 2_000),
        decides="bytes of a DataFrame for one bucket of keys",
    )
    spark_batch_rows = _threshold(
        4_096,
        low=(1, 8),
        decides="rows of a batch that a task streams",
    )

    # Fragments and versions

    compact_rows_max = _threshold(
        1_048_576,
        low=(4, 48),
        decides="rows of a fragment that `optimize` writes",
    )
    compact_small_rows_max = _threshold(
        65_536,
        low=(1, 8),
        decides="rows of fragments that `optimize` rewrites without asking whether it pays",
    )
    compact_growth = _threshold(
        4,
        low=(1, 4),
        decides="a larger fragment is rewritten together with others that make up at least one in "
        "so many of its rows",
        measured="a row is rewritten a few times while its table grows (bench/results/upkeep.json)",
    )
    compact_deleted_share_max = _threshold(
        0.1,
        low=(0.0, 0.3),
        decides="share of deleted rows from which a fragment is rewritten",
        measured="a scan reads deleted rows too: at most a tenth more",
    )
    handles_max = _threshold(
        512,
        low=(1, 4),
        decides="table versions that are kept open for an open graph",
    )
    spans_max = _threshold(
        64,
        low=(1, 3),
        decides="spans of versions whose changed row ids are kept",
    )
    span_rows_max = _threshold(
        200_000,
        low=(0, 12),
        decides="changed rows of a span that are kept",
    )
    span_rows_bytes_max = _threshold(
        16 << 20,
        low=(0, 4_000),
        decides="bytes of changed rows that are kept",
    )
    hash_ids_together = _threshold(
        32_768,
        low=(1, 8),
        decides="ids that are hashed together",
        measured="the intermediate arrays stay in the processor's cache",
    )
    segment_growth = _threshold(
        4,
        low=(1, 4),
        decides="how many times its rows the segments have that a new segment of an index takes in",
        measured="a row is indexed a few times while its table grows",
    )
    ordered_fragments_max = _threshold(
        256,
        low=(1, 3),
        decides="fragments in which ids that ascend are searched",
        measured="more of them cost more than reading every id",
    )
    ordered_bounds_max = _threshold(
        10_000,
        low=(1, 3),
        decides="fragments whose bounds of ids are kept",
    )
    recent_rows_max = _threshold(
        100_000,
        low=(1, 8),
        decides="entities whose row ids are remembered",
    )
    recent_read_rows_max = _threshold(
        1_000,
        low=(0, 6),
        decides="rows of a read that remembers where they are; a larger one is no page that "
        "somebody looks at",
    )
    refs_max = _threshold(
        512,
        low=(1, 3),
        decides="branch references that are kept",
    )
    roots_max = _threshold(
        64,
        low=(1, 2),
        decides="tables whose root handles are kept",
    )
    row_cache_versions_max = _threshold(
        8,
        low=(1, 2),
        decides="table versions whose rows on the way to another are kept",
    )
    span_columns_bytes_max = _threshold(
        4 << 20,
        low=(0, 2_000),
        decides="bytes of changed rows that are read with every column",
    )
    rewrite_batch_rows = _threshold(
        1024,
        low=(1, 8),
        decides="rows that are rewritten at a time",
    )

    # Manifest and history

    snapshots_max = _threshold(
        1_024,
        low=(1, 4),
        decides="snapshots of commits that are kept",
    )
    history_window_versions = _threshold(
        64,
        low=(1, 4),
        decides="manifest versions of the first read of a walk along a line; it doubles",
    )
    lines_max = _threshold(
        16,
        low=(1, 2),
        decides="tables whose line of versions is kept",
    )
    known_commits_max = _threshold(
        100_000,
        low=(1, 8),
        decides="commits that are kept",
    )
    known_references_max = _threshold(
        1_000_000,
        low=(1, 16),
        decides="references from manifest fragments to commits that are kept",
    )
    past_states_max = _threshold(
        16,
        low=(1, 2),
        decides="past states of branches that are kept",
    )
    mark_fragments_max = _threshold(
        4_096,
        low=(1, 4),
        decides="manifest fragments whose idempotency keys are kept",
    )
    state_copy_bytes_max = _threshold(
        1 << 20,
        low=(500, 20_000),
        decides="bytes of a checkpoint of the manifest; a larger state is left to its manifest",
    )
    line_window_versions = _threshold(
        64,
        low=(1, 4),
        decides="manifest versions of the first read of a table's line",
    )
    line_commits_together = _threshold(
        64,
        low=(1, 4),
        decides="commits of a table's line that are read together",
    )
    local_copies_kept = _threshold(
        8,
        low=(1, 3),
        decides="documents of a kind that are kept on this machine for a graph",
    )
    local_copy_bytes_max = _threshold(
        4 << 20,
        low=(0, 4_000),
        decides="bytes of a document that is kept on this machine",
    )
    ended_reviews_max = _threshold(
        100_000,
        low=(0, 3),
        decides="ended reviews that are remembered",
    )
    decisions_max = _threshold(
        65_536,
        low=(1, 4),
        decides="decisions of a policy that are kept",
    )

    # Server and client

    body_memory_bytes_max = _threshold(
        8 << 20,
        low=(0, 2_000),
        decides="bytes of a request body in memory at which it is written to a file",
    )
    answer_rows_unmeasured_max = _threshold(
        1_000,
        low=(0, 6),
        decides="rows of an answer whose size is not compared with the limit before it is sent",
    )
    answer_batch_rows = _threshold(
        65_536,
        low=(1, 16),
        decides="rows of a batch of an answer",
    )
    answer_piece_bytes = _threshold(
        1 << 18,
        low=(100, 2_000),
        decides="bytes of an answer that are sent at a time",
    )
    remote_page_commits = _threshold(
        1_000,
        low=(1, 4),
        decides="commits that a client requests at a time",
    )
    remote_page_reviews = _threshold(
        1_000,
        low=(1, 4),
        decides="reviews that a client requests at a time",
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
