"""Errors over the wire: the same class with the same facts, or at least the same family."""

import pickle
from dataclasses import fields

import msgspec
import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.remote.wire_faults import error_of
from omnigraph.server.status import TABLE, error_answer
from tests.shape.test_exports import LEAVES, example

URL = "http://server"
HIDDEN = {kind for kind, row in TABLE.items() if row.text is not None}
OF_HTTP = {errors.Unauthenticated, errors.ServerBusy}


def crossed(cause: BaseException) -> og.OmnigraphError:
    answer = error_answer(cause)
    return error_of(answer.status, msgspec.json.encode(answer.body), answer.headers, URL)


@pytest.mark.parametrize("kind", [k for k in LEAVES if k not in HIDDEN | OF_HTTP])
def test_RC1_an_error_crosses_with_its_facts(kind: type[errors.OmnigraphError]) -> None:
    cause = example(kind)
    again = crossed(cause)
    assert type(again) is kind
    for field in fields(kind):
        assert getattr(again, field.name) == getattr(cause, field.name), field.name
    assert str(again) == str(cause)
    assert str(pickle.loads(pickle.dumps(again))) == str(cause)


@pytest.mark.parametrize("kind", sorted(HIDDEN, key=lambda kind: kind.__name__))
def test_an_error_about_the_servers_storage_crosses_without_it(
    kind: type[errors.OmnigraphError],
) -> None:
    again = crossed(errors.OmnigraphError() if kind is errors.OmnigraphError else example(kind))
    assert isinstance(again, errors.StorageFailed | errors.Reclaimed)
    assert "text" not in str(again).replace("context", "")


def test_a_reclaimed_commit_crosses_with_its_name() -> None:
    cause = errors.Reclaimed("commit", "01ABC", "main", "01DEF")
    assert str(crossed(cause)) == str(cause)


def test_of_many_conflicts_the_first_have_images() -> None:
    one = errors.MergeConflict("node", "Person", "Ada", "kind", "", {"a": 1}, None, {"b": 2})
    again = crossed(errors.MergeConflicts((one,) * 1200))
    assert isinstance(again, errors.MergeConflicts)
    assert len(again.conflicts) == 1200
    assert again.conflicts[999] == one
    assert again.conflicts[1000].base is None


OF_010 = [
    (409, {"merge_conflicts": [{"entity_kind": "node", "type_name": "P", "entity_id": None,
      "kind": "k", "message": "m"}]}, errors.MergeConflicts),
    (409, {"key_conflict": {"entity_kind": "node", "type_name": "P"}}, errors.KeyTaken),
    (409, {"manifest_conflict": {"table_key": "node:P", "expected": 1, "actual": 2}},
     errors.VersionMismatch),
    (409, {"read_set_conflict": {"member": "main", "expected": "a", "actual": None}},
     errors.PreconditionFailed),
    (412, {"precondition_failure": {"expected": "a"}}, errors.PreconditionFailed),
    (413, {"resource_limit": {"resource": "r", "limit": 1, "actual": 2}}, errors.LimitExceeded),
    (503, {"recovery_required": {"operation_id": "o"}}, errors.RecoveryRequired),
    (424, {"external_blob_source": {"uri": "u", "reason": "r"}}, errors.ExternalBlobUnreadable),
    (410, {"change_feed_gap": {"first_unreadable_commit_id": "c"}}, errors.ChangeFeedGap),
    (409, {"change_diff_refusal": {"reason": "unknown", "graph_commit_id": "c"}},
     errors.NoChanges),
    (400, {}, errors.BadRequest),
    (401, {}, errors.Unauthenticated),
    (403, {}, errors.Forbidden),
    (404, {}, errors.NotFound),
    (409, {}, errors.BadRequest),
    (410, {}, errors.Reclaimed),
    (412, {}, errors.PreconditionFailed),
    (422, {}, errors.BadRequest),
    (429, {}, errors.ServerBusy),
    (500, {}, errors.StorageFailed),
    (502, {}, errors.ServerUnreachable),
    (504, {}, errors.LimitExceeded),
]  # fmt: skip


@pytest.mark.parametrize(("status", "members", "kind"), OF_010)
def test_an_answer_without_a_class_is_known_by_its_members_and_status(
    status: int, members: dict[str, object], kind: type[errors.OmnigraphError]
) -> None:
    body = msgspec.json.encode({"error": "policy denied action 'read' for actor 'x'", **members})
    cause = error_of(status, body, {}, URL)
    assert type(cause) is kind
    assert str(cause)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>bad gateway</html>",
        b"[1]",
        b'{"error": 5, "fault": 7}',
        b'{"error": "x", "fault": {"name": "NewError", "facts": {"a": 1}}}',
        b'{"error": "x", "fault": {"name": "NotFound", "facts": {}}}',
        b'{"error": "x", "fault": {"name": "Any", "facts": {}}}',
    ],
)
def test_a_body_that_says_nothing_is_still_an_error(body: bytes) -> None:
    assert isinstance(error_of(500, body, {}, URL), errors.StorageFailed)
    assert isinstance(error_of(400, body, {}, URL), errors.BadRequest)
