"""The wire of blobs: ranges, ETags and what is refused."""

import pytest

from tests.server.world import Served, refused

CELL = {"entity": "node", "type": "Person", "id": "Ada", "property": "photo"}
BYTES = b"hello world"


def test_a_blob_comes_whole_with_its_etag(server: Served) -> None:
    response = server.get("/blob", params=CELL)
    assert response.status_code == 200
    assert response.content == BYTES
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-length"] == str(len(BYTES))
    assert response.headers["accept-ranges"] == "bytes"
    assert response.headers["omnigraph-snapshot-id"] == server.graph.snapshot().commit_id
    assert response.headers["etag"].startswith('"')


@pytest.mark.parametrize(
    ("asked", "part", "said"),
    [
        ("bytes=0-4", BYTES[:5], "bytes 0-4/11"),
        ("bytes=6-", BYTES[6:], "bytes 6-10/11"),
        ("bytes=-5", BYTES[-5:], "bytes 6-10/11"),
        ("bytes=-50", BYTES, "bytes 0-10/11"),
        ("bytes=6-500", BYTES[6:], "bytes 6-10/11"),
    ],
)
def test_a_range_is_206(asked: str, part: bytes, said: str, server: Served) -> None:
    response = server.get("/blob", params=CELL, headers={"Range": asked})
    assert response.status_code == 206
    assert response.content == part
    assert response.headers["content-range"] == said


@pytest.mark.parametrize("asked", ["bytes=0-1,3-4", "lines=0-1", "bytes=x", "bytes=-", "bytes=4-2"])
def test_a_range_that_cannot_be_read_is_ignored(asked: str, server: Served) -> None:
    response = server.get("/blob", params=CELL, headers={"Range": asked})
    assert response.status_code == 200
    assert response.content == BYTES


@pytest.mark.parametrize("asked", ["bytes=11-", "bytes=99-100", "bytes=-0"])
def test_a_range_outside_the_blob_is_416(asked: str, server: Served) -> None:
    response = server.get("/blob", params=CELL, headers={"Range": asked})
    document = refused(response, 416, "bad_request", "blob_range")
    assert document["blob_range"]["length"] == 11
    assert response.headers["content-range"] == "bytes */11"


def test_conditions_on_the_etag(server: Served) -> None:
    etag = server.get("/blob", params=CELL).headers["etag"]
    lost = server.get("/blob", params=CELL, headers={"If-Match": '"x"'})
    refused(lost, 412, "conflict")
    assert lost.headers["etag"] == etag
    assert server.get("/blob", params=CELL, headers={"If-Match": etag}).status_code == 200
    for known in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        same = server.get("/blob", params=CELL, headers={"If-None-Match": known})
        assert same.status_code == 304
        assert same.content == b""
    part = {"Range": "bytes=0-1", "If-Range": '"x"'}
    assert server.get("/blob", params=CELL, headers=part).status_code == 200
    part["If-Range"] = etag
    assert server.get("/blob", params=CELL, headers=part).status_code == 206


def test_head_has_the_headers_and_no_body(server: Served) -> None:
    whole = server.get("/blob", params=CELL)
    response = server.client.head(
        f"{server.base}/blob", params=CELL, headers={"Range": "bytes=0-1"}
    )
    assert response.status_code == 200
    assert response.content == b""
    for name in ("content-length", "etag", "accept-ranges", "omnigraph-snapshot-id"):
        assert response.headers[name] == whole.headers[name]
    missing = server.client.head(f"{server.base}/blob", params={**CELL, "id": "x"})
    assert missing.status_code == 404
    assert missing.content == b""


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"id": "Bob"}, 404),
        ({"id": "Nobody"}, 404),
        ({"property": "name"}, 400),
        ({"property": ""}, 400),
        ({"entity": "thing"}, 400),
        ({"type": "Nope"}, 400),
        ({"branch": "main", "snapshot": "x"}, 400),
        ({"branch": "nope"}, 404),
    ],
)
def test_a_cell_that_cannot_be_read(wrong: dict[str, str], status: int, server: Served) -> None:
    code = "not_found" if status == 404 else "bad_request"
    refused(server.get("/blob", params={**CELL, **wrong}), status, code)


def test_a_blob_that_is_kept_elsewhere_is_302(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = server.graph.blob(**CELL_ARGUMENTS)

    class Elsewhere:
        uri = "s3://photos/ada.png"
        commit_id = cell.commit_id
        etag = None
        size = None

    monkeypatch.setattr(server.graph, "blob", lambda *_, **__: Elsewhere())
    response = server.get("/blob", params=CELL)
    assert response.status_code == 302
    assert response.headers["location"] == "s3://photos/ada.png"
    assert response.headers["cache-control"] == "no-store"
    assert "etag" not in response.headers


CELL_ARGUMENTS = {"kind": "node", "type": "Person", "id": "Ada", "property": "photo"}
