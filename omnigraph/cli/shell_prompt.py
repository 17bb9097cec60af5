"""Interactive prompt of the shell: line editing, history and completion, with prompt_toolkit.

Invariant: this file talks to prompt_toolkit and knows nothing of graphs but their names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from omnigraph.cli.config import home
from omnigraph.cli.shell import COMMANDS, Finished, is_finished, show_failure
from omnigraph.errors import OmnigraphError
from omnigraph.plan.query_words import Suggester

if TYPE_CHECKING:
    from omnigraph.cli.shell import Session


class Completing(Completer):
    """Words of the language and names of the schema."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.startswith(".") and " " not in before:
            for name, about in COMMANDS.items():
                if name.startswith(before):
                    yield Completion(name, -len(before), display_meta=about)
            return
        command, space, typed = before.partition(" ")
        if space and command in (".branch", ".merge", ".diff"):
            typed = typed.rpartition(" ")[2]
            for name in self._session.graph.branches.list():
                if name.startswith(typed):
                    yield Completion(name, -len(typed))
            return
        typed, words = Suggester(self._session.graph.schema.on(self._session.branch).catalog).next(
            before
        )
        for word in words:
            yield Completion(word.text, -len(typed), display_meta=word.about)


def converse(session: Session) -> None:
    """Ask, do, show, until the user leaves."""
    prompt: PromptSession[str] = PromptSession(
        history=_history(),
        completer=Completing(session),
        complete_while_typing=False,
        multiline=True,
        key_bindings=_keys(),
        prompt_continuation="... ",
    )
    name = Path(session.uri.rstrip("/")).name
    sys.stderr.write(f"{session.uri}, branch {session.branch}. Type .help for help.\n")
    while True:
        try:
            text = prompt.prompt(f"{name}:{session.branch}> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            session.run(text)
        except Finished:
            return
        except OmnigraphError as cause:
            show_failure(cause)
        except KeyboardInterrupt:
            sys.stderr.write("interrupted\n")


def _keys() -> KeyBindings:
    """Enter runs what is whole and opens a line in what is not."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_finished(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def _history() -> History:
    folder = home()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "shell_history"
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
