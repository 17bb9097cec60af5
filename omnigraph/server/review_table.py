"""Route table of reviews.

Invariant: as in `route_table`: an endpoint is one row.
"""

from omnigraph.server import review_routes, wire, wire_reviews
from omnigraph.server.endpoint import ApiEndpoint, Parameter
from omnigraph.server.endpoint_rows import LIMIT, TOKEN, get_row, write_row

REVIEWS: tuple[ApiEndpoint, ...] = (
    write_row(
        "/reviews",
        "cluster_openReview",
        "review",
        review_routes.open_review,
        request=wire_reviews.ReviewOpenRequest,
        answers=wire_reviews.ReviewOutput,
    ),
    get_row(
        "/reviews",
        "cluster_listReviews",
        "read",
        review_routes.reviews,
        answers=wire_reviews.ReviewList,
        parameters=(
            Parameter("state", "Only open, merged or closed."),
            Parameter("source", "Only of this source."),
            Parameter("target", "Only into this target."),
            LIMIT,
            TOKEN,
        ),
    ),
    get_row(
        "/reviews/{review}",
        "cluster_getReview",
        "read",
        review_routes.review,
        answers=wire_reviews.ReviewOutput,
    ),
    write_row(
        "/reviews/{review}/comments",
        "cluster_commentOnReview",
        "review",
        review_routes.comment,
        request=wire_reviews.ReviewCommentRequest,
        answers=wire_reviews.ReviewOutput,
    ),
    write_row(
        "/reviews/{review}/approve",
        "cluster_approveReview",
        "review",
        review_routes.approve,
        request=wire_reviews.ReviewApproveRequest,
        body_required=False,
        answers=wire_reviews.ReviewOutput,
    ),
    write_row(
        "/reviews/{review}/close",
        "cluster_closeReview",
        "review",
        review_routes.close,
        request=wire_reviews.ReviewCloseRequest,
        body_required=False,
        answers=wire_reviews.ReviewOutput,
    ),
    write_row(
        "/reviews/{review}/merge",
        "cluster_mergeReview",
        "branch_merge",
        review_routes.merge_review,
        request=wire_reviews.ReviewMergeRequest,
        body_required=False,
        answers=wire.BranchMergeOutput,
    ),
)
