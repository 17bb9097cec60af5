"""Jinja2 templates to HTML answers: autoescape, security headers, links and readable values.

Invariant: every value is escaped where it is written; only pictures, which escape their own, are
put in as they are. No page runs a script or takes a style that is not a file of ours.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from omnigraph.catalog.model import Property
from omnigraph.draw.ages import ago
from omnigraph.draw.svg import Picture, shortened
from omnigraph.errors import OmnigraphError
from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.status import error_answer
from omnigraph.server.ui.flash import flash_cookie, taken_notice
from omnigraph.storage.records import Commit
from omnigraph.types import Scalar

HTML = "text/html; charset=utf-8"
SVG = "image/svg+xml"
SECURITY = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_MEDIA = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": SVG}
_FILE = re.compile(r"[a-z-]+\.(css|js|svg)")
_CELL_CHARS = 300
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def link(graph_id: str, *parts: str, **query: Any) -> str:
    """The address of a page of a graph; a parameter that is None or empty is left out."""
    path = "/".join(quote(part, safe="") for part in ("ui", "graphs", graph_id, *parts))
    chosen = {key.rstrip("_"): value for key, value in query.items() if value not in (None, "", [])}
    return f"/{path}" + (f"?{urlencode(chosen, doseq=True)}" if chosen else "")


def refusal_of(cause: OmnigraphError) -> tuple[str, int]:
    """What a page says of a request that is refused, and its status, as the API has them; where the
    server failed the error is raised, for its log."""
    error = error_answer(cause)
    if error.is_fault:
        raise cause
    return error.body.error, error.status


def when(moment: int) -> str:
    """A moment in microseconds, in UTC."""
    return f"{_EPOCH + timedelta(microseconds=moment):%Y-%m-%d %H:%M:%S}Z"


def readable(value: Any, prop: Property | None = None) -> str:
    """A value of an image for people: dates and moments as such, not as numbers."""
    if value is None:
        return "null"
    if prop is not None and isinstance(value, int) and not isinstance(value, bool):
        if prop.type.scalar is Scalar.DATE:
            return (
                f"{_EPOCH + timedelta(days=value):%Y-%m-%d}" if abs(value) < 700_000 else str(value)
            )
        if prop.type.scalar is Scalar.DATETIME and abs(value) < 60_000_000_000_000:
            moment = _EPOCH + timedelta(milliseconds=value)
            return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def cell(value: Any, prop: Property | None = None) -> str:
    """A value that is cut to fit a table."""
    return shortened(readable(value, prop), _CELL_CHARS)


def subject(commit: Commit) -> str:
    """A commit on one line: what was said about it, else what it changed."""
    return (commit.message or "").partition("\n")[0] or commit.changed or "no rows changed"


def drawn(picture: Picture, **attributes: str) -> Markup:
    """A picture as a part of a page: its texts are escaped already."""
    return Markup(picture.inline(**attributes))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("omnigraph.server.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        ago=ago, when=when, cell=cell, readable=readable, subject=subject, drawn=drawn
    )
    environment.globals.update(link=link)
    return environment


def html(template: str, values: Mapping[str, Any], status: int = 200) -> Answer:
    """A page."""
    text = _environment().get_template(template).render(**values)
    return Answer(text.encode("utf-8", "replace"), status, HTML, dict(SECURITY))


def page(call: RouteCall, template: str, *, status: int = 200, **values: Any) -> Answer:
    """A page about a graph, for the actor of a request."""
    notice, used = taken_notice(call)
    facts: dict[str, Any] = {
        "graph_id": call.graph_id,
        "actor": call.actor,
        "visit": call.visit,
        "may": lambda *actions: may(call, *actions),
        "notice": notice,
        "problem": None,
        "live": None,
        "section": "",
    }
    answer = html(template, facts | values, status)
    if used is not None:
        answer.headers["Set-Cookie"] = used
    return answer


def may(call: RouteCall, *actions: str) -> bool:
    """Whether the actor may do these actions, on a branch at least."""
    is_allowed = call.visit is not None and all(map(call.visit.may, actions))
    return is_allowed and (not call.graph.read_only or set(actions) <= {"read"})


def moved(address: str, cookie: str | None = None) -> Answer:
    """An answer that leads to another page."""
    headers = {"Location": address, "Cache-Control": "no-store"}
    if cookie is not None:
        headers["Set-Cookie"] = cookie
    return Answer(status=303, media=None, headers=headers)


def moved_with(call: RouteCall, address: str, notice: str) -> Answer:
    """An answer that leads to another page, which says once what was done."""
    return moved(address, flash_cookie(call, notice))


def download(data: str | bytes, media: str, name: str) -> Answer:
    """A file to keep."""
    body = data.encode("utf-8", "replace") if isinstance(data, str) else data
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:80]
    headers = {**SECURITY, "Content-Disposition": f'attachment; filename="{safe}"'}
    if media == SVG:  # its own sheet is all that it may use
        headers["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'"
    return Answer(body, 200, media, headers)


def static_file(name: str) -> Answer | None:
    """A script or a sheet of ours."""
    folder = (
        files("omnigraph.draw") if name == "draw.css" else files(__package__).joinpath("static")
    )
    match = _FILE.fullmatch(name)
    path = folder.joinpath(name)
    if match is None or not path.is_file():
        return None
    headers = {**SECURITY, "Cache-Control": "max-age=3600"}
    return Answer(path.read_bytes(), 200, _MEDIA[match[1]], headers)
