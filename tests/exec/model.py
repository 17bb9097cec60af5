"""A graph as plain dictionaries: what mutations mean, without a database.

It knows people with an age and a unique address, companies, who knows whom (each pair once) and who
works where (one job at most).
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

Person = dict[str, int | str]


class Refused(Exception):
    """A rule forbids the outcome."""


@dataclass
class Model:
    """The state of one branch."""

    people: dict[str, Person] = field(default_factory=dict)
    companies: set[str] = field(default_factory=set)
    knows: list[tuple[str, str]] = field(default_factory=list)
    works: list[tuple[str, str]] = field(default_factory=list)
    touched: set[tuple[str, str]] = field(default_factory=set)  # nodes, by the mutation under way

    def copy(self) -> "Model":
        copied = deepcopy(self)
        copied.touched = set()
        return copied

    def seen(self) -> object:
        """The state in a form in which order does not matter."""
        return self.people, self.companies, sorted(self.knows), sorted(self.works)

    def require_valid(self) -> None:
        """Raise unless every rule holds."""
        addresses = [p["email"] for p in self.people.values() if "email" in p]
        known = [*self.knows, *((source, source) for source, _ in self.works)]
        if len(set(addresses)) < len(addresses):
            raise Refused("email")
        if any(not 0 <= int(p.get("age", 0)) <= 150 for p in self.people.values()):
            raise Refused("age")
        if len(set(self.knows)) < len(self.knows):
            raise Refused("knows")
        if any(end not in self.people for pair in known for end in pair):
            raise Refused("person")
        if any(company not in self.companies for _, company in self.works):
            raise Refused("company")
        if len({source for source, _ in self.works}) < len(self.works):
            raise Refused("works")

    # Statements: each gives the rows it was the first of its mutation to touch, nodes and edges

    def _first(self, kind: str, name: str) -> int:
        is_first = (kind, name) not in self.touched
        self.touched.add((kind, name))
        return int(is_first)

    def insert_person(self, name: str, age: int | None, email: str | None) -> tuple[int, int]:
        given = {"age": age, "email": email}
        self.people[name] = {key: value for key, value in given.items() if value is not None}
        return self._first("person", name), 0

    def insert_company(self, name: str) -> tuple[int, int]:
        self.companies.add(name)
        return self._first("company", name), 0

    def insert_knows(self, source: str, target: str) -> tuple[int, int]:
        self.knows.append((source, target))
        return 0, 1

    def insert_works(self, source: str, company: str) -> tuple[int, int]:
        self.works.append((source, company))
        return 0, 1

    def update_age(self, age: int, below: int) -> tuple[int, int]:
        matched = [n for n, p in self.people.items() if "age" in p and int(p["age"]) < below]
        for name in matched:
            self.people[name]["age"] = age
        return sum(self._first("person", name) for name in matched), 0

    def update_email(self, email: str, name: str) -> tuple[int, int]:
        if name not in self.people:
            return 0, 0
        self.people[name]["email"] = email
        return self._first("person", name), 0

    def delete_person(self, age: int) -> tuple[int, int]:
        return self._forget({n for n, p in self.people.items() if int(p.get("age", -1)) >= age})

    def delete_named(self, name: str) -> tuple[int, int]:
        return self._forget({name}.intersection(self.people))

    def _forget(self, gone: set[str]) -> tuple[int, int]:
        self.people = {n: p for n, p in self.people.items() if n not in gone}
        return len(gone), self._drop(lambda pair: bool(gone.intersection(pair)))

    def delete_company(self, name: str) -> tuple[int, int]:
        found = name in self.companies
        self.companies.discard(name)
        before = len(self.works)
        self.works = [pair for pair in self.works if pair[1] != name]
        return int(found), before - len(self.works)

    def delete_knows(self, source: str) -> tuple[int, int]:
        before = len(self.knows)
        self.knows = [pair for pair in self.knows if pair[0] != source]
        return 0, before - len(self.knows)

    def _drop(self, goes: Callable[[tuple[str, str]], bool]) -> int:
        before = len(self.knows) + len(self.works)
        self.knows = [pair for pair in self.knows if not goes(pair)]
        self.works = [(s, c) for s, c in self.works if not goes((s, s))]
        return before - len(self.knows) - len(self.works)
