"""Input splits: an input cut into parts that tasks read by themselves.

Invariant: the parts together hold every line and row of the input once, in the input's order.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest
from omnigraph.exec.load.decode import LineBlock
from omnigraph.exec.load.files import opened
from omnigraph.exec.load.inputs import Input
from omnigraph.exec.load.pandas_columns import is_mixed
from omnigraph.exec.load.pieces import Piece
from omnigraph.exec.load.sources import Part, write_records
from omnigraph.exec.load.upsert import grouped
from omnigraph.storage.lance.foreign import look_at


def split(input: Input, *, tasks: int, folder: Path | None) -> tuple[Part | Piece, ...]:
    """Parts for about this many tasks or more. What is no file is written to `folder` first, or
    travels with its task where there is none that tasks can read."""
    if input.parts is None:
        assert input.own is not None
        if folder is None:
            return tuple(replace(each, part=n) for n, each in enumerate(input.own))
        return tuple(_spooled(input.own, folder))
    size = sum(part.size for part in input.parts)
    most = min(COSTS.spark_part_bytes_max, size // max(1, tasks))
    target = max(COSTS.spark_part_bytes_min, most)
    pieces = (piece for part in input.parts for piece in _split(part, target))
    return tuple(replace(piece, index=index) for index, piece in enumerate(pieces))


def _split(part: Part, target: int) -> Iterator[Part]:
    if part.format == "parquet":
        yield from _row_groups(part, target)
    elif part.format == "lance":
        yield from _fragments(part, target)
    elif part.format == "json" and not part.is_compressed and part.size > target:
        for start in range(0, part.size, target):
            end = min(part.size, start + target)
            yield replace(part, start=start, end=end, size=end - start)
    else:
        yield part


def _fragments(part: Part, target: int) -> Iterator[Part]:
    _, fragments = look_at(part.file, dict(part.options) or None)
    rows_max = max(1, target * max(1, sum(fragments.values())) // max(1, part.size))
    first = 1
    for group in grouped(fragments, rows_max):
        rows = sum(fragments[each] for each in group)
        yield replace(part, row_groups=group, first=first)
        first += rows


def _row_groups(part: Part, target: int) -> Iterator[Part]:
    files, path = opened(part.file, part.options)
    try:
        with files.open_input_file(path) as stream:
            facts = pq.read_metadata(stream)
    except (pa.ArrowException, OSError) as cause:
        text = f"cannot read {part.file} as parquet: {cause}"
        raise BadRequest(text, "correct the file; nothing was written") from cause
    groups: list[int] = []
    size, first, rows = 0, 1, 0
    for number in range(facts.num_row_groups):
        group = facts.row_group(number)
        groups.append(number)
        size, rows = size + group.total_byte_size, rows + group.num_rows
        if size >= target or number == facts.num_row_groups - 1:
            yield replace(part, row_groups=tuple(groups), size=size, first=first)
            groups, size, first, rows = [], 0, first + rows, 0


def _spooled(pieces: Iterator[Piece], folder: Path) -> Iterator[Part | Piece]:
    for index, piece in zip(count(), pieces, strict=False):
        data = piece.data
        if isinstance(data, LineBlock):
            path = folder / f"input-{index}.jsonl"
            path.write_bytes(data.data)
            yield Part(index, str(path), "json", len(data.data), first=piece.first)
        elif isinstance(data, pa.Table) and data.num_rows and not data.num_columns:
            raise BadRequest("a table without columns is not loaded on Spark", "give it columns")
        elif isinstance(data, pa.Table) and is_mixed(data):
            yield replace(piece, part=index)  # Parquet has no unions
        elif isinstance(data, pa.Table):
            path = folder / f"input-{index}.parquet"
            pq.write_table(data, path)
            yield Part(index, str(path), "parquet", data.nbytes, first=piece.first)
        else:
            path = folder / f"input-{index}.records"
            write_records(path, data)
            yield Part(index, str(path), "records", path.stat().st_size, first=piece.first)
