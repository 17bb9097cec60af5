"""Objects: whole or not there, and a failure to look is an error."""

from pathlib import Path

import pytest

from omnigraph.errors import BadRequest, StorageFailed
from omnigraph.storage.objects import Objects, root_of
from omnigraph.storage.stats import Stats
from tests.storage.world import Where


@pytest.fixture(params=["local", "s3"])
def objects(request: pytest.FixtureRequest) -> Objects:
    where: Where = request.getfixturevalue(request.param)
    if not where.options:
        Path(where.uri).mkdir()
    return Objects(root_of(where.uri, where.options or None), Stats())


def test_an_object_or_a_non_empty_prefix_exists_and_nothing_else(objects: Objects) -> None:
    objects.put("a/b.json", b"1")
    assert objects.exists("a/b.json")
    assert objects.exists("a")
    assert not objects.exists("a/c.json")
    assert not objects.exists("b")
    objects.delete("a/b.json")
    assert not objects.exists("a")
    assert objects.list("a") == ()


def test_a_missing_object_is_none_and_its_deletion_no_failure(objects: Objects) -> None:
    assert objects.get("none") is None
    objects.delete("none")


def test_a_listing_is_sorted_and_deep(objects: Objects) -> None:
    for path in ("p/2", "p/1", "p/x/3", "q/4"):
        objects.put(path, b"")
    assert objects.list("p") == ("p/1", "p/2", "p/x/3")
    objects.delete_prefix("p")
    assert objects.list("p") == ()


def test_a_conditional_put_needs_the_tag_that_was_read(s3: Where) -> None:
    objects = Objects(root_of(s3.uri, s3.options), Stats())
    tag = objects.put_if_absent("a", b"1")
    assert tag is not None
    assert objects.put_if_absent("a", b"2") is None
    newer = objects.put_if_match("a", b"2", tag)
    assert newer is not None
    assert objects.put_if_match("a", b"3", tag) is None
    found = objects.get("a")
    assert found is not None
    assert (found.data, found.tag) == (b"2", newer)


def test_an_unreachable_store_is_an_error_and_never_absent() -> None:
    options = {"aws_endpoint": "http://127.0.0.1:9", "allow_http": "true", "aws_region": "x"}
    options |= {"aws_access_key_id": "t", "aws_secret_access_key": "t", "timeout": "1s"}
    objects = Objects(root_of("s3://nowhere/g", options), Stats())
    with pytest.raises(StorageFailed):
        objects.get("a")
    with pytest.raises(StorageFailed):
        objects.list("a")


def test_a_bucket_that_is_not_there_is_an_error(s3: Where) -> None:
    objects = Objects(root_of("s3://no-such-bucket/g", s3.options), Stats())
    with pytest.raises(StorageFailed):
        objects.list("__recovery")


def test_places_are_paths_files_and_s3(tmp_path: Path) -> None:
    assert root_of(tmp_path).path == tmp_path
    assert root_of(f"file://{tmp_path}/a%20b").path == tmp_path / "a b"
    assert root_of("s3://bucket/g/").uri == "s3://bucket/g"
    with pytest.raises(BadRequest, match="no place for a graph"):
        root_of("gs://bucket/g")
    with pytest.raises(BadRequest, match=r"omnigraph\.connect\('http://host/g'\)"):
        root_of("http://host/g")
