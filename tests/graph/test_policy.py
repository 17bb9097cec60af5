"""A policy on an open graph: every verb asks first, about the branch that it is really about."""

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph.door import graph_for
from omnigraph.graph.reviews import ReviewsView
from omnigraph.graph.schema import SchemaView
from omnigraph.graph.views import (
    BranchesView,
    ChangesView,
    CommitsView,
    RecoveriesView,
    TagsView,
)
from tests.server.world import ADD, NAMES, PEOPLE, SCHEMA

ADA = "act-ada"
LINE = b'{"type":"Person","data":{"name":"Zed"}}\n'
SCOPED = ("read", "export", "change")
TARGETED = ("schema_apply", "branch_create", "branch_delete", "branch_merge", "review")


def granting(
    *actions: str,
    scope: str | None = None,
    protected: str = "main",
    everywhere: tuple[str, ...] = (),
) -> og.Policy:
    """A policy that allows one actor some actions, on branches of a scope if it is given, and some
    `everywhere`."""
    rules = ""
    for action in (*actions, *everywhere):
        key = "branch_scope" if action in SCOPED else "target_branch_scope"
        is_scoped = scope and action in (*SCOPED, *TARGETED) and action not in everywhere
        said = f", {key}: {scope}" if is_scoped else ""
        rules += (
            f"  - {{id: {action}, allow: {{actors: {{group: g}}, actions: [{action}]{said}}}}}\n"
        )
    return og.Policy.of_text(
        f"version: 1\ngroups: {{g: [{ADA}]}}\nprotected_branches: ['{protected}']\n"
        + (f"rules:\n{rules}" if rules else "")
    )


@dataclass
class Verb:
    """A verb of a graph: its call, the actions it needs, and the branch it is about, if any."""

    call: Callable[[og.Graph, str], Any]
    actions: tuple[str, ...]
    branched: bool = True
    before: Callable[[og.Graph], Any] = field(default=lambda graph: None)
    after: Callable[[og.Graph], Any] = field(default=lambda graph: None)
    only_main: bool = False
    everywhere: tuple[str, ...] = ()
    """Actions that it needs on other branches as well."""


def _transaction(graph: og.Graph, branch: str) -> None:
    with graph.transaction(branch=branch) as block:
        block.mutate(ADD, {"n": "In"})


REVIEWS: dict[str, str] = {}


def _reviews(graph: og.Graph) -> None:
    """A new review of each target, of somebody else."""
    for target in ("main", "draft"):
        REVIEWS[target] = graph.reviews.open("side", target, title="t", actor="act-author").id


VERBS = {
    "query": Verb(lambda g, b: g.query(NAMES, branch=b), ("read",)),
    "query.snapshot": Verb(lambda g, b: g.query(NAMES, snapshot=HEADS[b]), ("read",)),
    "query.point": Verb(lambda g, b: g.query(NAMES, branch=f"{b}~0"), ("read",)),
    "snapshot": Verb(lambda g, b: g.snapshot(b), ("read",)),
    "snapshot.commit": Verb(lambda g, b: g.snapshot(commit=HEADS[b]), ("read",)),
    "entity": Verb(lambda g, b: g.entity("node", "Person", "Ada", branch=b), ("read",)),
    "history": Verb(lambda g, b: g.history("node", "Person", "Ada", branch=b), ("read",)),
    "blob": Verb(lambda g, b: g.blob("node", "Person", "Ada", "photo", branch=b), ("read",)),
    "indexes": Verb(lambda g, b: g.indexes(branch=b), ("read",)),
    "page": Verb(lambda g, b: g.page("node", "Person", branch=b), ("read",)),
    "listed": Verb(lambda g, b: g.listed("node", "Person", ["Ada"], branch=b), ("read",)),
    "neighbourhood": Verb(lambda g, b: g.neighbourhood("Person", "Ada", branch=b), ("read",)),
    "draw": Verb(lambda g, b: g.draw("commits", branch=b), ("read",)),
    "draw.schema": Verb(lambda g, b: g.draw("schema", branch=b), ("read",)),
    "draw.entity": Verb(lambda g, b: g.draw("entity", "Person", "Ada", branch=b), ("read",)),
    "draw.diff": Verb(lambda g, b: g.draw("diff", HEADS[b], b), ("read",)),
    "diff": Verb(lambda g, b: g.diff(HEADS[b], b), ("read",)),
    "check": Verb(lambda g, b: g.check(), ("read",), branched=False),
    "changes.poll": Verb(lambda g, b: g.changes.poll(b, start="beginning"), ("read",)),
    "changes.poll.consumer": Verb(
        lambda g, b: g.changes.poll(consumer="c"),
        ("read",),
        before=lambda g: g.changes.register("c", max_lag="7d"),
        after=lambda g: g.changes.unregister("c"),
        only_main=True,
    ),
    "changes.follow": Verb(lambda g, b: next(g.changes.follow(b, start="beginning")), ("read",)),
    "changes.baseline": Verb(lambda g, b: g.changes.baseline(b), ("export",)),
    "changes.register": Verb(
        lambda g, b: g.changes.register(f"r-{b}", b, max_lag="7d"),
        ("read",),
        after=lambda g: [g.changes.unregister(c.name) for c in g.changes.consumers()],
    ),
    "changes.consumers": Verb(lambda g, b: g.changes.consumers(), ("read",), branched=False),
    "changes.ack": Verb(
        lambda g, b: g.changes.ack("k", CURSORS["main"]),
        ("read",),
        before=lambda g: g.changes.register("k", start="beginning", max_lag="7d"),
        after=lambda g: g.changes.unregister("k"),
        only_main=True,
    ),
    "changes.unregister": Verb(
        lambda g, b: g.changes.unregister("u"),
        ("read",),
        before=lambda g: g.changes.register("u", max_lag="7d"),
        only_main=True,
    ),
    "commits.list": Verb(lambda g, b: g.commits.list(b), ("read",)),
    "commits.list.all": Verb(
        lambda g, b: g.commits.list(all_branches=True), ("read",), branched=False
    ),
    "commits.get": Verb(lambda g, b: g.commits.get(HEADS[b]), ("read",), branched=False),
    "commits.names": Verb(lambda g, b: g.commits.names(), ("read",), branched=False),
    "commits.once": Verb(lambda g, b: g.commits.once("x", b), ("read",)),
    "commits.changes": Verb(lambda g, b: g.commits.changes(HEADS[b]), ("read",)),
    "recoveries.list": Verb(lambda g, b: g.recoveries.list(), ("read",), branched=False),
    "branches.list": Verb(lambda g, b: g.branches.list(), ("read",), branched=False),
    "tags.list": Verb(lambda g, b: g.tags.list(), ("read",), branched=False),
    "tags.get": Verb(lambda g, b: g.tags.get("t0"), ("read",), branched=False),
    "schema.text": Verb(lambda g, b: g.schema.text, ("read",), branched=False),
    "schema.catalog": Verb(lambda g, b: g.schema.catalog, ("read",), branched=False),
    "schema.on": Verb(lambda g, b: g.schema.on(b), ("read",), branched=False),
    "schema.at": Verb(lambda g, b: g.schema.at(HEADS[b]), ("read",), branched=False),
    "schema.plan": Verb(lambda g, b: g.schema.plan(SCHEMA), ("read",), branched=False),
    "export": Verb(lambda g, b: g.export(FILES / f"{b}.jsonl", branch=b), ("export",)),
    "export_lines": Verb(lambda g, b: next(g.export_lines(branch=b)), ("export",)),
    "export_lines.snapshot": Verb(
        lambda g, b: next(g.export_lines(snapshot=HEADS[b])), ("export",)
    ),
    "backup": Verb(
        lambda g, b: g.backup(FILES / "backup", dry_run=True), ("export",), branched=False
    ),
    "mutate": Verb(lambda g, b: g.mutate(ADD, {"n": "M"}, branch=b), ("change",)),
    "load": Verb(lambda g, b: g.load(LINE, "merge", branch=b), ("change",)),
    "load.existing": Verb(
        lambda g, b: g.load(LINE, "merge", branch=b, from_branch="main"), ("change",)
    ),
    "load.patch": Verb(
        lambda g, b: g.load(b'{"type":"Person","data":{"name":"Ada","age":3}}', "patch", branch=b),
        ("change",),
    ),
    "put_blob": Verb(
        lambda g, b: g.put_blob("node", "Person", "Ada", "photo", b"x", branch=b), ("change",)
    ),
    "revert": Verb(lambda g, b: g.revert(f"{b}~0", onto=b), ("change",)),
    "restore": Verb(lambda g, b: g.restore(HEADS[b], branch=b), ("change",)),
    "transaction": Verb(_transaction, ("change",)),
    "ensure_indices": Verb(lambda g, b: g.ensure_indices(b), ("change",)),
    "optimize": Verb(lambda g, b: g.optimize(b, engine="local"), ("change",)),
    "embed": Verb(lambda g, b: (g.embed_with("mock"), g.embed(b)), ("change",)),
    "cleanup": Verb(lambda g, b: g.cleanup(keep=1), ("admin",), branched=False),
    "repair": Verb(lambda g, b: g.repair(), ("admin",), branched=False),
    "schema.apply": Verb(lambda g, b: g.schema.apply(SCHEMA, branch=b), ("schema_apply",)),
    "branches.create": Verb(
        lambda g, b: g.branches.create(f"new-{b}", "draft"),
        ("branch_create",),
        after=lambda g: [g.branches.delete(n) for n in g.branches.list() if n.startswith("new-")],
    ),
    "branches.delete": Verb(
        lambda g, b: g.branches.delete(f"new-{b}"),
        ("branch_delete",),
        before=lambda g: [g.branches.create(f"new-{b}") for b in ("main", "draft")],
        after=lambda g: [g.branches.delete(n) for n in g.branches.list() if n.startswith("new-")],
    ),
    "branches.merge": Verb(
        lambda g, b: g.branches.merge("side", b, dry_run=True), ("branch_merge",)
    ),
    "reviews.open": Verb(
        lambda g, b: g.reviews.open("side", b, title="t"), ("review",), everywhere=("read",)
    ),
    "reviews.list": Verb(lambda g, b: g.reviews.list(), ("read",), branched=False),
    "reviews.get": Verb(
        lambda g, b: g.reviews.get(REVIEWS[b]), ("read",), branched=False, before=_reviews
    ),
    "reviews.comment": Verb(
        lambda g, b: g.reviews.comment(REVIEWS[b], "t"),
        ("review",),
        before=_reviews,
        everywhere=("read",),
    ),
    "reviews.approve": Verb(
        lambda g, b: g.reviews.approve(REVIEWS[b]),
        ("review",),
        before=_reviews,
        everywhere=("read",),
    ),
    "reviews.close": Verb(
        lambda g, b: g.reviews.close(REVIEWS[b]), ("review",), before=_reviews, everywhere=("read",)
    ),
    "reviews.merge": Verb(
        lambda g, b: g.reviews.merge(REVIEWS[b], dry_run=True), ("branch_merge",), before=_reviews
    ),
    "tags.create": Verb(
        lambda g, b: g.tags.create(f"new-{b}", "draft"),
        ("branch_create",),
        after=lambda g: [g.tags.delete(t.name) for t in g.tags.list() if t.name != "t0"],
    ),
    "tags.delete": Verb(
        lambda g, b: g.tags.delete(f"new-{b}"),
        ("branch_delete",),
        before=lambda g: [g.tags.create(f"new-{b}") for b in ("main", "draft")],
        after=lambda g: [g.tags.delete(t.name) for t in g.tags.list() if t.name != "t0"],
    ),
}
HEADS: dict[str, str] = {}
CURSORS: dict[str, str] = {}
FILES = Path()
UNASKED = {
    "branch": "a handle, whose verbs ask",
    "branches.owned": "a lock of this process, without data",
    "spark": "DataFrames ask when they are made: test_dataframes_ask_first",
    "schema": "a view",
    "refresh": "settles what dead writers left",
    "stats": "counters",
    "embedder": "a setting of this process",
    "embed_with": "a setting of this process",
    "close": "ends the handle",
    "uri": "where it is",
    "read_only": "how it was opened",
    "cache_bytes": "a counter",
    "beside": "small objects of the server's own",
    "branches": "a view",
    "tags": "a view",
    "commits": "a view",
    "recoveries": "a view",
    "changes": "a view",
    "reviews": "a view",
    "check_merges": "what the program that opened the graph demands of merges",
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    """A graph with a protected branch, an unprotected one, and one beside them."""
    global FILES
    FILES = tmp_path_factory.mktemp("files")
    with og.init(str(FILES / "g.omni"), schema=SCHEMA) as graph:
        graph.load(PEOPLE.encode(), "merge")
        graph.branches.create("side")
        graph.branches.create("draft")
        graph.mutate(ADD, {"n": "Dora"}, branch="draft")
        graph.mutate(ADD, {"n": "Sid"}, branch="side")
        graph.tags.create("t0")
        for branch in ("main", "draft"):
            HEADS[branch] = graph.snapshot(branch).commit_id
        CURSORS["main"] = graph.changes.poll().cursor or ""
        yield graph


def state(graph: og.Graph) -> Any:
    """Everything that a verb could have written."""
    heads = {name: graph.snapshot(name).commit_id for name in graph.branches.list()}
    consumers = [(each.name, each.acknowledged) for each in graph.changes.consumers()]
    return heads, [tag.name for tag in graph.tags.list()], consumers, graph.reviews.list()


def test_every_verb_of_a_graph_is_in_the_table() -> None:
    views = {
        "branches": BranchesView,
        "tags": TagsView,
        "commits": CommitsView,
        "recoveries": RecoveriesView,
        "changes": ChangesView,
        "schema": SchemaView,
        "reviews": ReviewsView,
    }
    every = {name for name, _ in inspect.getmembers(og.Graph) if not name.startswith("_")}
    for view, kind in views.items():
        names = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
        every |= {f"{view}.{name}" for name in names}
    listed = {
        ".".join(name.split(".")[: 2 if name.split(".")[0] in views else 1]) for name in VERBS
    }
    assert every - listed - UNASKED.keys() == set(), "a verb that no policy is asked about"
    assert listed - every == set()


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_asks_first(graph: og.Graph, name: str) -> None:
    verb = VERBS[name]
    targets = name.split(".")[0] in ("branches", "tags") and not name.endswith("merge")
    protected = "new-main" if targets else "main"

    def allowing(**scope: Any) -> og.Policy:
        return granting(*verb.actions, everywhere=verb.everywhere, **scope)

    def run(policy: og.Policy | None, branch: str, actor: str | None = ADA) -> Any:
        return verb.call(graph_for(graph, actor, policy), branch)

    def denied(policy: og.Policy, branch: str, actor: str | None = ADA) -> None:
        was = state(graph)
        with pytest.raises(og.Forbidden) as denial:
            run(policy, branch, actor)
        assert denial.value.action in (*verb.actions, *verb.everywhere)
        assert denial.value.actor == actor
        assert state(graph) == was

    try:
        verb.before(graph)
        denied(granting(), "main")
        denied(
            granting(*(a for a in (*SCOPED, *TARGETED, "admin") if a not in verb.actions)), "main"
        )
        denied(allowing(), "main", "act-eve")
        denied(allowing(), "main", None)
        scoped = verb.actions[0] != "admin"
        if scoped:
            denied(allowing(scope="unprotected", protected=protected), "main")
        if scoped and (not verb.branched or not verb.only_main):
            denied(allowing(scope="protected", protected=protected), "draft")
        if verb.branched:
            run(allowing(scope="protected", protected=protected), "main")
            if not verb.only_main:
                run(allowing(scope="unprotected", protected=protected), "draft")
        else:
            run(allowing(), "main")
    finally:
        verb.after(graph)


def test_a_load_that_forks_needs_both_actions(graph: og.Graph) -> None:
    for actions in (("change",), ("branch_create",)):
        with pytest.raises(og.Forbidden) as denial:
            graph_for(graph, ADA, granting(*actions)).load(
                LINE, "merge", branch="forked", from_branch="draft"
            )
        assert denial.value.action not in actions
        assert "forked" not in graph.branches.list()
    both = granting("change", "branch_create", scope="unprotected")
    done = graph_for(graph, ADA, both).load(LINE, "merge", branch="forked", from_branch="draft")
    assert done.branch_created
    assert done.actor_id == ADA
    graph.branches.delete("forked")


def test_deleting_the_source_of_a_merge_is_asked_separately(graph: og.Graph) -> None:
    graph.branches.create("merged", "draft")
    graph.mutate(ADD, {"n": "Mia"}, branch="merged")
    may_merge = graph_for(graph, ADA, granting("branch_merge"))
    done = may_merge.branches.merge("merged", "draft", delete_source=True)
    assert done.kind == "fast_forward"
    assert done.branch_deleted is False
    assert "policy denied action 'branch_delete'" in (done.branch_delete_error or "")
    assert "merged" in graph.branches.list()
    may_both = graph_for(graph, ADA, granting("branch_merge", "branch_delete"))
    assert may_both.branches.merge("merged", "draft", delete_source=True).branch_deleted
    assert "merged" not in graph.branches.list()


@pytest.mark.parametrize("spelling", [" main", "main ", "\tmain\n", "main\u00a0"])
def test_spaces_around_a_name_open_no_door(graph: og.Graph, spelling: str) -> None:
    actor = graph_for(
        graph,
        ADA,
        granting("branch_merge", "change", "branch_create", "branch_delete", scope="unprotected"),
    )
    was = state(graph)
    for call in (
        lambda: actor.branches.merge("draft", spelling),
        lambda: actor.mutate(ADD, {"n": "X"}, branch=spelling),
        lambda: actor.load(LINE, "merge", branch=spelling),
        lambda: actor.branches.delete(spelling),
        lambda: actor.branches.create(spelling),
        lambda: actor.tags.create(spelling),
    ):
        with pytest.raises(og.Forbidden):
            call()
    assert state(graph) == was


@pytest.mark.parametrize(
    "spelling", ["Main", "MAIN", "main.", "main/", "mаin", "main~0", "main@{1h}", "x" * 5_000]
)
def test_other_spellings_name_no_branch_that_is_protected(graph: og.Graph, spelling: str) -> None:
    actor = graph_for(graph, ADA, granting("branch_merge", "change", scope="unprotected"))
    was = state(graph)
    for call in (
        lambda: actor.branches.merge("draft", spelling),
        lambda: actor.mutate(ADD, {"n": "X"}, branch=spelling),
        lambda: actor.load(LINE, "merge", branch=spelling),
    ):
        with pytest.raises(og.OmnigraphError):
            call()
    assert state(graph) == was


def test_a_read_inside_a_transaction_needs_the_right_to_read(graph: og.Graph) -> None:
    was = state(graph)
    changer = graph_for(graph, ADA, granting("change"))

    def change_and_read() -> None:
        with changer.transaction() as block:
            block.mutate(ADD, {"n": "T"})
            block.query(NAMES)

    with pytest.raises(og.Forbidden):
        change_and_read()
    assert state(graph) == was
    both = graph_for(graph, ADA, granting("change", "read"))
    with both.transaction(branch="draft") as block:
        block.mutate(ADD, {"n": "T"})
        assert {"name": "T"} in block.query(NAMES).rows
    assert graph.commits.list("draft")[0].actor == ADA


def test_the_branch_of_a_transaction_is_nobody_elses(graph: og.Graph) -> None:
    free = graph_for(graph, ADA, granting("change", "read", "branch_delete", scope="unprotected"))
    with graph.transaction() as block:
        inner = next(name for name in graph.branches.list() if name.startswith("tx/"))
        for call in (
            lambda: free.mutate(ADD, {"n": "X"}, branch=inner),
            lambda: free.query(NAMES, branch=inner),
            lambda: free.load(LINE, "merge", branch=inner),
            lambda: free.branches.delete(inner),
        ):
            with pytest.raises(og.Forbidden):
                call()
        assert block.query(NAMES).rows


def test_what_another_branch_had_is_brought_only_to_who_may_read_it(graph: og.Graph) -> None:
    drafter = graph_for(graph, ADA, granting("change", "read", scope="unprotected"))
    was = state(graph)
    with pytest.raises(og.Forbidden) as denial:
        drafter.restore("main", branch="draft")
    assert (denial.value.action, denial.value.branch) == ("read", "main")
    with pytest.raises(og.Forbidden):
        drafter.revert(HEADS["main"], onto="draft")
    with pytest.raises(og.Forbidden):
        drafter.diff("main", "draft")
    assert state(graph) == was


def test_a_handle_of_an_actor_writes_as_no_other(graph: og.Graph, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        f"version: 1\ngroups: {{g: [{ADA}, act-bob]}}\n"
        "rules: [{id: all, allow: {actors: {group: g}, actions: [read, change]}}]\n"
    )
    with og.open(graph.uri, policy=file, actor=ADA) as bound:
        done = bound.mutate(ADD, {"n": "Own"}, branch="draft")
        assert done.actor_id == ADA
        assert bound.mutate(ADD, {"n": "Own2"}, branch="draft", actor=ADA).actor_id == ADA
        with pytest.raises(og.BadRequest, match="acts as 'act-ada'"):
            bound.mutate(ADD, {"n": "X"}, branch="draft", actor="act-bob")
    with og.open(graph.uri, policy=str(file)) as free:
        assert (
            free.mutate(ADD, {"n": "Bob2"}, branch="draft", actor="act-bob").actor_id == "act-bob"
        )
        with pytest.raises(og.Forbidden, match="no actor is given"):
            free.mutate(ADD, {"n": "X"}, branch="draft")
        with pytest.raises(og.Forbidden, match="no actor is given"):
            free.query(NAMES)
    with og.open(graph.uri, actor="act-bob") as plain:
        assert plain.mutate(ADD, {"n": "Bob3"}, branch="draft").actor_id == "act-bob"
        other = plain.mutate(ADD, {"n": "Bob4"}, branch="draft", actor="act-cy")
        assert other.actor_id == "act-cy"


@pytest.mark.parametrize(
    "actor", ["omnigraph:recovery", "omnigraph:x", "OMNIGRAPH:x", " omnigraph:x"]
)
def test_the_names_of_the_engine_are_not_lent(graph: og.Graph, actor: str) -> None:
    with pytest.raises(og.BadRequest, match="reserved"):
        og.open(graph.uri, actor=actor)
    with pytest.raises(og.BadRequest, match="reserved"):
        graph.mutate(ADD, {"n": "X"}, actor=actor)
    with pytest.raises(og.BadRequest, match="reserved"):
        graph_for(graph, None, granting("change")).mutate(ADD, {"n": "X"}, actor=actor)


def test_a_policy_of_a_server_or_a_broken_one_opens_nothing(
    graph: og.Graph, tmp_path: Path
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "version: 1\ngroups: {g: [a]}\n"
        "rules: [{id: l, allow: {actors: {group: g}, actions: [graph_list]}}]\n"
    )
    with pytest.raises(og.PolicyInvalid):
        og.open(graph.uri, policy=file)
    with pytest.raises(og.BadRequest):
        og.open(graph.uri, policy=og.Policy.of_file(file))
    with pytest.raises(og.PolicyInvalid):
        og.open(graph.uri, policy=tmp_path / "missing.yaml")


def test_dataframes_ask_first(graph: og.Graph) -> None:
    with pytest.raises(og.Forbidden):
        graph_for(graph, ADA, granting("export")).spark.tables()
    with pytest.raises(og.Forbidden):
        graph_for(graph, ADA, granting("read", scope="unprotected")).spark.sql("SELECT 1")


def test_handles_of_two_actors_share_one_open_graph(graph: og.Graph) -> None:
    ada = graph_for(graph, ADA, granting("read"))
    eve = graph_for(graph, "act-eve", granting("read"))
    assert ada.query(NAMES).rows
    with pytest.raises(og.Forbidden):
        eve.query(NAMES)
    assert ada.query(NAMES).rows == graph.query(NAMES).rows
    assert copy.copy(ada).query(NAMES).rows
