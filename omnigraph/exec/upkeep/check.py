"""Integrity check (fsck) of a whole graph. Reads everything, writes nothing.

    files ─▶ branches and lineage ─▶ tables and heads ─▶ rows and rules

Invariant: a finding names the fault, its subject and what to do; no finding keeps other checks from
running. A graph without findings opens, reads and writes on every branch.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from omnigraph.catalog.model import Catalog
from omnigraph.errors import GraphMoved, OmnigraphError
from omnigraph.exec.schemas import Schemas
from omnigraph.exec.upkeep.check_rows import row_findings
from omnigraph.exec.upkeep.check_topology import topology_findings
from omnigraph.exec.upkeep.findings import Finding
from omnigraph.storage.inspect import (
    DELETION_MISPLACED,
    FILE_MISSING,
    inspect_branch,
    inspect_graph,
)
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Findings, and how much was checked.

    >>> graph.check().findings
    ()
    """

    findings: tuple[Finding, ...]
    branches: tuple[str, ...]
    tables: int
    rows: int

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


@dataclass(slots=True)
class _Seen:
    """Table versions already checked: branches share most of their tables."""

    pins: set[TablePin] = field(default_factory=set)
    checked: set[tuple[TablePin, str]] = field(default_factory=set)  # and the schema's fingerprint
    rows: int = 0


def check(store: Store, schemas: Schemas, schema: Callable[[], Catalog]) -> CheckReport:
    """Check files, branches, tables and rows, each branch under its own schema; `schema` gives
    main's after a look at its files."""
    findings: list[Finding] = []
    catalog = None
    try:
        catalog = schema()
    except OmnigraphError as cause:
        todo = "put the accepted schema's files back from a copy"
        findings.append(Finding("schema", "the schema", cause.fact, todo))
    findings += (Finding(*facts) for facts in inspect_graph(store))
    try:
        branches = store.branches.list()
    except OmnigraphError as cause:
        findings.append(Finding("branches", "__manifest", cause.fact, "restore it from a copy"))
        branches = ()
    seen = _Seen()
    for branch in branches:
        findings += _branch(store, schemas, catalog, branch, seen)
    findings += topology_findings(store)
    return CheckReport(tuple(_once(findings)), branches, len(seen.pins), seen.rows)


def _branch(
    store: Store, schemas: Schemas, catalog: Catalog | None, branch: str, seen: _Seen
) -> Iterator[Finding]:
    damaged = set[str]()
    for finding in (Finding(*facts) for facts in inspect_branch(store, branch)):
        yield finding
        if finding.code in (DELETION_MISPLACED, FILE_MISSING):
            damaged.add(finding.subject)
    try:
        snapshot = store.snapshot(branch)
        pins = dict(snapshot.tables)
    except GraphMoved as cause:
        yield Finding(
            "moved", branch, cause.fact, "make a copy that is whole by `omnigraph backup`"
        )
        return
    except OmnigraphError as cause:
        yield Finding("branch", branch, cause.fact, "restore __manifest from a copy")
        return
    if catalog is None:
        return
    if branch != MAIN:
        try:
            catalog = schemas.of(snapshot).catalog
        except OmnigraphError as cause:
            todo = f"put the files of schema {snapshot.schema} back from a copy"
            yield Finding("schema", branch, cause.fact, todo)
            return
    yield from _declared(catalog, pins)
    # A version that two branches share is read again where they have different schemas.
    checked = {key: (pin, catalog.fingerprint) for key, pin in pins.items()}
    fresh = {key: pin for key, pin in pins.items() if checked[key] not in seen.checked}
    seen.checked |= set(checked.values())
    seen.pins |= set(pins.values())
    seen.rows += sum(pin.row_count for pin in fresh.values())
    # A table that lacks files cannot be read, and the finding of its files says what to do.
    readable = {key: pin for key, pin in pins.items() if key not in damaged}
    yield from row_findings(store, catalog, branch, readable, set(fresh))


def _declared(catalog: Catalog, pins: dict[TableKey, TablePin]) -> Iterator[Finding]:
    """Whether there is a table for each type, and a type for each table."""
    types = {node.table for node in catalog.nodes.values()}
    types |= {edge.table for edge in catalog.edges.values()}
    for key in sorted(types - pins.keys()):
        yield Finding(
            "table-missing",
            key,
            "the schema has this type and the manifest has no table for it",
            "export what is left and load it into a new graph",
        )
    for key in sorted(pins.keys() - types):
        yield Finding(
            "table-unknown",
            key,
            "the manifest has this table and the schema has no type for it",
            "put the accepted schema's files back from a copy",
        )


def _once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Findings without duplicates: a branch repeats the faults it inherits."""
    known: set[tuple[str, str, str]] = set()
    for finding in findings:
        key = (finding.code, finding.subject, finding.text)
        if key not in known:
            known.add(key)
            yield finding
