"""Constants that choose a path by size are thresholds, documented and read when they are used."""

import ast
import re
from collections.abc import Iterator

import pytest

from omnigraph.costs import THRESHOLDS, Threshold
from tests.golden import UPDATE
from tests.shape.modules import ROOT, Module, modules

PAGE = ROOT / "docs" / "thresholds.md"
HEADER = "| threshold | value | low values | decides | measurement |\n|---|---|---|---|---|\n"

INTERFACES = (
    "cli/", "cluster/", "catalog/", "draw/", "language/", "plan/", "policy/", "remote/", "server/",
    "errors.py", "grid.py", "preview.py", "environment.py", "testing.py", "types.py",
    "yaml_document.py",
)  # fmt: skip
"""Interfaces, languages and values: their numbers are layouts, limits that callers are told, waits
and defaults of settings."""

DURATION = re.compile(r"(_S|_S_MAX|_MS|_MS_MAX)$")

EXCEPTIONS = {
    "part of what is stored": """
        exec/load/upsert.py:_OFFSET_BITS exec/load/spill.py:_PART_SHIFT
        exec/load/block_files.py:_LENGTH_BYTES exec/load/block_files.py:_ALIGNED
        exec/values/mint.py:_CHARS exec/values/mint.py:_COUNT_BITS exec/values/mint.py:_COUNT_CHARS
        exec/values/mint.py:_DRAWN_BITS exec/values/mint.py:_PART_BITS
        exec/values/mint.py:_ROW_BITS exec/values/mint.py:_SERIES_CHARS
        exec/changes/tokens.py:_DIGEST_BYTES exec/points.py:_ID_CHARS
        graph/review_records.py:_FORMAT
        storage/derived/mapped_file.py:FORMAT storage/derived/mapped_file.py:_COARSE
        storage/derived/mapped_file.py:BLOCK storage/derived/mapped_file.py:_SHIFT
        storage/derived/mapped_file.py:_SHIFT_MAX storage/derived/mapped_file.py:_BLOCKS_MAX
        storage/derived/mapped_file.py:_ALIGNED storage/derived/mapped_file.py:_HEADER_MAX
        storage/derived/node_file.py:_BUCKET
        storage/lance/base_paths.py:_BASE_PATHS storage/lance/base_paths.py:_SECTOR
        storage/lance/base_paths.py:_PATH storage/lance/base_paths.py:_TRANSACTION
        storage/lance/base_paths.py:_CLONE storage/lance/base_paths.py:_CLONED_PATH
        storage/lance/direct_read.py:_SEGMENT storage/lance/direct_read.py:_RANGE
        storage/lance/direct_read.py:_FIRST storage/lance/direct_read.py:_END
        storage/lance/evolution.py:_NAME storage/lance/evolution.py:_ID
        storage/lance/evolution.py:_PARENT storage/lance/evolution.py:_NULLABLE
        storage/lance/evolution.py:_NO_PARENT
        storage/lance/protobuf.py:_VARINT storage/lance/protobuf.py:_BYTES
        storage/lance/row_versions.py:_NEXT_ROW_ID storage/lance/row_versions.py:_RANGES
        storage/local_copies.py:_DIGEST storage/manifest/feed_claims.py:_FORMAT
        storage/manifest/feed_claims.py:_ENCODED_MAX storage/manifest/state_copies.py:_FORMAT
        storage/manifest/state_copies.py:_DIGEST storage/names.py:_ENCODED_MAX
        storage/names.py:_FNV_OFFSET storage/names.py:_FNV_PRIME
        storage/lance/refs.py:_SEGMENT_MAX
        storage/protocol/sidecars.py:SIDECAR_FORMAT storage/stamp.py:INTERNAL_SCHEMA_VERSION
    """,
    "arithmetic: beyond it a number, an array or a digit is not exact": """
        exec/load/uniform_lines.py:_LOWER exec/load/uniform_lines.py:_SPACES_BELOW
        exec/load/uniform_lines.py:_OFFSETS_MAX exec/load/pandas_columns.py:_TYPES_MAX
        exec/load/lines.py:_WORD
        exec/read/cost_search.py:_ROUNDED exec/read/count_walks.py:_SAFE
        exec/read/exact_sums.py:_BITS exec/read/exact_sums.py:_LOW
        exec/read/exact_sums.py:_FLOAT_EXACT exec/read/exact_sums.py:_INTEGER_EXACT
        exec/read/expand.py:_HOPS_ESTIMATED
        exec/read/members.py:_SPAN exec/read/prepare.py:_STAR_STEPS_MAX
        exec/rules/row_rules.py:_DECIMAL_MAX exec/search/vectors.py:_TINY
        exec/topology/build.py:_EDGES_MAX exec/topology/short_ids.py:_NO_LENGTH
        exec/values/arithmetic.py:_LOW exec/values/column_casts.py:_POWERS_EXACT
        exec/values/rows.py:NULL exec/merge/ancestry.py:_OURS exec/merge/ancestry.py:_THEIRS
        exec/merge/ancestry.py:_PASSED
        pipeline/query_frame.py:_CUT_MAX
        storage/derived/radix_sort.py:_DIGIT_BITS storage/derived/radix_sort.py:_WORD
        storage/lance/id_index.py:_FREE
    """,
    "hash functions and scores: another value gives another result": """
        exec/search/bm25_index.py:K1 exec/search/bm25_index.py:B
        exec/search/embed.py:_FNV_OFFSET exec/search/embed.py:_FNV_PRIME
        exec/search/embed.py:_MASK exec/search/search.py:EDITS_DEFAULT
        exec/search/search.py:_PROBES exec/search/search.py:_REFINE
        exec/topology/short_ids.py:_LEVELS exec/topology/short_ids.py:_SPARE
        exec/values/analyse.py:_PIECE_BYTES_END
        exec/values/buckets.py:_HASHED_BYTES exec/values/buckets.py:_SPREAD
        storage/derived/text_hash.py:_WORD storage/derived/text_hash.py:_WORDS_MAX
        storage/derived/text_hash.py:_MASK storage/derived/text_hash.py:_FIRST
        storage/derived/text_hash.py:_SECOND
        storage/lance/id_hashing.py:_WORD storage/lance/id_hashing.py:_WORDS_MAX
    """,
    "limits that callers see, and how much an error or a page shows": """
        exec/changes/consumers.py:_LAG_MAX exec/changes/neighbourhood.py:NODES_MAX
        exec/changes/neighbourhood.py:PAGE_EDGES exec/changes/page_sizes.py:PAGE_CHANGES
        exec/changes/page_sizes.py:PAGE_CHANGES_MAX exec/changes/page_sizes.py:POLL_COMMITS
        exec/changes/page_sizes.py:POLL_COMMITS_MAX exec/changes/tokens.py:TOKEN_CHARS_MAX
        exec/load/columnar.py:_SHOWN_CHARS exec/load/decode.py:_SNIFFED_LINES
        exec/load/decode.py:RECORD_SHOWN_CHARS exec/load/ndjson.py:_SHOWN_CHARS
        exec/load/rule_faults.py:REJECTS_SHOWN exec/load/rule_faults.py:LOOKED_AT
        exec/merge/checked_merge.py:_ROWS_MAX exec/merge/checked_merge.py:_BYTES_MAX
        exec/points.py:PREFIX_CHARS_MIN exec/points.py:_NEAR_MAX exec/points.py:_SHORT_CHARS
        exec/rules/faults.py:LISTED_MAX exec/rules/faults.py:EXAMPLES_MAX
        exec/rules/row_rules.py:_SHOWN_CHARS exec/rules/rules.py:VIOLATIONS_LISTED
        exec/search/embed_http.py:_ANSWER_BYTES_MAX exec/search/embed_http.py:_EXCERPT_CHARACTERS
        graph/look_verbs.py:_PAGE_MAX graph/look_verbs.py:_COMMITS_DRAWN
        graph/look_verbs.py:_CHANGES_DRAWN graph/reviews.py:TITLE_MAX graph/reviews.py:TEXT_MAX
        graph/reviews.py:COMMENTS_MAX
        exec/limits.py:_WHERE_MAX exec/values/sql_bounds.py:_BRACKETS_MAX
        query_limits.py:BACKFILL_OPERATORS_MAX query_limits.py:CONDITION_TERMS_MAX
        query_limits.py:EXPRESSION_DEPTH_MAX query_limits.py:FILTER_DEPTH_MAX
        query_limits.py:QUERY_CLAUSES_MAX query_limits.py:TEXT_BYTES_MAX
        testing/consistency.py:_LISTED testing/consistency.py:_SAMPLE
        testing/thresholds.py:_DEFAULTS_SHARE
        storage/external.py:URI_BYTES_MAX storage/external.py:URIS_MAX
        storage/external.py:OBJECT_BYTES_MAX storage/protocol/intent.py:MESSAGE_BYTES_MAX
        storage/protocol/intent.py:METADATA_BYTES_MAX
    """,
    "estimates of what a value takes, by which limits of memory are kept": """
        exec/changes/entities.py:_COLUMN_BYTES exec/limits.py:_BYTES_A_ROW
        exec/load/inputs.py:_INFLATES exec/load/inputs.py:_COLUMNS_INFLATE
        exec/load/local.py:_UNKNOWN_BYTES exec/load/sources.py:_ROW_BYTES
        exec/memory/adjacency.py:_BYTES_AN_EDGE exec/memory/filed_tables.py:_CELL_BYTES
        exec/memory/filed_tables.py:_MAPPED_BYTES exec/memory/resident.py:_CELL_BYTES
        exec/memory/view.py:_BYTES_A_ROW exec/read/count_walks.py:_BYTES_A_STEP
        exec/schema/conform.py:_KEY_BYTES exec/search/bm25_index.py:_BYTES_A_WORD
        storage/lance/derived_bases.py:_BASE_BYTES storage/lance/spans.py:_COLUMN_BYTES
        storage/lance/spans.py:_ARRAY_BYTES
    """,
    "threads, attempts, locks and leases": """
        exec/load/block_files.py:_FETCHED_AT_ONCE exec/load/exchange.py:AHEAD
        exec/read/guard.py:_IDLE_MAX exec/topology/table_ends.py:_THREADS
        exec/topology/table_ends.py:_AHEAD exec/upkeep/cleanup.py:_ATTEMPTS
        exec/upkeep/optimize.py:_ROUNDS graph/embed_verb.py:_ATTEMPTS
        graph/entity_verbs.py:_PUT_ATTEMPTS storage/flushing.py:_THREADS
        storage/graph_copy.py:_ATTEMPTS storage/lance/parallel.py:_THREADS
        storage/locks/locks.py:_DEAD_SHARE storage/locks/locks.py:_IDLE_TERMS
        storage/locks/locks.py:_KNOWN_MAX storage/locks/locks.py:_NEW_MAX
        storage/locks/turns.py:FREE_ATTEMPTS storage/locks/turns.py:_CROWDS_MAX
        storage/manifest/feed_claims.py:_ATTEMPTS storage/manifest/lost_commits.py:_TRIES_MAX
        storage/protocol/power_cut.py:_WHOLE_MAX storage/upkeep/backup_plan.py:_TRIES
        pipeline/spark_load.py:READS_MAX
    """,
    "settings of Java, Spark, the C library, Lance or S3": """
        exec/allocator.py:KEPT_BYTES exec/allocator.py:_TRIM_THRESHOLD
        exec/allocator.py:_MMAP_THRESHOLD
        pipeline/connect_session.py:_TASKS_AT_ONCE pipeline/java.py:JAVA_MAJOR_MIN
        pipeline/launch_interrupts.py:_IMPATIENT pipeline/package.py:_COMPRESSION
        pipeline/query_frame.py:_SHARES_A_CORE pipeline/query_frame.py:_SHARES_MAX
        pipeline/session.py:ARROW_BATCH_ROWS pipeline/session.py:SHUFFLE_PARTITIONS_MAX
        pipeline/shuffle_exchange.py:_PARTITIONER pipeline/spark_load.py:FRAME_BUCKETS_MAX
        pipeline/spark_load.py:_SIZE_UNKNOWN
        storage/lance/datasets.py:_LOCAL_BLOCK_BYTES storage/objects.py:_CHUNK_BYTES
    """,
    "how often limits and the deadline are looked at, and what they count": """
        deferred.py:_paused_at deferred.py:_pauses exec/read/codes.py:_LONG
        exec/read/prepare.py:LARGE exec/read/reading.py:_COLUMN_BYTES_MAX
        exec/values/analyse.py:_CHUNK exec/values/analyse.py:_PIECES_CHECKED
        exec/values/arithmetic.py:_SHOWN_MAX exec/values/bounded.py:PIECE_BYTES
        exec/values/bounded.py:_COLUMN_BYTES_MAX query_limits.py:FILTER_TERMS_MAX
        query_limits.py:QUERY_VALUES_MAX storage/inspect.py:_LISTED_MAX
    """,
    "both ends of a streaming write must agree": "pipeline/source_write.py:BUCKETS",
    "how many size classes a fold has": "storage/protocol/auto_compaction.py:_CLASSES",
    "caches of a process, made when it starts, of values that never change": """
        exec/load/block_files.py:_INDEXES_MAX exec/values/analyse.py:_TERMS_KEPT
        pipeline/share_tasks.py:_OPEN_MAX storage/lance/id_index.py:_LINES_MAX
    """,
}
"""Numbers that stay where they are used, by the reason."""

EXCEPTED = {name for names in EXCEPTIONS.values() for name in names.split()}


def is_number(value: ast.expr) -> bool:
    """Whether an expression is made of numbers: literals, and other constants beside one."""
    match value:
        case ast.Constant(value=number):
            return type(number) in (int, float)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            parts = [each for each in (left, right) if not isinstance(each, ast.Name)]
            return any(map(is_number, parts)) and all(map(is_number, parts))
        case ast.Tuple(elts=parts):
            return bool(parts) and all(map(is_number, parts))
        case _:
            return False


def constants(tree: ast.Module) -> Iterator[str]:
    """The numeric constants of a module."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=targets, value=value) if is_number(value):
                named = [each for target in targets for each in ast.walk(target)]
            case ast.AnnAssign(target=target, value=ast.expr() as value) if is_number(value):
                named = [target]
            case _:
                continue
        yield from (each.id for each in named if isinstance(each, ast.Name))


def copies(node: ast.AST) -> Iterator[int]:
    """The lines where a value of `COSTS` is read when the module is imported."""
    match node:
        case ast.Lambda(args=arguments):
            below: list[ast.AST] = [arguments]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            below = [node.args, *node.decorator_list]
        case ast.Attribute(value=ast.Name(id="COSTS")):
            yield node.lineno
            return
        case _:
            below = list(ast.iter_child_nodes(node))
    for each in below:
        yield from copies(each)


def engine() -> list[Module]:
    return [m for m in modules() if not m.name.startswith(INTERFACES) and m.name != "costs.py"]


def test_no_module_of_the_engine_has_a_number_that_chooses_a_path_by_size() -> None:
    found = {
        f"{module.name}:{name}"
        for module in engine()
        for name in constants(module.tree)
        if not DURATION.search(name)
    }
    assert found - EXCEPTED == set(), "declare it in omnigraph/costs.py, or say why it stays"
    assert EXCEPTED - found == set(), "not there"


def test_no_module_copies_a_threshold_when_it_is_imported() -> None:
    assert {m.name: lines for m in modules() if (lines := [*copies(m.tree)])} == {}


@pytest.mark.parametrize(
    "text",
    [
        "A = COSTS.x",
        "A: int = COSTS.x // 2",
        "def f(a=COSTS.x): ...",
        "class C:\n    a: int = COSTS.x",
        "class C:\n    def f(self, *, a=COSTS.x): ...",
        "@lru_cache(COSTS.x)\ndef f(): ...",
        "f = lambda a=COSTS.x: a",
        "if COSTS.x:\n    pass",
    ],
)
def test_the_search_for_copies_sees_every_way(text: str) -> None:
    assert list(copies(ast.parse(text)))


def test_a_value_read_in_a_function_is_no_copy() -> None:
    text = "def f(a=None):\n    return COSTS.x\n\ng = lambda: COSTS.x"
    assert not list(copies(ast.parse(text)))


def test_every_threshold_is_used() -> None:
    texts = [module.text for module in modules() if module.name != "costs.py"]
    used = {name for text in texts for name in re.findall(r"\bCOSTS\.(\w+)", text)}
    # Settings that are thresholds name theirs.
    settings = next(module.text for module in modules() if module.name == "environment.py")
    named = {name for name in THRESHOLDS if f'"{name}"' in settings}
    assert used <= THRESHOLDS.keys()
    assert THRESHOLDS.keys() - used - named == set()


def row(name: str, threshold: Threshold[int] | Threshold[float]) -> str:
    least, most = (f"{each:,}" for each in threshold.low)
    low = f"{least} to {most}"
    cells = (f"`{name}`", f"{threshold.value:,}", low, threshold.decides, threshold.measured)
    return "| " + " | ".join(cells) + " |"


def test_the_page_lists_every_threshold() -> None:
    rows = "\n".join(row(name, threshold) for name, threshold in THRESHOLDS.items()) + "\n"
    text = PAGE.read_text(encoding="utf-8")
    before, header, listed = text.partition(HEADER)
    assert header, "the page has no table"
    if UPDATE:
        PAGE.write_text(before + header + rows, encoding="utf-8")
    else:
        assert listed == rows
