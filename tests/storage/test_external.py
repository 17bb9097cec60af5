"""Blobs from outside: what lies below an allowed base and is spelled plainly, nothing else."""

from pathlib import Path

import boto3
import pytest

from omnigraph.errors import (
    BadRequest,
    ExternalBlobDenied,
    ExternalBlobUnreadable,
    LimitExceeded,
)
from omnigraph.storage import external
from omnigraph.storage.external import ExternalBlobs, checked_bases
from tests.storage.conftest import Server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"a")
    (tmp_path / "in2").mkdir()
    (tmp_path / "in2" / "b.png").write_bytes(b"b")
    (tmp_path / "secret").write_bytes(b"s")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    return tmp_path


def below(folder: Path) -> ExternalBlobs:
    return ExternalBlobs(checked_bases([f"file://{folder}/in"]))


def test_a_file_below_the_base_is_read_once(folder: Path) -> None:
    allowed = below(folder)
    assert allowed.read(f"file://{folder}/in/a.png") == b"a"
    (folder / "in" / "a.png").unlink()
    assert allowed.read(f"file://{folder}/in/a.png") == b"a"


@pytest.mark.parametrize(
    "path",
    [
        "/in2/b.png",
        "/secret",
        "/in/../secret",
        "/in/%2e%2e/secret",
        "/in/./a.png",
        "/in//a.png",
        "/in/link",
        "/in/a.png?x=1",
    ],
)
def test_what_lies_elsewhere_is_denied_however_it_is_spelled(folder: Path, path: str) -> None:
    with pytest.raises(ExternalBlobDenied):
        below(folder).read(f"file://{folder}{path}")


@pytest.mark.parametrize("uri", ["", "a.png", "/etc/passwd", "http://x/in/a.png", "file://host/x"])
def test_without_a_base_nothing_is_allowed(uri: str) -> None:
    with pytest.raises(ExternalBlobDenied):
        ExternalBlobs(()).read(uri)


def test_what_cannot_be_read_says_why(folder: Path) -> None:
    with pytest.raises(ExternalBlobUnreadable, match="No such file"):
        below(folder).read(f"file://{folder}/in/none")
    with pytest.raises(ExternalBlobUnreadable, match="directory"):
        below(folder).read(f"file://{folder}/in/")


@pytest.mark.parametrize(
    "base",
    [
        "photos/",
        "/photos/",
        "http://host/photos/",
        "s3:///photos/",
        "s3://key:secret@bucket/photos/",
        "s3://bucket/photos/?x=1",
        "s3://bucket/photos/#x",
        "file:///photos/../etc/",
        "file://host/photos/",
    ],
)
def test_a_base_must_be_plain(base: str) -> None:
    with pytest.raises(BadRequest, match="no base for external blobs"):
        checked_bases([base])


def test_bases_do_not_overlap() -> None:
    assert checked_bases(["file:///a", "file:///ab"]) == ("file:///a/", "file:///ab/")
    with pytest.raises(BadRequest, match="inside another"):
        checked_bases(["file:///a/", "file:///a/b"])


def test_there_are_limits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"file://{folder}/in/a.png"
    with pytest.raises(LimitExceeded, match="external Blob URI bytes"):
        below(folder).read(f"{uri}{'x' * external.URI_BYTES_MAX}")
    monkeypatch.setattr(external, "OBJECT_BYTES_MAX", 0)
    with pytest.raises(LimitExceeded, match="external Blob object bytes"):
        below(folder).read(uri)
    monkeypatch.setattr(external, "URIS_MAX", 0)
    with pytest.raises(LimitExceeded, match="external Blob reference cells"):
        below(folder).read(uri)


def test_objects_of_an_allowed_bucket_are_read(s3_server: Server) -> None:
    where = s3_server.place()
    bucket = where.uri.removeprefix("s3://").partition("/")[0]
    client = boto3.client(
        "s3",
        endpoint_url=where.options["aws_endpoint"],
        aws_access_key_id="test",
        aws_secret_access_key="test1234",
        region_name="us-east-1",
    )
    client.put_object(Bucket=bucket, Key="photos/a.png", Body=b"picture")
    allowed = ExternalBlobs(checked_bases([f"s3://{bucket}/photos/"]), dict(where.options))
    assert allowed.read(f"s3://{bucket}/photos/a.png") == b"picture"
    with pytest.raises(ExternalBlobUnreadable):
        allowed.read(f"s3://{bucket}/photos/none.png")
    with pytest.raises(ExternalBlobDenied):
        allowed.read(f"s3://{bucket}/other/a.png")
