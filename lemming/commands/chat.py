"""`lemming chat`: one question after another, in one conversation."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from lemming.base.clock import SystemClock
from lemming.base.errors import UsageError
from lemming.capabilities.requests.now import requests_now
from lemming.capabilities.requests.people import person_for, require_reach
from lemming.commands.ask import Timeout
from lemming.commands.failures import guarded
from lemming.commands.options import AgentName, AsPerson, Quiet, Trust, option
from lemming.commands.org import find_org, require_folder
from lemming.commands.question import agree_to_run, put, show_answer
from lemming.commands.screen import show_json, tell
from lemming.commands.session import Session


def chat(
    ctx: typer.Context,
    agent: AgentName,
    person: AsPerson = None,
    conversation: Annotated[
        str, option("--conversation NAME", "Go on with this one. Default: a new one.")
    ] = "",
    timeout: Timeout = None,
    trust: Trust = False,
    as_json: Annotated[bool, option("--json", "Print JSON, one object an answer.")] = False,
    quiet: Quiet = False,
) -> None:
    """Talk with an agent: each line is a question, and the next one is read when it is answered.

    The agent is shown what was said before in the same conversation. Ctrl-D or `/quit` ends it. Lines may
    come from a pipe. On a terminal a line such as `/approve 3fa9`, `/waiting` or `/cost` is that command of
    lemming, `/help` lists them, and `//` begins a line with a stroke. Exit status: that of the last question
    without an answer, as of `lemming ask`; else 0.

    \b
    Examples:
      lemming chat editor
      printf 'Who leads?\\nWhy?\\n' | lemming chat editor --conversation ferry
    """
    base = find_org(ctx)
    require_folder(base, agent)
    now = requests_now(base)
    person = person_for(now, person)
    require_reach(now, person, agent)
    if not trust:
        agree_to_run(base, can_ask=not as_json and sys.stdin.isatty())
    name = conversation or SystemClock().now().strftime("chat-%Y%m%d-%H%M%S")
    if not quiet:
        tell(f"conversation {name} of {person} with {agent}; Ctrl-D ends it", style="dim")
    status = 0
    for text in _lines():
        if _is_typed() and text in ("/quit", "/exit"):
            break
        if _is_typed() and text.startswith("/") and not text.startswith("//"):
            _run_command(ctx, text[1:])
            continue
        text = text.removeprefix("/") if _is_typed() and text.startswith("//") else text
        outcome, ended = put(
            base, agent, text, quiet=quiet, person=person, conversation=name, timeout_s=timeout
        )
        if as_json:
            show_json(
                "answer", {"id": outcome.id, "end": outcome.end, "answer": outcome.answer, "why": outcome.why}
            )
        else:
            show_answer(outcome)
        status = ended or status
        if outcome.why == "stopped":
            break
    raise typer.Exit(status)


def _is_typed() -> bool:
    """Return whether a person types the lines: what comes from a pipe is a question, whatever is in it."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _run_command(ctx: typer.Context, line: str) -> None:
    """Run a line as a command of lemming on this organisation; an error in it is told, and ends nothing."""
    root = ctx.find_root()
    session: Session = root.obj

    def work() -> int:
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"{error}: {line}", hint="close what is quoted") from error
        if words[:1] == ["chat"]:
            raise UsageError("this is a chat already", hint="Ctrl-D ends it")
        if not words or words[0] == "help":
            words = [*words[1:], "--help"]
        status = root.command.main(words, "lemming", standalone_mode=False, obj=session)
        return status if isinstance(status, int) else 0

    guarded(work, session, as_json=False)


def _lines() -> Iterator[str]:
    """Yield what is typed, line by line, without empty lines."""
    if not _is_typed():
        yield from filter(None, map(str.strip, sys.stdin))
        return
    import readline  # noqa: F401 - for editing the line

    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            return
        if text:
            yield text
