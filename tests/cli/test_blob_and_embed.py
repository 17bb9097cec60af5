"""Bytes out of a graph, and vectors into a file."""

import base64
import json
import subprocess
from pathlib import Path

import pytest

from omnigraph.exec.search.embed import mock_vector
from tests.cli import warm
from tests.cli.program import document, lines, run, start

SCHEMA = """
node Doc { slug: String @key, title: String?, file: Blob? }
edge Cites: Doc -> Doc { scan: Blob? }
"""
DATA = b"\x00\x01binary\xff bytes"


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    (folder / "schema.pg").write_text(SCHEMA)
    lines("init", "--schema", "schema.pg", "g.omni", cwd=folder)
    text = "base64:" + base64.b64encode(DATA).decode()
    records = [
        {"type": "Doc", "data": {"slug": "a", "file": text}},
        {"type": "Doc", "data": {"slug": "empty", "file": "base64:"}},
        {"type": "Doc", "data": {"slug": "o'null"}},
        {"edge": "Cites", "from": "a", "to": "empty", "data": {"id": "c1", "scan": text}},
    ]
    (folder / "in.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    load = ("load", "g.omni", "--data", "in.jsonl", "--mode", "append", "--engine", "local")
    lines(*load, cwd=folder)
    return folder


def test_a_blob_comes_out_byte_for_byte(docs: Path, tmp_path: Path) -> None:
    words = ("blob", "get", "node", "Doc", "a", "file", "g.omni")
    done = subprocess.run([warm.program(), *words], cwd=docs, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, DATA, b"")
    out = str(tmp_path / "out")
    lines(*words, "--out", out, "--offset", "2", "--length", "6", cwd=docs)
    assert Path(out).read_bytes() == b"binary"
    lines(*words, "--out", out, "--offset", "8", "--length", "999", cwd=docs)
    assert Path(out).read_bytes() == DATA[8:]
    lines("blob", "get", "node", "Doc", "empty", "file", "g.omni", "--out", out, cwd=docs)
    assert Path(out).read_bytes() == b""
    lines("blob", "get", "edge", "Cites", "c1", "scan", "--store", "g.omni", "--out", out, cwd=docs)
    assert Path(out).read_bytes() == DATA


def test_what_is_known_about_a_blob(docs: Path) -> None:
    done = start("blob", "stat", "node", "Doc", "a", "file", "g.omni", "--json", cwd=docs)
    found = json.loads(done.stdout)
    assert found["selector"] == {"entity": "node", "type": "Doc", "id": "a", "property": "file"}
    assert (found["kind"], found["size"]) == ("managed", len(DATA))
    assert found["target"]["branch"] == "main"
    commit = found["target"]["resolved_snapshot"]
    at = ("blob", "stat", "node", "Doc", "a", "file", "g.omni", "--snapshot", commit)
    again = document(*at, cwd=docs)
    assert again["etag"] == found["etag"]
    assert again["target"] == {"snapshot": commit, "resolved_snapshot": commit}
    assert lines(*at, cwd=docs)[:2] == ["kind: managed", f"size: {len(DATA)}"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("node", "Doc", "o'null", "file"), "not found"),
        (("node", "Doc", "nobody", "file"), "not found"),
        (("node", "Doc", "a", "title"), "has no Blob property 'title'; it has: file"),
        (("node", "Robot", "a", "file"), "unknown node type 'Robot'; known: Doc"),
        (("node", "Doc", "a", "file", "--offset", "99"), "offset 99 lies outside the blob"),
    ],
)
def test_a_blob_that_cannot_be_read_says_why(
    words: tuple[str, ...], message: str, docs: Path
) -> None:
    done = run("blob", "get", *words, "--store", "g.omni", cwd=docs)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr


SPEC = {"dimension": 4, "types": {"Doc": {"target": "vector", "fields": ["title", "tags"]}}}
LINES = [
    '{"type": "Doc", "data": {"slug": "a", "title": " Graphs ", "tags": ["x", "y"]}}',
    '{"type": "Doc", "data": {"slug": "b", "title": "Trees", "vector": [1, 0, 0, 0]}}',
    '{"type": "Other",   "data": {"slug": "c"}}',
    '{"edge": "Cites", "from": "a", "to": "b"}',
    "",
    '{"type": "Doc", "data": {"slug": "d", "title": "Woods", "vector": []}}',
]


@pytest.fixture
def seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    (tmp_path / "in.jsonl").write_text("\n".join(LINES) + "\n")
    return tmp_path


def embedded(folder: Path, *options: str) -> tuple[dict[str, object], list[str]]:
    words = ("embed", "--input", "in.jsonl", "--output", "out.jsonl", "--spec", "spec.json")
    found = document(*words, *options, cwd=folder)
    return found, (folder / "out.jsonl").read_text().splitlines()


def vectors(out: list[str]) -> dict[str, object]:
    records = [json.loads(line)["data"] for line in out if '"Doc"' in line]
    return {data["slug"]: data.get("vector", "none") for data in records}


def test_missing_vectors_are_filled_and_other_lines_stay_as_they_are(seed: Path) -> None:
    found, out = embedded(seed)
    assert found == {
        "input": "in.jsonl", "output": "out.jsonl", "records": 4, "selected_records": 3,
        "embedded_records": 2, "cleaned_records": 0, "mode": "fill_missing", "dimension": 4,
        "model": "mock",
    }  # fmt: skip
    assert [out[1], out[2], out[3], out[4]] == LINES[1:5]
    assert vectors(out)["a"] == mock_vector("type: Doc\ntitle: Graphs\ntags: x, y", 4)
    assert vectors(out)["b"] == [1, 0, 0, 0]
    assert sorted(p.name for p in seed.iterdir() if "out" in p.name) == ["out.jsonl"]


def test_vectors_are_made_anew_for_all_for_some_or_taken_out(seed: Path) -> None:
    found, out = embedded(seed, "--reembed-all")
    assert found["embedded_records"] == 3
    assert vectors(out)["b"] != [1, 0, 0, 0]
    found, out = embedded(seed, "--select", "Doc:slug=b")
    assert (found["mode"], found["selected_records"]) == ("reembed_selected", 1)
    assert vectors(out)["a"] == "none"
    found, out = embedded(seed, "--clean")
    assert (found["cleaned_records"], found["model"]) == (2, None)
    assert set(vectors(out).values()) == {"none"}
    found, _ = embedded(seed, "--type", "Other")
    assert found["selected_records"] == 0


def test_a_manifest_says_it_all(seed: Path) -> None:
    manifest = seed / "seed.yaml"
    manifest.write_text(
        "sources: {raw_seed: in.jsonl}\nembeddings:\n  dimension: 4\n"
        "  types: {Doc: {target: vector, fields: [title]}}\n"
    )
    shown = lines("embed", "--seed", str(manifest))
    assert shown == [
        f"embedded 2 records (selected 3, cleaned 0) from {seed}/in.jsonl -> "
        f"{seed}/build/seed.embedded.jsonl [fill_missing 4d]"
    ]
    assert (seed / "build" / "seed.embedded.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("--input", "in.jsonl"), 2, "pass --seed MANIFEST, or"),
        (("--clean", "--reembed-all"), 2, "mutually exclusive"),
        (("--input", "none", "--output", "o", "--spec", "spec.json"), 1, "'none' not found"),
        (("--input", "in.jsonl", "--output", "o", "--spec", "in.jsonl"), 1, "is not JSON"),
        (("--input", "in.jsonl", "--output", "o", "--spec", "bad.json"), 1, "is no embedding spec"),
        (("--input", "bad.jsonl", "--output", "o", "--spec", "spec.json"), 1, "bad.jsonl:1: malf"),
        (("--input", "in.jsonl", "--output", "in.jsonl", "--spec", "spec.json"), 1, "same file"),
        (
            ("--input", "in.jsonl", "--output", "o", "--spec", "spec.json", "--select", "x"),
            2,
            "[Type:]field=value",
        ),
    ],
)
def test_an_order_that_cannot_be_followed_says_why(
    words: tuple[str, ...], status: int, message: str, seed: Path
) -> None:
    (seed / "bad.json").write_text("{}")
    (seed / "bad.jsonl").write_text("{oops\n")
    done = run("embed", *words, cwd=seed)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in " ".join(done.stderr.split())
    assert not (seed / "o").exists()
