"""Schema of a graph: its text and catalog, the migration plan to another one, and its apply.

Invariant: a branch has the schema of its head, and what names no branch is main's. A plan changes
nothing; an apply plans again inside its own turn, so it never makes a change of another schema.
Identities that it gives out are new on every branch.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from omnigraph.arguments import checked
from omnigraph.catalog.model import Catalog
from omnigraph.deferred import deferred
from omnigraph.errors import StorageFailed
from omnigraph.exec.points import Points
from omnigraph.exec.schemas import Accepted, Schemas
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.graph.source_text import schema_text
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import noted
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from omnigraph.catalog.additive import noting_branches
    from omnigraph.catalog.identity import numbered_above
    from omnigraph.catalog.schema_diff import MigrationPlan, plan_migration
    from omnigraph.exec.schema.backfill import require_valid_backfills
    from omnigraph.exec.schema.migrate import SchemaApplied, apply_migration
else:
    numbered_above = deferred("omnigraph.catalog.identity", "numbered_above")
    noting_branches = deferred("omnigraph.catalog.additive", "noting_branches")
    MigrationPlan = deferred("omnigraph.catalog.schema_diff", "MigrationPlan")
    plan_migration = deferred("omnigraph.catalog.schema_diff", "plan_migration")
    require_valid_backfills = deferred("omnigraph.exec.schema.backfill", "require_valid_backfills")
    SchemaApplied = deferred("omnigraph.exec.schema.migrate", "SchemaApplied")
    apply_migration = deferred("omnigraph.exec.schema.migrate", "apply_migration")


class SchemaView:
    """The accepted schema: as it was written, what it means, what it may become."""

    def __init__(
        self, store: Store, schemas: Schemas, guard: PolicyGuard, forget: Callable[[], None]
    ) -> None:
        self._guard = guard
        self._store = store
        self._schemas = schemas
        self._forget = forget  # what is held in memory of data that may be gone

    @property
    def text(self) -> str:
        """The schema of main, as it was written.

        >>> "node Person" in graph.schema.text
        True
        """
        self._guard.reads_graph()
        return self._schemas.current().text

    @property
    def catalog(self) -> Catalog:
        """The types of main's schema, with their properties and rules.

        >>> sorted(graph.schema.catalog.nodes)
        ['Person']
        """
        self._guard.reads_graph()
        return self._schemas.current().catalog

    @checked
    def on(self, branch: str) -> Accepted:
        """The schema of a branch.

        >>> graph.schema.on("main").text == graph.schema.text
        True
        """
        self._guard.reads_graph()
        return self._schemas.current(branch)

    @checked
    def at(self, commit: str) -> Accepted:
        """The schema that held at a commit.

        >>> graph.schema.at("main~1").id == graph.schema.on("main").id
        True
        """
        self._guard.reads_graph()
        return self._schemas.of(Points(self._store).snapshot(commit, kind="commit"))

    @checked
    def plan(
        self,
        desired: str | os.PathLike[str],
        *,
        allow_data_loss: bool = False,
        backfill: Mapping[str, str] | None = None,
        branch: str = MAIN,
    ) -> MigrationPlan:
        """The steps from the schema of a branch to another one: the path of a `.pg` file, or text.

        `backfill` gives added properties values, by `Type.property`: SQL over the row. An
        expression that no row could be filled with is refused here as in `apply`.

        >>> plan = graph.schema.plan(graph.schema.text.replace("age:", "city: String?, age:"))
        >>> plan.supported, len(plan.steps)
        (True, 1)
        """
        self._guard.reads_graph()
        plan = self._planned(schema_text(desired), branch, allow_data_loss, backfill)
        if plan.supported:
            require_valid_backfills(plan, self._schemas.current(branch).catalog)
        others = [name for name in self._store.branches.list() if name != branch]
        return noting_branches(plan, self._schemas.current(branch).catalog, others)

    def _planned(
        self, text: str, branch: str, allow_data_loss: bool, backfill: Mapping[str, str] | None
    ) -> MigrationPlan:
        return plan_migration(
            self._numbered(branch), text, allow_data_loss=allow_data_loss, backfill=backfill
        )

    @checked
    def apply(
        self,
        desired: str | os.PathLike[str],
        *,
        allow_data_loss: bool = False,
        backfill: Mapping[str, str] | None = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        branch: str = MAIN,
    ) -> SchemaApplied:
        """Change the schema of a branch, and its data with it, as one commit of that branch.

        Other branches keep theirs until they are merged. Refused with `MigrationUnsupported` when a
        step cannot be made, with `ConstraintViolated` when the data breaks a rule that it adds, and
        with `SchemaHeld` when it does more than add or widen while there are other branches.

        >>> wider = graph.schema.text.replace("age:", "city: String?, age:")
        >>> graph.schema.apply(wider, message="People have cities").applied
        True
        """
        note = noted(self._guard.applies_schema(branch, actor), message, metadata)
        text = schema_text(desired)
        with self._store.schema_change():
            plan = self._planned(text, branch, allow_data_loss, backfill)
            try:
                return apply_migration(self._store, self._schemas, plan, text, note, branch)
            finally:
                if allow_data_loss:
                    self._forget()

    def _numbered(self, branch: str) -> Catalog:
        """The schema of a branch with counters above those of every other branch."""
        others = (name for name in self._store.branches.list() if name != branch)
        catalogs = (self._schemas.of(self._store.snapshot(name)).catalog for name in others)
        return numbered_above(self._schemas.current(branch).catalog, catalogs)


def stored_catalog(store: Store) -> Catalog:
    """The accepted schema, after a look whether its files agree with each other and the graph."""
    accepted = Schemas(store).current()
    for path, data in accepted.files().items():
        if store.files.read(path) != data:
            raise StorageFailed("compared the schema's files", f"{path} is not what was accepted")
    steps = plan_migration(accepted.catalog, accepted.text).steps
    if steps:
        raise StorageFailed(
            "compared the schema's files", f"its text and its form differ in {len(steps)} step(s)"
        )
    return accepted.catalog
