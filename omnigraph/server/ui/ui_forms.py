"""HTML forms: URL-encoded fields of a request body.

Invariant: a form that cannot be read is refused with 400, never taken in part.
"""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from omnigraph.errors import BadRequest
from omnigraph.server.call import RouteCall

FORM = "application/x-www-form-urlencoded"
_FIELDS_MAX = 5_000


def form_fields(body: bytes) -> dict[str, str]:
    """The fields of a form by name; of two with one name the last."""
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=_FIELDS_MAX,
        )
    except ValueError:
        raise BadRequest("the form cannot be read") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def fields(call: RouteCall) -> dict[str, str]:
    """The fields of a request's form."""
    return form_fields(call.body)


def required(form: Mapping[str, str], name: str, called: str) -> str:
    """A field that must not be empty."""
    value = form.get(name, "").strip()
    if not value:
        raise BadRequest(f"{called} is missing")
    return value
