"""What concurrent writers do in the anomaly tests: each opens the graph and reports what it saw.

A job is a plain function of a graph's address, so that it runs in a thread or in a process.
"""

from collections.abc import Callable
from time import monotonic

import omnigraph as og
from omnigraph.graph import Graph
from tests.exec.town import COMPANY, PERSON, do, rows

Outcome = list[str]


def outcome_of(write: Callable[[], og.MutationResult]) -> str:
    """How a write ended: `ok`, `none` for no commit, or the kind of refusal."""
    try:
        return "none" if write().commit is None else "ok"
    except og.ConstraintViolated as error:
        return error.violations[0].rule
    except (og.VersionMismatch, og.PreconditionFailed):
        return "conflict"


def each(graph: Graph, statement: str, numbers: range, **params: str) -> Outcome:
    """One mutation a number; `$n` is the number as text."""
    return [
        outcome_of(lambda n=number: do(graph, statement, n=str(n), **params)) for number in numbers
    ]


def take_addresses(uri: str, who: str, count: int) -> Outcome:
    """Insert people who all want the same addresses."""
    graph = og.open(uri)
    statement = "insert Person { name: $name, email: $n }"
    return [
        outcome_of(lambda n=n: do(graph, statement, name=f"{who}-{n}", n=str(n)))
        for n in range(count)
    ]


def take_jobs(uri: str, who: str, count: int) -> Outcome:
    """Give the same people a job, of which each may have one."""
    return each(
        og.open(uri), "insert WorksAt { from: $n, to: $co }", range(count), co=f"company-{who}"
    )


def add_notes(uri: str, who: str, count: int) -> Outcome:
    """Insert nodes without key."""
    return each(og.open(uri), "insert Note { text: $who } ", range(count), who=who)


def delete_people(uri: str, who: str, count: int) -> Outcome:
    """Delete people, with whatever edges they have by then."""
    graph = og.open(uri)
    return [
        retried(lambda n=n: do(graph, "delete Person where name = $n", n=str(n)))
        for n in range(count)
    ]


def befriend(uri: str, who: str, count: int) -> Outcome:
    """Connect people who may be going."""
    return each(og.open(uri), "insert Knows { from: $n, to: $who }", range(count), who="keeper")


def retried(write: Callable[[], og.MutationResult], seconds: float = 60) -> str:
    """A write that its caller repeats while another came first."""
    until = monotonic() + seconds
    while (outcome := outcome_of(write)) == "conflict" and monotonic() < until:
        pass
    return outcome


SET = 'query q($s: I64) { update Company set { size: $s } where name = "counter" }'
SWAP = "update Company set { size: $new } where size = $old"


def increment_if_unchanged(uri: str, who: str, count: int) -> Outcome:
    """Add one as often as asked, by reading, and writing on the head that was read."""
    graph = og.open(uri)
    outcomes: Outcome = []
    while outcomes.count("ok") < count:
        head = graph.snapshot().commit_id
        size = rows(graph, COMPANY, commit=head)["counter"]["size"]
        params = {"s": size + 1}
        outcomes.append(outcome_of(lambda p=params, h=head: graph.mutate(SET, p, if_commit=h)))
    return outcomes


def increment_if_equal(uri: str, who: str, count: int) -> Outcome:
    """Add one as often as asked, by naming the old value in the condition."""
    graph = og.open(uri)
    outcomes: Outcome = []
    while outcomes.count("ok") < count:
        size = rows(graph, COMPANY)["counter"]["size"]
        outcomes.append(outcome_of(lambda s=size: do(graph, SWAP, new=s + 1, old=s)))
    return outcomes


def increment_with_retries(uri: str, who: str, count: int) -> Outcome:
    """Add one as often as asked, by the old value in the condition, prepared again after a loss."""
    graph = og.open(uri)
    text = "query q($new: I64, $old: I64) { " + SWAP + " }"
    outcomes: Outcome = []
    while outcomes.count("ok") < count:
        size = rows(graph, COMPANY)["counter"]["size"]
        params = {"new": size + 1, "old": size}
        outcomes.append(outcome_of(lambda p=params: graph.mutate(text, p, retries=100)))
    return outcomes


def set_own_row(uri: str, who: str, count: int) -> Outcome:
    """Set one's own row again and again, prepared again after a loss."""
    graph = og.open(uri)
    text = "query q($who: String, $n: I64) { update Company set { size: $n } where name = $who }"
    given = [{"who": who, "n": n} for n in range(1, count + 1)]
    return [outcome_of(lambda p=p: graph.mutate(text, p, retries=8)) for p in given]


def delete_own_people(uri: str, who: str, count: int) -> Outcome:
    """Delete people of one's own, prepared again after a loss."""
    graph = og.open(uri)
    text = "query q($n: String) { delete Person where name = $n }"
    names = [f"{who}-{n}" for n in range(count)]
    return [outcome_of(lambda n=n: graph.mutate(text, {"n": n}, retries=8)) for n in names]


def move_amounts(uri: str, who: str, count: int) -> Outcome:
    """Change two rows so that their sum stays: half of such a change must never be seen."""
    graph = og.open(uri)
    body = """
        update Company set { size: $a } where name = "left"
        update Company set { size: $b } where name = "right"
    """
    return [retried(lambda n=n: do(graph, body, a=100 - n, b=n)) for n in range(1, count + 1)]


def mark_both(uri: str, who: str, count: int) -> Outcome:
    """Write one's own number into two rows."""
    graph = og.open(uri)
    body = """
        update Company set { size: $n } where name = "left"
        update Company set { size: $n } where name = "right"
    """
    own = int(who.removeprefix("w"))
    return [retried(lambda n=n: do(graph, body, n=own * count + n)) for n in range(count)]


def watch_amounts(uri: str, who: str, count: int) -> Outcome:
    """Look at both rows again and again: what is wrong with what was seen."""
    graph = og.open(uri)
    wrong: Outcome = []
    latest = 0
    for _ in range(count):
        head = graph.snapshot().commit_id
        first, again = (rows(graph, COMPANY, commit=head) for _ in range(2))
        if first != again:
            wrong.append(f"{first} became {again}")
        if first["left"]["size"] + first["right"]["size"] != 100:
            wrong.append(f"{first}")
        if first["right"]["size"] < latest:
            wrong.append(f"{latest} was seen and vanished")
        latest = first["right"]["size"]
    return wrong


def fail_after_writing(uri: str, who: str, count: int) -> Outcome:
    """Mutations whose first statement is fine and whose last one is refused."""
    graph = og.open(uri)
    body = 'insert Person { name: $n } insert Knows { from: $n, to: "nobody" }'
    return [outcome_of(lambda n=n: do(graph, body, n=f"aborted-{n}")) for n in range(count)]


def watch_people(uri: str, who: str, count: int) -> Outcome:
    """The names of people nobody committed."""
    graph = og.open(uri)
    seen = {name for _ in range(count) for name in rows(graph, PERSON)}
    return sorted(name for name in seen if name.startswith("aborted-"))


def pair_up(uri: str, who: str, count: int) -> Outcome:
    """Insert an edge to every person that `who` has none to, while others insert people."""
    graph = og.open(uri)
    missing = "$a: Person { name: $who }  $b: Person  not { $a knows $b }"
    insert = f"insert Knows {{ from: $a, to: $b }} match {{ {missing} }}"
    outcomes = []
    for number in range(count):
        outcomes.append(outcome_of(lambda n=number: do(graph, PERSON_INSERT, n=f"{who}-{n}")))
        outcomes.append(outcome_of(lambda: do(graph, insert, who=who)))
    return outcomes


PERSON_INSERT = "insert Person { name: $n, age: 1 }"


def grow_by_one(uri: str, who: str, count: int) -> Outcome:
    """Raise what a match finds by one, again after each lost race."""
    graph = og.open(uri)
    text = "query q() { update $c set { size: size + 1 } match { $p: Person  $p worksAt $c } }"
    return [outcome_of(lambda: graph.mutate(text, retries=20)) for _ in range(count)]
