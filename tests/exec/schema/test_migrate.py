"""Schemas that change with data under them: every step, before and after."""

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import TableKey
from tests.exec.evolving import (
    RECORDS,
    SCHEMA,
    ask,
    data_files,
    dump,
    evolving,
    head,
    heads_agree,
    of_type,
)
from tests.storage.conftest import s3, s3_server
from tests.storage.world import Where, remove

pytestmark = pytest.mark.consistent

__all__ = ["s3", "s3_server"]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return evolving(tmp_path / "g")


def changed(*pairs: tuple[str, str], text: str = SCHEMA) -> str:
    """The schema with some of its text replaced."""
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_a_plan_changes_nothing_and_an_apply_makes_it(graph: Graph) -> None:
    before, at = dump(graph), head(graph)
    text = changed(("age: I32?", "age: I32?  email: String?"))
    plan = graph.schema.plan(text)
    assert plan.supported
    assert [step.to_json()["kind"] for step in plan.steps] == ["add_property"]
    assert (dump(graph), head(graph), graph.schema.text) == (before, at, SCHEMA)

    done = graph.schema.apply(text, actor="act-s")
    assert done.applied
    assert done.steps == plan.steps
    assert done.commit is not None
    assert (done.commit.parent, done.commit.actor) == (at, "act-s")
    assert head(graph) == done.commit.id
    assert graph.schema.text == text
    assert og.open(graph.uri).schema.text == text
    assert (Path(graph.uri) / "_schema.pg").read_text() == text


def test_an_apply_without_steps_writes_no_commit(graph: Graph) -> None:
    at = head(graph)
    done = graph.schema.apply(f"// the same\n{SCHEMA}")
    assert (done.applied, done.commit, done.steps) == (False, None, ())
    assert done.to_json() == {
        "supported": True,
        "applied": False,
        "step_count": 0,
        "graph_manifest_version": graph.snapshot().manifest_version,
        "steps": [],
    }
    assert head(graph) == at
    assert graph.schema.text == SCHEMA


def test_an_added_property_reads_as_null_and_can_be_written(graph: Graph) -> None:
    files = data_files(graph, "node:Person")
    new = "email: String?  n: I64?  l: [I32]?  v: Vector(3)?  b: Blob?  t: DateTime?  e: enum(q)?"
    graph.schema.apply(changed(("age: I32?", f"age: I32?  {new}")))
    assert data_files(graph, "node:Person") == files, "an added column wrote data"
    people = of_type(dump(graph), "Person")
    assert people["Ada"] == {
        "name": "Ada",
        "age": 36,
        "nick": "A",
        "tags": ["x", "y"],
        "face": [1.0, 2.0],
        "photo": "base64:aGk=",
        "mood": "calm",
        **dict.fromkeys(("email", "n", "l", "v", "b", "t", "e")),
    }
    assert ask(graph, "$p: Person  $p.email is null", "$p.name") == ["Ada", "Bob", "Cy"]
    values = {"email": "a@b", "n": 5, "l": [1], "v": [1.0, 2.0, 3.0], "b": "base64:eW8=", "e": "q"}
    graph.load([{"type": "Person", "data": {"name": "Ada", **values}}], "merge")
    graph.mutate('query m() { update Person set { n: 9 } where name = "Bob" }')
    people = of_type(dump(graph), "Person")
    assert {key: people["Ada"][key] for key in values} == values
    assert (people["Bob"]["n"], people["Cy"]["n"]) == (9, None)
    assert ask(graph, "$p: Person  $p.n > 4", "$p.name") == ["Ada", "Bob"]


def test_a_renamed_type_and_its_properties_keep_identity_data_and_history(graph: Graph) -> None:
    files, at = data_files(graph, "node:Person"), head(graph)
    type_id = graph.schema.catalog.nodes["Person"].id
    text = changed(
        ("node Person {", 'node Human @rename_from("Person") {'),
        ("Person ->", "Human ->"),
        ("-> Person", "-> Human"),
        ("name: String @key\n  age: I32?", 'full: String @key @rename_from("name")\n  age: I32?'),
        ("photo: Blob?", 'pic: Blob? @rename_from("photo")'),
    )
    graph.schema.apply(text)
    assert data_files(graph, "node:Human") == files, "a rename wrote data"
    assert graph.schema.catalog.nodes["Human"].id == type_id
    people = of_type(dump(graph), "Human")
    assert set(people) == {"Ada", "Bob", "Cy"}
    assert (people["Ada"]["full"], people["Ada"]["pic"]) == ("Ada", "base64:aGk=")
    assert ask(graph, "$a: Human  $a knows $b", "$b.full") == ["Bob", "Cy"]
    assert TableKey("node:Person") not in graph.snapshot().tables
    graph.mutate('query m() { update Human set { age: 8 } where full = "Bob" }')
    graph.mutate('query m() { insert Human { full: "Dee" } }')
    (change,) = graph.diff(at, "main", types=["Human"], ops=["update"])
    assert change.before is not None
    assert change.after is not None
    assert (change.type, change.type_id, change.id) == ("Human", str(type_id), "Bob")
    assert (change.before.properties["age"], change.after.properties["age"]) == (7, 8)
    with pytest.raises(og.TypeCheckError):
        ask(graph, "$p: Person", "$p.name")


def test_an_edge_type_is_renamed(graph: Graph) -> None:
    text = changed(
        ("edge Knows: Person -> Person", 'edge Met: Person -> Person @rename_from("Knows")')
    )
    graph.schema.apply(text)
    assert ask(graph, '$a: Person { name: "Ada" }  $a met $b', "$b.name") == ["Bob"]
    assert of_type(dump(graph), "Met") == {"k1": {"since": 18263}, "k2": {"since": None}}


def test_a_name_that_comes_back_after_a_rename_is_another_type(graph: Graph) -> None:
    first = SCHEMA.split("edge")[0].replace("node Person {", 'node Human @rename_from("Person") {')
    graph.schema.apply(first)
    graph.schema.apply(f"{first} node Person {{ name: String @key }}")
    graph.mutate('query m() { insert Person { name: "New" } }')
    again = og.open(graph.uri)
    assert set(of_type(dump(again), "Human")) == {"Ada", "Bob", "Cy"}
    assert set(of_type(dump(again), "Person")) == {"New"}
    graph.schema.apply(first.replace('@rename_from("Person") ', ""))
    graph.schema.apply(first.replace("Human", "Person").replace('("Person")', '("Human")'))
    assert set(of_type(dump(og.open(graph.uri)), "Person")) == {"Ada", "Bob", "Cy"}
    ids = graph._store.datasets.open("__manifest").to_table()["object_id"].to_pylist()
    assert len(set(ids)) == len(ids), "an object was published twice"


PAPERS = """
node Doc { slug: String @key  title: String  emb: Vector(2)? }
edge Cites: Doc -> Doc { w: I32? }
"""
RENAMED = """
node Paper @rename_from("Doc") { slug: String @key  title: String  emb: Vector(2)? }
edge Refs: Paper -> Paper @rename_from("Cites") { w: I32? }
node Venue { name: String @key }
edge AppearedAt: Paper -> Venue
"""
OF_A_PAPER = {
    "search": 'match { $d: Doc  search($d.title, "graph") } return { $d as n }',
    "bm25": 'match { $d: Doc } return { $d as n } order { bm25($d.title, "graph") }',
    "nearest": "match { $d: Doc } return { $d as n } order { nearest($d.emb, [1, 0]) } limit 1",
    "step": "match { $d: Doc  $d cites $e } return { $d as n }",
    "steps": "match { $d: Doc  $d cites{1,3} $e } return { $d as n }",
    "edge": "match { $d: Doc  $d $k:cites $e  $k.w = 1 } return { $d as n }",
    "path": "match { $d: Doc  $p = shortest $d cites* $e } return { $d as n }",
    "not": "match { $d: Doc  not { $e cites $d } } return { $d as n }",
}


@pytest.mark.parametrize("old_names_first", [True, False])
@pytest.mark.parametrize("clauses", OF_A_PAPER.values(), ids=list(OF_A_PAPER))
def test_an_earlier_commit_is_queried_in_the_names_of_then_and_of_today(
    tmp_path: Path, clauses: str, *, old_names_first: bool
) -> None:
    graph = og.init(tmp_path / "g", PAPERS)
    a = {"slug": "a", "title": "Graphs", "emb": [1, 0]}
    records = [{"type": "Doc", "data": data} for data in (a, {"slug": "b", "title": "Cooking"})]
    graph.load([*records, {"edge": "Cites", "from": "a", "to": "b", "data": {"w": 1}}], "append")
    before = head(graph)
    graph.schema.apply(RENAMED)
    graph.mutate("query m() { delete Paper where true }")
    then = f"query q() {{ {clauses} }}"
    texts = [then, then.replace("Doc", "Paper").replace("cites", "refs")]
    for text in texts if old_names_first else texts[::-1]:
        assert graph.query(text, snapshot=before).rows == [{"n": "a"}]


def test_a_type_that_an_earlier_commit_does_not_have_yet_is_named(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", PAPERS)
    before = head(graph)
    graph.schema.apply(RENAMED)
    text = "query q() { match { $p: Paper  not { $p appearedAt $v } } return { $p } }"
    with pytest.raises(og.NotFound, match="edge type 'AppearedAt' not found; the snapshot does"):
        graph.query(text, snapshot=before)


def test_a_rename_there_and_back_without_a_write_between(graph: Graph) -> None:
    other = changed(
        ("node City {", 'node Town @rename_from("City") {'), ("Person -> City", "Person -> Town")
    )
    back = changed(("node City {", 'node City @rename_from("Town") {'))
    for _ in range(2):
        graph.schema.apply(other)
        assert set(of_type(dump(og.open(graph.uri)), "Town")) == {"Paris"}
        graph.schema.apply(back)
        assert set(of_type(dump(og.open(graph.uri)), "City")) == {"Paris"}


def test_two_properties_swap_their_names_and_no_cached_column_survives_it(graph: Graph) -> None:
    read = "query q() { match { $p: City } return { $p.size, $p.area } }"
    text = changed(("size: I64?", "size: I64?  area: I64?"))
    graph.schema.apply(text)
    graph.mutate('query m() { update City set { area: 50 } where name = "Paris" }')
    for _ in range(6):  # held in memory after some uses
        assert graph.query(read).rows == [{"p.size": 2, "p.area": 50}]
    graph.schema.apply(changed(("size: I64?", 'tmp: I64? @rename_from("size")  area: I64?')))
    graph.schema.apply(changed(("size: I64?", 'tmp: I64?  size: I64? @rename_from("area")')))
    graph.schema.apply(changed(("size: I64?", 'size: I64?  area: I64? @rename_from("tmp")')))
    assert graph.query(read).rows == [{"p.size": 50, "p.area": 2}]


TITLED = """
node Doc {
  slug: String @key  title: String? %s  body: String? %s  near: Vector(2)?  far: Vector(2)?
}
"""
SEARCHES = {
    "search": 'match { $d: Doc  search($d.title, "graph") } return { $d }',
    "fuzzy": 'match { $d: Doc  fuzzy($d.title, "grph") } return { $d }',
    "bm25": 'match { $d: Doc } return { $d } order { bm25($d.title, "graph") }',
    "nearest": "match { $d: Doc } return { $d } order { nearest($d.near, [1, 0]) } limit 1",
}


@pytest.mark.parametrize("index", ["@index", ""])
@pytest.mark.parametrize("search", SEARCHES.values(), ids=list(SEARCHES))
def test_a_search_finds_what_a_name_means_now(tmp_path: Path, search: str, index: str) -> None:
    text, read = TITLED % (index, index), f"query q() {{ {search} }}"
    graph = og.init(tmp_path / "g", text)
    a = {"slug": "a", "title": "Graphs", "body": "Cooking", "near": [1, 0], "far": [0, 1]}
    b = {"slug": "b", "title": "Cooking", "body": "Graphs", "near": [0, 1], "far": [1, 0]}
    graph.load([{"type": "Doc", "data": data} for data in (a, b)], "append")
    assert graph.query(read).rows == [{"d": "a"}]

    for old, new in (("title", "tmp"), ("body", "title"), ("tmp", "body")):
        text = text.replace(f"{old}:", f"{new}:")
        graph.schema.apply(_renamed(text, old, new))
    for old, new in (("near", "tmp"), ("far", "near"), ("tmp", "far")):
        text = text.replace(f"{old}:", f"{new}:")
        graph.schema.apply(_renamed(text, old, new))
    assert graph.query(read).rows == [{"d": "b"}]

    graph.schema.apply("node Doc { slug: String @key }")
    graph.schema.apply(text)
    assert graph.query(read).rows == []


def _renamed(text: str, old: str, new: str) -> str:
    """A schema with the hint that a property continues another."""
    before, after = text.split(f"{new}: ")
    kind, _, rest = after.partition("?")
    return f'{before}{new}: {kind}? @rename_from("{old}"){rest}'


def test_soft_drops_stay_reachable_by_time_travel(graph: Graph) -> None:
    before, at = dump(graph), head(graph)
    text = changed(
        ("  nick: String?\n", ""),
        ("  photo: Blob?\n", ""),
        ("node City { name: String @key  size: I64? }", ""),
        ("edge LivesIn: Person -> City", ""),
    )
    done = graph.schema.apply(text)
    assert [step.to_json().get("mode") for step in done.steps] == ["soft"] * 4
    people = of_type(dump(graph), "Person")
    assert "nick" not in people["Ada"]
    assert set(graph.snapshot().tables) == {"node:Person", "edge:Knows"}
    for query in ("$c: City", "$p: Person  $p.nick is null"):
        with pytest.raises(og.TypeCheckError):
            ask(graph, query, "$p.name" if "$p" in query else "$c.name")
    for each in (graph, og.open(graph.uri, read_only=True)):
        assert dump(each, at) == before
        assert ask(each, '$p: Person { nick: "A" }', "$p.name", at) == ["Ada"]
        assert ask(each, "$p: Person  $p livesIn $c", "$c.name", at) == ["Paris"]


def test_a_dropped_name_that_is_added_again_is_empty(graph: Graph) -> None:
    at = head(graph)
    without = changed(
        ("  nick: String?\n", ""),
        ("node City { name: String @key  size: I64? }", ""),
        ("edge LivesIn: Person -> City", ""),
    )
    old = graph.schema.catalog
    graph.schema.apply(without)
    graph.schema.apply(SCHEMA)
    new = graph.schema.catalog
    assert new.nodes["City"].id > max(node.id for node in old.nodes.values())
    assert of_type(dump(graph), "City") == {}
    assert of_type(dump(graph), "Person")["Ada"]["nick"] is None
    graph.load([{"type": "City", "data": {"name": "Rome"}}], "append")
    assert set(of_type(dump(og.open(graph.uri)), "City")) == {"Rome"}
    assert set(of_type(dump(graph, at), "City")) == {"Paris"}
    assert of_type(dump(graph, at), "Person")["Ada"]["nick"] == "A"


def test_an_added_type_brings_its_own_constraints(graph: Graph) -> None:
    graph.schema.apply(
        SCHEMA + "node Team { name: String @key  n: I32  @range(n, 0..9) }"
        "edge In: Person -> Team @card(0..1)"
    )
    graph.mutate('query m() { insert Team { name: "T", n: 3 } }')
    with pytest.raises(og.ConstraintViolated):
        graph.mutate('query m() { insert Team { name: "U", n: 30 } }')
    graph.mutate('query m() { insert In { from: "Ada", to: "T" } }')
    assert ask(graph, "$p: Person  $p in $t", "$t.name") == ["T"]


def test_an_enum_that_is_widened_takes_its_new_values(graph: Graph) -> None:
    insert = 'query m() { insert Person { name: "Dee", mood: "wild" } }'
    with pytest.raises(og.OmnigraphError):
        graph.mutate(insert)
    graph.schema.apply(changed(("enum(calm, glad)", "enum(calm, glad, wild)")))
    graph.mutate(insert)
    assert ask(graph, '$p: Person { mood: "wild" }', "$p.name") == ["Dee"]
    assert ask(graph, '$p: Person { mood: "glad" }', "$p.name") == ["Cy"]


def test_metadata_changes_alone_are_a_commit(graph: Graph) -> None:
    at = head(graph)
    versions = {key: pin.version for key, pin in graph.snapshot().tables.items()}
    graph.schema.apply(
        changed(
            ("node City {", 'node City @description("a place") {'),
            ("nick: String?", 'nick: String? @description("short") @hot'),
        )
    )
    assert head(graph) != at
    assert {key: pin.version for key, pin in graph.snapshot().tables.items()} == versions
    assert graph.schema.catalog.nodes["City"].annotations[0].value == "a place"


def test_an_added_index_is_built_in_the_same_commit(graph: Graph) -> None:
    commits = len(graph.commits.list())
    text = changed(
        ("age: I32?", 'years: I32? @rename_from("age") @index  new: I32? @index'),
        ("size: I64?", "size: I64? @index"),
        ("nick: String?", "nick: String? @index"),
    )
    graph.schema.apply(text)
    assert len(graph.commits.list()) == commits + 1
    store, snapshot = graph._store, graph.snapshot()
    found = {
        key: {index.column for index in store.reader(snapshot, TableKey(key)).indexes()}
        for key in ("node:Person", "node:City")
    }
    assert found == {"node:Person": {"years", "nick"}, "node:City": {"size"}}
    assert ask(graph, "$p: Person  $p.years = 7", "$p.name") == ["Bob"]
    assert ask(graph, "$c: City  $c.size = 2", "$c.name") == ["Paris"]
    assert not any("years" in note.column for note in graph.ensure_indices().built)


# What is refused


def test_what_is_not_supported_changes_nothing_and_names_its_code(graph: Graph) -> None:
    before, at = dump(graph), head(graph)
    for text, code in (
        (changed(("age: I32?", "age: I32?  email: String")), "OG-MF-103"),
        (changed(("age: I32?", "age: F64?")), "OG-MF-106"),
        (changed(("age: I32?", "age: I32?  x: I32?"), ("calm, ", "")), "OG-MF-106"),
    ):
        assert not graph.schema.plan(text).supported
        with pytest.raises(og.MigrationUnsupported) as refused:
            graph.schema.apply(text)
        assert refused.value.code == code
        assert str(refused.value).startswith(f"[{code}] ")
    with pytest.raises(og.ParseError):
        graph.schema.apply("node Person {")
    assert (dump(graph), head(graph), graph.schema.text) == (before, at, SCHEMA)


def test_other_branches_hold_the_schema_and_are_named(graph: Graph) -> None:
    graph.branches.create("review/a")
    graph.branches.create("b")
    text = changed(("age: I32?", "age: I32? @unique"))
    at = head(graph)
    with pytest.raises(og.SchemaHeld, match="'b', 'review/a'") as refused:
        graph.schema.apply(text)
    assert refused.value.branches == ("b", "review/a")
    assert isinstance(refused.value, og.Conflict)
    plan = graph.schema.plan(text)
    assert plan.supported, "a plan may be asked for at any time"
    assert f"hint: apply refuses this: {refused.value}" in plan.render("g")
    with pytest.raises(og.SchemaHeld, match="is made on 'main' alone") as on_branch:
        graph.schema.apply(text, branch="b")
    assert graph.schema.plan(text, branch="b").hints == (f"apply refuses this: {on_branch.value}",)
    assert not graph.schema.plan(changed(("age: I32?", "age: I32?  email: String?"))).hints
    assert not graph.schema.apply(SCHEMA).applied, "nothing to do is done on any graph"
    assert (head(graph), graph.schema.text) == (at, SCHEMA)
    graph.branches.merge("review/a", delete_source=True)
    graph.branches.delete("b")
    graph.schema.apply(text)
    graph.branches.create("after")
    graph.branch("after").mutate('query m() { insert Person { name: "Dee", age: 99 } }')
    graph.branches.merge("after", delete_source=True)
    assert of_type(dump(graph), "Person")["Dee"]["age"] == 99


def test_a_read_only_graph_plans_and_does_not_apply(graph: Graph) -> None:
    reader = og.open(graph.uri, read_only=True)
    text = changed(("age: I32?", "age: I32?  email: String?"))
    assert reader.schema.plan(text).supported
    with pytest.raises(og.BadRequest, match="read-only"):
        reader.schema.apply(text)


# Other handles


def test_a_handle_that_is_long_open_sees_the_new_schema(graph: Graph) -> None:
    reader, writer = og.open(graph.uri, read_only=True), og.open(graph.uri)
    loader, indexer = og.open(graph.uri), og.open(graph.uri)
    graph.schema.apply(
        changed(
            ("node City {", 'node Town @rename_from("City") {'),
            ("Person -> City", "Person -> Town"),
            ("size: I64?", "size: I64?  mayor: String? @index"),
        )
    )
    assert ask(reader, "$c: Town  $c.mayor is null", "$c.name") == ["Paris"]
    assert "Town" in reader.schema.catalog.nodes
    writer.mutate('query m() { update Town set { mayor: "M" } where name = "Paris" }')
    loader.load([{"type": "Town", "data": {"name": "Rome", "mayor": "R"}}], "append")
    indexer.ensure_indices()
    assert ask(reader, "$c: Town  $c.mayor is not null", "$c.name") == ["Paris", "Rome"]
    with pytest.raises(og.TypeCheckError):
        writer.mutate('query m() { insert City { name: "X" } }')


def test_a_write_planned_for_an_older_schema_is_not_published(graph: Graph) -> None:
    store = og.open(graph.uri)._store
    schema = graph.schema.catalog.schema_id
    early = store.begin(kind=WriterKind.MUTATION, schema=schema)
    assert remove(store, early, TableKey("node:City"), "true")
    graph.schema.apply(changed(("size: I64?", "size: I64?  email: String?")))
    with pytest.raises(og.SchemaChanged) as refused:
        store.commit(early)
    assert (refused.value.branch, refused.value.expected) == ("main", schema)
    assert refused.value.actual == graph.schema.catalog.schema_id
    with pytest.raises(og.SchemaChanged):
        store.begin(kind=WriterKind.MUTATION, schema=schema)
    assert set(of_type(dump(graph), "City")) == {"Paris"}
    assert heads_agree(graph)


@pytest.mark.parametrize(
    "text",
    [
        SCHEMA + "edge Near: City -> City {\n}\n",
        SCHEMA.replace("enum(calm, glad)", "enum(calm, glad, wild)"),
    ],
    ids=["an edge more", "a value more"],
)
def test_a_type_whose_writes_mean_something_else_moves_on(graph: Graph, text: str) -> None:
    """A node deleted by a writer that does not know the new edge would leave edges behind."""
    changes = "node:City" if "Near" in text else "node:Person"
    other = og.open(graph.uri)._store
    early = other.begin(kind=WriterKind.MUTATION, schema=graph.schema.catalog.schema_id)
    assert remove(other, early, TableKey(changes), "true")
    graph.schema.apply(text)
    with pytest.raises(og.SchemaChanged):
        other.commit(early)
    assert heads_agree(graph)


@pytest.mark.consistent(False)  # a bare store removes nodes and leaves their edges
def test_a_write_to_a_type_that_stays_goes_on_under_the_new_schema(graph: Graph) -> None:
    store = og.open(graph.uri)._store
    early = store.begin(kind=WriterKind.MUTATION, schema=graph.schema.catalog.schema_id)
    assert remove(store, early, TableKey("node:City"), "true")
    graph.schema.apply(SCHEMA + "node Tree {\n    name: String @key\n}\n")
    store.commit(early)
    assert set(of_type(dump(graph), "City")) == set()
    assert graph.schema.catalog.nodes["Tree"]
    assert heads_agree(graph)


# Time travel


def test_every_commit_reads_as_it_did_under_the_schema_it_had(graph: Graph) -> None:
    seen = {}

    def remember() -> None:
        seen[head(graph)] = (dump(graph), graph.schema.text)

    remember()
    for text in (
        changed(("age: I32?", "age: I32?  email: String?")),
        changed(("age: I32?", 'years: I32? @rename_from("age")  email: String?')),
        changed(("age: I32?", "years: I32?"), ("  nick: String?\n", "")),
        changed(("age: I32?", "years: I32?  email: I64?")),
    ):
        graph.schema.apply(text)
        remember()
        graph.mutate(f'query m() {{ insert Person {{ name: "P{len(seen)}" }} }}')
        remember()
    for each in (graph, og.open(graph.uri, read_only=True)):
        for commit, (lines, text) in seen.items():
            assert dump(each, commit) == lines
            assert each.schema.at(commit).text == text


def test_changes_of_a_schema_change_alone_are_none(graph: Graph) -> None:
    done = graph.schema.apply(
        changed(
            ("age: I32?", 'years: I32? @rename_from("age")  email: String?'),
            ("  nick: String?\n", ""),
        )
    )
    assert done.commit is not None
    assert list(graph.commits.changes(done.commit.id)) == []
    page = graph.changes.poll(start="beginning")
    assert [len(block.changes) for block in page.blocks] == [len(RECORDS), 0]
    assert page.blocks[0].changes[0].after is not None
    assert page.blocks[0].changes[0].after.properties["age"] == 36


def test_entities_that_went_with_their_type_are_a_boundary_and_not_passed_over(
    graph: Graph,
) -> None:
    at = head(graph)
    done = graph.schema.apply(
        changed(
            ("node City { name: String @key  size: I64? }", ""),
            ("edge LivesIn: Person -> City", ""),
        )
    )
    assert done.commit is not None
    for changes in (graph.commits.changes(done.commit.id), graph.diff(at, "main")):
        with pytest.raises(og.NoChanges, match=r"of City .*schema_boundary"):
            list(changes)
    assert list(graph.commits.changes(done.commit.id, types=["Person"])) == []
    graph.mutate('query m() { insert Person { name: "Dee" } }')
    assert [change.id for change in graph.commits.changes(head(graph))] == ["Dee"]


# Somewhere else


def test_a_schema_changes_on_s3_as_on_disk(s3: Where) -> None:
    graph = evolving(s3.uri, s3.options)
    before, at = dump(graph), head(graph)
    text = changed(
        ("node Person {", 'node Human @rename_from("Person") {'),
        ("Person ->", "Human ->"),
        ("-> Person", "-> Human"),
        ("age: I32?", 'years: I32? @rename_from("age") @index  email: String?'),
        ("  nick: String?\n", ""),
        ("node City { name: String @key  size: I64? }", "node Team { name: String @key }"),
        ("edge LivesIn: Human -> City", ""),
    )
    graph.schema.apply(text)
    again = og.open(s3.uri, storage_options=s3.options)
    assert again.schema.text == text
    again.mutate('query m() { insert Human { name: "x" } }')
    assert of_type(dump(graph), "Human")["Ada"]["years"] == 36
    assert of_type(dump(graph), "Human")["x"]["email"] is None
    assert dump(again, at) == before
