"""Places where a test may stop the program: by an error, or by kill -9.

Invariant: nothing fires unless a test armed it by name, through `armed` or through the environment
variable `OMNIGRAPH_FAILPOINTS` (`name=kill`, `name=raise@2` for the second hit, `;` between them).
Every name is listed here, so that the crash tests cannot miss one.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph import environment
from omnigraph.errors import BadRequest
from omnigraph.light_dataclass import dataclass

COMMIT = (
    "commit.locked",
    "commit.checked",
    "sidecar.put",
    "commit.sidecar_written",
    "commit.table_before",
    "commit.table_after",
    "commit.tables_done",
    "publish.before",
    "publish.staged",
    "publish.after",
    "sidecar.delete",
    "commit.sidecar_deleted",
)
"""Every step of one commit of single-version tables, in order."""

CONFIRM = ("commit.step_before", "commit.step_after", "sidecar.confirm", "commit.confirmed")
"""The further steps of a commit that gives a table several versions."""

FORK = ("fork.before", "fork.after")
"""Around the Lance branch a table gets on its first write there."""

RECOVER = (
    "sidecar.list",
    "recover.locked",
    "recover.restore_before",
    "recover.restore_after",
    "recover.publish_before",
    "recover.publish_after",
    "recover.audit",
    "recover.audit_after",
    "recover.delete_before",
)
"""Every step of settling one sidecar."""

BRANCH = ("branch.create_before", "branch.create_after", "branch.delete_before", "branch.ref_gone")
FOLD = ("fold.manifest_before", "fold.manifest_after", "fold.table_before", "fold.table_after")
UPKEEP = ("upkeep.task", "upkeep.manifest_before", "upkeep.manifest_after")
REPAIR = ("repair.publish", "repair.sidecar_written")
CLEANUP = ("cleanup.table", "cleanup.manifest", "cleanup.schemas")
PROMOTE = ("promote.file",)
RECLAIM = ("reclaim.table",)
INIT = ("init.tables", "init.objects", "init.manifest")
BACKUP = ("backup.data", "backup.marked", "backup.versions", "backup.complete")

CLUSTER = (
    "cluster.locked",
    "cluster.swept",
    "cluster.planned",
    "cluster.intent_written",
    "cluster.graph_half_deleted",
    "cluster.graph_moved",
    "cluster.payload_before",
    "cluster.payload_written",
    "cluster.state_before",
    "cluster.state_written",
    "cluster.approval_consumed",
    "cluster.intent_deleted",
    "cluster.unlocking",
)
"""Every step of the apply of a cluster."""

DERIVED = ("derived.begun", "derived.written", "derived.renamed")
"""Every step of writing one derived file."""

NAMES = frozenset(
    {*COMMIT, *CONFIRM, *FORK, *RECOVER, *BRANCH, *FOLD, *UPKEEP, *REPAIR, *CLEANUP}
    | {*PROMOTE, *RECLAIM, *INIT, *BACKUP, *CLUSTER, *DERIVED}
)


class Injected(OSError):
    """The fault a test asked for. It is an OSError, as a failing disk would raise."""


@dataclass(slots=True)
class _Arm:
    action: str
    countdown: int


_armed: dict[str, _Arm] = {}


def hit(name: str) -> None:
    """Pass, unless a test armed this place."""
    if not _armed:
        return
    arm = _armed.get(name)
    if arm is None:
        return
    arm.countdown -= 1
    if arm.countdown == 0:
        _fire(name, arm.action)


def arm(name: str, action: str, nth: int = 1) -> None:
    """Let the `nth` hit of a place fire. `action` is `raise` or `kill`."""
    if name not in NAMES or action not in ("raise", "kill"):
        raise ValueError(f"no failpoint {name}={action}")
    _armed[name] = _Arm(action, nth)


def disarm() -> None:
    """Forget every armed place."""
    _armed.clear()


@contextmanager
def armed(name: str, action: str = "raise", nth: int = 1) -> Iterator[None]:
    """Arm one place for the length of a block."""
    arm(name, action, nth)
    try:
        yield
    finally:
        _armed.pop(name, None)


def _fire(name: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise Injected(f"failpoint {name}")


def _arm_from_environment(text: str) -> None:
    for part in filter(None, text.split(";")):
        name, _, rest = part.partition("=")
        action, _, nth = rest.partition("@")
        try:
            arm(name.strip(), action.strip(), int(nth or 1))
        except ValueError:
            raise BadRequest(
                f"{environment.FAILPOINTS.name} is '{text}'", "unset it: it is for tests"
            ) from None


_arm_from_environment(environment.FAILPOINTS.read() or "")
