"""Hostile input: a fuzzer over everything that reads bytes which others wrote.

    python -m tests.hostile_input [--seconds 60] [--kinds query,csv] [--seed 1] [--keep]

Each kind has inputs that are right and a call that takes one. Inputs are damaged at random; the
call may succeed or raise an error of ours, and nothing else, within a bound of time. `--keep` adds
to the corpus in tests/fixtures/hostile an input for each answer that it has none for yet, and one
for each failure; the tests replay the corpus.

Rows inside Lance's own files are only asked for by name (`--kinds 'table rows'`): one damaged byte
in a few thousand makes the reader of Lance end the whole process, which no caller can prevent.
"""

import argparse
import contextlib
import hashlib
import io
import os
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

import omnigraph as og
from omnigraph.catalog.accept import accept
from omnigraph.cli.config import _read as read_config
from omnigraph.cluster.declared import read_config as read_cluster
from omnigraph.cluster.diagnostics import ClusterRefusal, Diagnostics
from omnigraph.cluster.ledger import Ledger, LedgerEntry, decoded_ledger
from omnigraph.exec.load.decode import Decoder, LineBlock
from omnigraph.plan.compile import compile_query
from omnigraph.plan.params import bind_parameters
from omnigraph.policy.policy_file import parse_policy
from omnigraph.storage.protocol.sidecars import decode_sidecar
from tests import golden
from tests.cli.program import run as run_program
from tests.cluster import world
from tests.language.fuzz import HARSH, mutated
from tests.power_cut_work import INSERT, PEOPLE, SCHEMA

CORPUS = golden.FIXTURES / "hostile"
KEPT_MAX = 12
SECONDS_MAX = 20.0
ENDS_PROCESS = ("manifest rows", "table rows")

TYPED = """
node Person {
    name: String @key
    age: I32?
    score: F64?
    born: Date?
    seen: DateTime?
    tags: [String]?
    photo: Blob?
    at: Vector(3)?
    level: enum(low, high)?
}

edge Knows: Person -> Person { since: Date? }
"""
PARAMS = """query q($s: String, $i: I32, $u: U64?, $f: F64?, $d: Date?, $t: DateTime?, $b: Bool?,
    $l: [I64]?, $v: Vector(3)?) { match { $p: Person { name: $s } } return { $p.age } }"""
LINES = [
    {"type": "Person", "data": {"name": "a", "age": 1, "score": 1.5, "born": "2024-02-29"}},
    {"type": "Person", "data": {"name": "b", "seen": "2024-01-01T00:00:00Z", "tags": ["x", "y"]}},
    {"type": "Person", "data": {"name": "c", "photo": "base64:AAAA", "at": [1, 2, 3]}},
    {"type": "Person", "data": {"name": "d", "level": "low", "age": None}},
    {"edge": "Knows", "from": "a", "to": "b", "data": {"since": "2024-01-01"}},
]


@dataclass(frozen=True)
class Kind:
    """Inputs that are right, a call that takes one, and whether they are texts."""

    seeds: tuple[bytes, ...]
    take: Callable[[bytes], object]
    is_text: bool = False


class Targets:
    """Everything that takes bytes, with the files it needs in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = accept(TYPED)
        self.graph = og.init(folder / "load.omni", TYPED, durability="os")
        self.plan = compile_query(PARAMS, self.catalog)
        self._make_stored()

    def _make_stored(self) -> None:
        self.stored = self.folder / "stored.omni"
        with og.init(self.stored, SCHEMA, durability="os") as graph:
            for number in range(3):
                graph.mutate(INSERT, {"n": f"p{number}"})
            graph.branches.create("side")
        self.kept = self.folder / "kept.omni"
        shutil.copytree(self.stored, self.kept)

    def kinds(self) -> dict[str, Kind]:
        queries = tuple(p.read_bytes() for p in sorted((golden.FIXTURES / "query").glob("*/*.gq")))
        schemas = tuple(p.read_bytes() for p in sorted(golden.FIXTURES.glob("schema/**/*.pg")))
        table = pa.table({"name": ["a", "b"], "age": pa.array([1, None], pa.int32())})
        stored = self.stored
        return {
            "schema": Kind((TYPED.encode(), *schemas), lambda d: accept(_text(d)), True),
            "query": Kind(
                (PARAMS.encode(), *queries), lambda d: compile_query(_text(d), self.catalog), True
            ),
            "params": Kind((_params(),), self.params, True),
            "ndjson": Kind(tuple(orjson.dumps(line) + b"\n" for line in LINES), self.ndjson, True),
            "csv": Kind((_csv(table),), lambda d: self.load("in.csv", d), True),
            "parquet": Kind((_parquet(table),), lambda d: self.load("in.parquet", d)),
            "json lines": Kind(
                (b"".join(orjson.dumps(line) + b"\n" for line in LINES),),
                lambda d: self.load("in.jsonl", d),
                True,
            ),
            "sidecar": Kind((_sidecar(),), lambda d: decode_sidecar(d, path="x"), True),
            "config": Kind((_config(),), self.config, True),
            "policy": Kind(
                (world.POLICY.encode(), *_example("*.policy.yaml")),
                lambda d: parse_policy(_text(d)),
                True,
            ),
            "cluster": Kind(
                (world.CONFIG.encode(), *_example("cluster.yaml")), self.cluster, True
            ),
            "ledger": Kind((_ledger(),), _read_ledger, True),
            "manifest": Kind(
                (min((stored / "__manifest/_versions").glob("*.manifest")).read_bytes(),),
                lambda d: self.damaged("__manifest/_versions/*.manifest", d),
            ),
            "manifest rows": Kind(
                (max((stored / "__manifest/data").glob("*.lance")).read_bytes(),),
                lambda d: self.damaged("__manifest/data/*.lance", d),
            ),
            "table rows": Kind(
                (max((stored / "nodes").glob("*/data/*.lance")).read_bytes(),),
                lambda d: self.damaged("nodes/*/data/*.lance", d),
            ),
            "branch ref": Kind(
                ((stored / "__manifest/_refs/branches/side.json").read_bytes(),),
                lambda d: self.damaged("__manifest/_refs/branches/*.json", d),
                True,
            ),
            "cursor": Kind((self._cursor(),), self.cursor, True),
            "cli": Kind(
                (
                    b"query\0-e\0query q() { match { $p: Person } return { $p.name } }\0g.omni",
                    b"mutate\0-e\0query q() { insert Person { name: \"x\" } }\0--store\0g.omni",
                    b"branch\0create\0b\0g.omni", b"commit\0list\0--limit\x003\0g.omni",
                    b"schema\0plan\0--schema\0s.pg\0g.omni", b"diff\0main~1\0main\0g.omni",
                    b"load\0g.omni\0--data\0x.jsonl\0--mode\0merge", b"check\0g.omni\0--json",
                    b"changes\0g.omni\0--start\0beginning", b"--durability\0os\0snapshot\0g.omni",
                ),
                self.cli,
                True,
            ),
        }  # fmt: skip

    def params(self, data: bytes) -> None:
        try:
            given = orjson.loads(data)
        except orjson.JSONDecodeError:
            return
        bind_parameters(self.plan.parameters, given)

    def ndjson(self, data: bytes) -> None:
        Decoder(self.catalog).decode(LineBlock(data=data, line=1))

    def load(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.write_bytes(data)
        owner = {} if name.endswith(".jsonl") else {"type": "Person"}
        self.graph.load(str(path), "append", engine="local", **owner)

    def config(self, data: bytes) -> None:
        path = self.folder / "config.yaml"
        path.write_bytes(data)
        read_config.__wrapped__(path, 0)

    def cluster(self, data: bytes) -> None:
        (self.folder / "cluster.yaml").write_bytes(data)
        read_cluster(self.folder, Diagnostics())

    def cursor(self, data: bytes) -> None:
        self.graph.changes.poll(cursor=_text(data))

    def _cursor(self) -> bytes:
        return str(self.graph.changes.poll(start="beginning").cursor).encode()

    def damaged(self, pattern: str, data: bytes) -> None:
        """Open and read a graph of which one file was damaged."""
        [*paths] = sorted(self.stored.glob(pattern))
        path = paths[-1] if "rows" in pattern or "data" in pattern else paths[0]
        whole = (self.kept / path.relative_to(self.stored)).read_bytes()
        path.write_bytes(data)
        try:
            with og.open(self.stored, read_only=True) as graph:
                graph.branches.list()
                graph.query(PEOPLE)
                graph.commits.list()
        finally:
            path.write_bytes(whole)

    def cli(self, data: bytes) -> None:
        home = self.folder / "cli"
        if not home.exists():
            home.mkdir()
            og.init(home / "g.omni", SCHEMA, durability="os").close()
            (home / "s.pg").write_text(SCHEMA)
            (home / "x.jsonl").write_text('{"type": "Person", "data": {"name": "x"}}\n')
        words = [os.fsdecode(word) for word in data.split(b"\0")]
        if not words or words[0] in ("demo", "serve", "embed", "shell", "completion", "package"):
            return
        with contextlib.redirect_stderr(io.StringIO()):
            done = run_program(*words, cwd=home)
        assert done.returncode in (0, 1, 2, 4), f"status {done.returncode}"
        assert "failed unexpectedly" not in done.stderr, done.stderr
        assert "Traceback" not in done.stderr, done.stderr


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _params() -> bytes:
    return orjson.dumps(
        {"s": "a", "i": 1, "u": 2, "f": 1.5, "d": "2024-01-01", "t": "2024-01-01T00:00:00Z"}
        | {"b": True, "l": [1, 2], "v": [1, 2, 3]}
    )


def _csv(table: pa.Table) -> bytes:
    out = io.BytesIO()
    csv.write_csv(table, out)
    return out.getvalue()


def _parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _sidecar() -> bytes:
    [*paths] = sorted((golden.FIXTURES / "earlier").glob("**/__recovery/*.json"))
    return paths[0].read_bytes() if paths else SIDECAR


SIDECAR = orjson.dumps(
    {"format": 1, "operation_id": "01X", "commit_id": "01Y", "rollback_id": "01Z"}
    | {"kind": "mutation", "branch": "main", "branch_identity": "", "new_tables": []}
    | {"tombstones": [], "tables": [], "files": [], "actor": None}
    | {"relied_on": {}, "multi_step": False, "schema": None, "renames": {}, "reclaim": []}
)


def _example(pattern: str) -> tuple[bytes, ...]:
    folder = Path(__file__).parent.parent / "examples" / "cluster"
    return tuple(path.read_bytes() for path in sorted(folder.glob(pattern)))


def _read_ledger(data: bytes) -> None:
    try:
        decoded_ledger(data, "x")
    except ClusterRefusal as refusal:
        raise refusal.as_error() from None


def _ledger() -> bytes:
    entry = LedgerEntry("0" * 64, {"embedding_provider": "default"})
    return orjson.dumps(Ledger(3, "0" * 64, {"graph.knowledge": entry}).to_json())


def _config() -> bytes:
    return b"""operator:\n  actor: act-me\ndefaults:\n  store: /g.omni\n  retries: 3
profiles:\n  dev: {store: /g.omni}\n  far: {server: prod}\nservers:\n  prod: {url: http://x}\n"""


def damaged(kind: Kind, chance: random.Random) -> bytes:
    """One input, a little or very wrong."""
    seed = chance.choice(kind.seeds)
    if kind.is_text and chance.random() < 0.7:
        texts = [_text(each) for each in chance.sample(kind.seeds, min(4, len(kind.seeds)))]
        text = mutated(_text(seed), chance, pieces=HARSH, seeds=texts)
        return text.encode("utf-8", "surrogatepass")
    data = bytearray(seed)
    for _ in range(chance.randint(1, 6)):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice((0, 1, 1, 2, 4, 8, 64)))
        match chance.randrange(7):
            case 0:
                data[start:end] = b""
            case 1:
                data[start:end] = chance.randbytes(end - start)
            case 2:
                data[start:start] = chance.randbytes(chance.choice((1, 2, 8)))
            case 3:
                data[start:end] = bytes([chance.choice((0, 0x7F, 0x80, 0xFF))]) * (end - start)
            case 4 if end > start:
                data[start] ^= 1 << chance.randrange(8)
            case 5:
                del data[start:]
            case _:
                data[start:start] = data[start:end] * chance.randint(1, 4)
    return bytes(data)


@dataclass
class Answer:
    """What came of one input: its signature, how long it took, and whether it was a failure."""

    signature: str
    seconds: float
    failed: bool


def ask(kind: Kind, data: bytes) -> Answer:
    """Take one input."""
    start = time.perf_counter()
    try:
        kind.take(data)
        signature, failed = "ok", False
    except og.OmnigraphError as error:
        words = re.sub(r"'[^']*'|\d+|\W+", " ", str(error))[:60]
        signature, failed = f"{type(error).__name__} {words}", False
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  a panic of Rust is no Exception
        signature, failed = f"FAILED {type(error).__name__}: {str(error)[:300]}", True
    seconds = time.perf_counter() - start
    if seconds > SECONDS_MAX:
        return Answer(f"FAILED it took {seconds:.1f} s", seconds, True)
    return Answer(signature, seconds, failed)


def corpus() -> list[tuple[str, Path]]:
    """Every kept input with its kind."""
    return [(path.parent.name.replace("-", " "), path) for path in sorted(CORPUS.glob("*/*"))]


def keep(name: str, data: bytes) -> None:
    """Add an input to the corpus."""
    folder = CORPUS / name.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)


def campaign(
    seconds: float, names: list[str] | None, seed: int, *, keeps: bool
) -> tuple[Counter[str], dict[str, tuple[str, bytes]]]:
    """Ask for so long, each kind for an equal share of it; how many of each, and what failed."""
    chance = random.Random(seed)
    asked: Counter[str] = Counter()
    failures: dict[str, tuple[str, bytes]] = {}
    with tempfile.TemporaryDirectory() as folder:
        kinds = Targets(Path(folder)).kinds()
        chosen = names or [name for name in kinds if name not in ENDS_PROCESS]
        for name in chosen:
            signatures: set[str] = set()
            end = time.monotonic() + seconds / len(chosen)
            while time.monotonic() < end:
                data = damaged(kinds[name], chance)
                answer = ask(kinds[name], data)
                asked[name] += 1
                if answer.failed:
                    failures.setdefault(f"{name}: {answer.signature}", (name, data))
                new = answer.signature not in signatures and len(signatures) < KEPT_MAX
                signatures.add(answer.signature)
                if keeps and (answer.failed or new) and len(data) < 20_000:
                    keep(name, data)
    return asked, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kinds", type=lambda text: text.split(","))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    asked, failures = campaign(options.seconds, options.kinds, options.seed, keeps=options.keep)
    said = [f"{name}: {count}" for name, count in asked.items()]
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) >> 10
    print(*said, f"{asked.total()} inputs, peak {peak} MiB, seed {options.seed}", sep="\n")  # noqa: T201
    for signature, (_, data) in failures.items():
        print(f"{signature}\n    {data[:200]!r}")  # noqa: T201
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
