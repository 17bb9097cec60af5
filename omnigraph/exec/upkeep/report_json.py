"""Reports of optimize and cleanup as JSON documents, for the command line and for servers.

Invariant: pure.
"""

from typing import Any

from omnigraph.exec.upkeep.cleanup import CleanupReport
from omnigraph.exec.upkeep.optimize import OptimizeReport


def optimize_document(uri: str, report: OptimizeReport) -> dict[str, Any]:
    """Report of optimize as JSON."""
    return {
        "uri": uri,
        "branch": report.branch,
        "engine": report.engine,
        "commit": report.commit_id,
        "datasets": [
            {
                "type_key": table.table,
                "fragments_removed": table.fragments_removed,
                "fragments_added": table.fragments_added,
                "committed": table.committed,
                "skipped": table.skipped,
                "published_dataset_version": table.published_version,
                "lance_head_version": table.head_version,
                "built_indexes": [
                    {"property": note.column, "kind": str(note.kind)} for note in table.built
                ],
                "pending_indexes": [
                    {"property": note.column, "reason": note.reason} for note in table.pending
                ],
            }
            for table in report.tables
        ],
    }


def cleanup_document(uri: str, report: CleanupReport) -> dict[str, Any]:
    """Report of cleanup, or of its preview, as JSON."""
    return {
        "uri": uri,
        "keep_versions": report.keep,
        "older_than_secs": report.older_than_s,
        "confirm": report.confirmed,
        "commits_kept": report.commits_kept,
        "commits_reclaimed": report.commits_reclaimed,
        "kept": [kept.to_json() for kept in report.kept],
        "consumers_lapsed": [consumer.to_json() for consumer in report.consumers_lapsed],
        "datasets": [
            {
                "type_key": table.table,
                "bytes_removed": table.bytes,
                "old_versions_removed": table.versions,
                "files_removed": table.files,
                "forks_removed": list(table.forks),
                "error": table.error,
            }
            for table in report.tables
        ],
    }
