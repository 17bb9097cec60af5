"""The data of the worked examples, in the schema of the golden queries."""

from pathlib import Path

import pyarrow as pa

from omnigraph.graph import Graph
from tests.exec.world import graph_of

FIXTURES = Path(__file__).parents[1] / "fixtures" / "query"
SCHEMA = (FIXTURES / "schema.pg").read_text()

NODES = {
    "Person": [
        {"name": "Ada", "age": 36, "city": "London", "tags": ["math", "code"]},
        {"name": "Bob", "age": 25, "city": "Paris", "tags": ["code"]},
        {"name": "Cy", "age": None, "city": "London", "tags": []},
        {"name": "Dee", "age": 36, "city": None, "tags": None},
    ],
    "Company": [{"name": "Acme", "founded": 10592}, {"name": "Zeta", "founded": None}],
    "Doc": [
        {"slug": "a", "title": "Graph basics", "emb": [1.0, 0.0]},
        {"slug": "b", "title": "Graphs and machine learning", "emb": [0.6, 0.8]},
        {"slug": "c", "title": "Cooking", "emb": [0.0, 1.0]},
        {"slug": "d", "title": "Deep learning", "emb": None},
    ],
}

EDGES = {
    "Knows": [
        {"id": "k1", "src": "Ada", "dst": "Bob", "since": 2010},
        {"id": "k2", "src": "Ada", "dst": "Bob", "since": 2015},
        {"id": "k3", "src": "Bob", "dst": "Cy", "since": 2012},
        {"id": "k4", "src": "Cy", "dst": "Ada", "since": None},
        {"id": "k5", "src": "Dee", "dst": "Dee", "since": 2000},
    ],
    "WorksAt": [
        {"id": "w1", "src": "Ada", "dst": "Acme", "title": "CTO"},
        {"id": "w2", "src": "Bob", "dst": "Acme", "title": None},
        {"id": "w3", "src": "Cy", "dst": "Zeta", "title": "Clerk"},
    ],
}


def people(path: Path) -> Graph:
    """The graph of the worked examples."""
    return graph_of(path, SCHEMA, NODES, EDGES)


assert pa.scalar(10592, pa.date32()).as_py().isoformat() == "1999-01-01"
