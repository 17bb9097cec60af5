"""Access control of a handle: its actor is asked for before each verb of a graph does its work.

Invariant: a verb asks once, first, about the branch that it is really about: a name is asked for
trimmed, as storage trims it, and a point in time as the branch that owns its commit; one that is
not there as the branch that it names, so that a denial does not tell. With a policy and no actor,
nothing is allowed. A handle of an actor writes as that actor and as no other.
"""

import os
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest, Forbidden, NotFound, UnknownPoint
from omnigraph.exec.points import POINT, Points, named_branch
from omnigraph.policy.actions import Action, PolicyKind
from omnigraph.storage.names import MAIN, require_actor
from omnigraph.storage.records import TRANSACTIONS, Snapshot
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from omnigraph.policy.decisions import Policy
else:
    Policy = deferred("omnigraph.policy.decisions", "Policy")


def ask(
    policy: Policy,
    actor: str | None,
    action: Action,
    branch: str | None = None,
    target: str | None = None,
) -> None:
    """Pass if a policy allows an action, else raise `Forbidden`. Names are taken as storage takes
    them, without spaces around them."""
    branch = None if branch is None else branch.strip()
    target = None if target is None else target.strip()
    policy.decide(actor, action, branch, target).require()


def _is_in_transaction(store: Store, name: str) -> bool:
    """Whether a branch is that of a transaction under way in a process, which becomes part of
    another branch at its end."""
    return name.startswith(TRANSACTIONS) and store.owned_branches.is_owned(name)


class PolicyGuard:
    """What the actor of one handle may do; without a policy, everything."""

    def __init__(
        self,
        store: Store,
        policy: Policy | None = None,
        actor: str | None = None,
        *,
        is_exempt: bool = False,
    ) -> None:
        require_actor(actor)
        self.is_exempt = is_exempt  # a merge ends a transaction, and is no merge of branches
        self._store = store
        self.points = Points(store, partial(may_list, self))
        self.policy = policy
        self.actor = actor

    # ---- questions

    def require(
        self,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        actor: str | None = None,
    ) -> str | None:
        """Pass if the action is allowed, else raise `Forbidden`; the actor that does it."""
        acting = self._acting(actor)
        if self.policy is None:
            return acting
        ask(self.policy, acting, action, branch, target)
        for name in (branch, target):
            if name is not None and _is_in_transaction(self._store, name.strip()):
                raise Forbidden(action, acting, branch, target)
        return acting

    def _acting(self, actor: str | None) -> str | None:
        """The actor of a call: as given, else that of the handle."""
        if actor is None:
            return self.actor
        require_actor(actor)
        if self.policy is not None and self.actor not in (None, actor):
            raise BadRequest(
                f"this handle acts as '{self.actor}', not as '{actor}'", "open one with that actor"
            )
        return actor

    def lifted(self) -> "PolicyGuard":
        """The same actor without a policy, for work that was asked about as a whole."""
        return PolicyGuard(self._store, None, self.actor, is_exempt=True)

    def another(self, policy: Policy | None, actor: str | None) -> "PolicyGuard":
        """A guard of the same graph for another actor."""
        return PolicyGuard(self._store, policy, actor)

    def require_ever(
        self,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        actor: str | None = None,
    ) -> None:
        """Refuse before anything is looked for, if no branch could be allowed."""
        acting = self._acting(actor)
        if self.policy is not None and not self.policy.may_ever(acting, action):
            ask(self.policy, acting, action, branch, target)

    # ---- reads

    def reads_graph(self) -> None:
        """A read that is about no branch."""
        self.require(Action.READ)

    def reads(self, branch: str) -> None:
        """A read of a branch."""
        self.require(Action.READ, branch)

    def reads_each(self, branches: Iterable[str], actor: str | None = None) -> None:
        """A read of several branches, asked about before any of them is looked for."""
        for branch in branches:
            self.require(Action.READ, branch, actor=actor)

    def may_read_each(self, branches: Iterable[str]) -> bool:
        """Return whether the actor of the handle may read all of these branches."""
        try:
            self.reads_each(branches)
        except Forbidden:
            return False
        return True

    def reads_point(self, point: str) -> None:
        """A read of the history that leads to a point in time."""
        if self.policy is not None:
            self.require_ever(Action.READ, point)
            try:
                owner = self.points.snapshot(point, kind="branch").branch
            except UnknownPoint:
                _deny_alike(self, point, Action.READ)
                raise
            self.require(Action.READ, owner)

    def pinned(
        self,
        branch: str | None,
        snapshot: str | None,
        action: Action = Action.READ,
        since: float | None = None,
    ) -> Snapshot:
        """What a read or an export sees, once it is allowed."""
        self.require_ever(action, branch if snapshot is None else None)
        try:
            pinned = self.points.pinned(branch, snapshot, since)
        except UnknownPoint:
            _deny_alike(self, snapshot or branch or MAIN, action)
            raise
        self.require(action, pinned.branch)
        return pinned

    def seen(self, point: str) -> Snapshot:
        """What a read at a point in time sees, once it is allowed."""
        self.require_ever(Action.READ, point)
        try:
            pinned = self.points.snapshot(point, kind=POINT)
        except UnknownPoint:
            _deny_alike(self, point, Action.READ)
            raise
        self.require(Action.READ, pinned.branch)
        return pinned

    def exports_graph(self) -> None:
        """A copy of the whole graph."""
        self.require(Action.EXPORT)

    # ---- writes: each gives the actor of the commit

    def changes(self, branch: str, actor: str | None = None) -> str | None:
        """A write of rows to a branch."""
        return self.require(Action.CHANGE, branch, actor=actor)

    def copies(self, source: str | None, branch: str) -> None:
        """A write that brings a branch what another one had: it shows what it brings."""
        if (source or MAIN) != branch.strip():
            self.require(Action.READ, source or MAIN)

    def loads(
        self, branch: str, base: str | None, actor: str | None
    ) -> tuple[str | None, str | None]:
        """A load, which forks a branch that is missing: the actor, and the branch to fork from."""
        acting = self.changes(branch, actor)
        if self.policy is None or base is None:
            return acting, base
        try:
            self._store.snapshot(branch)
        except NotFound:
            self.creates(branch, base, acting)
            return acting, base
        # Should it vanish meanwhile, it is missing: nobody was asked whether it may be made.
        return acting, None

    def creates(self, name: str, base: str, actor: str | None = None) -> None:
        """A new branch, or a tag, of a point in time."""
        if self.policy is not None:
            self.require_ever(Action.BRANCH_CREATE, base, name, actor)
            source = self.points.snapshot(base, kind="branch").branch
            self.require(Action.BRANCH_CREATE, source, name, actor)

    def deletes(self, name: str) -> None:
        """The end of a branch or a tag."""
        self.require(Action.BRANCH_DELETE, target=name)

    def merges(self, source: str, into: str, actor: str | None = None) -> str | None:
        """A merge of one branch into another."""
        return self.require(Action.BRANCH_MERGE, source, into, actor)

    def applies_schema(self, branch: str, actor: str | None = None) -> str | None:
        """A change of the schema of a branch."""
        return self.require(Action.SCHEMA_APPLY, target=branch, actor=actor)

    def administers(self, actor: str | None = None) -> str | None:
        """Upkeep that is about no branch and can take something away."""
        return self.require(Action.ADMIN, actor=actor)


def may_list(guard: PolicyGuard) -> bool:
    """Whether the actor of a handle may see which branches there are."""
    return guard.policy is None or guard.policy.decide(guard.actor, Action.READ).allowed


def _deny_alike(guard: PolicyGuard, point: str, action: Action) -> None:
    """Deny a branch that is not there as one that is."""
    name = named_branch(point)
    if name is not None:
        guard.require(action, name)


def policy_of(given: str | os.PathLike[str] | Policy | None) -> Policy | None:
    """A policy for one graph: as it is, or from its file."""
    if given is None:
        return None
    if isinstance(given, Policy):
        if given.file.kind is PolicyKind.SERVER:
            raise BadRequest("this policy is for a server, not for a graph", "pass another one")
        return given
    return Policy.of_file(given, PolicyKind.GRAPH)
