"""Foreign Lance datasets as a source of rows: read at a pinned version, never written.

Invariant: every fragment of a dataset is read at the version that `look_at` returned.
"""

from collections.abc import Iterator, Sequence

import lance
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.storage.lance.columns import BLOB_BYTES
from omnigraph.storage.objects import StorageOptions


def look_at(uri: str, options: StorageOptions | None) -> tuple[int, dict[int, int]]:
    """The newest version of a dataset, and its fragments with their rows."""
    dataset = _open(uri, None, options)
    fragments = {each.fragment_id: each.count_rows() for each in dataset.get_fragments()}
    return int(dataset.version), fragments


def read_batches(
    uri: str, version: int, fragments: Sequence[int], options: StorageOptions | None
) -> Iterator[pa.RecordBatch]:
    """The rows of some fragments, in their order."""
    dataset = _open(uri, version, options)
    if fragments:
        chosen = [each for each in dataset.get_fragments() if each.fragment_id in set(fragments)]
        yield from dataset.scanner(fragments=chosen, blob_handling=BLOB_BYTES).to_batches()


def _open(uri: str, version: int | None, options: StorageOptions | None) -> lance.LanceDataset:
    try:
        return lance.dataset(uri, version=version, storage_options=options)
    except (OSError, ValueError) as cause:
        raise BadRequest(
            f"cannot read {uri} as lance: {cause}", "correct it; nothing was written"
        ) from cause
