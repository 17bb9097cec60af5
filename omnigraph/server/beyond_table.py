"""Route table of what goes beyond 0.10.

Invariant: as in `route_table`: an endpoint is one row.
"""

from dataclasses import replace

from omnigraph.server import (
    change_routes,
    entity_routes,
    job_routes,
    more_routes,
    wire_beyond,
    wire_changes,
    wire_entities,
    wire_jobs,
)
from omnigraph.server.endpoint import ApiEndpoint, BodySize, Parameter
from omnigraph.server.endpoint_rows import (
    BRANCH,
    FILTERS,
    LIMIT,
    TOKEN,
    get_row,
    post_row,
    write_row,
)

_SNAPSHOT = Parameter("snapshot", "As it was at a commit.")

BEYOND: tuple[ApiEndpoint, ...] = (
    get_row(
        "/entities/{kind}/{type}/{id}",
        "cluster_getEntity",
        "read",
        entity_routes.entity,
        answers=wire_entities.EntityOutput,
        parameters=(BRANCH, _SNAPSHOT),
        refusals=(400, 404, 410),
    ),
    get_row(
        "/entities/{kind}/{type}/{id}/history",
        "cluster_getEntityHistory",
        "read",
        entity_routes.history,
        answers=wire_entities.EntityHistoryOutput,
        parameters=(BRANCH, _SNAPSHOT, LIMIT, TOKEN),
        refusals=(400, 404, 410, 413),
    ),
    write_row(
        "/jobs",
        "cluster_startJob",
        "change",
        job_routes.start,
        also=job_routes.ACTIONS,
        request=wire_jobs.JobRequest,
        answers=wire_jobs.JobOutput,
    ),
    get_row("/jobs", "cluster_listJobs", "read", job_routes.jobs, answers=wire_jobs.JobList),
    get_row(
        "/jobs/{job}", "cluster_getJob", "read", job_routes.one_job, answers=wire_jobs.JobOutput
    ),
    replace(
        write_row(
            "/jobs/{job}",
            "cluster_cancelJob",
            "change",
            job_routes.cancel,
            also=job_routes.ACTIONS,
            answers=wire_jobs.JobOutput,
            size=BodySize.NONE,
        ),
        method="DELETE",
    ),
    get_row(
        "/indexes",
        "cluster_listIndexes",
        "read",
        more_routes.indexes,
        answers=wire_beyond.IndexList,
        parameters=(BRANCH, _SNAPSHOT),
        refusals=(400, 404, 410),
    ),
    get_row(
        "/operations/{key}",
        "cluster_getOperation",
        "read",
        more_routes.operation,
        answers=wire_beyond.OperationOutput,
        parameters=(Parameter("branch", "Which branch; any by default."),),
    ),
    get_row("/tags", "cluster_listTags", "read", more_routes.tags, answers=wire_beyond.TagList),
    write_row(
        "/tags",
        "cluster_createTag",
        "branch_create",
        more_routes.tag_point,
        request=wire_beyond.TagCreateRequest,
        answers=wire_beyond.TagOutput,
    ),
    replace(
        write_row(
            "/tags/{tag}",
            "cluster_deleteTag",
            "branch_delete",
            more_routes.untag,
            answers=wire_beyond.TagDeleteOutput,
            size=BodySize.NONE,
        ),
        method="DELETE",
    ),
    write_row(
        "/revert",
        "cluster_revert",
        "change",
        more_routes.revert,
        request=wire_beyond.RevertRequest,
        answers=wire_beyond.UndoOutput,
    ),
    write_row(
        "/restore",
        "cluster_restore",
        "change",
        more_routes.go_back,
        request=wire_beyond.RestoreRequest,
        answers=wire_beyond.UndoOutput,
    ),
    write_row(
        "/transactions",
        "cluster_transact",
        "change",
        more_routes.transact,
        request=wire_beyond.TransactionRequest,
        answers=wire_beyond.TransactionOutput,
    ),
    get_row(
        "/diff",
        "cluster_diff",
        "read",
        more_routes.diff,
        answers=wire_changes.DiffOutput,
        parameters=(
            Parameter("from", "The earlier point in time.", required=True),
            Parameter("to", "The later one.", required=True),
            TOKEN,
            LIMIT,
            *FILTERS,
        ),
        refusals=(400, 404, 409, 410, 413),
    ),
    post_row(
        "/lint",
        "cluster_lint",
        "read",
        more_routes.lint,
        request=wire_beyond.TextRequest,
        answers=wire_beyond.LintOutput,
    ),
    post_row(
        "/explain",
        "cluster_explain",
        "read",
        more_routes.explain,
        request=wire_beyond.TextRequest,
        answers=wire_beyond.ExplainOutput,
    ),
    get_row(
        "/changes/stream",
        "cluster_streamChanges",
        "read",
        change_routes.poll,
        answers="text/event-stream",
        parameters=(
            BRANCH,
            Parameter("cursor", "Where a poll ended."),
            Parameter("start", "now, beginning or after:<commit id>."),
            *FILTERS,
            Parameter("Last-Event-ID", "The cursor of the last event seen.", "header"),
        ),
        refusals=(400, 404, 409, 410, 413),
    ),
)
