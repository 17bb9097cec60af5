"""Positions of edges by their row ids, however those are kept."""

from pathlib import Path

import numpy as np
import pytest

from omnigraph.storage.derived.edge_file import EdgeFile, edge_arrays
from omnigraph.storage.derived.mapped_file import MappedFile, NumberRange, write_file


@pytest.mark.parametrize(
    "row_ids", [[7, 8, 9, 10], [3, 9, 10, 40], [9, 3, 40, 10]], ids=["range", "ascending", "any"]
)
def test_TP1_an_edge_is_found_by_its_row_id(tmp_path: Path, row_ids: list[int]) -> None:
    ends = np.zeros(4, np.int32), np.arange(4, dtype=np.int32)
    facts, arrays = edge_arrays(ends, (1, 4), np.array(row_ids, np.uint64))
    digest, _ = write_file(tmp_path / "f", {**facts, "source": "", "target": ""}, arrays)
    file = EdgeFile(MappedFile(tmp_path / "f", digest))
    assert isinstance(file.row_ids, NumberRange) == (row_ids[0] == 7)
    asked = np.array([*row_ids[::-1], 0, 6, 11, 2**63], np.uint64)
    expected = [3, 2, 1, 0, *(row_ids.index(n) if n in row_ids else -1 for n in (0, 6, 11)), -1]
    assert file.positions_of(asked).tolist() == expected
    assert file.positions_of(asked[:0]).tolist() == []
