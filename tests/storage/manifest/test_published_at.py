"""Every reader knows the manifest version of every commit, also when folds took its stamp."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from omnigraph.costs import COSTS
from omnigraph.errors import Conflict, RecoveryRequired
from omnigraph.storage import failpoints
from omnigraph.storage.lance import row_versions
from omnigraph.storage.lance.columns import CREATED, ROW_ID
from omnigraph.storage.lance.row_versions import row_id_span
from omnigraph.storage.manifest import publish as publish_module
from omnigraph.storage.manifest import published_at
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit, Row
from omnigraph.storage.store import Store
from tests.storage.world import CITY, PERSON, Where, append, content, heads_agree


@pytest.fixture(autouse=True)
def folds_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COSTS, "exact_versions", 3)
    monkeypatch.setattr(COSTS, "runs_few", 0)
    monkeypatch.setattr(COSTS, "fold_fragments_min", 4)


def without_stamp(store: Store, branch: str | None = None) -> int:
    """How many rows of the manifest lost their stamp."""
    handle = store.datasets.open(LOCATION, branch)
    return int(handle.count_rows(f"{CREATED} = 0"))


def agrees(store: Store, where: Where, commits: list[Commit], branch: str = MAIN) -> None:
    """Every way to look a commit up, in a process that has seen nothing."""
    other = where.open()
    versions = {each.id: each.manifest_version for each in commits}
    listed = other.history.list(branch)
    assert {c.id: c.manifest_version for c in listed if c.id in versions} == versions
    for limit in (0, 1, 2, 7, 1_000):
        assert where.open().history.list(branch, limit=limit) == listed[:limit]
    line = list(where.open().history.first_parents(listed[0]))
    assert [each.id for each in line] == [each.id for each in listed]
    state = other.manifest.state(branch)
    assert state.pins == store.manifest.state(branch).pins
    assert other.queries.commits_at(state, [commits[0].manifest_version]) == (commits[0],)
    history = other.queries.table_history(state)
    for commit in commits:
        seen = {pin for pin in other.history.snapshot(commit.id).tables.values()}
        assert history.pins_at([commit.manifest_version]) == seen
    location = state.pins[PERSON].location
    whole = range(state.version + 1)
    pins = [pin for pin in history.all if pin.location == location]
    assert [pin for _, pin in other.queries.versions_of_table(state, location, whole)] == sorted(
        pins, key=lambda pin: pin.version, reverse=True
    )


def test_commits_and_tables_are_dated_without_stamps(store: Store, local: Where) -> None:
    commits = [append(store, PERSON, f"r{number}") for number in range(9)]
    commits += [append(store, CITY, f"c{number}") for number in range(9)]
    assert without_stamp(store) > 10
    agrees(store, local, commits)
    store.branches.create("b")
    own = [append(store, PERSON, f"b{number}", branch="b") for number in range(12)]
    assert without_stamp(store, "b") > without_stamp(store)
    agrees(store, local, commits + own, "b")


def test_rows_that_were_folded_have_row_ids_without_gaps(store: Store) -> None:
    for number in range(30):
        append(store, PERSON, f"r{number}")
    store.branches.create("b")
    for number in range(30):
        append(store, PERSON, f"b{number}", branch="b")
    for branch in (None, "b"):
        handle = store.datasets.open(LOCATION, branch)
        rows = handle.scanner(columns=[], with_row_id=True).to_table()[ROW_ID].to_pylist()
        assert len(rows) == len(set(rows))
        folded = [f for f in handle.get_fragments() if f.physical_rows > 6]
        assert sum(f.physical_rows for f in folded) > len(rows) / 2
        for fragment in folded:
            span = row_id_span(fragment.metadata.to_json())
            assert span is not None
            assert len(span) == fragment.physical_rows


@pytest.mark.parametrize(
    ("row_ids", "span"),
    [
        (range(5, 90), range(5, 90)),
        ([5, *range(7, 400)], range(5, 400)),
        ([n for n in range(3, 900) if n % 3], range(4, 900)),
        ([9, 4, 5], None),
    ],
)
def test_the_span_of_row_ids_is_read_from_ranges(row_ids: Any, span: range | None) -> None:
    fragment: dict[str, Any] = {}
    row_versions.set_row_ids(fragment, list(row_ids))
    assert row_id_span(fragment) == span


def test_rows_among_row_ids_of_others_keep_theirs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "fold_fragments_min", 100)
    for number in range(3):
        append(store, PERSON, f"r{number}")
    handle = store.datasets.open(LOCATION, None)
    facts = [fragment.metadata.to_json() for fragment in handle.get_fragments()]
    lowest = [published_at._lowest_alone(handle, [each], 2) for each in facts]
    assert lowest == [row_id_span(each).start for each in facts]  # type: ignore[union-attr]
    for span in (range(1_000), None):
        monkeypatch.setattr(published_at, "row_id_span", lambda _, span=span: span)
        assert published_at._lowest_alone(handle, facts[:1], 2) is None


def naming(change: Callable[[Row], Row], real: Callable[..., Row]) -> Callable[..., Row]:
    return lambda *arguments: change(real(*arguments))


@pytest.mark.parametrize(
    "change",
    [
        lambda row: {**row, "metadata": _other(row["metadata"])},
        lambda row: {**row, "metadata": (row["metadata"] or "").replace("manifest_version", "mv")},
    ],
    ids=["rebased", "earlier program"],
)
def test_a_row_that_names_another_version_or_none_keeps_its_stamp(
    store: Store,
    local: Where,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Row], Row],
) -> None:
    for name in ("commit_row", "version_row"):
        monkeypatch.setattr(publish_module, name, naming(change, getattr(publish_module, name)))
    commits = [append(store, PERSON, f"r{number}") for number in range(12)]
    agrees(store, local, commits)
    assert store.stats.view().events["fold.manifest"] >= 2


def _other(metadata: str) -> str:
    """Names the version before the one that it named."""
    head, mark, tail = metadata.partition('"manifest_version":')
    digits = "".join(each for each in tail[:6] if each.isdigit())
    return f"{head}{mark}{int(digits) - 1}{tail.removeprefix(digits)}"


@pytest.mark.parametrize("name", failpoints.FOLD)
def test_r2_a_fold_that_stops_anywhere_loses_no_commit_and_no_date(
    store: Store, local: Where, name: str
) -> None:
    commits = [append(store, PERSON, f"r{number}") for number in range(8)]
    for number in range(8, 24):
        if number % 5 == 0:
            with failpoints.armed(name, "raise", 1), suppress(RecoveryRequired, RuntimeError):
                append(store, PERSON, f"r{number}")
            store = local.open()
        else:
            commits.append(append(store, PERSON, f"r{number}"))
    acknowledged = {each.id for each in commits}
    assert acknowledged <= {each.id for each in store.history.list()}
    agrees(store, local, commits)
    assert heads_agree(store)


def test_c4_writers_and_folds_of_two_processes_date_every_commit(local: Where) -> None:
    stores = (local.create(), local.open())

    def written(nth: int) -> list[Commit]:
        commits = []
        for number in range(15):
            while True:
                with suppress(Conflict):
                    commits.append(append(stores[nth], (PERSON, CITY)[nth], f"r{number}"))
                    break
        return commits

    with ThreadPoolExecutor(2) as pool:
        commits = [each for part in pool.map(written, (0, 1)) for each in part]
    assert without_stamp(stores[0]) > 10
    assert len(content(local.open())[PERSON]) == 15
    agrees(stores[0], local, commits)
