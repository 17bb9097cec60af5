"""How a graph of people and friendships behaves as it grows, beside other engines.

    uv sync --group bench
    uv run python bench/scale.py                    # 100k people, 1M friendships
    uv run python bench/scale.py --millions 1       # 1M people, 10M friendships
    uv run python bench/scale.py --millions 3       # 3M people, 30M friendships
    uv run python bench/scale.py --people 20000 --engines omnigraph,numpy

Prints, for each engine, in wall time and CPU: the load, a new process up to its first hop (imports
apart), lookups and hops, counts over the whole graph, commits of one row, and the memory of a
process after all reads, and of four that read at once. Of a lookup or hop, cold is the first, other
people are those that nobody asked for yet, and warm is asking for the same ones again. Every engine
is asked in a process of its own, with the same people in the same order, and answers are compared.
For this project also: what imports take beside those of pyarrow and lance, and a first hop by the
command. Bytecode is kept beside the data, so that no import compiles. Writes
bench/results/scale-<people>.json.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from own_memory import memory_mib

RESULTS = Path(__file__).parent / "results"
ENGINES = ("omnigraph", "ladybug", "duckdb", "numpy")
FRIENDS = 10
ASKED = 400
ASKED_FAR = {"2 hops distinct": 60, "3 hops distinct": 10}

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
edge Knows: Person -> Person
"""
QUERIES = {
    "point lookup": "query q($n: String) { match { $p: Person { name: $n } } "
    "return { $p.age as age, $p.city as city } }",
    "1 hop": "query q($n: String) { match { $p: Person { name: $n }  $p knows $f } "
    "return { $f.name as name, $f.age as age } }",
    "2 hops distinct": "query q($n: String) { match { $p: Person { name: $n }  "
    "$p knows{1,2} $f } return { count($f) as n } }",
    "3 hops distinct": "query q($n: String) { match { $p: Person { name: $n }  "
    "$p knows{1,3} $f } return { count($f) as n } }",
}
WHOLE = {
    "2-hop walks": "query q() { match { $a: Person  $a knows $b  $b knows $c } "
    "return { count($a) as n } }",
    "mutual friends": "query q() { match { $a: Person  $a knows $b  $b knows $a } "
    "return { count($a) as n } }",
}


def person(number: int) -> str:
    return f"person{number:08d}"


def pairs(people: int) -> Any:
    """The friendships, each once."""
    import numpy as np  # noqa: PLC0415  the first import is measured

    chance = np.random.default_rng(11)
    ends = chance.integers(0, people, (people * FRIENDS, 2))
    keys = np.unique(ends[:, 0] * people + ends[:, 1])
    chance.shuffle(keys)
    return keys // people, keys % people


def tables(people: int) -> tuple[Any, Any]:
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    names = pa.array([person(n) for n in range(people)])
    numbers = np.arange(people)
    nodes = pa.table(
        {
            "name": names,
            "age": pa.array((numbers % 90).astype("int32")),
            "city": pa.array([f"city{n % 500}" for n in range(people)]),
        }
    )
    source, target = pairs(people)
    edges = pa.table({"src": names.take(pa.array(source)), "dst": names.take(pa.array(target))})
    return nodes, edges


# ---- engines


class OmniGraph:
    """This project, through its public door."""

    def __init__(self, folder: Path) -> None:
        import omnigraph  # noqa: PLC0415

        self._module = omnigraph
        self._path = folder / "omnigraph"
        self.graph = omnigraph.open(self._path) if self._path.exists() else None

    def load(self, people: int) -> None:
        nodes, edges = tables(people)
        self.graph = self._module.init(self._path, SCHEMA)
        self.graph.load(nodes, "append", type="Person", engine="local")
        self.graph.load(edges, "append", edge="Knows", engine="local")

    def ask(self, question: str, name: str) -> Any:
        rows = self.graph.query(QUERIES[question], {"n": name}).rows
        if "hops" in question:
            return rows[0]["n"] if rows else 0
        return sorted(tuple(row.values()) for row in rows)

    def whole(self, question: str) -> int:
        return int(self.graph.query(WHOLE[question]).rows[0]["n"])

    def commit(self, number: int) -> None:
        self.graph.mutate(f'query q() {{ insert Person {{ name: "new{number:04d}" }} }}')

    def tidy(self) -> None:
        self.graph.optimize()


class Ladybug:
    """The living fork of Kuzu."""

    def __init__(self, folder: Path) -> None:
        import ladybug  # noqa: PLC0415

        self._folder = folder
        self._connection = ladybug.Connection(ladybug.Database(str(folder / "ladybug")))

    def _rows(self, text: str, **given: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._connection.execute(text, given).get_all()]

    def load(self, people: int) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415

        nodes, edges = tables(people)
        run = self._connection.execute
        run("CREATE NODE TABLE Person(name STRING, age INT32, city STRING, PRIMARY KEY(name))")
        run("CREATE REL TABLE Knows(FROM Person TO Person)")
        for name, table in (("Person", nodes), ("Knows", edges)):
            path = self._folder / f"{name}.parquet"
            pq.write_table(table, path)
            run(f"COPY {name} FROM '{path}'")

    def ask(self, question: str, name: str) -> Any:
        start = "MATCH (p:Person {name: $n})"
        if question == "point lookup":
            return sorted(self._rows(f"{start} RETURN p.age, p.city", n=name))
        if question == "1 hop":
            return sorted(self._rows(f"{start}-[:Knows]->(f) RETURN f.name, f.age", n=name))
        hops = question[0]
        text = f"{start}-[:Knows*1..{hops}]->(f) WHERE f.name <> $n RETURN count(DISTINCT f)"
        return int(self._rows(text, n=name)[0][0])

    def whole(self, question: str) -> int:
        last = "(c:Person)" if question == "2-hop walks" else "(a)"
        text = f"MATCH (a:Person)-[:Knows]->(b:Person)-[:Knows]->{last} RETURN count(*)"
        return int(self._rows(text)[0][0])

    def commit(self, number: int) -> None:
        self._connection.execute(f"CREATE (:Person {{name: 'new{number:04d}'}})")

    def tidy(self) -> None:
        self._connection.execute("CHECKPOINT")


class DuckDB:
    """A relational engine, with indexes on the name and the source."""

    def __init__(self, folder: Path) -> None:
        import duckdb  # noqa: PLC0415

        self._connection = duckdb.connect(str(folder / "duckdb"))
        self._connection.execute("SET threads = 2")

    def load(self, people: int) -> None:
        nodes, edges = tables(people)  # noqa: RUF059  DuckDB reads the variables by their names
        run = self._connection.execute
        run("CREATE TABLE person AS SELECT * FROM nodes")
        run("CREATE TABLE knows AS SELECT * FROM edges ORDER BY src")
        run("CREATE UNIQUE INDEX person_name ON person(name)")
        run("CREATE INDEX knows_src ON knows(src)")

    def ask(self, question: str, name: str) -> Any:
        run = self._connection.execute
        if question == "point lookup":
            return sorted(run("SELECT age, city FROM person WHERE name = ?", [name]).fetchall())
        if question == "1 hop":
            text = "SELECT f.name, f.age FROM knows k JOIN person f ON f.name = k.dst "
            return sorted(run(f"{text} WHERE k.src = ?", [name]).fetchall())
        text = """WITH RECURSIVE far(n, d) AS (SELECT ?::VARCHAR, 0 UNION
            SELECT k.dst, d + 1 FROM far JOIN knows k ON k.src = far.n WHERE d < ?)
            SELECT count(DISTINCT n) FROM far WHERE n <> ?"""
        return int(run(text, [name, int(question[0]), name]).fetchone()[0])

    def whole(self, question: str) -> int:
        more = "" if question == "2-hop walks" else "AND b.dst = a.src"
        text = f"SELECT count(*) FROM knows a JOIN knows b ON a.dst = b.src {more}"
        return int(self._connection.execute(text).fetchone()[0])

    def commit(self, number: int) -> None:
        self._connection.execute("INSERT INTO person VALUES (?, NULL, NULL)", [f"new{number:04d}"])

    def tidy(self) -> None:
        self._connection.execute("CHECKPOINT")


class Numpy:
    """Bare arrays: no names but numbers, no commits."""

    def __init__(self, folder: Path) -> None:
        import numpy as np  # noqa: PLC0415

        self._np = np
        self._folder = folder / "numpy"
        if self._folder.exists():
            self.starts, self.near, self.age, self.city = (
                np.load(self._folder / f"{name}.npy", mmap_mode="r")
                for name in ("starts", "near", "age", "city")
            )

    def load(self, people: int) -> None:
        np = self._np
        self._folder.mkdir()
        source, target = pairs(people)
        order = np.lexsort((target, source))
        starts = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=people))))
        numbers = np.arange(people)
        for name, array in (
            ("starts", starts),
            ("near", target[order].astype(np.int32)),
            ("age", (numbers % 90).astype(np.int32)),
            ("city", numbers % 500),
        ):
            np.save(self._folder / f"{name}.npy", array)
        self.__init__(self._folder.parent)  # type: ignore[misc]

    def ask(self, question: str, name: str) -> Any:
        np, number = self._np, int(name.removeprefix("person"))
        if question == "point lookup":
            return [(int(self.age[number]), f"city{int(self.city[number])}")]
        row = self.near[self.starts[number] : self.starts[number + 1]]
        if question == "1 hop":
            return sorted(
                (person(n), age)
                for n, age in zip(row.tolist(), self.age[row].tolist(), strict=True)
            )
        seen = frontier = np.array([number])
        for _ in range(int(question[0])):
            parts = [self.near[self.starts[n] : self.starts[n + 1]] for n in frontier.tolist()]
            frontier = np.setdiff1d(np.concatenate(parts), seen)
            seen = np.union1d(seen, frontier)
        return len(seen) - 1

    def whole(self, question: str) -> int:
        np = self._np
        degrees = np.diff(self.starts)
        if question == "2-hop walks":
            return int((np.bincount(self.near, minlength=len(degrees)) * degrees).sum())
        owners = np.repeat(np.arange(len(degrees)), degrees)
        keys, back = (
            owners * len(degrees) + self.near,
            self.near.astype(np.int64) * len(degrees) + owners,
        )
        return len(np.intersect1d(keys, back, assume_unique=True))


KINDS: dict[str, Callable[[Path], Any]] = {
    "omnigraph": OmniGraph,
    "ladybug": Ladybug,
    "duckdb": DuckDB,
    "numpy": Numpy,
}
IMPORTS = {
    "omnigraph": "import omnigraph.graph, pyarrow, lance",
    "ladybug": "import ladybug",
    "duckdb": "import duckdb",
    "numpy": "import numpy",
}


# ---- one engine, in a process of its own


class Timed:
    """Figures in ms: wall time by name, and beside it the CPU of all threads, which other work on
    the machine changes less."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}

    def one(self, line: str, work: Callable[[], Any]) -> Any:
        answer, wall, used = timed(work)
        self.put(line, wall, used)
        return answer

    def put(self, line: str, wall: float, used: float) -> None:
        self.figures |= {line: 1000 * wall, f"{line}, CPU": 1000 * used}


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, used = time.perf_counter(), time.process_time()
    answer = work()
    return answer, time.perf_counter() - wall, time.process_time() - used


def measured(name: str, folder: Path, people: int) -> dict[str, Any]:
    """What one engine takes, in ms, and its answers."""
    chance = __import__("random").Random(5)
    asked = [person(chance.randrange(people)) for _ in range(ASKED)]
    clock = Timed()
    clock.one("import", lambda: exec(IMPORTS[name]))
    engine = clock.one("open", lambda: KINDS[name](folder))
    answers: list[Any] = [clock.one("first hop", lambda: engine.ask("1 hop", asked[0]))]
    for question in QUERIES:
        few = asked[: ASKED_FAR.get(question, ASKED)]
        for ending in ("other people", "warm"):
            runs = [timed(lambda each=each: engine.ask(question, each)) for each in few]  # noqa: B023
            answers += [answer for answer, _, _ in runs]
            if ending != "warm":
                clock.put(f"{question}, cold", *runs[0][1:])
            later = runs[len(runs) // 2 :]
            clock.put(f"{question}, {ending}", *map(median, list(zip(*later))[1:]))  # noqa: B905
    for question in WHOLE:
        runs = [timed(lambda: engine.whole(question)) for _ in range(3)]  # noqa: B023
        answers += [answer for answer, _, _ in runs]
        clock.put(question, min(wall for _, wall, _ in runs), min(used for _, _, used in runs))
    clock.figures["RssAnon MB"] = memory_mib("RssAnon")
    clock.figures["VmRSS MB"] = memory_mib("VmRSS")
    if hasattr(engine, "commit"):
        runs = [timed(lambda number=number: engine.commit(number)) for number in range(60)]
        clock.put("one-node commit", *map(median, list(zip(*runs))[1:]))  # noqa: B905
        clock.one("optimize after 60 commits", engine.tidy)
    return {"figures": clock.figures, "answers": answers}


TIMED = """
import sys
import time


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


sys.meta_path.insert(0, Hidden())
begun = time.process_time()
{}
print(1000 * (time.process_time() - begun))
"""


def fresh(people: int, folder: Path) -> dict[str, Any]:
    """New processes of this project, medians in ms of CPU: imports beside those of pyarrow and
    lance without pandas, which this project does not import either; imports, open and first hop
    together; and the command for one hop in wall time too."""
    alone = "import pyarrow, lance"
    ours = "import omnigraph.graph, pyarrow, lance"
    graph = f"import omnigraph; g = omnigraph.open({str(folder / 'omnigraph')!r})"
    hop = f"g.query({QUERIES['1 hop']!r}, {{'n': {person(people // 2)!r}}}).rows"
    codes = {
        "import, pyarrow and lance, CPU": alone,
        "import, CPU": ours,
        "import, open, first hop, CPU": f"{graph}; {hop}",
    }
    figures: dict[str, list[float]] = {line: [] for line in codes}
    for _ in range(6):
        for line, code in codes.items():
            figures[line].append(float(_output("-c", TIMED.format(code))))
    query = folder / "hop.gq"
    query.write_text(QUERIES["1 hop"])
    command = ("-m", "omnigraph", "query", "--store", str(folder / "omnigraph"))
    given = ("--query", str(query), "--params", json.dumps({"n": person(people // 2)}), "--json")
    walls, used = [], []
    for _ in range(5):
        begun, before = time.perf_counter(), _used_by_children()
        _output(*command, *given)
        walls.append(1000 * (time.perf_counter() - begun))
        used.append(1000 * (_used_by_children() - before))
    return {line: median(each[1:]) for line, each in figures.items()} | {
        "command, one hop": median(walls),
        "command, one hop, CPU": median(used),
    }


def _used_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _output(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def shared(name: str, folder: Path, people: int) -> dict[str, float]:
    """Memory of four processes that have the graph open at once, after lookups and hops."""
    command = [sys.executable, __file__, "--child", "share", "--engines", name]
    command += ["--people", str(people), "--folder", str(folder)]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, env=_environment())
        for _ in range(4)
    ]
    for each in started:
        assert each.stdout is not None
        each.stdout.readline()  # it has read
    totals = {"RssAnon MB, four": 0.0, "Pss MB, four": 0.0}
    for each in started:
        smaps = Path(f"/proc/{each.pid}/smaps_rollup").read_text()
        lines = dict(line.split(":", 1) for line in smaps.splitlines() if ":" in line[:20])
        totals["Pss MB, four"] += int(lines["Pss"].split()[0]) / 1024
        totals["RssAnon MB, four"] += int(lines["Pss_Anon"].split()[0]) / 1024
    for each in started:
        each.communicate(b"\n")
    return totals


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "scale-bytecode")}


def child(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--millions", type=int, help="of people, in place of --people")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--child", choices=("load", "read", "share"))
    parser.add_argument("--quick", action="store_true", help="read few people, write nothing")
    parser.add_argument("--loaded", action="store_true", help="the folder has the data already")
    options = parser.parse_args()
    people = options.millions * 1_000_000 if options.millions else options.people
    if options.child is not None:
        if options.quick:
            _warmed(options.engines, options.folder, people)
        else:
            _in_child(options.child, options.engines, options.folder, people)
        return
    folder = options.folder or Path(tempfile.mkdtemp(prefix="scale-"))
    results: dict[str, Any] = {}
    for name in options.engines.split(","):
        common = ["--engines", name, "--people", str(people), "--folder", str(folder)]
        try:
            loaded = {} if options.loaded else child("--child", "load", *common)
            more = {}
            if name in ("omnigraph", "numpy"):  # the others lock their files
                child("--child", "read", "--quick", *common)
                more = shared(name, folder, people)
            if name == "omnigraph":
                more |= fresh(people, folder)
            results[name] = child("--child", "read", *common)
        except SystemExit as cause:
            print(f"{name}: left out, {cause}", file=sys.stderr)
            continue
        results[name]["figures"] = {**loaded, **results[name]["figures"], **more}
    _report(results, people)


def _warmed(name: str, folder: Path, people: int) -> None:
    """Read until everything that lookups and hops need is there, as other processes would have."""
    engine = KINDS[name](folder)
    for number in range(ASKED):
        for question in ("point lookup", "1 hop"):
            engine.ask(question, person(number * 97 % people))
    print("{}")


def _in_child(what: str, name: str, folder: Path, people: int) -> None:
    if what == "share":
        _warmed(name, folder, people)
        sys.stdout.flush()
        sys.stdin.readline()
        return
    if what == "read":
        print(json.dumps(measured(name, folder, people)))
        return
    begun, used = time.perf_counter(), time.process_time()
    KINDS[name](folder).load(people)
    seconds = {"load s": time.perf_counter() - begun, "load CPU s": time.process_time() - used}
    print(json.dumps(seconds))


def _report(results: dict[str, Any], people: int) -> None:
    answers = [json.dumps(each["answers"]) for each in results.values()]
    print(f"{people} people; answers agree: {len(set(answers)) <= 1}\n")
    lines = list(dict.fromkeys(key for each in results.values() for key in each["figures"]))
    print(f"{'':28}" + "".join(f"{name:>12}" for name in results))
    for line in lines:
        cells = (each["figures"].get(line) for each in results.values())
        print(f"{line:28}" + "".join(f"{'–' if c is None else f'{c:.3g}':>12}" for c in cells))
    figures = {name: each["figures"] for name, each in results.items()}
    path = RESULTS / f"scale-{people}.json"
    document = {"people": people, "load average": os.getloadavg()[1], "engines": figures}
    path.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
