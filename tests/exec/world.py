"""Graphs for the tests of reading: rows as dictionaries, written with the internal writer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph.catalog.ids import entity_id
from omnigraph.catalog.model import Catalog
from omnigraph.graph import Graph
from omnigraph.storage.lance.tables import keyed
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import Commit
from omnigraph.types import TableKey

Record = Mapping[str, Any]
Nodes = Mapping[str, Sequence[Record]]
EdgeRecords = Mapping[str, Sequence[Record]]


def node_rows(catalog: Catalog, name: str, records: Sequence[Record]) -> pa.Table:
    """Rows of a node type. `id` may be given; otherwise it follows from the key."""
    node = catalog.nodes[name]
    schema = keyed(node.schema)
    rows = [{"id": r.get("id") or entity_id(node, r), **r} for r in records]
    return _table(schema, rows)


def edge_rows(catalog: Catalog, name: str, records: Sequence[Record]) -> pa.Table:
    """Rows of an edge type: `id`, `src` and `dst` are given."""
    return _table(keyed(catalog.edges[name].schema), list(records))


def _table(schema: pa.Schema, rows: Sequence[Record]) -> pa.Table:
    columns = {}
    for field in schema:
        values = [row.get(field.name) for row in rows]
        kind = field.type
        if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
            raw = pa.int32() if pa.types.is_date32(kind) else pa.int64()
            columns[field.name] = pa.array(values, raw).view(kind)
        else:
            columns[field.name] = pa.array(values, kind)
    return pa.table(columns, schema=schema)


def write(
    graph: Graph, nodes: Nodes | None = None, edges: EdgeRecords | None = None, branch: str = "main"
) -> Commit:
    """One commit that adds or replaces these nodes and edges."""
    catalog = graph.schema.catalog
    writing = graph._store.begin(branch, kind=WriterKind.LOAD)
    for name, records in (nodes or {}).items():
        writing.upsert(TableKey(f"node:{name}"), node_rows(catalog, name, records))
    for name, records in (edges or {}).items():
        writing.upsert(TableKey(f"edge:{name}"), edge_rows(catalog, name, records))
    return graph._store.commit(writing)


def graph_of(
    path: Path, schema: str, nodes: Nodes | None = None, edges: EdgeRecords | None = None
) -> Graph:
    """A new graph with these nodes and edges."""
    graph = og.init(path, schema)
    if nodes or edges:
        write(graph, nodes, edges)
    return graph
