"""The accepted schema of a graph: its two files, what they mean, the tables they ask for.

Invariant: the text and its compiled form are read and written together.
"""

import orjson
import pyarrow as pa

from omnigraph.catalog import codec
from omnigraph.catalog.arrow import edge_schema, node_schema
from omnigraph.catalog.diff import plan_migration
from omnigraph.catalog.model import Catalog
from omnigraph.errors import StorageFailed
from omnigraph.storage.store import Store
from omnigraph.types import Kind, TableKey, table_key

SCHEMA_TEXT, SCHEMA_IR = "_schema.pg", "_schema.ir.json"


class SchemaView:
    """The accepted schema: as it was written, and what it means."""

    def __init__(self, text: str, catalog: Catalog) -> None:
        self.text = text
        self.catalog = catalog


def schema_files(text: str, catalog: Catalog) -> dict[str, bytes]:
    """The files that hold a schema."""
    return {SCHEMA_TEXT: text.encode(), SCHEMA_IR: orjson.dumps(codec.encode(catalog))}


def schema_tables(catalog: Catalog) -> list[tuple[TableKey, pa.Schema]]:
    """The tables that hold the nodes and edges of a schema."""
    nodes = [(table_key(Kind.NODE, n.name), node_schema(n)) for n in catalog.nodes.values()]
    edges = [(table_key(Kind.EDGE, e.name), edge_schema(e)) for e in catalog.edges.values()]
    return nodes + edges


def stored_catalog(store: Store) -> Catalog:
    """The accepted schema, after a look whether its two files agree."""
    view = read_schema(store)
    steps = plan_migration(view.catalog, view.text).steps
    if steps:
        raise StorageFailed(
            "compared the schema's files",
            f"{SCHEMA_TEXT} and {SCHEMA_IR} differ in {len(steps)} step(s)",
        )
    return view.catalog


def read_schema(store: Store) -> SchemaView:
    """The accepted schema as it is stored."""
    text, document = store.objects.get(SCHEMA_TEXT), store.objects.get(SCHEMA_IR)
    if text is None or document is None:
        missing = SCHEMA_TEXT if text is None else SCHEMA_IR
        raise StorageFailed("read the schema", f"{store.where.join(missing)} is missing")
    try:
        catalog = codec.decode(orjson.loads(document.data))
    except orjson.JSONDecodeError as cause:
        raise StorageFailed("read the schema", f"{SCHEMA_IR} is damaged ({cause})") from cause
    return SchemaView(text.data.decode(), catalog)
