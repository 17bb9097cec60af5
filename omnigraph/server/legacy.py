"""Flat routes of the 0.3-era API: the handlers of today, with the old keys beside the new ones.

Invariant: old keys are added to the document that the nested route answers, never in its stead.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.wire import encoded

Route = Callable[[RouteCall], Answer]
Document = dict[str, Any]


def with_old_keys(route: Route, add: Callable[[Document], None]) -> Route:
    """A route whose document gets old keys."""

    def older(call: RouteCall) -> Answer:
        answer = route(call)
        document = msgspec.to_builtins(answer.document)
        add(document)
        answer.body = encoded(document)
        return answer

    older.__doc__ = route.__doc__
    return older


def in_commit(commit: Document) -> None:
    """Old keys of a commit."""
    commit["manifest_branch"] = commit["graph_branch"]
    commit["manifest_version"] = commit["graph_manifest_version"]


def in_commits(document: Document) -> None:
    """Old keys of a list of commits."""
    for commit in document["commits"]:
        in_commit(commit)


def in_change(document: Document) -> None:
    """Old keys of a mutation."""
    if document["commit"] is not None:
        in_commit(document["commit"])


def in_snapshot(document: Document) -> None:
    """Old keys of a snapshot."""
    document["branch"] = document["graph_branch"]
    document["manifest_version"] = document["graph_manifest_version"]
    document["tables"] = [
        {
            "table_key": f"{dataset['entity_kind']}:{dataset['type_name']}",
            "table_path": dataset["dataset_path"],
            "table_version": dataset["published_dataset_version"],
            "table_branch": dataset["native_dataset_branch"],
            "row_count": dataset["entity_count"],
        }
        for dataset in document["datasets"]
    ]


def in_ingest(document: Document) -> None:
    """Old keys of a load."""
    document["tables"] = [
        {"table_key": f"{kind}:{each['name']}", "rows_loaded": each["entities_loaded"]}
        for kind, members in (("node", "nodes"), ("edge", "edges"))
        for each in document[members]
    ]
    document["base_branch"] = document["base_branch"] or "main"
    in_change(document)


def in_merge(document: Document) -> None:
    """Old keys of the commit of a merge, if it made one."""
    if "commit" in document:
        in_commit(document["commit"])


def in_schema_apply(document: Document) -> None:
    """Old keys of a schema change."""
    document["manifest_version"] = document["graph_manifest_version"]
    in_merge(document)


def in_conflicts(document: Document) -> None:
    """Old keys of merge conflicts in an error."""
    for conflict in document.get("merge_conflicts", ()):
        conflict["table_key"] = f"{conflict['entity_kind']}:{conflict['type_name']}"
        conflict["row_id"] = conflict["entity_id"]
