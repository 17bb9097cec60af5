"""A cluster in a folder for tests: written, changed, and driven by its commands."""

import json
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.cluster.commands import ClusterCommand
from omnigraph.cluster.ledger import STATE

SCHEMA = "node Person {\n  name: String @key\n  age: I32?\n}\n"
WIDER = SCHEMA.replace("age: I32?", "age: I32?\n  city: String?")
QUERIES = (
    "query find($n: String) { match { $p: Person { name: $n } } return { $p.name, $p.age } }\n"
    "query add($n: String, $a: I64?) { insert Person { name: $n } }\n"
)
POLICY = (
    "version: 1\ngroups: { editors: [act-ada] }\nrules:\n"
    "  - id: all\n    allow: { actors: { group: editors }, actions: [read] }\n"
)
SERVER_POLICY = POLICY.replace("[read]", "[graph_list]")
CONFIG = """\
version: 1
providers:
  embedding:
    default: { kind: mock }
graphs:
  knowledge:
    schema: knowledge.pg
    queries: queries/
    embedding_provider: default
policies:
  base: { file: base.policy.yaml, applies_to: [knowledge] }
"""
TWO_GRAPHS = (
    "version: 1\ngraphs:\n  knowledge: { schema: knowledge.pg, queries: queries/ }\n"
    "  notes: { schema: knowledge.pg }\n"
)
ONE_GRAPH = "version: 1\ngraphs:\n  knowledge: { schema: knowledge.pg, queries: queries/ }\n"
ACTOR = "act-ada"


class Cluster:
    """The folder of a cluster."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        self.folder = folder
        self.write("knowledge.pg", SCHEMA)
        self.write("queries/people.gq", QUERIES)
        self.write("base.policy.yaml", POLICY)
        self.write("cluster.yaml", config)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    @property
    def command(self) -> ClusterCommand:
        return ClusterCommand(self.folder)

    def apply(self) -> dict[str, Any]:
        return self.command.apply(ACTOR)

    def applied(self) -> dict[str, Any]:
        """An apply that converges, after an import if there is no ledger yet."""
        if not (self.folder / STATE).exists():
            assert self.command.import_()["ok"]
        done = self.apply()
        assert done["ok"], done["diagnostics"]
        assert done["converged"], done["changes"]
        return done

    def state(self) -> dict[str, Any]:
        """The ledger as it lies on disk."""
        document: dict[str, Any] = json.loads((self.folder / STATE).read_bytes())
        return document

    def put_state(self, document: dict[str, Any]) -> None:
        (self.folder / STATE).write_text(json.dumps(document), encoding="utf-8")

    def uri(self, graph: str = "knowledge") -> str:
        return str(self.folder / "graphs" / f"{graph}.omni")

    def graph(self, graph: str = "knowledge") -> og.Graph:
        return og.open(self.uri(graph))

    def leftovers(self) -> list[str]:
        """Locks and notes that a finished command must not leave."""
        folder = self.folder / "__cluster"
        notes = [p.name for p in (folder / "recoveries").glob("*")]
        return [*notes, *(["lock.json"] if (folder / "lock.json").exists() else [])]


def codes(document: dict[str, Any], severity: str | None = None) -> list[str]:
    """The codes of a command's diagnostics."""
    return [
        each["code"]
        for each in document["diagnostics"]
        if severity is None or each["severity"] == severity
    ]


def changes(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The changes of a plan or an apply by resource."""
    return {each["resource"]: each for each in document["changes"]}
