"""Help texts: commands in groups, and an example under the help of each.

Invariant: every command that is not hidden has a group and an example that runs; a summary is a
whole sentence, never cut.
"""

from __future__ import annotations

from typing import Any

import typer
from typer._click.exceptions import NoSuchOption
from typer.core import TyperGroup

GROUPS: dict[str, tuple[str, ...]] = {
    "Begin": ("demo", "init", "load", "query", "mutate", "shell", "export", "ui"),
    "Branches and reviews": ("branch", "review", "tag", "diff"),
    "History": ("commit", "log", "changes", "revert", "restore", "snapshot", "draw"),
    "Schemas and queries": ("schema", "lint", "explain", "fmt", "queries", "blob", "embed"),
    "Upkeep": ("optimize", "cleanup", "check", "repair", "recoveries", "backup"),
    "Servers and agents": (
        *("serve", "mcp", "cluster", "policy", "token"),
        *("login", "logout", "whoami", "graphs", "jobs", "alias"),
    ),
    "This program": ("config", "profile", "completion", "spark", "version"),
}

EXAMPLES = {
    "demo": "omnigraph demo ./demo",
    "init": "omnigraph init kg.omni --schema schema.pg",
    "load": "omnigraph load kg.omni --data people.csv --node Person --mode merge",
    "query": "omnigraph query kg.omni -e 'query q() { match { $p: Person } return { $p.name } }'",
    "mutate": "omnigraph mutate kg.omni -e 'query q() { insert Person { name: \"Ada\" } }'",
    "shell": "omnigraph shell kg.omni",
    "export": "omnigraph export kg.omni --out dump/ --format csv",
    "ui": "omnigraph ui kg.omni",
    "branch create": "omnigraph branch create review/prices kg.omni",
    "branch list": "omnigraph branch list kg.omni",
    "branch merge": "omnigraph branch merge review/prices kg.omni --delete-branch",
    "branch delete": "omnigraph branch delete review/prices kg.omni",
    "review open": "omnigraph review open review/prices kg.omni --title 'New prices'",
    "review list": "omnigraph review list kg.omni --state open",
    "review show": "omnigraph review show 01M7JFWRFY kg.omni",
    "review comment": "omnigraph review comment 01M7JFWRFY 'Too low?' kg.omni --on Product/P-1",
    "review approve": "omnigraph review approve 01M7JFWRFY kg.omni --as act-bob",
    "review merge": "omnigraph review merge 01M7JFWRFY kg.omni",
    "review close": "omnigraph review close 01M7JFWRFY kg.omni",
    "tag create": "omnigraph tag create v1 main~3 kg.omni",
    "tag list": "omnigraph tag list kg.omni",
    "tag delete": "omnigraph tag delete v1 kg.omni",
    "diff": "omnigraph diff main review/prices kg.omni --format stat",
    "commit list": "omnigraph commit list kg.omni --limit 10 --graph",
    "commit show": "omnigraph commit show main~1 kg.omni",
    "commit changes": "omnigraph commit changes main kg.omni --type Person --limit 20",
    "log": "omnigraph log Person Ada kg.omni",
    "changes poll": "omnigraph changes poll kg.omni --start beginning --limit 100",
    "changes baseline": "omnigraph changes baseline kg.omni --out everything.jsonl",
    "changes consumer add": "omnigraph changes consumer add search kg.omni --max-lag 7d",
    "changes consumer list": "omnigraph changes consumer list kg.omni",
    "changes consumer ack": "omnigraph changes consumer ack search kg.omni --cursor CURSOR",
    "changes consumer remove": "omnigraph changes consumer remove search kg.omni",
    "revert": "omnigraph revert main kg.omni --dry-run",
    "restore": "omnigraph restore v1 kg.omni --types Person",
    "snapshot": "omnigraph snapshot kg.omni --branch main~3",
    "draw commits": "omnigraph draw commits kg.omni > commits.svg",
    "draw schema": "omnigraph draw schema kg.omni > schema.svg",
    "draw entity": "omnigraph draw entity Person Ada kg.omni > ada.svg",
    "draw diff": "omnigraph draw diff main review/prices kg.omni > diff.svg",
    "schema check": "omnigraph schema check schema.pg",
    "schema plan": "omnigraph schema plan kg.omni --schema next.pg",
    "schema apply": "omnigraph schema apply kg.omni --schema next.pg -m 'People have cities'",
    "schema show": "omnigraph schema show kg.omni",
    "schema diff": "omnigraph schema diff main next kg.omni",
    "lint": "omnigraph lint kg.omni --query queries.gq",
    "explain": "omnigraph explain kg.omni --query queries.gq",
    "fmt": "omnigraph fmt schema.pg queries.gq --check",
    "queries list": "omnigraph queries list --queries queries/ --store kg.omni",
    "queries validate": "omnigraph queries validate --queries queries/ --store kg.omni",
    "blob get": "omnigraph blob get node Person Ada photo kg.omni --out ada.png",
    "blob stat": "omnigraph blob stat node Person Ada photo kg.omni",
    "embed": "omnigraph embed kg.omni --type Doc",
    "optimize": "omnigraph optimize kg.omni",
    "cleanup": "omnigraph cleanup kg.omni --keep 10 --older-than 7d --confirm",
    "check": "omnigraph check kg.omni",
    "repair": "omnigraph repair kg.omni --confirm",
    "recoveries": "omnigraph recoveries kg.omni",
    "backup": "omnigraph backup kg.omni kg.backup",
    "serve": "omnigraph serve kg.omni --unauthenticated",
    "mcp": "omnigraph mcp kg.omni --read-only",
    "cluster validate": "omnigraph cluster validate --config prod/",
    "cluster plan": "omnigraph cluster plan --config prod/",
    "cluster apply": "omnigraph cluster apply --config prod/ --as act-ada",
    "cluster approve": "omnigraph cluster approve graph:kg --config prod/ --as act-ada",
    "cluster status": "omnigraph cluster status --config prod/",
    "cluster refresh": "omnigraph cluster refresh --config prod/",
    "cluster import": "omnigraph cluster import --config prod/",
    "cluster force-unlock": "omnigraph cluster force-unlock LOCK_ID --config prod/",
    "policy validate": "omnigraph policy validate policy.yaml",
    "policy test": "omnigraph policy test policy.yaml --tests cases.yaml",
    "policy explain": "omnigraph policy explain policy.yaml --actor act-ada --action read",
    "token create": "omnigraph token create act-ada --tokens tokens.json",
    "token revoke": "omnigraph token revoke act-ada --tokens tokens.json",
    "token list": "omnigraph token list --tokens tokens.json",
    "login": "omnigraph login prod < token.txt",
    "logout": "omnigraph logout prod",
    "whoami": "omnigraph whoami --server prod",
    "graphs list": "omnigraph graphs list --server prod",
    "jobs start": "omnigraph jobs start optimize --server prod --graph kg --wait",
    "jobs list": "omnigraph jobs list --server prod --graph kg",
    "jobs show": "omnigraph jobs show 01M7JFWRFY --server prod --graph kg",
    "jobs wait": "omnigraph jobs wait 01M7JFWRFY --server prod --graph kg",
    "jobs cancel": "omnigraph jobs cancel 01M7JFWRFY --server prod --graph kg",
    "alias": "omnigraph alias who Ada",
    "config": "omnigraph config --env",
    "profile list": "omnigraph profile list",
    "profile show": "omnigraph profile show staging",
    "completion": 'eval "$(omnigraph completion bash)"',
    "spark package": "omnigraph spark package --out omnigraph.zip",
    "version": "omnigraph version --json",
}
"""A command line for each command, which its help shows."""


class GroupedHelp(TyperGroup):
    """A group of commands whose help lists them under headings, each with its whole sentence, and
    that answers a slip with the command that is near, never with one that shares some letters."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shown = {
            name: self.summary(command)
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None and not command.hidden
        }
        groups = GROUPS if ctx.parent is None else {"Commands": tuple(shown)}
        for title, names in groups.items():
            rows = [(name, shown[name]) for name in names if name in shown]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that a word names, or the failure with the command that is near."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            from omnigraph.cli.suggestions import command_hint

            shown = [each for each, command in self.commands.items() if not command.hidden]
            hint = command_hint(name, shown, is_top=ctx.parent is None)
            ctx.fail(f"No such command '{name}'. {hint}".rstrip())
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; of an option that it does not have, suggest the one that is meant."""
        try:
            return super().invoke(ctx)
        except NoSuchOption as wrong:
            from omnigraph.cli.suggestions import option_hint

            known = [] if wrong.ctx is None else wrong.ctx.command.params
            options = [
                name for each in known if not getattr(each, "hidden", False) for name in each.opts
            ]
            hint = option_hint(wrong.option_name, options)
            wrong.possibilities = []
            wrong.message += f". {hint}" if hint else ""
            raise

    @staticmethod
    def summary(command: Any) -> str:
        """The first sentence of a command's help."""
        paragraph = (command.help or "").partition("\n\n")[0]
        sentence, end, _ = " ".join(paragraph.split()).partition(". ")
        return f"{sentence}." if end else sentence


def add_to(app: typer.Typer, path: str = "") -> None:
    """Give every command below an app its example, and every group the grouped help."""
    for command in app.registered_commands:
        name = command.name or _spelled(command.callback)
        example = EXAMPLES.get(f"{path}{name}")
        if example is not None and not command.hidden:
            command.epilog = f"\b\nExample:\n  {example}"
    for group in app.registered_groups:
        inner = group.typer_instance
        if inner is not None:
            group.cls = GroupedHelp
            add_to(inner, f"{path}{_name_of(inner)} ")


def _name_of(app: typer.Typer) -> str:
    return str(app.info.name)


def _spelled(callback: Any) -> str:
    return str(callback.__name__).replace("_", "-")
