"""Names on disk are flat, reversible and never shared."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import BadRequest
from omnigraph.storage.names import (
    checked_branch,
    decode,
    encode,
    fnv1a64,
    lock_name,
    table_location,
)
from omnigraph.types import TableKey


@given(st.text(max_size=40))
def test_a_name_comes_back_from_its_flat_segment(name: str) -> None:
    segment = encode(name)
    assert decode(segment) == name
    assert re.fullmatch(r"[A-Za-z0-9_-]*", segment)


def test_l1_a_table_lives_below_its_kind_under_the_hash_of_its_type() -> None:
    assert fnv1a64("") == "cbf29ce484222325"
    assert fnv1a64("a") == "af63dc4c8601ec8c"
    assert table_location(TableKey("node:a")) == "nodes/af63dc4c8601ec8c"
    assert table_location(TableKey("edge:a")) == "edges/af63dc4c8601ec8c"
    with pytest.raises(BadRequest):
        table_location(TableKey("a"))


@pytest.mark.parametrize(
    "name", ["", "  ", "main", "a..b", "../x", "/a", "a/", "a//b", "a b", "a\n", "x" * 300]
)
def test_a_bad_branch_name_is_refused(name: str) -> None:
    if name.strip() == "a":
        assert checked_branch(name) == "a"
        return
    with pytest.raises(BadRequest):
        checked_branch(name)


def test_the_reserved_branch_is_refused() -> None:
    with pytest.raises(BadRequest, match="reserved"):
        checked_branch("__schema_apply_lock__")


def test_a_good_branch_name_is_trimmed() -> None:
    assert checked_branch(" review/2026-07 ") == "review/2026-07"
    assert checked_branch("żółw/ß.lock") == "żółw/ß.lock"


@given(st.text(max_size=300))
def test_locks_are_taken_in_one_order(branch: str) -> None:
    names = [lock_name(s, branch) for s in ("branches", "edge:A", "node:A", "publish")]
    assert names == sorted(names)
    assert all(len(name) < 200 for name in names)
