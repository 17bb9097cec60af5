"""Rows of the route tables: how an endpoint with usual limits and statuses is written.

Invariant: what a kind of route has in common (its pool, its body, its refusals) is said here once.
"""

from omnigraph.server.endpoint import ApiEndpoint, BodySize, Lane, Parameter
from omnigraph.server.legacy import Route

GRAPH = "/graphs/{graph_id}"

BRANCH = Parameter("branch", "Which branch; main by default.")
TOKEN = Parameter("page_token", "Goes on where a page ended.")
LIMIT = Parameter("limit", "At most this many to a page.", is_number=True)
FILTERS = (
    Parameter("kind", "Only node or edge.", repeated=True),
    Parameter("type", "Only this type.", repeated=True),
    Parameter("op", "Only insert, update or delete.", repeated=True),
)
READS = (400, 404)
WRITES = (400, 404, 409, 412, 413, 415, 422, 424, 503)


def post_row(name: str, operation: str, action: str, route: Route, **facts: object) -> ApiEndpoint:
    """A route with a JSON body that runs in the pool of reads."""
    about = (route.__doc__ or "").strip()
    row = {"size": BodySize.DEFAULT, "refusals": (400, 404, 413, 415), **facts}
    return ApiEndpoint("POST", f"{GRAPH}{name}", operation, action, route, about, **row)  # type: ignore[arg-type]


def get_row(name: str, operation: str, action: str, route: Route, **facts: object) -> ApiEndpoint:
    """A route without a body."""
    about = (route.__doc__ or "").strip()
    row = {"refusals": READS, **facts}
    return ApiEndpoint("GET", f"{GRAPH}{name}", operation, action, route, about, **row)  # type: ignore[arg-type]


def write_row(name: str, operation: str, action: str, route: Route, **facts: object) -> ApiEndpoint:
    """A route that runs in the pool of writes."""
    row = {"lane": Lane.WRITE, "refusals": WRITES, **facts}
    return post_row(name, operation, action, route, **row)
