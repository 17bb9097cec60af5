"""`omnigraph embed`: vectors into a file of records, before it is loaded."""

from __future__ import annotations

import json as json_codec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.address import graph_uri, write_target
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import (
    MAIN,
    Actor,
    Branch,
    GraphPath,
    Json,
    Message,
    Quiet,
    Store,
    Types,
    exclusive,
)
from omnigraph.cli.terminal import plain_errors, read_text, show, show_json
from omnigraph.errors import BadRequest
from omnigraph.output_file import file_path
from omnigraph.yaml_document import YamlFault, read_yaml

if TYPE_CHECKING:
    from omnigraph.exec.search.embed_seed import Choice, Fill, Spec

Seed = Annotated[
    str | None, typer.Option("--seed", metavar="MANIFEST", help="A YAML file that says all this.")
]


def embed(
    path: GraphPath = None,
    seed: Seed = None,
    input: Annotated[str | None, typer.Option("--input", metavar="FILE", help="Records.")] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Records with vectors.")
    ] = None,
    spec: Annotated[
        str | None, typer.Option("--spec", metavar="FILE", help="Which fields, which dimension.")
    ] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Take the vectors out.")] = False,
    reembed_all: Annotated[bool, typer.Option("--reembed-all", help="Make all anew.")] = False,
    types: Types = None,
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="[T:]FIELD=VALUE", help="Only records with this value."),
    ] = None,
    branch: Branch = MAIN,
    actor: Actor = None,
    message: Message = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Add the vectors that a graph lacks, or those of a file of records.

    The provider is the one that OMNIGRAPH_EMBED_PROVIDER names; texts are sent to it.
    """
    from omnigraph.exec.search.embed import require_provider
    from omnigraph.exec.search.embed_seed import Fill, SeedOrder, embed_seed

    with plain_errors():
        if path is not None or store is not None:
            if seed or input or output or spec or clean or reembed_all or select:
                raise typer.BadParameter("a graph is embedded by itself: pass no file and no mode")
            where = graph_uri(path, store)
            write_target("embed", where, quiet=quiet)
            _embed_graph(where, branch, types, actor, message, as_json=json)
            return
        exclusive(clean=clean, **{"reembed-all": reembed_all})
        chosen = tuple(_choice(text) for text in select or ())
        source, target, recipe = _files(seed, input, output, spec)
        fill = _fill(Fill, clean=clean, everything=reembed_all, selected=bool(select))
        order = SeedOrder(
            source,
            target,
            recipe,
            fill,
            frozenset(types or ()),
            chosen,
        )
        provider = None if fill is Fill.CLEAN else require_provider(None)
        done = embed_seed(order, provider)
        document: dict[str, object] = {
            "input": str(source),
            "output": str(target),
            "records": done.records,
            "selected_records": done.selected,
            "embedded_records": done.embedded,
            "cleaned_records": done.cleaned,
            "mode": str(fill),
            "dimension": recipe.dimension,
            "model": None if provider is None else provider.model,
        }
        if json:
            show_json(document)
            return
        counts = f"(selected {done.selected}, cleaned {done.cleaned})"
        how = f"[{fill} {recipe.dimension}d]"
        show(f"embedded {done.embedded} records {counts} from {source} -> {target} {how}")


def _embed_graph(
    uri: str,
    branch: str,
    types: list[str] | None,
    actor: str | None,
    message: str | None,
    *,
    as_json: bool,
) -> None:
    """Make up for vectors that writes left out."""
    with open_graph(uri) as graph:
        done = graph.embed(branch, types, actor=actor, message=message)
    if as_json:
        document = {"embedded": done.embedded, "graph_commit_id": done.commit_id}
        show_json({"uri": uri, "branch": branch, **document})
        return
    for name, count in done.embedded.items():
        show(f"{name}: {count} vectors")
    if not done.embedded:
        show("no vector is missing")


def _fill(kinds: type[Fill], *, clean: bool, everything: bool, selected: bool) -> Fill:
    if clean:
        return kinds.CLEAN
    if everything:
        return kinds.ALL
    return kinds.RESELECTED if selected else kinds.FILL_MISSING


def _files(
    seed: str | None, input: str | None, output: str | None, spec: str | None
) -> tuple[Path, Path, Spec]:
    from omnigraph.exec.search.embed_seed import spec_of

    if seed is not None and not (input or output or spec):
        return _manifest(seed)
    if seed is None and input and output and spec:
        return Path(input), file_path(output), spec_of(_json(spec), spec)
    raise typer.BadParameter("pass --seed MANIFEST, or --input, --output and --spec together")


def _json(path: str) -> Any:
    try:
        return json_codec.loads(read_text(path))
    except ValueError as cause:
        raise BadRequest(f"{path} is not JSON: {cause}") from None


def _manifest(path: str) -> tuple[Path, Path, Spec]:
    """A manifest; what it names lies beside it."""
    from omnigraph.exec.search.embed_seed import spec_of

    try:
        document = read_yaml(read_text(path))
    except YamlFault as cause:
        raise BadRequest(f"{path} is not YAML: {cause}") from None
    raw = _member(document, "sources", "raw_seed") or _member(document, "seed", "data")
    if raw is None:
        raise BadRequest(f"{path} names no records", "set sources.raw_seed, or seed.data")
    target = _member(document, "artifacts", "embedded_seed") or "./build/seed.embedded.jsonl"
    if not isinstance(raw, str) or not isinstance(target, str):
        raise BadRequest(f"{path} names files by something else than texts", "write their paths")
    beside = Path(path).parent
    return beside / raw, beside / target, spec_of(_member(document, "embeddings"), path)


def _member(document: Any, *keys: str) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _choice(text: str) -> Choice:
    from omnigraph.exec.search.embed_seed import Choice

    left, equals, value = text.partition("=")
    kind, colon, name = left.rpartition(":")
    if not equals or not name:
        raise typer.BadParameter("a selection is written [Type:]field=value")
    return Choice(kind if colon else None, name, value)
