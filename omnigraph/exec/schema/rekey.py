"""New ids for the rows of a table whose type gets another key: the edges of a schema change.

Invariant: a row keeps everything but its id, which is what `derived_ids` gives for the key of the
new type. Rows are read and written batch by batch, so memory does not follow the table.
"""

from collections.abc import Iterator

import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.exec.schema.backfill import Owner, columns_after
from omnigraph.exec.values.derived_ids import derived_ids
from omnigraph.storage.lance.reader import TableReader


def rekeyed_rows(reader: TableReader, old: Owner, new: Owner) -> pa.RecordBatchReader:
    """Every row as it was written, with the id that follows from the new key."""
    named = {after: before for before, after in columns_after(old, new).items()}
    key = {name: named[name] for name in new.key}

    def batches() -> Iterator[pa.RecordBatch]:
        for rows in _chunks(reader):
            columns = {name: rows[before].combine_chunks() for name, before in key.items()}
            index = rows.column_names.index("id")
            renamed = rows.set_column(index, rows.schema.field(index), derived_ids(new, columns))
            yield from renamed.cast(reader.schema).to_batches()

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _chunks(reader: TableReader) -> Iterator[pa.Table]:
    """The rows as a write takes them; of a table with blobs they are read by their row ids."""
    if not reader.blob_columns:
        for batch in reader.batches(reader.schema.names):
            yield pa.Table.from_batches([batch])
        return
    row_ids = reader.row_ids().combine_chunks()
    for start in range(0, len(row_ids), COSTS.rekey_chunk_rows):
        yield reader.stageable(row_ids.slice(start, COSTS.rekey_chunk_rows))
