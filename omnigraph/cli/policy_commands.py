"""`omnigraph policy`: validate a policy, test it, and explain one decision."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.address import cluster_of_scope, graph_uri
from omnigraph.cli.options import Json
from omnigraph.cli.scope import scope
from omnigraph.cli.terminal import plain_errors, show, show_json

if TYPE_CHECKING:
    from omnigraph.policy import Policy

app = typer.Typer(
    name="policy",
    help="Check who may do what.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[str | None, typer.Argument(metavar="FILE", help="The policy (YAML).")]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", metavar="FILE", help="The policy, as an option.")
]


def _policy(
    file: str | None, option: str | None, *, is_servers: bool = False
) -> tuple[str, Policy]:
    """The policy that a command is about, and what it is called: that of a file, or the one that a
    cluster has applied to a graph, or to its server."""
    from omnigraph.policy import Policy

    ways = {"FILE": file, "--policy": option, "--cluster": scope().cluster}
    used = [way for way, value in ways.items() if value is not None]
    if len(used) > 1:
        raise typer.BadParameter(f"{' and '.join(used)} are mutually exclusive: pass one")
    path = file if file is not None else option
    if path is None:
        cluster = cluster_of_scope()
        if cluster is None:
            raise typer.BadParameter("name a policy: pass its file, or --cluster DIR|URI")
        name, text = _applied(cluster, is_servers=is_servers)
        return name, Policy.of_text(text, f"policy '{name}'")
    name = PurePath(path).name
    for end in (".yaml", ".yml", ".policy"):
        name = name.removesuffix(end)
    return name, Policy.of_file(path)


def _applied(cluster: str, *, is_servers: bool) -> tuple[str, str]:
    """The name and the text of a policy that a cluster has applied."""
    from omnigraph.cluster.diagnostics import ClusterRefusal
    from omnigraph.cluster.resources import CLUSTER_SCOPE, graph_address
    from omnigraph.cluster.served_state import applied_ledger, applied_policy, cluster_root

    try:
        objects = cluster_root(cluster)
        bound = CLUSTER_SCOPE
        if not is_servers:
            bound = graph_address(graph_uri().rpartition("/")[2].removesuffix(".omni"))
        return applied_policy(objects, applied_ledger(objects), bound)
    except ClusterRefusal as refusal:
        raise refusal.as_error() from None


@app.command()
def validate(file: File = None, policy: PolicyOption = None, json: Json = False) -> None:
    """Check a policy as a whole."""
    with plain_errors():
        name, rules = _policy(file, policy)
        actors = rules.file.actors
        if json:
            show_json(
                {
                    "ok": True,
                    "bundle": name,
                    "kind": None if rules.file.kind is None else str(rules.file.kind),
                    "actors": len(actors),
                    "groups": len(rules.file.groups),
                    "rules": len(rules.file.rules),
                    "protected_branches": list(rules.file.protected_branches),
                }
            )
            return
        show(f"policy valid: bundle '{name}' [{len(actors)} actors]")


@app.command(name="test")
def run_cases(
    tests: Annotated[str, typer.Option("--tests", metavar="FILE", help="The cases (YAML).")],
    file: File = None,
    policy: PolicyOption = None,
    json: Json = False,
) -> None:
    """Decide every case of a file and compare it with what the file expects."""
    with plain_errors():
        from omnigraph.policy.decisions import policy_file_text
        from omnigraph.policy.policy_cases import parse_cases

        _, rules = _policy(file, policy)
        cases = parse_cases(policy_file_text(tests), tests)
        failures = [failure for case in cases if (failure := case.failure(rules)) is not None]
        if json:
            show_json({"ok": not failures, "cases": len(cases), "failures": failures})
        elif not failures:
            show(f"policy tests passed: {len(cases)} cases")
        else:
            show(f"policy tests failed: {len(failures)} of {len(cases)} cases")
            for failure in failures:
                show(failure)
        if failures:
            raise typer.Exit(1)


@app.command()
def explain(
    actor: Annotated[str, typer.Option("--actor", metavar="ACTOR", help="Who.")],
    action: Annotated[
        str, typer.Option("--action", metavar="ACTION", help="What, such as branch-merge.")
    ],
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="NAME", help="The branch it is about.")
    ] = None,
    target_branch: Annotated[
        str | None, typer.Option("--target-branch", metavar="NAME", help="The one it goes to.")
    ] = None,
    file: File = None,
    policy: PolicyOption = None,
    json: Json = False,
) -> None:
    """Say whether an actor may do an action, and which rule says so."""
    with plain_errors():
        from omnigraph.policy import Action, action_of

        asked = action_of(action)
        _, rules = _policy(file, policy, is_servers=asked is Action.GRAPH_LIST)
        decision = rules.decide(actor, asked, branch, target_branch)
        facts = {
            "decision": "allow" if decision.allowed else "deny",
            "actor": actor,
            "action": str(decision.action),
            "branch": branch,
            "target_branch": target_branch,
            "matched_rule": decision.matched_rule,
            "message": None if decision.allowed else str(decision.denial),
        }
        known = {name: value for name, value in facts.items() if value is not None}
        if json:
            show_json(known)
            return
        for name, value in known.items():
            show(f"{name}: {value}")
