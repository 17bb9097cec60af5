"""Parsers read back from the cache folder are the parsers the grammars give."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.language import parse_table_cache
from omnigraph.language.query.parser import _READER as QUERY_READER
from omnigraph.language.query.parser import parse_queries
from omnigraph.language.reader import GrammarReader
from omnigraph.language.schema.parser import _READER as SCHEMA_READER
from omnigraph.language.schema.parser import parse_schema
from tests import golden

READERS = {"query": (QUERY_READER, "gq"), "schema": (SCHEMA_READER, "pg")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "omnigraph" / "grammars"


def fresh(language: str) -> GrammarReader[object]:
    """A reader that has not built its parser yet."""
    known, _ = READERS[language]
    return GrammarReader(known.package, known.start, known.builder, known.terminals)


def outcome(reader: GrammarReader[object], text: str) -> str:
    try:
        return repr(reader.read_by_grammar(text))
    except Exception as cause:  # noqa: BLE001
        return f"{type(cause).__name__}: {cause}"


@pytest.mark.parametrize("language", READERS)
def test_a_kept_table_reads_every_fixture_as_the_grammar_does(language: str, folder: Path) -> None:
    built, read_back = fresh(language), fresh(language)
    outcome(built, "")
    assert len(list(folder.iterdir())) == 1
    texts = [golden.read(p) for p in golden.FIXTURES.glob(f"{language}/*/*.{READERS[language][1]}")]
    assert len(texts) > 20
    for text in texts:
        assert outcome(read_back, text) == outcome(built, text)
    assert read_back._parser.source_path == "<deserialized>"


@pytest.mark.parametrize("damage", [b"", b'deadbeef\n[{"parser":1},{}]'])
def test_a_table_that_was_cut_short_is_made_again(damage: bytes, folder: Path) -> None:
    outcome(fresh("schema"), "")
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    for broken in (damage, whole[:-1], whole[: len(whole) // 2]):
        kept.write_bytes(broken)
        assert "Person" in outcome(fresh("schema"), "node Person { name: String @key }")
        digest, _, body = kept.read_bytes().partition(b"\n")
        assert hashlib.sha256(body).hexdigest().encode() == digest


def test_without_a_folder_the_grammar_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_table_cache, "lasting_folder", lambda: None)
    assert "Person" in outcome(fresh("schema"), "node Person { name: String @key }")


def test_a_folder_that_cannot_be_written_is_no_failure(folder: Path) -> None:
    folder.parent.mkdir(mode=0o700)
    folder.write_text("a file where the folder should be")
    assert "Person" in outcome(fresh("schema"), "node Person { name: String @key }")
    assert folder.is_file()


def test_processes_that_start_at_once_leave_one_whole_table(folder: Path) -> None:
    code = (
        "from omnigraph.language.query.parser import _READER;"
        "print(len(_READER.read_by_grammar('query q() { match { $p: P } return { $p } }')))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(4)
    ]
    assert [process.communicate()[0] for process in started] == [b"1\n"] * 4
    assert len(list(folder.iterdir())) == 1


def test_two_grammars_do_not_share_a_table(folder: Path) -> None:
    parse_table_cache.parser_of('start: "a"', "start", None).parse("a")
    parse_table_cache.parser_of('start: "b"', "start", None).parse("b")
    parse_table_cache.parser_of('start: "b"', "start", None).parse("b")
    assert len(list(folder.iterdir())) == 2


def test_the_public_parsers_read_both_languages() -> None:
    assert len(parse_queries("query q() { match { $p: P } return { $p } }").queries) == 1
    assert parse_schema("node P { name: String @key }") is not None
