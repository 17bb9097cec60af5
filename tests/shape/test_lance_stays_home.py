"""Only the storage room opens datasets, lets Lance commit, publishes or holds locks.

The doors into the room are listed by name. Whatever another room imports from `omnigraph.storage`
is on the list, and no other room names a part of the store that is behind the doors, by attribute
or by text.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "omnigraph"
STORAGE = "omnigraph.storage"

DOORS = {
    "beside": {"BesideObjects", "has_ended", "own_process"},
    "cluster_objects": {"ClusterObjects", "step"},
    "derived.column_file": {
        "ColumnFile",
        "can_be_filed",
        "column_arrays",
        "column_kind",
        "is_column_kind",
    },
    "derived.derived_folder": {"EDGES", "FOLDER", "NODES", "DerivedEntry", "is_of", "pin_of"},
    "derived.edge_delta_file": {"EDGE_DELTAS", "EdgeDeltaFile", "delta_facts"},
    "derived.edge_file": {"EdgeFile", "RowLists", "Way", "distinct_arrays", "edge_arrays"},
    "derived.mapped_file": {"DamagedFile", "MappedFile"},
    "derived.node_file": {"NO_ROW", "NodeFile", "node_arrays"},
    "external": {"ExternalBlobs", "checked_bases"},
    "inspect": {"DELETION_MISPLACED", "FILE_MISSING", "inspect_branch", "inspect_graph"},
    "graph_copy": {"copy_graph"},
    "lance.columns": {
        "ADDRESS",
        "BLOB_BYTES",
        "BLOB_DESCRIPTIONS",
        "BLOB_SIZE",
        "BLOB_URI",
        "CREATED",
        "KEY",
        "ROW_ID",
        "UPDATED",
        "among_row_ids",
    },
    "lance.derived_bases": {"EdgeBase", "NodeBase"},
    "lance.direct_read": {"UnreadableFile"},
    "lance.evolution": {"Evolution"},
    "lance.foreign": {"look_at", "read_batches"},
    "lance.index_segments": {"IndexFacts", "IndexRequest"},
    "lance.parallel": {"together"},
    "lance.reader": {"TableReader", "columns_in_files", "index_lag", "present_rows"},
    "lance.spans": {"AFTER", "BEFORE", "TOUCHED"},
    "lance.staging": {"Fragments", "StagedWrite", "TableStaging"},
    "local_copies": {"SCHEMAS"},
    "locks.turns": {"LockTaken", "Turn"},
    "manifest.feed_claims": {"FeedClaim", "Lapse", "checked_consumer"},
    "manifest.history": {"History"},
    "manifest.state": {"LOCATION"},
    "manifest.table_line": {"TableLine"},
    "manifest.tags": {"Tag"},
    "names": {"MAIN", "owner_of", "require_actor", "require_text"},
    "protocol.intent": {"AlreadyMarked", "WriterKind", "noted"},
    "protocol.once": {"written_once"},
    "protocol.schema_write": {"SchemaWrite"},
    "protocol.write": {"Write"},
    "recovery_records": {"Recovery"},
    "records": {
        "DATASET",
        "NO_NOTE",
        "Commit",
        "CommitId",
        "CommitNote",
        "Embedded",
        "EmbeddedBy",
        "EmbeddedChange",
        "Home",
        "Origin",
        "RowCounts",
        "SchemaId",
        "Snapshot",
        "TRANSACTIONS",
        "TablePin",
        "TopologyState",
        "WriteBase",
        "embedded_property",
        "base_of",
    },
    "retry": {
        "CHECKED_MERGE",
        "ENSURE_INDICES",
        "HEAD_READ",
        "MERGE",
        "OPTIMIZE",
        "REVIEW",
        "SCHEMA",
        "STRICT",
        "change_budget",
        "retried",
    },
    "stamp": {"INTERNAL_SCHEMA_VERSION"},
    "stats": {"StatsView"},
    "opening": {"create", "first_snapshot", "open_store"},
    "store": {"Settings", "Store"},
    "upkeep.cleanup": {"LineTask", "RunLines", "TableCleanup"},
    "upkeep.compaction": {"Outcome", "TableDone", "TablePlan", "Task"},
    "upkeep.drift": {"Drift"},
    "upkeep.repair": {"Look", "RepairReport", "RunLooks", "TableRepair"},
}
"""Modules of the room, and the names that other rooms may import from each. None of them opens a
dataset, moves a head, publishes or takes a lock by itself."""

COMMITTING = {
    "restore",
    "write_dataset",
    "merge_insert",
    "compact_files",
    "create_index",
    "create_scalar_index",
    "optimize_indices",
    "add_columns",
    "drop_columns",
    "alter_columns",
    "cleanup_old_versions",
    "create_branch",
    "update_schema_metadata",
    "commit_staged",
    "commit_prepared",
    "LanceDataset",
    "LanceOperation",
}
"""Methods that commit by themselves, and the names of Lance they belong to."""

BEHIND = {
    "datasets",
    "folding",
    "handle",
    "locks",
    "manifest",
    "objects",
    "publisher",
    "publish",
    "sidecars",
    "transaction",
}
"""Parts of the store, and of what it hands out, that are behind the doors."""

RESIDUAL = {
    "restore": {"inline_commits.py"},
    "Compaction": {"inline_commits.py"},
    "write_dataset": {"datasets.py"},
}
"""Inside the room: where each inline commit lives, and nowhere else."""

BY_TEXT = {
    "getattr",
    "setattr",
    "hasattr",
    "attrgetter",
    "methodcaller",
    "vars",
    "__getattribute__",
}


def sources(*, inside: bool) -> list[Path]:
    files = sorted(ROOT.rglob("*.py"))
    return [f for f in files if (ROOT / "storage" in f.parents) == inside]


def offences(text: str) -> list[str]:
    """What a file outside the storage room must not do."""
    tree = ast.parse(text)
    return [fault for node in ast.walk(tree) for fault in _faults(node)]


def _faults(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names if _is_closed(alias.name, None))
        case ast.ImportFrom(module=module, names=names, level=level):
            # A relative import would have to be resolved first: rooms name each other in full.
            base = f"{'.' * level}{module or ''}"
            yield from (
                f"{base}.{alias.name}"
                for alias in names
                if _is_closed(base, alias.name) or alias.name in COMMITTING
            )
        case ast.Attribute(attr=attr, value=value):
            is_closed = attr in COMMITTING | BEHIND and not _is_verb_of_a_graph(attr, value)
            if is_closed or _is_private_of_another(attr, value):
                yield attr
            if attr == "storage" and isinstance(value, ast.Name) and value.id == "omnigraph":
                yield "omnigraph.storage"
        case ast.Call(func=func, args=args):
            name = getattr(func, "id", getattr(func, "attr", ""))
            texts = [a.value for a in args if isinstance(a, ast.Constant)]
            if name in ("import_module", "__import__"):
                yield from (str(t) for t in texts if _is_closed(str(t), None))
            if name in BY_TEXT:
                yield from (str(t) for t in texts if _names_a_part(str(t)))
            if name == "commit" and isinstance(func, ast.Attribute) and not _commits(func.value):
                yield "commit"
        case ast.Subscript(slice=ast.Constant(value=str(key))) if _names_a_part(key):
            if isinstance(node.value, ast.Attribute | ast.Call):
                yield key


def _is_closed(module: str, name: str | None) -> bool:
    """Whether an import leads behind the doors."""
    if module.partition(".")[0] in ("lance", "obstore", "pylance"):
        return True
    if module.startswith(".") and ("storage" in module or name == "storage"):
        return True
    if module == "omnigraph" and name == "storage":
        return True
    if module != STORAGE and not module.startswith(f"{STORAGE}."):
        return False
    return name not in DOORS.get(module.removeprefix(f"{STORAGE}."), ())


def _is_verb_of_a_graph(attr: str, value: ast.expr) -> bool:
    """`graph.restore`, or the command of that name, or `graph.transaction`: a commit like any
    other, and none of Lance."""
    name = getattr(value, "id", getattr(value, "attr", ""))
    names = {"restore": ("graph", "_graph", "undo_commands"), "transaction": ("graph", "_graph")}
    return name in names.get(attr, ())


def _is_private_of_another(attr: str, value: ast.expr) -> bool:
    """`store._committer`: what a class keeps to itself, asked of something else than `self`."""
    own = isinstance(value, ast.Name) and value.id in ("self", "cls")
    return not own and attr.startswith("_") and attr.strip("_") in PRIVATE


PRIVATE = BEHIND | {"committer", "recoverer", "residual", "session", "store", "tables", "own"}


def _names_a_part(text: str) -> bool:
    parts = set(text.split("."))
    return bool(parts & (COMMITTING | BEHIND)) or any(
        part.startswith("_") and part.strip("_") in PRIVATE for part in parts
    )


def _commits(receiver: ast.expr) -> bool:
    """Whether this is the store, or a class of the file's own room that walks a write to it."""
    if isinstance(receiver, ast.Call):
        return isinstance(receiver.func, ast.Name) and receiver.func.id.startswith("_")
    name = getattr(receiver, "id", getattr(receiver, "attr", ""))
    return name in ("store", "_store", "finish")


@pytest.mark.parametrize("path", sources(inside=False), ids=lambda p: str(p.relative_to(ROOT)))
def test_t3_no_other_room_opens_a_dataset_or_commits(path: Path) -> None:
    assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sources(inside=True), ids=lambda p: p.name)
def test_t2_inline_commits_live_behind_their_door(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and not (isinstance(node.func.value, ast.Attribute) and "_residual" in node.func.value.attr)
    }
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name, homes in RESIDUAL.items():
        assert name not in used or path.name in homes, f"{name} is called in {path.name}"


def test_t3_every_door_is_there_and_used() -> None:
    imported: dict[str, set[str]] = {module: set() for module in DOORS}
    for path in sources(inside=False):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{STORAGE}."):
                module = str(node.module).removeprefix(f"{STORAGE}.")
                imported[module] |= {alias.name for alias in node.names}
    assert imported == DOORS


def test_t2_what_is_inside_the_room_is_there() -> None:
    homes = {home for homes in RESIDUAL.values() for home in homes}
    assert homes <= {path.name for path in sources(inside=True)}


@pytest.mark.parametrize(
    "text",
    [
        "import lance",
        "import lance.dataset as quiet",
        "import obstore",
        "from lance.dataset import Transaction",
        "from lance import LanceDataset as Table",
        "import importlib\nimportlib.import_module('lance')",
        "__import__('omnigraph.storage.lance.datasets')",
        "import omnigraph.storage.lance.datasets",
        "import omnigraph.storage.manifest.publish as p",
        "import omnigraph\nomnigraph.storage.lance.datasets",
        "from omnigraph import storage",
        "from omnigraph.storage import residual",
        "from omnigraph.storage import lance",
        "from omnigraph.storage.lance import inline_commits",
        "from omnigraph.storage.lance import datasets as plain",
        "from omnigraph.storage.lance.inline_commits import InlineResidual",
        "from omnigraph.storage.lance.datasets import Datasets",
        "from omnigraph.storage.lance.tables import Tables",
        "from omnigraph.storage.lance.staging import lance",
        "from omnigraph.storage.manifest.publish import Publisher",
        "from omnigraph.storage.manifest.manifest import Manifest",
        "from omnigraph.storage.protocol.commit import Committer",
        "from omnigraph.storage.protocol.sidecars import Sidecars",
        "from omnigraph.storage.locks.locks import hold",
        "from omnigraph.storage.objects import Objects",
        "from omnigraph.storage.store import Datasets",
        "from omnigraph.storage import failpoints",
        "from ..storage.lance import datasets",
        "from .. import storage",
        "store.datasets.open('nodes/x')",
        "doors = store.datasets",
        "self._store.datasets.create_branch('x', 'b', source=None, version=1)",
        "store.manifest.publish(branch, change)",
        "store.publisher.publish('main', change)",
        "publish = store.publisher",
        "store.sidecars.delete(operation)",
        "store.objects.delete_prefix('nodes')",
        "store.locks.acquire('t', wait_s=0)",
        "store.folding.fold_table(pin)",
        "store._committer.commit(prepared, turn)",
        "store.commit_prepared(prepared, turn)",
        "store.tables.commit_staged(staged, operation)",
        "store.tables._datasets",
        "store.compactor._residual.restore(head, 1, op)",
        "reader._session",
        "write.state.handle",
        "staged.transaction",
        "LanceDataset.commit(handle, transaction)",
        "handle.commit(transaction)",
        "handle.restore()",
        "x.write_dataset(rows)",
        "getattr(store, 'datasets')",
        "operator.attrgetter('publisher.publish')(store)",
        "vars(store)['datasets']",
        "store.__dict__['_committer']",
        "store.__getattribute__('sidecars')",
    ],
)
def test_t3_the_guard_sees_what_it_guards_against(text: str) -> None:
    assert offences(text)


@pytest.mark.parametrize(
    "text",
    [
        "from omnigraph.storage.opening import open_store",
        "store.commit(write, mark=mark)",
        "self._store.snapshot(branch).tables",
        "store.tables.reader(pin)",
        "done.commit.id",
    ],
)
def test_t3_the_guard_lets_the_doors_stand_open(text: str) -> None:
    assert offences(text) == []
