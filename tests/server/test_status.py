"""Every error class has its status, code and members, and keeps the server's secrets."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import omnigraph
from omnigraph import errors
from omnigraph.server.status import MEMBERS, TABLE, error_answer, in_members
from tests.server.world import Served, refused
from tests.shape.test_exports import ERRORS, example

EXPECTED: dict[str, tuple[int, str | None, tuple[str, ...]]] = {
    "OmnigraphError": (500, "internal", ()),
    "SourceError": (400, "bad_request", ("diagnostic",)),
    "ParseError": (400, "bad_request", ("diagnostic",)),
    "TypeCheckError": (400, "bad_request", ("diagnostic",)),
    "Refused": (400, "bad_request", ()),
    "BadRequest": (400, "bad_request", ()),
    "NotFound": (404, "not_found", ()),
    "UnknownPoint": (404, "not_found", ()),
    "AmbiguousPoint": (400, "bad_request", ()),
    "Reclaimed": (410, None, ()),
    "ExpressionFailed": (400, "bad_request", ()),
    "AlreadyExists": (409, "conflict", ()),
    "InUse": (409, "conflict", ()),
    "LimitExceeded": (413, "bad_request", ("resource_limit",)),
    "ConstraintViolated": (400, "bad_request", ()),
    "ExternalBlobDenied": (400, "bad_request", ()),
    "ExternalBlobUnreadable": (424, None, ("external_blob_source",)),
    "MigrationUnsupported": (400, "bad_request", ()),
    "UnsupportedVersion": (500, "internal", ()),
    "ChangeFeedGap": (410, None, ("change_feed_gap",)),
    "ConsumerLapsed": (410, None, ("change_feed_gap",)),
    "GraphMoved": (500, "internal", ()),
    "GraphClosed": (500, "internal", ()),
    "NotRevertible": (409, "conflict", ()),
    "SchemaDiffers": (409, "conflict", ()),
    "Forbidden": (403, "forbidden", ()),
    "PolicyInvalid": (500, "internal", ()),
    "Unauthenticated": (401, "unauthorized", ()),
    "NotServed": (400, "bad_request", ()),
    "ServerBusy": (429, "too_many_requests", ()),
    "ServerUnreachable": (500, "internal", ()),
    "Conflict": (409, "conflict", ()),
    "VersionMismatch": (
        409,
        "conflict",
        ("manifest_conflict", "read_set_conflict", "published_dataset_version_conflict"),
    ),
    "KeyTaken": (409, "conflict", ("key_conflict",)),
    "PreconditionFailed": (412, None, ("precondition_failure",)),
    "SchemaChanged": (409, "conflict", ("read_set_conflict",)),
    "SchemaHeld": (409, "conflict", ()),
    "ApprovalsMissing": (403, "forbidden", ("missing_approvals",)),
    "OwnReview": (403, "forbidden", ()),
    "ChecksFailed": (409, "conflict", ("failed_checks",)),
    "ReviewEnded": (409, "conflict", ()),
    "MergeConflicts": (409, "conflict", ("merge_conflicts",)),
    "NoChanges": (409, "conflict", ("change_diff_refusal",)),
    "NotInstalled": (500, "internal", ()),
    "EmbeddingFailed": (500, "internal", ()),
    "RecoveryRequired": (503, None, ("recovery_required",)),
    "StorageFailed": (500, "internal", ()),
}


def test_every_error_class_has_a_row_of_its_own() -> None:
    assert {kind.__name__ for kind in ERRORS} - {kind.__name__ for kind in TABLE} == set()


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_of_the_engine_is_answered_with_its_status_and_members(
    kind: type[errors.OmnigraphError], server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    cause = example(kind)

    def fail(*_: Any, **__: Any) -> None:
        raise cause

    monkeypatch.setattr(server.graph.branches, "list", fail)
    status, code, members = EXPECTED[kind.__name__]
    document = refused(server.get("/branches"), status, code, *members)
    if status != 500 and kind is not errors.Reclaimed:
        # What a denial hints at goes beside its text, which earlier clients read.
        said = cause.denied if type(cause) is errors.Forbidden else str(cause)
        assert document["error"] == said


def test_the_members_carry_the_facts() -> None:
    moved = error_answer(errors.VersionMismatch(errors.TableKey("node:Person"), 3, 5)).body
    assert moved.manifest_conflict.expected == 3  # type: ignore[union-attr]
    assert moved.read_set_conflict.member == "node:Person"  # type: ignore[union-attr]
    assert moved.published_dataset_version_conflict.type_name == "Person"  # type: ignore[union-attr]
    lost = error_answer(errors.PreconditionFailed("main", "A", None)).body
    assert lost.precondition_failure.expected == "A"  # type: ignore[union-attr]
    refusal = error_answer(errors.NoChanges("something new", "C")).body.change_diff_refusal
    assert refusal.reason == "unknown"  # type: ignore[union-attr]


def test_a_read_that_ran_out_of_time_is_504() -> None:
    late = errors.LimitExceeded(f"{errors.QUERY_TIME} at `scan`", 31_000, 30_000)
    assert error_answer(late).status == 504


@pytest.mark.parametrize(
    "cause",
    [
        errors.StorageFailed("read it", "/var/lib/secret/people.omni is not there"),
        errors.NotFound("dataset", "/var/lib/secret/people.omni"),
        errors.Reclaimed("data", "/var/lib/secret/x.lance"),
        RuntimeError("/var/lib/secret"),
    ],
)
def test_SV6_no_error_names_a_path(cause: Exception) -> None:
    answer = error_answer(cause)
    assert "/var" not in msgspec.json.encode(answer.body).decode()


def test_a_failure_nobody_expected_is_500_and_explained_in_the_log(
    server: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError("the cellar is flooded")

    monkeypatch.setattr(server.graph.branches, "list", fail)
    document = refused(server.get("/branches"), 500, "internal")
    assert "cellar" not in document["error"]
    assert "the cellar is flooded" in capsys.readouterr().err


@pytest.mark.parametrize("words", MEMBERS)
def test_a_client_is_told_of_members_and_not_of_arguments_of_python(words: str) -> None:
    package = Path(omnigraph.__file__).parent
    others = (path for path in package.rglob("*.py") if package / "server" not in path.parents)
    assert any(words in path.read_text("utf-8") for path in others), "no error says it"
    assert "=" not in in_members(f"it is wrong; {words}")


def test_texts_that_clients_of_0_10_know_have_their_words(server: Served) -> None:
    body = "() { match { $p: Person } return { $p.name } }"
    two = f"query a{body} query b{body}"
    told = server.post("/query", {"query": two}).json()["error"]
    assert told.startswith("query file contains multiple queries; pass --name")
    assert told.endswith(": a, b")
    near = server.post("/load", {"data": "", "branch": "mainn"}).json()["error"]
    assert near == "branch 'mainn' not found; pass `from` to create it; did you mean 'main'?"
