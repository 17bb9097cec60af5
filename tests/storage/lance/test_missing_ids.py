"""The id index has no false negatives: an id that it calls missing is not in the table."""

from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.storage import failpoints
from omnigraph.types import TableKey

PERSON = TableKey("node:Person")
NAMES = "abcdefgh"
INSERT = "query add($n: String) { insert Person { name: $n } }"
DELETE = "query gone($n: String) { delete Person where name = $n }"
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "delete", "load", "overwrite", "lost", "half", "optimize"]),
        st.booleans(),
        st.sets(st.sampled_from(NAMES), min_size=1, max_size=4),
    ),
    max_size=12,
)


def people(names: set[str]) -> list[dict[str, object]]:
    return [{"type": "Person", "data": {"name": name}} for name in sorted(names)]


def step(graph: og.Graph, verb: str, names: set[str]) -> None:
    name = min(names)
    match verb:
        case "insert":
            graph.mutate(INSERT, {"n": name})
        case "delete":
            graph.mutate(DELETE, {"n": name})
        case "load" | "overwrite":
            graph.load(people(names), "merge" if verb == "load" else verb)
        case "optimize":
            graph.optimize()
        case _:  # stopped with every head moved, or before any head moved
            place = "commit.tables_done" if verb == "lost" else "commit.sidecar_written"
            with failpoints.armed(place), suppress(og.RecoveryRequired, OSError):
                graph.mutate(INSERT, {"n": name})
            graph.refresh()


@settings(max_examples=8, deadline=None)
@given(steps=STEPS)
def test_no_id_in_the_table_is_said_to_be_missing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool, set[str]]]
) -> None:
    """Two processes write, rows go and come back, fragments are folded, writes are undone."""
    uri = tmp_path_factory.mktemp("ids") / "g"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(COSTS, "fold_fragments_min", 3)
        with og.init(uri, "node Person { name: String @key }") as mine, og.open(uri) as theirs:
            for verb, other, names in steps:
                step(theirs if other else mine, verb, names)
                reader = mine._store.reader(mine.snapshot(), PERSON)
                present = set(reader.rows(["id"])["id"].to_pylist())
                missing = {name for name in NAMES if reader.lacks(pa.array([name]))}
                assert missing & present == set()
                assert not present or not reader.lacks(pa.array(sorted(present)))
