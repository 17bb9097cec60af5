"""The wire of blobs: ranges, ETags and what is refused."""

import httpx
import pytest

from omnigraph.server import wire
from tests.server.world import ADD, AGE, Served, checked, refused

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


# ---- SV16: bytes in

RAW = {"Content-Type": "application/octet-stream"}


def put(server: Served, data: bytes, cell: dict[str, str], **headers: str) -> httpx.Response:
    return server.client.put(
        f"{server.base}/blob", content=data, params=cell, headers={**RAW, **headers}
    )


def test_SV16_bytes_are_put_as_one_commit(server: Served) -> None:
    server.graph.branches.create("put")
    cell = {**CELL, "id": "Bob", "branch": "put"}
    before = server.graph.snapshot("put").commit_id
    response = put(server, b"\x00\xff" * 3, {**cell, "message": "a face"})
    done = checked(response, wire.ChangeOutput)
    assert (done["affected_nodes"], done["commit"]["message"]) == (1, "a face")
    assert done["commit"]["parent_commit_id"] == before
    read = server.get("/blob", params=cell)
    assert (read.content, read.headers["etag"]) == (b"\x00\xff" * 3, response.headers["etag"])
    large = bytes(9 << 20)  # more than is kept in memory
    checked(put(server, large, cell), wire.ChangeOutput)
    assert server.get("/blob", params=cell).content == large


def test_SV16_if_match_decides_by_the_cell_and_not_by_its_neighbours(server: Served) -> None:
    server.graph.branches.create("match")
    cell = {**CELL, "branch": "match"}
    server.graph.mutate(AGE, {"n": "Ada", "a": 37}, branch="match")
    tag = server.get("/blob", params=cell).headers["etag"]
    server.graph.mutate(ADD, {"n": "Neighbour"}, branch="match")
    assert server.get("/blob", params=cell).headers["etag"] == tag
    first = put(server, b"one", cell, **{"If-Match": tag})
    checked(first, wire.ChangeOutput)
    stale = put(server, b"two", cell, **{"If-Match": tag})
    refused(stale, 412, "conflict")
    assert stale.headers["etag"] == first.headers["etag"]
    assert server.get("/blob", params=cell).content == b"one"
    checked(put(server, b"three", cell, **{"If-Match": "*"}), wire.ChangeOutput)
    empty = {**cell, "id": "Bob"}
    refused(put(server, b"x", empty, **{"If-Match": "*"}), 412, "conflict")
    key = {"If-Match": server.get("/blob", params=cell).headers["etag"], "Idempotency-Key": "b"}
    once = put(server, b"four", cell, **key)
    again = put(server, b"four", cell, **key)
    assert again.headers["idempotent-replay"] == "true"
    assert again.json() == once.json()


def test_SV16_what_cannot_be_put_is_refused_and_writes_nothing(server: Served) -> None:
    head = server.graph.snapshot().commit_id
    refused(put(server, b"x", {**CELL, "id": "Zed"}), 404, "not_found")
    refused(put(server, b"x", {**CELL, "property": "name"}), 400, "bad_request")
    refused(put(server, b"x", {**CELL, "entity": "thing"}), 400, "bad_request")
    refused(put(server, b"x", {"type": "Person"}), 400, "bad_request")
    wrong = put(server, b"x", CELL, **{"Content-Type": "image/png"})
    refused(wrong, 415, "bad_request")
    assert server.graph.snapshot().commit_id == head
