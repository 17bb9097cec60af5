"""Edge files that follow another: lists merged, not sorted again."""

from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.exec.topology.edge_delta import EdgeDelta
from omnigraph.exec.topology.edge_fold import folded_arrays
from omnigraph.storage.derived.edge_file import EdgeFile, edge_arrays
from omnigraph.storage.derived.mapped_file import MappedFile, write_file

NODES = 5
_end = st.integers(-1, NODES - 1)
_edges = st.lists(st.tuples(_end, _end), max_size=12)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(old=_edges, new=_edges, chance=st.randoms(use_true_random=False), more=st.integers(0, 2))
def test_TP1_lists_that_are_merged_equal_those_sorted_anew(
    old: list[tuple[int, int]],
    new: list[tuple[int, int]],
    chance: object,
    more: int,
    tmp_path_factory: object,
) -> None:
    ends = np.array([*old, *new], np.int64).reshape(-1, 2)
    row_ids = np.arange(100, 100 + len(ends), dtype=np.uint64)
    chance.shuffle(row_ids)  # type: ignore[attr-defined]
    removed = np.flatnonzero([chance.random() < 0.3 for _ in ends])  # type: ignore[attr-defined]
    count, after = len(old), NODES + more
    folder: Path = tmp_path_factory.mktemp("fold")  # type: ignore[attr-defined]
    first = (ends[:count, 0].astype(np.int32), ends[:count, 1].astype(np.int32))
    facts, arrays = edge_arrays(first, (NODES, NODES), row_ids[:count])
    digest, _ = write_file(folder / "f", {**facts, "source": "", "target": ""}, arrays)
    file = EdgeFile(MappedFile(folder / "f", digest))
    delta = EdgeDelta(
        removed,
        ends[removed, 0],
        ends[removed, 1],
        row_ids[count:],
        ends[count:, 0],
        ends[count:, 1],
    )
    live = np.ones(len(ends), bool)
    live[removed] = False
    both = (ends[live, 0].astype(np.int32), ends[live, 1].astype(np.int32))
    expected = edge_arrays(both, (after, after), row_ids[live])
    merged = folded_arrays(file, delta, (after, after))
    assert merged[0] == expected[0]
    assert merged[1].keys() == expected[1].keys()
    for name, array in expected[1].items():
        assert merged[1][name].tolist() == array.tolist(), name
        assert merged[1][name].dtype == array.dtype, name
