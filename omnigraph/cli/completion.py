"""`omnigraph completion`: the script that completes commands in a shell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from omnigraph import environment
from omnigraph.cli.terminal import show


class ShellName(StrEnum):
    """The shells that scripts exist for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def prepare() -> None:
    """Teach the program to answer a shell, if it was called by one that completes."""
    if environment.COMPLETE.read() is not None:
        from typer._completion_classes import completion_init

        completion_init()


def completion(
    shell: Annotated[ShellName, typer.Argument(help="Which shell.")],
) -> None:
    """Print the script that completes commands in a shell.

    For bash: eval "$(omnigraph completion bash)", once or in ~/.bashrc.
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(
        prog_name="omnigraph", complete_var=environment.COMPLETE.name, shell=str(shell)
    )
    show(script.strip("\n"))
