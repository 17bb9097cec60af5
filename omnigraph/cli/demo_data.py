"""The graph that `omnigraph demo` makes: people, companies, reports, and what connects them.

Invariant: the same size gives the same data, byte for byte, so that what the demo says about it is
true on every machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SCHEMA = """\
// People, where they work, whom they know, and what they have written.

node Person {
  name: String @key
  age: I32?
  city: String? @index
  @range(age, 0..150)
}

node Company {
  name: String @key
  industry: enum(energy, software, logistics, health)
}

node Report {
  slug: String @key
  title: String @index
  written: Date?
}

edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company @card(0..3) { title: String? }
edge Wrote: Person -> Report
edge Mentions: Report -> Company
"""

QUERIES = """\
query person($name: String) {
  match { $p: Person { name: $name } }
  return { $p.name, $p.age, $p.city }
}

query friends_of_friends($name: String) {
  match { $me: Person { name: $name }  $me knows{2,2} $them  $them worksAt $c }
  return { $c.industry as industry, count($them) as people }
  order { people desc, industry }
}

query find_reports($words: String) {
  match { $r: Report  search($r.title, $words)  $who wrote $r  $r mentions $c }
  return { $r.title as title, $who.name as author, $c.name as company }
  order { bm25($r.title, $words) }
  limit 5
}

query headcount($company: String) {
  match { $c: Company { name: $company }  $p worksAt $c }
  return { $c.name as company, count($p) as staff, avg($p.age) as average_age }
}
"""

MUTATIONS = """\
query hire($name: String, $age: I32, $company: String) {
  insert Person { name: $name, age: $age, city: "Oslo" }
  insert WorksAt { from: $name, to: $company, title: "Engineer" }
}

query move($name: String, $city: String) {
  update Person set { city: $city } where name = $name
}
"""

_CITIES = ("Oslo", "Paris", "London", "Lagos", "Lima", "Kyoto", "Quito", "Delhi")
_INDUSTRIES = ("energy", "software", "logistics", "health")
_FIRST = ("Ada", "Bob", "Cy", "Dee", "Eve", "Finn", "Gus", "Hana", "Ivo", "June", "Kai", "Lena")
_LAST = (
    "Ash",
    "Berg",
    "Cole",
    "Dahl",
    "Eng",
    "Frey",
    "Gray",
    "Holt",
    "Ito",
    "Juul",
    "Kerr",
    "Lund",
)
_TOPICS = (
    *("battery", "grid", "turbine", "hydrogen", "pipeline", "harbour", "routing", "vaccine"),
    *("genome", "compiler", "database", "graph", "learning", "forecast", "safety", "cost"),
)
_KINDS = ("survey", "review", "audit", "outlook", "field notes")


@dataclass(frozen=True, slots=True)
class Size:
    """Counts of each kind of entity."""

    people: int
    companies: int
    reports: int
    friendships: int

    @property
    def edges(self) -> int:
        """Friendships, a job each, an author and a mention for each report."""
        return self.friendships + self.people + 2 * self.reports


def size_of(edges: int) -> Size:
    """A graph with about so many edges."""
    people = max(edges // 10, 50)
    reports = max(edges // 50, 20)
    friendships = max(edges - people - 2 * reports, 100)
    return Size(people, max(people // 100, 5), reports, friendships)


def write(folder: Path, size: Size) -> Path:
    """The schema, the queries and the data, as files; where the data is."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.pg").write_text(SCHEMA, "utf-8")
    (folder / "queries.gq").write_text(QUERIES, "utf-8")
    (folder / "mutations.gq").write_text(MUTATIONS, "utf-8")
    data = folder / "data.jsonl"
    with data.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in _lines(size))
    return data


def name_of(number: int) -> str:
    """The name of a person."""
    first = _FIRST[number % len(_FIRST)]
    return f"{first} {_LAST[number // len(_FIRST) % len(_LAST)]} {number}"


def company_of(number: int) -> str:
    """The name of a company."""
    return f"Company {number}"


def _lines(size: Size) -> Iterator[dict[str, object]]:
    pick = random.Random(7)
    for n in range(size.people):
        person = {"name": name_of(n), "age": 20 + n % 50, "city": pick.choice(_CITIES)}
        yield {"type": "Person", "data": person}
    for n in range(size.companies):
        company = {"name": company_of(n), "industry": _INDUSTRIES[n % 4]}
        yield {"type": "Company", "data": company}
    for n in range(size.reports):
        topics = " and ".join(pick.sample(_TOPICS, 2))
        title = f"{pick.choice(_KINDS).capitalize()} of {topics}, part {n}"
        written = f"20{10 + n % 16}-0{1 + n % 9}-1{n % 10}"
        yield {"type": "Report", "data": {"slug": f"r{n}", "title": title, "written": written}}
        yield _edge("Wrote", name_of(pick.randrange(size.people)), f"r{n}")
        yield _edge("Mentions", f"r{n}", company_of(pick.randrange(size.companies)))
    for n in range(size.people):
        yield _edge("WorksAt", name_of(n), company_of(pick.randrange(size.companies)))
    for _ in range(size.friendships):
        source, target = pick.randrange(size.people), pick.randrange(size.people)
        yield _edge("Knows", name_of(source), name_of(target))


def _edge(kind: str, source: str, target: str) -> dict[str, object]:
    return {"edge": kind, "from": source, "to": target}
