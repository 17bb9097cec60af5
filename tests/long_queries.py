"""Query texts of up to 1 MB against the limits of a read: a fuzzer of parser, planner and executor.

    python -m tests.long_queries [--inputs 10000] [--seed 1] [--bytes-max 1048576]

Each input is a text made from its number. The answer is rows or an error of ours. No thread that
works for a read takes more processor time than its deadline and 100 ms, counted until it is idle
again. Inputs run in a process of their own, which is started again after one that ends it.
"""

import argparse
import contextlib
import gc
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import omnigraph as og
from omnigraph.exec.limits import Stop
from omnigraph.exec.read import guard
from tests import golden
from tests.language.fuzz import HARSH, mutated

TEXT_BYTES_MAX = 1 << 20
LATE_S = 0.1
IDLE_S = 60.0
DEADLINES_MS = (50, 200, 1000)
SCHEMA = """node P { name: String @key  age: I32?  note: String? @index  tags: [String]?  f: F64?
  at: DateTime?  v: Vector(4)? }
edge K: P -> P { w: I32? }"""
NODES = 24

_SEEDS = [
    f"query {text}"
    for path in sorted((golden.FIXTURES / "query").glob("accept/*.gq"))
    for text in re.split(r"(?m)^query ", golden.read(path))[1:]
]

Part = Callable[[random.Random, int], str]
"""One part of a text that has many; the number tells parts apart."""


def _read(body: str, returns: str = "$p.name", tail: str = "") -> str:
    return f"query q() {{ match {{ $p: P  {body} }} return {{ {returns} }} {tail} }}"


def _leaf(chance: random.Random, number: int) -> str:
    return chance.choice(
        [
            f"$p.age = {number}",
            f"$p.age != {number}",
            f'$p.name = "p{number}"',
            f'$p.note contains "{number}"',
            f"$p.f > {number}.5",
            f'$p.id = "p{number}"',
            f"$p.age in [{number}, {number + 1}]",
            "$p.note is null",
            f'"x{number}" in $p.tags',
            f'search($p.note, "word{number}")',
            f'$p.note matches "w{number}|x"',
            f"not ($p.age = {number})",
            f"exists {{ $p k $x{number} }}",
            f"length($p.note) + {number} > $p.age",
        ]
    )


def _one_leaf(chance: random.Random, number: int) -> str:
    return f"$p.age = {number}"


def _joined(part: Part, joint: str, whole: Callable[[str], str]) -> "Maker":
    def made(chance: random.Random, size: int) -> str:
        parts, length, number = list[str](), 0, 0
        while length < size:
            parts.append(part(chance, number))
            length += len(parts[-1]) + len(joint)
            number += 1
        return whole(joint.join(parts))

    return made


Maker = Callable[[random.Random, int], str]
"""A text of about so many characters."""


def _nested(before: str, inner: str, after: str, whole: Callable[[str], str]) -> Maker:
    def made(chance: random.Random, size: int) -> str:
        times = max(1, size // (len(before) + len(after)))
        if chance.random() < 0.7:
            times = min(times, chance.choice((5, 20, 40, 60, 70, 190, 210)))
        return whole(before * times + inner + after * times)

    return made


def _grown(chance: random.Random, size: int) -> str:
    """Expressions that grow, one inside another."""
    text = chance.choice(["$p.note", '"ab"', f'"{"a" * min(size, 1 << 19)}"', "$p.name"])
    for _ in range(chance.randint(1, 12)):
        text = chance.choice(
            [
                f'replace({text}, "a", "{"a" * chance.choice((2, 30, 1000))}")',
                f"{text} + {text}" if len(text) < size // 2 else text,
                f"upper({text})",
                f'join(split({text}, "a"), "{"b" * chance.choice((1, 100, 5000))}")',
                f'highlight({text}, "ab")',
                f'case when $p.age > 3 then {text} else "x" end',
                f"substring({text}, 1, 100000)",
                f'coalesce({text}, "y")',
            ]
        )
        if len(text) > size:
            break
    return chance.choice(
        [
            _read("", f"{text} as x"),
            _read("", f"length({text}) as x"),
            _read(f"length({text}) > 3"),
            _read(f"search($p.note, {text})"),
            _read(f'$p.note = {text} or {text} contains "x"'),
            _read("", f"{text} as x, count(*) as n"),
            _read("", "$p.name", f"order {{ {text} }}"),
            _read("", f'size(split({text}, "a")) as n'),
            f"query q($a: String = {text}) {{ match {{ $p: P {{ name: $a }} }} return {{ $a }} }}",
        ]
    )


def _doubled(chance: random.Random, size: int) -> str:
    """A text that each stage doubles."""
    stages = " ".join(
        f"match {{ length($x{i}) > 0 }} with {{ $x{i} + $x{i} as x{i + 1} }}"
        for i in range(chance.choice((5, 20, 35)))
    )
    last = stages.rsplit(" as ", 1)[1].split(" ")[0]
    return (
        f"query q() {{ match {{ $p: P }} with {{ $p.note as x0 }} {stages} "
        f"match {{ length(${last}) > 0 }} return {{ length(${last}) as n }} }}"
    )


def _soup(chance: random.Random, size: int) -> str:
    """Pieces of the language in any order, or one of them over and over."""
    pieces = [*HARSH, "query q() {", "match {", "return {", "$p: P ", "$p.age", " or ", "not ("]
    pieces = [piece for piece in pieces if piece not in ("\ud800", "\udfff")]
    if chance.random() < 0.5:
        piece = chance.choice(pieces)
        return (piece * (size // len(piece) + 1))[:size]
    text = ""
    while len(text) < size:
        text += "".join(chance.choices(pieces, k=200))
    return text[:size]


def _changed(chance: random.Random, size: int) -> str:
    """Queries that are right, damaged, one behind the other."""
    text = ""
    while len(text) < min(size, 1 << 16):
        text += mutated(chance.choice(_SEEDS), chance, pieces=HARSH, seeds=_SEEDS) + "\n"
    return text


def _mutation(chance: random.Random, size: int) -> str:
    """A mutation that selects nothing, by a long condition."""
    made = _joined(lambda c, n: f"age = {n + 10_000}", chance.choice((" or ", " and ")), str)
    where = made(chance, size)
    return f"query q() {{ update P set {{ age: 1 }} where {where} }}"


MAKERS: tuple[Maker, ...] = (
    _joined(_leaf, " or ", _read),
    _joined(_one_leaf, " or ", _read),
    _joined(_leaf, " and ", _read),
    _joined(_leaf, " ", _read),
    _joined(lambda c, n: f"({_leaf(c, n)} and {_leaf(c, n + 1)})", " or ", _read),
    _joined(lambda c, n: f"$p{n}: P", " ", _read),
    _joined(lambda c, n: f"$p{n}: P {{ age: {n} }}", " ", _read),
    _joined(lambda c, n: f"$p{n} k $p{n + 1}", " ", lambda t: _read(f"$p k $p0 {t}")),
    _joined(lambda c, n: f"$p k $p{n}", " ", _read),
    _joined(lambda c, n: f"$p k{{1,3}} $p{n}", " ", _read),
    _joined(lambda c, n: f"not {{ $p k $x{n} }}", " ", _read),
    _joined(lambda c, n: f"optional {{ $p k $x{n} }}", " ", _read),
    _joined(lambda c, n: f"count {{ $p k $x{n} }} > {n}", " ", _read),
    _joined(lambda c, n: f"$p.age + {n} as a{n}", ", ", lambda t: _read("", t)),
    _joined(lambda c, n: f'upper($p.note + "{n}") as a{n}', ", ", lambda t: _read("", t)),
    _joined(lambda c, n: f"sum($p.age + {n}) as a{n}", ", ", lambda t: _read("", t)),
    _joined(lambda c, n: f"$p.age + {n}", ", ", lambda t: _read("", tail=f"order {{ {t} }}")),
    _joined(lambda c, n: f"{n}", ", ", lambda t: _read(f"$p.age in [{t}]")),
    _joined(lambda c, n: f"{n}", " + ", lambda t: _read(f"$p.age = {t}")),
    _joined(lambda c, n: f"when $p.age = {n} then {n}", " ", lambda t: _read("", f"case {t} end")),
    _joined(lambda c, n: f"word{n}", " ", lambda t: _read(f'search($p.note, "{t}")')),
    _joined(lambda c, n: f"wrd{n}", " ", lambda t: _read(f'fuzzy($p.note, "{t}")')),
    _joined(
        lambda c, n: f"with {{ $p, $p.age as a{n} }} match {{ $a{n} > {n % 3} }}",
        " ",
        lambda t: f"query q() {{ match {{ $p: P }} {t} return {{ $p.name }} }}",
    ),
    _joined(
        lambda c, n: "match { $p: P } return { $p.name as n }",
        " union ",
        lambda t: f"query q() {{ {t} }}",
    ),
    _joined(
        lambda c, n: f"$a{n}: I64 = {n}",
        ", ",
        lambda t: f"query q({t}) {{ match {{ $p: P }} return {{ $p.name }} }}",
    ),
    _joined(lambda c, n: f"query q{n}() {{ match {{ $p: P }} return {{ $p.name }} }}", " ", str),
    _joined(lambda c, n: f"$p.age != {n}", " ", lambda t: _read(t) + " ]"),
    _nested("not (", "$p.age = 1", ")", _read),
    _nested("(", "$p.age = 1", ")", _read),
    _nested("not (not ($p.age = 2) or ", "$p.age = 1", ")", _read),
    _nested("($p.age = 1 or ($p.f > 2 and ", "$p.age = 3", "))", _read),
    _nested("case when $p.age = 1 then ", "1", " else 0 end", lambda t: _read("", f"{t} as x")),
    _nested("upper(", "$p.note", ")", lambda t: _read("", f"{t} as x")),
    _nested("- ", "$p.age", "", lambda t: _read("", f"{t} as x")),
    _nested("not { $p k $x ", "", "}", _read),
    _grown,
    _grown,
    _grown,
    _doubled,
    _soup,
    _changed,
    _mutation,
)


def text_of(seed: int, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """The text of an input. Small ones are as likely as large ones."""
    chance = random.Random(seed)
    size = int(2 ** chance.uniform(5, (bytes_max - 1).bit_length()))
    text = chance.choice(MAKERS)(chance, size)
    if chance.random() < 0.1:
        text = mutated(text, chance, pieces=HARSH, seeds=_SEEDS)
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


@dataclass(frozen=True)
class Answer:
    """What became of an input: its kind, and how long a thread took beyond the deadline."""

    seed: int
    size: int
    kind: str
    late_s: float
    is_typed: bool

    @property
    def failed(self) -> bool:
        """Whether it breaks what is promised."""
        return not self.is_typed or self.late_s > LATE_S


def graph_of(folder: Path) -> og.Graph:
    """A graph whose searches find an index on disk."""
    graph = og.init(folder / "g", SCHEMA, durability="os")
    rows = [
        {
            "name": f"p{n}",
            "age": n,
            "note": f"ab word{n} graph",
            "tags": ["x1", "y"],
            "f": n / 7,
            "v": [1, n, 0, 1],
        }
        for n in range(NODES)
    ]
    graph.load(rows, "merge", type="P")
    graph.load(
        [{"from": f"p{n}", "to": f"p{n * 7 % NODES}"} for n in range(NODES)], "merge", edge="K"
    )
    # What a process loads once: the tables that describe syntax errors, stemmers, searches.
    for text in ("]", *(_read('search($p.note, "graphs") or fuzzy($p.note, "x")'),) * 5):
        with contextlib.suppress(og.ParseError):
            graph.query(text)
    return graph


def ask(graph: og.Graph, seed: int, bytes_max: int = TEXT_BYTES_MAX) -> Answer:
    """Run one input, and wait until its thread is idle."""
    text = text_of(seed, bytes_max)
    deadline_ms = random.Random(seed).choice(DEADLINES_MS)
    stop, typed = Stop(deadline_ms), True
    before, caller = _worker_seconds(), time.thread_time()
    is_mutation = "update P" in text
    try:
        if is_mutation:
            graph.mutate(text)
            kind = "written"
        else:
            graph.query(text, stop=stop)
            kind = "rows"
    except og.OmnigraphError as error:
        kind = type(error).__name__
        typed = not isinstance(error, og.StorageFailed)
    except BaseException as error:  # noqa: BLE001  it is the answer
        kind, typed = f"{type(error).__name__}: {str(error)[:200]}", False
    took = time.thread_time() - caller
    _wait_until_idle()
    for thread, seconds in _worker_seconds().items():
        took = max(took, seconds - before.get(thread, 0.0))
    late = 0.0 if is_mutation else max(0.0, took - deadline_ms / 1000)
    return Answer(seed, len(text.encode("utf-8", "replace")), kind, late, typed)


def _workers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "omnigraph-query"]


def _worker_seconds() -> dict[int, float]:
    """The processor time of each thread that works for reads."""
    return {
        each.ident: time.clock_gettime(time.pthread_getcpuclockid(each.ident))
        for each in _workers()
        if each.ident is not None
    }


def _wait_until_idle() -> None:
    until = time.monotonic() + IDLE_S
    while len(guard._idle) < len(_workers()) and time.monotonic() < until:
        time.sleep(0.002)


def answers(first: int, count: int, bytes_max: int) -> Iterator[Answer]:
    """The answers of many inputs, from processes that are started again after one that ended."""
    seed = first
    while seed < first + count:
        command = [sys.executable, "-m", "tests.long_queries", "--child", str(first + count - seed)]
        command += ["--seed", str(seed), "--bytes-max", str(bytes_max)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                yield Answer(**json.loads(line))
                seed += 1
        if seed < first + count:
            yield Answer(seed, 0, f"the process ended with {child.returncode}", 0.0, False)
            seed += 1


def _as_child(first: int, count: int, bytes_max: int) -> None:
    with tempfile.TemporaryDirectory() as folder, graph_of(Path(folder)) as graph:
        gc.collect()
        gc.freeze()  # as a worker of the server does
        for seed in range(first, first + count):
            print(json.dumps(asdict(ask(graph, seed, bytes_max))), flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bytes-max", type=int, default=TEXT_BYTES_MAX)
    parser.add_argument("--child", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _as_child(options.seed, options.child, options.bytes_max)
        return
    kinds, failed, latest = Counter[str](), list[Answer](), 0.0
    for number, answer in enumerate(answers(options.seed, options.inputs, options.bytes_max), 1):
        kinds[answer.kind if answer.is_typed else "untyped"] += 1
        latest = max(latest, answer.late_s)
        if answer.failed:
            failed.append(answer)
            print(answer, flush=True)  # noqa: T201
        if not number % 500:
            print(number, dict(kinds), f"latest {latest:.3f} s", flush=True)  # noqa: T201
    print(f"{options.inputs} inputs, {len(failed)} failed, latest {latest:.3f} s", dict(kinds))  # noqa: T201
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
