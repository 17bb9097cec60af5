"""The change feed: every commit once in order, whatever the pages, and tokens that bind."""

from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.exec.changes.feed import FeedPage
from omnigraph.graph import Graph
from omnigraph.storage.manifest import state
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import TablePin
from tests.exec.branching import edit, knows, person


def whole_poll(graph: Graph, branch: str = MAIN, **asked: Any) -> tuple[list[Any], FeedPage]:
    """All pages of one poll: what each commit changed, and the last page."""
    told: list[Any] = []
    token = None
    for _ in range(100):
        first = {k: asked[k] for k in ("start", "cursor") if k in asked}
        rest = {k: v for k, v in asked.items() if k not in first}
        where = first if token is None else {"page_token": token}
        page = graph.changes.poll(branch, **where, **rest)
        for block in page.blocks:
            changes = [(c.type, c.id, c.op) for c in block.changes]
            if told and told[-1][0] == block.cause.id:
                told[-1][1].extend(changes)
            else:
                told.append((block.cause.id, changes))
        token = page.next_page_token
        if token is None:
            return told, page
        assert page.cursor is None
        assert page.caught_up is None
    raise AssertionError("a poll ends")


def history(graph: Graph) -> list[str]:
    made = [
        edit(graph, Person={"Ada": person("Ada", 1), "Bob": person("Bob", 1)}),
        edit(graph, Knows={"ab": knows("ab", "Ada", "Bob")}),
        edit(graph, Person={"Ada": person("Ada", 1)}),  # written again, not changed
        edit(graph, Person={"Ada": person("Ada", 2)}, Knows={"ab": None}),
    ]
    return [commit.id for commit in made]


EXPECTED = [
    [("Person", "Ada", "insert"), ("Person", "Bob", "insert")],
    [("Knows", "ab", "insert")],
    [],
    [("Person", "Ada", "update"), ("Knows", "ab", "delete")],
]


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_feed_from_the_beginning_tells_every_commit(small: Graph, limit: int) -> None:
    ids = history(small)
    told, last = whole_poll(small, start="beginning", limit=limit)
    assert told == list(zip(ids, EXPECTED, strict=True))
    assert last.caught_up is True


def test_a_cursor_goes_on_where_the_poll_ended(small: Graph) -> None:
    page = small.changes.poll()
    assert (page.blocks, page.caught_up) == ((), True)
    ids = history(small)
    told, last = whole_poll(small, cursor=page.cursor, commits=3)
    assert told == list(zip(ids, EXPECTED, strict=True))[:3]
    assert last.caught_up is False
    told, last = whole_poll(og.open(small.uri), cursor=last.cursor)
    assert told == [(ids[3], EXPECTED[3])]
    again, _ = whole_poll(small, cursor=last.cursor)
    assert again == []
    after, _ = whole_poll(small, start=f"after:{ids[1]}")
    assert [commit for commit, _ in after] == ids[2:]


def test_a_poll_ends_at_the_head_it_found(small: Graph) -> None:
    history(small)
    page = small.changes.poll(start="beginning", limit=1)
    edit(small, Person={"Eve": person("Eve")})
    seen = 1
    while page.next_page_token is not None:
        page = small.changes.poll(page_token=page.next_page_token, limit=1)
        seen += sum(len(block.changes) for block in page.blocks)
    assert seen == 5
    told, _ = whole_poll(small, cursor=page.cursor)
    assert [changes for _, changes in told] == [[("Person", "Eve", "insert")]]


def test_a_branch_has_its_inherited_commits_and_its_own(small: Graph) -> None:
    ids = history(small)
    small.branches.create("b")
    own = edit(small, "b", Person={"Bob": None}).id
    edit(small, Person={"Eve": person("Eve")})
    merged = small.branches.merge(MAIN, into="b").commit
    assert merged is not None
    told, _ = whole_poll(small, "b", start="beginning")
    assert [commit for commit, _ in told] == [*ids, own, merged.id], "first parents only"
    assert told[-1][1] == [("Person", "Eve", "insert")]


def test_a_block_as_a_server_tells_it(small: Graph) -> None:
    edit(small, Person={"Ada": person("Ada", 1)})
    commit = small.commits.list()[0]
    (block,) = small.changes.poll(start="beginning", ops=("insert",)).blocks
    assert block.to_json()["cause"] == {
        "graph_commit_id": commit.id,
        "parent_commit_id": commit.parent,
        "authored_branch": "main",
        "actor_id": "act-test",
        "authored_at": commit.created_at,
    }
    (none,) = small.changes.poll(start="beginning", ops=("delete",)).blocks
    assert none.changes == ()


def test_tokens_bind_the_branch_its_incarnation_and_the_filters(small: Graph) -> None:
    history(small)
    small.branches.create("b")
    page = small.changes.poll("b", start="beginning", limit=1)
    cursor = small.changes.poll("b").cursor
    rejected = r"^change cursor rejected:"
    for wrong in (
        {"branch": MAIN, "cursor": cursor},
        {"branch": "b", "cursor": cursor, "ops": ("insert",)},
        {"branch": "b", "cursor": page.next_page_token},
        {"branch": "b", "page_token": cursor},
    ):
        with pytest.raises(og.BadRequest, match=rejected):
            small.changes.poll(**wrong)
    small.branches.delete("b")
    small.branches.create("b")
    with pytest.raises(og.BadRequest, match=rejected):
        small.changes.poll("b", cursor=cursor)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"start": "now", "cursor": "x"}, og.BadRequest),
        ({"start": "yesterday"}, og.BadRequest),
        ({"start": "after:nothing"}, og.NotFound),
        ({"limit": 0}, og.BadRequest),
        ({"limit": 9_000}, og.LimitExceeded),
        ({"commits": 513}, og.LimitExceeded),
        ({"branch": "nowhere"}, og.NotFound),
    ],
)
def test_polls_that_make_no_sense(small: Graph, wrong: dict[str, Any], error: Any) -> None:
    with pytest.raises(error):
        small.changes.poll(**wrong)


def test_a_poll_reads_what_its_commits_added(small: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        edit(small, Person={"Ada": person("Ada", number)})
    graph = og.open(small.uri)
    rows = []
    real = state._latest_pins

    def latest(read: pa.Table) -> list[TablePin]:
        rows.append(read.num_rows)
        return real(read)

    monkeypatch.setattr(state, "_latest_pins", latest)
    cursor = graph.changes.poll(start="beginning", commits=50).cursor
    whole = sum(rows)
    rows.clear()
    for _ in range(2):
        page = graph.changes.poll(cursor=cursor, commits=5)
        assert len(page.blocks) == 5
        cursor = page.cursor
    assert sum(rows) <= 50, "not the history again for each commit"
    assert whole <= 60 * 8, "nor on the way through all of it"
