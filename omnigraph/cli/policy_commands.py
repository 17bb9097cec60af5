"""`omnigraph policy`: validate a policy, test it, and explain one decision."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import Json
from omnigraph.cli.scope import scope
from omnigraph.cli.terminal import plain_errors, show, show_json
from omnigraph.errors import BadRequest

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


def _policy(file: str | None, option: str | None) -> tuple[str, Policy]:
    """The policy that a command is about, and what it is called."""
    from omnigraph.policy import Policy

    if file is not None and option is not None:
        raise typer.BadParameter("FILE and --policy are mutually exclusive: pass one")
    path = file if file is not None else option
    if path is None:
        if scope().cluster is not None:
            raise BadRequest("clusters come with a later release", "pass the policy's file")
        raise typer.BadParameter("name a policy: pass its file")
    name = PurePath(path).name
    for end in (".yaml", ".yml", ".policy"):
        name = name.removesuffix(end)
    return name, Policy.of_file(path)


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
        from omnigraph.policy import action_of

        _, rules = _policy(file, policy)
        decision = rules.decide(actor, action_of(action), branch, target_branch)
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
