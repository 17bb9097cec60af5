"""Vectors of `@embed` properties, made by writes when a provider is named, and by `embed` later."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.exec.search.embed import Mock, Purpose, mock_vector
from tests.cli.program import run as call

SCHEMA = """
node Doc {
  slug: String @key
  text: String?
  stars: I32?
  embedding: Vector(4)? @embed(text)
}
node Note { text: String  embedding: Vector(4)? @embed(text, model="mock") }
node Must { slug: String @key  text: String  embedding: Vector(4) @embed(text) }
edge Cites: Doc -> Doc
"""
VECTORS = (
    "query v() { match { $d: Doc } return { $d.slug as slug, $d.text as text, "
    "$d.embedding as embedding } order { slug } }"
)
PUT = "query put($s: String, $t: String?) { insert Doc { slug: $s, text: $t } }"
SET = "query set($s: String, $t: String?) { update Doc set { text: $t } where slug = $s }"
STARS = "query stars($s: String) { update Doc set { stars: 5 } where slug = $s }"


class Counting:
    """The mock provider, which keeps what it was sent."""

    model = "mock"

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.fails = False

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> list[list[float]]:
        self.sent.append(list(texts))
        if self.fails:
            raise og.EmbeddingFailed("http://nowhere", "gave no answer")
        assert purpose is Purpose.DOCUMENT
        return Mock().embed(texts, dimension, purpose)

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.sent for text in batch]


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[og.Graph]:
    for name in ("OMNIGRAPH_EMBED_PROVIDER", "OMNIGRAPH_EMBEDDINGS_MOCK"):
        monkeypatch.delenv(name, raising=False)
    with og.init(tmp_path / "docs.omni", schema=SCHEMA) as made:
        yield made


@pytest.fixture
def provider(graph: og.Graph) -> Counting:
    counting = Counting()
    graph._reading.embedder = counting
    return counting


def vectors(graph: og.Graph, branch: str = "main") -> dict[str, Any]:
    """Whether each document has the vector of its text: True, None without one, else False."""
    rows = graph.query(VECTORS, branch=branch).rows
    return {row["slug"]: _fits(row["text"], row["embedding"]) for row in rows}


def _fits(text: str | None, vector: list[float] | None) -> bool | None:
    if vector is None:
        return None
    return text is not None and vector == pytest.approx(mock_vector(text, 4))


def test_a_key_alone_sends_nothing(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "sk-secret")
    monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", "http://127.0.0.1:9")  # nobody listens there
    graph.mutate(PUT, {"s": "a", "t": "hello"})
    graph.load([{"type": "Doc", "data": {"slug": "b", "text": "hello"}}], "merge")
    assert vectors(graph) == {"a": None, "b": None}
    with pytest.raises(og.BadRequest, match="no embedding provider is named"):
        graph.embed()
    with pytest.raises(og.BadRequest, match="no embedding provider is named"):
        graph.query(NEAR, {"q": "hello"})


def test_the_environment_names_a_provider(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    graph.mutate(PUT, {"s": "a", "t": "hello"})
    monkeypatch.delenv("OMNIGRAPH_EMBED_PROVIDER")
    graph.embed_with("mock")
    graph.mutate(PUT, {"s": "b", "t": "again"})
    graph.embed_with(None)
    graph.mutate(PUT, {"s": "c", "t": "not sent"})
    assert vectors(graph) == {"a": True, "b": True, "c": None}


def test_a_provider_without_a_key_is_no_matter_to_rows_that_bring_their_vectors(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "gemini")
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    given = {"slug": "a", "text": "hello", "embedding": [1, 0, 0, 0]}
    graph.load([{"type": "Doc", "data": given}, {"type": "Doc", "data": {"slug": "b"}}], "merge")
    graph.mutate(STARS, {"s": "a"})
    graph.mutate(PUT, {"s": "c", "t": None})
    assert vectors(graph) == {"a": False, "b": None, "c": None}
    for fails in (lambda: graph.mutate(PUT, {"s": "d", "t": "new"}), graph.embed):
        with pytest.raises(og.BadRequest, match="has no key; set GEMINI_API_KEY"):
            fails()


NEAREST = "nearest($n.embedding, $q)"


@pytest.mark.parametrize("order", [NEAREST, f"rrf({NEAREST}, bm25($n.text, $q))"])
def test_a_query_text_that_cannot_be_embedded_is_refused_where_there_are_no_rows(
    graph: og.Graph, order: str
) -> None:
    pattern = f"match {{ $n: Note }} return {{ $n.text }} order {{ {order} }} limit 3"
    ask = f"query near($q: String?) {{ {pattern} }}"
    with pytest.raises(og.BadRequest, match="no embedding provider is named"):
        graph.query(ask, {"q": "graphs"})
    assert graph.query(ask, {"q": None}).rows == []
    graph.embed_with("mock", model="large")
    with pytest.raises(og.BadRequest, match="model 'mock', the provider uses 'large'"):
        graph.query(ask, {"q": "graphs"})


def test_every_writer_fills_vectors_and_sends_no_text_twice(
    graph: og.Graph, provider: Counting
) -> None:
    graph.mutate(PUT, {"s": "a", "t": "one"})
    graph.load(
        [
            {"type": "Doc", "data": {"slug": "b", "text": "two"}},
            {"type": "Doc", "data": {"slug": "c", "text": "one"}},
            {"type": "Doc", "data": {"slug": "d"}},
            {"type": "Doc", "data": {"slug": "e", "text": "  "}},
            {"type": "Note", "data": {"text": "a note"}},
            {"edge": "Cites", "from": "b", "to": "c", "data": {}},
        ],
        "append",
    )
    assert provider.texts == ["one", "two", "a note"]
    graph.mutate(STARS, {"s": "a"})
    graph.mutate(SET, {"s": "a", "t": "one"})  # as it was
    graph.mutate(SET, {"s": "b", "t": "three"})
    upsert = 'query u() { upsert Doc { slug: "c", text: "four" } }'
    graph.mutate(upsert)
    graph.load([{"type": "Doc", "data": {"slug": "b", "text": "three"}}], "merge")
    graph.load([{"type": "Doc", "data": {"slug": "d", "text": "five"}}], "patch")
    graph.load([{"type": "Doc", "data": {"slug": "b", "stars": 1}}], "patch")
    with graph.transaction() as block:
        block.mutate(PUT, {"s": "f", "t": "six"})
    assert provider.texts[3:] == ["three", "four", "five", "six"]
    expected = {"a": True, "b": True, "c": True, "d": True, "e": None, "f": True}
    assert vectors(graph) == expected
    graph.mutate(SET, {"s": "a", "t": None})
    assert vectors(graph)["a"] is None, "a text that is gone takes its vector along"
    assert graph.check().ok


def test_texts_of_committed_rows_are_not_sent_by_a_new_process(
    graph: og.Graph, provider: Counting
) -> None:
    rows = [{"type": "Doc", "data": {"slug": f"d{n}", "text": f"text {n}"}} for n in range(200)]
    graph.load(rows, "merge")
    assert len(provider.texts) == 200
    assert max(map(len, provider.sent)) == COSTS.embed_batch_texts_max
    with og.open(graph.uri) as other:
        fresh = Counting()
        other._reading.embedder = fresh
        rows[7]["data"]["text"] = "changed"  # type: ignore[index]
        other.load(rows, "merge")
        assert fresh.texts == ["changed"]
        assert set(vectors(other).values()) == {True}


def test_a_batch_of_long_texts_is_bounded(graph: og.Graph, provider: Counting) -> None:
    long = "word " * 10_000
    rows = [{"type": "Doc", "data": {"slug": f"l{n}", "text": f"{n} {long}"}} for n in range(6)]
    graph.load(rows, "merge")
    assert all(sum(map(len, batch)) <= COSTS.embed_batch_characters_max for batch in provider.sent)


def test_vectors_that_are_given_are_kept(graph: og.Graph, provider: Counting) -> None:
    given = 'query g($v: Vector(4)) { insert Doc { slug: "g", text: "mine", embedding: $v } }'
    graph.mutate(given, {"v": [1, 0, 0, 0]})
    sets = '{ text: "other", embedding: $v }'
    both = f'query b($v: Vector(4)) {{ update Doc set {sets} where slug = "g" }}'
    graph.mutate(both, {"v": [0, 1, 0, 0]})
    row = {"slug": "h", "text": "mine too", "embedding": [0, 0, 1, 0]}
    graph.load([{"type": "Doc", "data": row}], "merge")
    shown = {each["slug"]: each["embedding"] for each in graph.query(VECTORS).rows}
    assert shown == {"g": [0, 1, 0, 0], "h": [0, 0, 1, 0]}
    assert provider.sent == []


def test_a_failing_provider_refuses_the_write(graph: og.Graph, provider: Counting) -> None:
    provider.fails = True
    head = graph.snapshot().commit_id
    row = [{"type": "Doc", "data": {"slug": "b", "text": "y"}}]
    with pytest.raises(og.EmbeddingFailed, match=r"nothing was written.*embed='later'"):
        graph.mutate(PUT, {"s": "a", "t": "x"})
    with pytest.raises(og.EmbeddingFailed, match="omnigraph embed"):
        graph.load(row, "merge")
    assert graph.snapshot().commit_id == head

    provider.sent.clear()
    graph.mutate(PUT, {"s": "a", "t": "x"}, embed="later")
    graph.load(row, "merge", embed="later")
    assert provider.sent == []
    assert vectors(graph) == {"a": None, "b": None}
    with pytest.raises(og.EmbeddingFailed):
        graph.embed()
    provider.fails = False
    done = graph.embed(actor="act-e", message="made up for")
    assert done.embedded == {"Doc.embedding": 2}
    assert graph.commits.get(str(done.commit_id)).actor == "act-e"
    assert vectors(graph) == {"a": True, "b": True}
    assert graph.embed().embedded == {}
    with pytest.raises(og.BadRequest, match="now or later"):
        graph.mutate(PUT, {"s": "a", "t": "x"}, embed="never")


def test_a_changed_text_that_waits_has_no_old_vector(graph: og.Graph, provider: Counting) -> None:
    graph.mutate(PUT, {"s": "a", "t": "old"})
    graph.mutate(SET, {"s": "a", "t": "new"}, embed="later")
    assert vectors(graph) == {"a": None}
    graph.mutate(SET, {"s": "a", "t": "new"}, embed="later")
    graph.embed(types=["Doc"])
    assert vectors(graph) == {"a": True}
    graph.mutate(SET, {"s": "a", "t": "new"}, embed="later")
    assert vectors(graph) == {"a": True}, "an unchanged text keeps its vector"


def test_a_required_vector_is_made_or_the_row_refused(graph: og.Graph, provider: Counting) -> None:
    must = 'query m() { insert Must { slug: "a", text: "x" } }'
    graph.mutate(must)
    graph.load([{"type": "Must", "data": {"slug": "b", "text": "y"}}], "merge")
    assert graph.snapshot().tables["node:Must"].row_count == 2
    with pytest.raises(og.ConstraintViolated):
        graph.load([{"type": "Must", "data": {"slug": "c", "text": "z"}}], "merge", embed="later")
    with pytest.raises(og.BadRequest, match="no node type 'None'"):
        graph.embed(types=["None"])


def test_another_model_than_the_property_names_is_refused(graph: og.Graph) -> None:
    graph.embed_with("mock", model="other")
    with pytest.raises(og.BadRequest, match="'mock', the provider uses 'other'"):
        graph.load([{"type": "Note", "data": {"text": "x"}}], "append")


def test_mutations_that_would_share_a_commit_are_embedded_each(tmp_path: Path) -> None:
    og.init(tmp_path / "c.omni", schema=SCHEMA).close()
    with og.open(tmp_path / "c.omni", coalesce_ms=1) as graph:
        graph.embed_with("mock")
        graph.mutate(PUT, {"s": "a", "t": "x"})
        assert vectors(graph) == {"a": True}


def test_the_command_makes_up_for_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    uri = str(tmp_path / "cli.omni")
    og.init(uri, schema=SCHEMA).close()
    data = tmp_path / "d.jsonl"
    data.write_text('{"type":"Doc","data":{"slug":"a","text":"x"}}\n')
    load = call("load", uri, "--data", str(data), "--mode", "merge", "--embed", "later")
    assert load.returncode == 0, load.stderr
    done = call("embed", uri, "--as", "act-e", "--json")
    assert json.loads(done.stdout)["embedded"] == {"Doc.embedding": 1}
    assert call("embed", uri).stdout == "no vector is missing\n"
    assert call("embed", uri, "--clean").returncode == 2
    with og.open(uri) as graph:
        assert vectors(graph) == {"a": True}


# The model of the vectors

NEAR = (
    "query near($q: String) { match { $d: Doc } return { $d.slug as slug } "
    "order { nearest($d.embedding, $q) } limit 1 }"
)
RAW = NEAR.replace("$q: String", "$q: Vector(4)")
OTHER = "'embedding' is embedded with model 'small', the provider uses 'large'"


@pytest.fixture
def small(graph: og.Graph) -> og.Graph:
    """A graph with one document, embedded by the model small."""
    graph.embed_with("mock", model="small")
    graph.mutate(PUT, {"s": "a", "t": "hello"})
    return graph


def nearest(graph: og.Graph, point: str = "main") -> list[str]:
    return [row["slug"] for row in graph.query(NEAR, {"q": "hello"}, snapshot=point).rows]


def models(graph: og.Graph, branch: str = "main") -> set[tuple[str, str, int]]:
    embedded = graph.snapshot(branch).embedded.values()
    return {(by.provider, by.model, by.width) for by in embedded}


def test_a_query_text_of_another_model_than_the_vectors_is_refused(small: og.Graph) -> None:
    assert nearest(small) == ["a"]
    assert models(small) == {("mock", "small", 4)}
    small.embed_with("mock", model="large")
    with pytest.raises(og.BadRequest, match=OTHER):
        nearest(small)
    assert small.query(RAW, {"q": [1, 0, 0, 0]}).rows == [{"slug": "a"}]


def test_vectors_without_a_recorded_model_take_any_query_text(graph: og.Graph) -> None:
    given = {"slug": "a", "text": "hello", "embedding": [1, 0, 0, 0]}
    graph.load([{"type": "Doc", "data": given}], "merge")
    for model in ("small", "large"):
        graph.embed_with("mock", model=model)
        assert nearest(graph) == ["a"]
    assert models(graph) == set()


@pytest.mark.parametrize("mode", ["append", "merge", "patch"])
def test_vectors_of_another_model_are_not_added_to_a_property(small: og.Graph, mode: str) -> None:
    counting = Counting()
    counting.model = "large"
    small.embed_with(counting)
    with pytest.raises(og.BadRequest, match=OTHER):
        small.mutate(PUT, {"s": "b", "t": "again"})
    with pytest.raises(og.BadRequest, match=OTHER):
        small.load([{"type": "Doc", "data": {"slug": "b", "text": "more"}}], mode)  # type: ignore[arg-type]
    assert counting.sent == []
    assert vectors(small) == {"a": True}


def test_a_write_that_leaves_no_earlier_vector_may_change_the_model(small: og.Graph) -> None:
    small.embed_with("mock", model="large")
    docs = [{"type": "Doc", "data": {"slug": s, "text": "hello"}} for s in ("a", "b")]
    small.load(docs, "overwrite")
    assert models(small) == {("mock", "large", 4)}
    small.mutate('query none() { delete Doc where text = "hello" }')
    small.embed_with("mock", model="small")
    small.mutate(PUT, {"s": "c", "t": "hello"})
    assert models(small) == {("mock", "small", 4)}


def test_a_record_of_a_model_survives_reopening_backup_rename_and_other_writes(
    small: og.Graph, tmp_path: Path
) -> None:
    text = SCHEMA.replace(
        "embedding: Vector(4)? @embed(text)\n}",
        'place: Vector(4)? @embed(text) @rename_from("embedding")\n}',
    )
    small.schema.apply(text)
    small.mutate('query t() { insert Note { text: "x", embedding: [1, 0, 0, 0] } }')
    small.optimize()
    small.backup(tmp_path / "copy.omni")
    renamed = NEAR.replace("$d.embedding", "$d.place")
    small.close()
    for folder in ("docs.omni", "copy.omni"):
        with og.open(tmp_path / folder) as graph:
            assert ("mock", "small", 4) in models(graph)
            graph.embed_with("mock", model="large")
            with pytest.raises(og.BadRequest, match="'place' is embedded with model 'small'"):
                graph.query(renamed, {"q": "hello"})


def test_a_record_of_a_model_belongs_to_a_branch_and_is_merged(graph: og.Graph) -> None:
    graph.branches.create("draft")
    graph.embed_with("mock", model="small")
    graph.mutate(PUT, {"s": "a", "t": "hello"}, branch="draft")
    assert models(graph) == set()
    graph.branches.merge("draft")
    assert models(graph) == {("mock", "small", 4)}


def test_branches_with_vectors_of_two_models_do_not_merge(graph: og.Graph) -> None:
    graph.branches.create("draft")
    graph.embed_with("mock", model="small")
    graph.mutate(PUT, {"s": "a", "t": "hello"}, branch="draft")
    graph.embed_with("mock", model="large")
    graph.mutate(PUT, {"s": "b", "t": "hello"})
    for dry_run in (True, False):
        with pytest.raises(og.BadRequest, match="'large' on 'main' and with 'small' on 'draft'"):
            graph.branches.merge("draft", dry_run=dry_run)


def test_a_branch_that_embeds_all_again_brings_its_model(small: og.Graph) -> None:
    small.branches.create("draft")
    small.embed_with("mock", model="large")
    small.load(
        [{"type": "Doc", "data": {"slug": "a", "text": "other"}}], "overwrite", branch="draft"
    )
    small.branches.merge("draft")
    assert models(small) == {("mock", "large", 4)}
    small.restore("main~1")
    assert models(small) == {("mock", "small", 4)}


def test_an_earlier_point_is_asked_with_the_model_it_had(small: og.Graph) -> None:
    earlier = str(small.snapshot().commit_id)
    small.embed_with("mock", model="large")
    small.load([{"type": "Doc", "data": {"slug": "a", "text": "other"}}], "overwrite")
    assert nearest(small) == ["a"]
    with pytest.raises(og.BadRequest, match=OTHER):
        nearest(small, earlier)


def test_vectors_made_later_have_a_record_too(graph: og.Graph) -> None:
    graph.mutate(PUT, {"s": "a", "t": "hello"})
    graph.embed_with("mock", model="small")
    assert graph.embed().embedded == {"Doc.embedding": 1}
    assert models(graph) == {("mock", "small", 4)}
