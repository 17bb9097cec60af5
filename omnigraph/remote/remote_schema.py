"""Schema of a served graph: its text and catalog, plans made here, changes applied there.

Invariant: a plan is made from the catalog that the server sends, with the identities of its types,
so it has the steps that the server would plan; an apply plans again on the server.
"""

import os
from collections.abc import Mapping
from dataclasses import replace

from omnigraph.arguments import checked
from omnigraph.catalog import codec
from omnigraph.catalog.accept import accept
from omnigraph.catalog.additive import noting_branches
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.schema_diff import MigrationPlan, plan_migration
from omnigraph.exec.schema.backfill import require_valid_backfills
from omnigraph.exec.schema.migrate import SchemaApplied
from omnigraph.exec.schemas import Accepted, accepted
from omnigraph.graph.schema import SchemaView
from omnigraph.graph.source_text import schema_text
from omnigraph.lru import Lru
from omnigraph.remote.from_wire import Document, commit_or_none
from omnigraph.remote.http_connection import given
from omnigraph.remote.remote_session import RemoteSession
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import SchemaId

_SCHEMAS_MAX = 256


class RemoteSchema(SchemaView):
    """The accepted schema of a served graph."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._http = session.http
        self._decoded: Lru[SchemaId, Accepted] = Lru(_SCHEMAS_MAX)

    @property
    def text(self) -> str:
        return self.on(MAIN).text

    @property
    def catalog(self) -> Catalog:
        return self.on(MAIN).catalog

    @checked
    def on(self, branch: str) -> Accepted:
        """The schema of a branch."""
        self._session.require_branch(branch)
        return self._accepted(self._http.document("/schema", given(branch=branch, catalog=True)))

    @checked
    def at(self, commit: str) -> Accepted:
        """The schema that held at a commit."""
        return self._accepted(self._http.document("/schema", given(snapshot=commit, catalog=True)))

    def _accepted(self, document: Document) -> Accepted:
        text = document["schema_source"]
        if "catalog" not in document:  # a server of 0.10
            return accepted(text, accept(text))
        schema_id = SchemaId(document["schema_id"])
        schema = self._decoded.get(schema_id)
        if schema is None:
            catalog = replace(codec.decode(document["catalog"]), schema_id=schema_id)
            schema = Accepted(schema_id, text, catalog)
            self._decoded.put(schema_id, schema)
        return schema

    @checked
    def plan(
        self,
        desired: str | os.PathLike[str],
        *,
        allow_data_loss: bool = False,
        backfill: Mapping[str, str] | None = None,
        branch: str = MAIN,
    ) -> MigrationPlan:
        """The steps from the schema of a branch to another one: the path of a `.pg` file, or
        text."""
        old = self.on(branch).catalog
        plan = plan_migration(
            old, schema_text(desired), allow_data_loss=allow_data_loss, backfill=backfill
        )
        if plan.supported:
            require_valid_backfills(plan, old)
        others = [name for name in self._http.document("/branches")["branches"] if name != branch]
        return noting_branches(plan, old, others)

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
        """Change the schema of a branch, and its data with it, as one commit of that branch."""
        self._session.require_writable()
        self._session.require_own_actor(actor)
        self._session.require_branch(branch)
        text = schema_text(desired)
        body = {
            "schema_source": text,
            "allow_data_loss": allow_data_loss,
            "backfill": backfill,
            "message": message,
            "metadata": metadata,
            "branch": branch,
        }
        done = self._http.write("POST", "/schema/apply", body)
        commit = commit_or_none(done.get("commit"))
        version = done["graph_manifest_version"]
        if commit is None or commit.parent is None:
            return SchemaApplied((), commit, version)
        before = self.at(commit.parent).catalog
        plan = plan_migration(before, text, allow_data_loss=allow_data_loss, backfill=backfill)
        return SchemaApplied(plan.steps, commit, version, plan.hints)
