"""A derived file gives exactly the numbers that were written, or is refused."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.storage.derived import mapped_file
from omnigraph.storage.derived.derived_folder import DerivedName
from omnigraph.storage.derived.mapped_file import BLOCK, DamagedFile, MappedFile, write_file
from omnigraph.storage.derived.node_file import NO_ROW, NodeFile, node_arrays
from omnigraph.storage.derived.text_hash import TextHash

ARRAYS = {
    "numbers": np.arange(30_000, dtype=np.int32)[::-1].copy(),
    "row_ids": np.arange(7, 5007, dtype=np.uint64),
    "none": np.empty(0, np.uint32),
    "bytes": np.frombuffer(b"every byte of it" * 9_000, np.uint8),
}


def written(folder: Path) -> MappedFile:
    aside = folder / "aside"
    digest, _ = write_file(aside, {"kind": "test"}, ARRAYS)
    path = folder / str(DerivedName("test", "0", 1, digest))
    aside.rename(path)
    return MappedFile(path, digest)


def test_TP3_every_array_comes_back_whole_in_slices_and_one_by_one(tmp_path: Path) -> None:
    file = written(tmp_path)
    for name, array in ARRAYS.items():
        kept = file.array(name)
        chosen = np.random.default_rng(1).integers(0, max(len(array), 1), 50)[: len(array)]
        assert (kept.take(chosen) == array[chosen]).all()
        assert (kept.slice(0, len(array) // 2) == array[: len(array) // 2]).all()
        assert (kept.whole() == array).all()
        assert len(kept) == len(array)
    assert file.facts == {"kind": "test"}


def test_TP3_a_block_is_compared_when_it_is_touched_and_not_before(tmp_path: Path) -> None:
    path = written(tmp_path).path
    data = bytearray(path.read_bytes())
    data[-9 * BLOCK - 100] ^= 1  # in the middle of "bytes"
    path.write_bytes(data)
    name = DerivedName.parsed(path.name)
    assert name is not None
    file = MappedFile(path, name.digest)
    assert len(file.array("numbers").whole()) == 30_000
    with pytest.raises(DamagedFile, match="checksum"):
        file.array("bytes").whole()
    assert not file.is_verified


@pytest.mark.parametrize("count", [1, 3, 50, 3_000, 6_000])
def test_TP3_of_many_numbers_each_block_is_compared_once_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    compared = list[int]()
    compare = MappedFile.verify_block

    def counted(file: MappedFile, block: int) -> None:
        compared.append(block)
        compare(file, block)

    monkeypatch.setattr(MappedFile, "verify_block", counted)
    arrays = {"before": np.arange(1000), "wide": np.arange(100_000, dtype=np.int64)[::-1].copy()}
    digest, _ = write_file(tmp_path / "aside", {}, arrays)
    file = MappedFile(tmp_path / "aside", digest)
    kept = file.array("wide")
    chosen = np.random.default_rng(count).integers(20_000, 60_000, count)
    assert (kept.take(chosen) == arrays["wide"][chosen]).all()
    offset = 8_000 + 8 * chosen  # "before" is in front of it
    assert compared == sorted(set((offset // BLOCK).tolist()))
    kept.whole()
    compared.clear()
    kept.take(chosen)
    assert not compared, "the whole array was compared before"


def test_TP3_every_byte_range_that_is_damaged_is_refused_or_never_used(tmp_path: Path) -> None:
    path = written(tmp_path).path
    whole = path.read_bytes()
    name = DerivedName.parsed(path.name)
    assert name is not None
    for start in range(0, len(whole), 997):
        data = bytearray(whole)
        for index in range(start, min(start + 997, len(data))):
            data[index] ^= 0x55
        path.write_bytes(data)
        try:
            file = MappedFile(path, name.digest)
            for key, array in ARRAYS.items():
                assert (file.array(key).whole() == array).all()
        except DamagedFile:
            continue
        unused = whole[start : start + 997]
        assert not any(unused), "only the padding behind the header is of no use"


@given(st.integers(0, 1 << 35))
def test_TP3_a_reader_finds_blocks_of_the_size_that_the_writer_chose(offset: int) -> None:
    shift = mapped_file._shift_of(offset)
    padded = offset + -offset % (1 << shift)
    assert mapped_file._shift_of(padded) == shift
    assert padded >> shift <= 1 << 17 or shift == 16


def test_TP3_files_of_the_format_before_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(mapped_file, "FORMAT", 1)
        earlier.setattr(mapped_file, "_SHIFT", 16)
        earlier_file = written(tmp_path)
    assert earlier_file.size % (1 << 16) == 0
    file = MappedFile(earlier_file.path, earlier_file.digest)
    for name, array in ARRAYS.items():
        assert (file.array(name).whole() == array).all()
    data = bytearray(file.path.read_bytes())
    data[-(1 << 16) - 100] ^= 1
    file.path.write_bytes(data)
    with pytest.raises(DamagedFile, match="checksum"):
        MappedFile(file.path, file.digest).array("bytes").whole()


@pytest.mark.parametrize("length", [0, 5, 24, BLOCK, 2 * BLOCK + 1, -1, +1])
def test_TP3_a_file_that_was_cut_or_grew_is_refused(tmp_path: Path, length: int) -> None:
    path = written(tmp_path).path
    data = path.read_bytes()
    path.write_bytes(data + b"x" if length == 1 else data[:length])
    name = DerivedName.parsed(path.name)
    assert name is not None
    with pytest.raises(DamagedFile):
        MappedFile(path, name.digest)


def test_TP3_a_file_under_another_name_or_of_another_format_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path).path
    copy = tmp_path / str(DerivedName("test", "0", 1, "0" * 32))
    shutil.copy(path, copy)
    with pytest.raises(DamagedFile, match="name"):
        MappedFile(copy, "0" * 32)
    data = bytearray(path.read_bytes())
    data[8] += 1
    path.write_bytes(data)
    name = DerivedName.parsed(path.name)
    assert name is not None
    with pytest.raises(DamagedFile, match="format"):
        MappedFile(path, name.digest)


TEXTS = st.lists(st.text(max_size=300), unique=True, max_size=60)


@settings(max_examples=100, deadline=None)
@given(texts=TEXTS, seed=st.integers(0, 2**64 - 1), cut=st.integers(0, 5))
def test_one_text_and_many_have_the_same_hashes(texts: list[str], seed: int, cut: int) -> None:
    hash = TextHash(seed)
    array = pa.array(texts, pa.string())[cut:]
    expected = [hash.of(each.encode()) for each in texts[cut:]]
    assert hash.of_all(array).tolist() == expected
    assert hash.of_all(array.cast(pa.large_string())).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(texts=TEXTS, others=TEXTS)
def test_TP1_a_file_gives_every_id_its_number_and_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], others: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    row_ids = np.array([NO_ROW if n % 7 == 3 else n * 5 for n in range(len(texts))], np.uint64)
    facts, arrays = node_arrays(pa.array(texts, pa.string()), row_ids)
    digest, _ = write_file(folder / "f", {**facts, "lineage": [], "id_columns": []}, arrays)
    file = NodeFile(MappedFile(folder / "f", digest))
    numbers = {text: number for number, text in enumerate(texts)}
    for text in (*texts, *others):
        assert file.find(text.encode()) == numbers.get(text, -1)
    asked = [*texts, *others, *texts]
    located = file.locate(pa.array(asked, pa.string()))
    assert located.tolist() == [numbers.get(text, -1) for text in asked]
    assert file.ids_of(np.arange(len(texts))[::-1]).to_pylist() == texts[::-1]
    assert file.strings.to_pylist() == texts
    assert file.row_ids.whole().tolist() == row_ids.tolist()
    assert file.gone.tolist() == [n for n in range(len(texts)) if n % 7 == 3]


def test_TP1_ids_whose_hashes_are_equal_are_told_apart_by_their_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TextHash, "of", lambda self, data: 5)
    monkeypatch.setattr(TextHash, "of_all", lambda self, texts: np.full(len(texts), 5, np.uint64))
    texts = [f"id{n}" for n in range(40)]
    facts, arrays = node_arrays(pa.array(texts), np.arange(40, dtype=np.uint64))
    digest, _ = write_file(tmp_path / "f", {**facts, "lineage": [], "id_columns": []}, arrays)
    file = NodeFile(MappedFile(tmp_path / "f", digest))
    assert [file.find(text.encode()) for text in texts] == list(range(40))
    assert file.find(b"other") == -1
    assert file.locate(pa.array([*texts, "other"])).tolist() == [*range(40), -1]
