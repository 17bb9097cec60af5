"""OpenAPI 3.1 document, generated from the route table and the bodies.

Invariant: pure. Two servers with the same routes and the same kind of access have the same bytes.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from omnigraph import __version__
from omnigraph.server import wire_errors
from omnigraph.server.call import JSON
from omnigraph.server.endpoint import ApiEndpoint, Parameter
from omnigraph.server.wire import Body

_REF = "#/components/schemas/{name}"
_ALWAYS = (400, 401, 403, 404, 405, 408, 413, 429, 500, 503, 504)
_TEXTS = {
    200: "Done.",
    206: "A part of the bytes.",
    302: "The bytes are kept elsewhere.",
    304: "The ETag is one that the client has.",
    400: "The request makes no sense.",
    401: "No token, or an unknown one.",
    403: "The actor may not do this.",
    404: "No such graph, branch, commit, query or cell.",
    405: "Another method is for this path.",
    408: "The body did not arrive in time.",
    409: "A conflict; its member tells the kind.",
    410: "The history was reclaimed.",
    412: "The precondition does not hold.",
    413: "A limit was exceeded.",
    415: "Another content type is expected.",
    416: "No byte lies in the range.",
    422: "The idempotency key was used with another body.",
    424: "An external blob cannot be read.",
    429: "Too many requests; see Retry-After.",
    500: "The server failed.",
    503: "An interrupted write must be settled, or a graph is not open.",
    504: "The read took too long.",
}


def document(endpoints: Sequence[ApiEndpoint], *, with_tokens: bool) -> dict[str, Any]:
    """The document of some endpoints; pages are not described."""
    endpoints = [each for each in endpoints if not each.is_page]
    shapes = _shapes(endpoints)
    _, schemas = msgspec.json.schema_components(shapes, ref_template=_REF)
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(
            endpoint, with_tokens=with_tokens
        )
    components: dict[str, Any] = {"schemas": dict(sorted(schemas.items()))}
    if with_tokens:
        components["securitySchemes"] = {"bearer_token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "OmniGraph",
            "version": __version__,
            "description": "A typed property-graph database with branches, commits and merges.",
        },
        "paths": dict(sorted(paths.items())),
        "components": components,
    }


def _shapes(endpoints: Sequence[ApiEndpoint]) -> list[type[Body]]:
    shapes: dict[str, type[Body]] = {"ErrorOutput": wire_errors.ErrorOutput}
    for endpoint in endpoints:
        for shape in (endpoint.request, endpoint.answers, *endpoint.other_answers):
            if isinstance(shape, type):
                shapes[shape.__name__] = shape
    return [shapes[name] for name in sorted(shapes)]


def _operation(endpoint: ApiEndpoint, *, with_tokens: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "operationId": endpoint.operation,
        "summary": endpoint.about.splitlines()[0],
        "parameters": [
            *map(_path_parameter, endpoint.names),
            *map(_parameter, endpoint.parameters),
        ],
        "responses": _responses(endpoint),
    }
    if endpoint.request is not None:
        shown["requestBody"] = {
            "required": endpoint.body_required,
            "content": _contents(endpoint.request, endpoint.other_bodies),
        }
    if endpoint.successor is not None:
        shown["deprecated"] = True
    if with_tokens and endpoint.action is not None:
        shown["security"] = [{"bearer_token": []}]
    return shown


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    one = {"type": "integer", "minimum": 0} if parameter.is_number else {"type": "string"}
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": parameter.required,
        "description": parameter.about,
        "schema": {"type": "array", "items": one} if parameter.repeated else one,
    }


def _content(shape: type[Body] | str) -> dict[str, Any]:
    return {shape if isinstance(shape, str) else JSON: {"schema": _schema(shape)}}


def _schema(shape: type[Body] | str) -> dict[str, Any]:
    if isinstance(shape, str):
        return {} if shape == JSON else {"type": "string"}
    return {"$ref": _REF.format(name=shape.__name__)}


def _contents(shape: type[Body] | str, others: tuple[str, ...]) -> dict[str, Any]:
    content = _content(shape)
    for media in others:
        content |= _content(media)
    return content


def _responses(endpoint: ApiEndpoint) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in endpoint.statuses:
        responses[str(status)] = {"description": _TEXTS[status]}
        if status in (200, 206):
            content = _contents(endpoint.answers, endpoint.other_media)
            if endpoint.other_answers:
                shapes = (endpoint.answers, *endpoint.other_answers)
                content[JSON] = {"schema": {"anyOf": [_schema(each) for each in shapes]}}
            responses[str(status)]["content"] = content
    if endpoint.operation == "ready":
        responses["503"] = {"description": _TEXTS[503], "content": _content(endpoint.answers)}
    error = {JSON: {"schema": {"$ref": _REF.format(name="ErrorOutput")}}}
    for status in sorted({*endpoint.refusals, *_ALWAYS}):
        responses.setdefault(str(status), {"description": _TEXTS[status], "content": error})
    return dict(sorted(responses.items()))
