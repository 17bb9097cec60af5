"""Structured Streaming: micro-batches as loads, for `foreachBatch`.

Invariant: a micro-batch is one commit, marked with its query and its epoch. When Spark gives the
same one again, after whatever happened, the mark is there and nothing is written.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.errors import BadRequest
from omnigraph.exec.schemas import Schemas
from omnigraph.pipeline.connect_session import is_connect
from omnigraph.pipeline.load import Order, load
from omnigraph.pipeline.source_write import QUERY_PROPERTY, mark_of
from omnigraph.storage.names import MAIN
from omnigraph.storage.opening import open_store
from omnigraph.storage.protocol.intent import noted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def foreach_batch(
    uri: str,
    mode: str = "append",
    *,
    type: str | None = None,
    edge: str | None = None,
    branch: str = MAIN,
    columns: Mapping[str, str | None] | None = None,
    actor: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    query: str | None = None,
    order_by: str | Sequence[str] | None = None,
    indexes: str = "later",
) -> "Callable[[DataFrame, int], None]":
    """A function for `foreachBatch` that loads each micro-batch once.

    A batch is known by the query's own id, which its checkpoint keeps, or by the name `query` where
    the caller keeps one, as with Spark Connect, where a batch does not say its query. `order_by`
    are the columns that say which row of a key that comes twice in a batch is the last; without
    them such a batch is refused.
    """
    if mode == "overwrite":
        raise BadRequest("a stream cannot overwrite: each batch would remove the one before")
    note = noted(actor, message, metadata)

    def write(frame: "DataFrame", epoch: int) -> None:
        known = query or _query_of(frame)
        if not known:
            raise BadRequest("this batch names no streaming query", "give it a name: query=")
        options: Any = None if storage_options is None else dict(storage_options)
        store = open_store(uri, storage_options=options)
        order = Order(
            source=frame,
            mode=mode,
            type=type,
            edge=edge,
            branch=branch,
            columns=columns or {},
            note=note,
            once=mark_of(known, epoch),
            order_by=order_by,
            indexes=indexes,
        )
        load(store, Schemas(store).current(order.branch).catalog, order)

    return write


def _query_of(frame: "DataFrame") -> str | None:
    """The id of the query that a micro-batch belongs to; Spark Connect does not say."""
    if is_connect(frame.sparkSession):
        return None
    return frame.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
