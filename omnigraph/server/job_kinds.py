"""Kinds of jobs: load, export, merge, optimize, cleanup and embed, each one call of the library.

Invariant: a job that writes rows carries its mark, so that a reader can tell after a crash whether
it was committed. A cancelled job stops in its progress callback, before its commit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from omnigraph.arguments import as_given
from omnigraph.errors import BadRequest
from omnigraph.exec.progress import Progress, UpkeepProgress
from omnigraph.exec.search.embed import require_provider
from omnigraph.exec.search.embed_seed import Fill, SeedOrder, embed_seed, spec_of
from omnigraph.exec.upkeep.report_json import cleanup_document, optimize_document
from omnigraph.graph import Graph
from omnigraph.graph.door import graph_for
from omnigraph.server.bodies import commit_output, load_output, merge_output
from omnigraph.server.call import branch_or_main
from omnigraph.server.job_addresses import require_below
from omnigraph.server.serve_settings import ServerSettings
from omnigraph.server.wire_jobs import JobRequest
from omnigraph.server.write_routes import resolved

Question = tuple[str, str | None, str | None]
"""An action, and the branch and target that it is about, if any."""

OnSteps = Callable[[Progress | UpkeepProgress], None]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobOrder:
    """Everything that a job needs: graph, request, actor, mark and where its progress goes."""

    graph: Graph
    request: JobRequest
    actor: str | None
    mark: str
    progress: OnSteps

    @property
    def note(self) -> dict[str, Any]:
        """What the commit says of itself."""
        request = self.request
        return {"actor": self.actor, "message": request.message, "metadata": request.metadata}


@dataclass(frozen=True, slots=True)
class JobKind:
    """How a kind of job runs, and the actions that an actor needs for it."""

    run: Callable[[JobOrder], Document]
    asks: Callable[[JobRequest], tuple[Question, ...]]
    branch: Callable[[JobRequest], str] | None = None  # where its commit is found by its mark


def _load(order: JobOrder) -> Document:
    request = order.request
    done = order.graph.load(
        request.source,
        as_given("merge" if request.mode is None else request.mode),
        type=request.type,
        edge=request.edge,
        branch=branch_or_main(request.branch),
        from_branch=request.from_,
        engine=as_given(request.engine or "auto"),
        progress=order.progress,
        once=order.mark,
        **order.note,
    )
    return _builtins(load_output(done))


def _export(order: JobOrder) -> Document:
    request = order.request
    assert request.target is not None
    done = order.graph.export(
        request.target,
        as_given(request.format or "jsonl"),
        types=request.types,
        branch=branch_or_main(request.branch),
        snapshot=request.snapshot,
        engine=as_given(request.engine or "local"),
        progress=order.progress,
    )
    return {"nodes": done.nodes, "edges": done.edges, "graph_commit_id": done.commit_id}


def _merge(order: JobOrder) -> Document:
    request = order.request
    assert request.source is not None
    done = order.graph.branches.merge(
        request.source,
        branch_or_main(request.target),
        delete_source=request.delete_branch,
        by=as_given(request.by or "entity"),
        resolve=resolved(request.resolutions),
        progress=order.progress,
        once=order.mark,
        **order.note,
    )
    return _builtins(merge_output(done))


def _optimize(order: JobOrder) -> Document:
    request = order.request
    report = order.graph.optimize(
        branch_or_main(request.branch),
        engine=as_given(request.engine or "auto"),
        progress=order.progress,
        **order.note,
    )
    return _without_address(optimize_document(order.graph.uri, report))


def _cleanup(order: JobOrder) -> Document:
    request = order.request
    report = order.graph.cleanup(
        request.keep, request.older_than, request.confirm, engine=as_given(request.engine or "auto")
    )
    document = _without_address(cleanup_document(order.graph.uri, report))
    del document["kept"]  # as long as the history
    return document


def _embed(order: JobOrder) -> Document:
    request = order.request
    fill = Fill(request.mode or Fill.FILL_MISSING)
    provider = None if fill is Fill.CLEAN else require_provider(order.graph.embedder)
    spec = spec_of(request.spec, "spec")
    done = embed_seed(
        SeedOrder(
            Path(request.source or ""),
            Path(request.target or ""),
            spec,
            fill,
            frozenset(request.types or ()),
        ),
        provider,
    )
    return {
        "records": done.records,
        "selected_records": done.selected,
        "embedded_records": done.embedded,
        "cleaned_records": done.cleaned,
        "dimension": spec.dimension,
    }


def _require_embeddable(request: JobRequest) -> None:
    """Refuse an embedding that cannot begin."""
    modes = [str(mode) for mode in Fill if mode is not Fill.RESELECTED]
    if request.mode is not None and request.mode not in modes:
        raise BadRequest(f"'{request.mode}' is no mode of embedding", f"use {', '.join(modes)}")
    for address in (request.source or "", request.target or ""):
        if address.startswith("s3://"):
            raise BadRequest("records are embedded on local disk", "copy the file there first")
    spec_of(request.spec, "spec")


def _builtins(body: object) -> Document:
    document: Document = msgspec.to_builtins(body)
    return document


def _without_address(document: Document) -> Document:
    return {name: value for name, value in document.items() if name != "uri"}


def _load_asks(request: JobRequest) -> tuple[Question, ...]:
    """A fork is asked about by the load, which knows whether the branch is missing."""
    return (("change", branch_or_main(request.branch), None),)


def _export_asks(request: JobRequest) -> tuple[Question, ...]:
    """What a snapshot is of is asked about by the export."""
    return (
        () if request.snapshot is not None else (("export", branch_or_main(request.branch), None),)
    )


def _merge_asks(request: JobRequest) -> tuple[Question, ...]:
    """To delete the source is asked about separately, by the merge."""
    return (("branch_merge", request.source, branch_or_main(request.target)),)


def _upkeep_asks(request: JobRequest) -> tuple[Question, ...]:
    return (("change", branch_or_main(request.branch), None),)


KINDS: dict[str, JobKind] = {
    "load": JobKind(_load, _load_asks, lambda request: branch_or_main(request.branch)),
    "export": JobKind(_export, _export_asks),
    "merge": JobKind(_merge, _merge_asks, lambda request: branch_or_main(request.target)),
    "optimize": JobKind(_optimize, _upkeep_asks),
    "cleanup": JobKind(_cleanup, lambda request: (("admin", None, None),)),
    "embed": JobKind(_embed, lambda request: (("change", None, None),)),
}


def checked_request(request: JobRequest, settings: ServerSettings) -> JobRequest:
    """The request of a job that can begin, with its addresses as they were allowed."""
    if request.kind not in KINDS:
        raise BadRequest(f"'{request.kind}' is no kind of job", f"use {', '.join(KINDS)}")
    if request.kind in ("load", "merge", "embed") and not request.source:
        raise BadRequest(f"the job {request.kind} needs a source")
    if request.kind in ("export", "embed") and not request.target:
        raise BadRequest(f"the job {request.kind} needs a target")
    if request.kind == "embed":
        _require_embeddable(request)
    if request.kind in ("load", "embed"):
        request.source = require_below(request.source or "", settings.job_sources, "source")
    if request.kind in ("export", "embed"):
        request.target = require_below(request.target or "", settings.job_targets, "target")
    if request.kind == "cleanup" and request.keep is None and request.older_than is None:
        raise BadRequest("cleanup needs a policy", "give keep, older_than, or both")
    return request


def committed(graph: Graph, request: JobRequest, mark: str) -> Document | None:
    """The commit that a job made although nobody noted its end; None if there is none."""
    branch = KINDS[request.kind].branch
    if branch is None:
        return None
    commit = graph_for(graph, None).commits.once(mark, branch(request))
    return None if commit is None else {"commit": _builtins(commit_output(commit))}
