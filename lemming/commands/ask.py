"""`lemming ask` and `lemming chat`: questions are put, who is at work on them, what came of them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from lemming.asking.questions import AskOutcome, AtWork
from lemming.asking.questions import ask as ask_and_wait
from lemming.capabilities.requests.costs import costs_of
from lemming.capabilities.requests.now import request_shown, requests_now
from lemming.capabilities.requests.people import person_for, require_reach
from lemming.commands.failures import guarded
from lemming.commands.narration import NO_CREDITS, NO_PROVIDER, NOBODY_USABLE, Watched, line_of_start
from lemming.commands.options import (
    AgentName,
    AsPerson,
    Here,
    Quiet,
    Trust,
    Watch,
    argument,
    duration,
    option,
    require_folder,
    text_typed,
    ticks_or_time,
)
from lemming.commands.progress import TurnProgress
from lemming.commands.screen import one_line, show_json, show_pretty, show_text, tell
from lemming.commands.session import CommandSession
from lemming.commands.stopping import stop_on_signals
from lemming.commands.trust import require_agreement
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import UsageError, is_of_a_provider
from lemming.kernel.base.json_schema.violations import flaw_of
from lemming.kernel.base.jsontext import DEFAULT_LIMIT_BYTES, JsonProblem, parse
from lemming.kernel.journal.events import Event, ModelWrote, ProblemFound, TickBegins
from lemming.kernel.journal.records import TurnEnded
from lemming.kernel.org.organisation import OrgPath
from lemming.service.under_way import running_engine

NOT_ANSWERED, NO_ANSWER_YET = 1, 9


@dataclass
class Watcher:
    """Tells who is at work on a question, and which of their turns fail."""

    quiet: bool = False
    holders: tuple[str, ...] = ()
    id: str = ""
    progress: TurnProgress = field(default_factory=lambda: TurnProgress(is_shown=False))
    _failed: set[str] = field(default_factory=set)
    _watched: Watched = field(default_factory=Watched)

    def asked(self, id_: str) -> None:
        """Note the id of the question, once it is written."""
        self.id = id_

    def at_work(self, work: AtWork) -> None:
        """Say who has to do something before the next tick."""
        self.holders = work.holders
        self.progress.at_work(() if work.waits else work.holders)
        if not self.quiet and work.waits:
            self.progress.tell(f"  tick {work.tick}: {one_line(work.waits, 400)}", style="dim")
        elif not self.quiet and work.holders:
            verb = "is" if len(work.holders) == 1 else "are"
            line = f"  tick {work.tick}: {', '.join(work.holders)} {verb} at work"
            self.progress.tell(line, style="dim")

    def hear(self, event: Event) -> None:
        """Take an event of the engine."""
        self.progress.hear(event)
        if isinstance(event, ModelWrote) and not self.progress.is_shown:
            self._watched.hear(event, len(event.agent))
            return
        if isinstance(event, TurnEnded):
            self._watched.end(event.report.agent, len(event.report.agent))
        if isinstance(event, TurnEnded) and event.report.status == "failed":
            text = f"  {event.report.agent} failed: {one_line(event.report.reason, 400)}"
        elif isinstance(event, ProblemFound) and not self.quiet:
            text = f"  {one_line(str(event.problem), 400)}"
        elif isinstance(event, TickBegins) and event.turns_left is not None and not self.quiet:
            self.progress.tell(f"  {line_of_start(event)}", style="dim")
            return
        else:
            return
        if text not in self._failed:
            self._failed.add(text)
            self.progress.tell(text, style="yellow")


def agree_to_run(base: OrgPath, *, trusts: bool, can_ask: bool) -> None:
    """Ask for what running reaches outside, unless another engine does the running."""
    if trusts or running_engine(base) is None:
        require_agreement(base, trusts=trusts, can_ask=can_ask)


def put(base: OrgPath, agent: str, text: str, *, quiet: bool, **options: Any) -> tuple[AskOutcome[Any], int]:
    """Ask something and wait for the answer; return what came of it and the exit status that says so."""
    watches = bool(options.pop("watch", False)) and not quiet  # then lines of the answer are shown
    is_shown = sys.stderr.isatty() and not (quiet or watches)
    watcher = Watcher(quiet, progress=TurnProgress(is_shown=is_shown))
    with stop_on_signals(quiet=quiet) as switch, watcher.progress.shown():
        outcome = ask_and_wait(
            base,
            agent,
            text,
            stop=switch.stop,
            notify=watcher.hear,
            at_work=watcher.at_work,
            asked=watcher.asked,
            watch=watches or is_shown,
            **options,
        )
    return outcome, switch.exit_status if outcome.why == "stopped" else status_of(outcome)


def status_of(outcome: AskOutcome[Any]) -> int:
    """Return the exit status for what came of a question. See docs/cli.md."""
    if outcome.has_answer:
        return 0
    if outcome.end not in (None, "failed"):
        return NOT_ANSWERED
    if outcome.error in ("OutOfCredits", "LimitReached"):
        return NO_CREDITS
    is_out_of_reach = is_of_a_provider(outcome.error) and outcome.error in NOBODY_USABLE
    return NO_PROVIDER if is_out_of_reach else NOT_ANSWERED if outcome.end else NO_ANSWER_YET


def show_answer(outcome: AskOutcome[Any]) -> None:
    """Print the answer to standard output; where there is none, say why, and how to come back."""
    request = outcome.request
    if outcome.has_answer:
        if outcome.end == "expired":
            tell(f"{' and '.join(request.targets)} did not answer in time; this was laid down for then:")
        show_text(outcome.answer) if isinstance(outcome.answer, str) else show_pretty(outcome.answer)
        return
    tell(one_line(outcome.why_unanswered, 1000), style="yellow")
    if outcome.end is None:
        tell(
            f"it stays open: `lemming requests {request.id}` shows it, `lemming cancel {request.id}` ends it"
        )


Conversation = Annotated[
    str, option("--conversation NAME", "Keep it together with what was asked under this name.")
]
Timeout = Annotated[
    float | None,
    option(
        "--timeout DURATION", "Wait no longer: 90 (seconds), 10m, 2h. Default: for ever.", parser=duration
    ),
]
Deadline = Annotated[
    Any,
    option(
        "--deadline TICKS|DURATION",
        "It expires so many ticks after this one, or after 30m, 2h.",
        parser=ticks_or_time,
    ),
]


def ask(
    here: Here,
    agent: AgentName,
    text: Annotated[list[str], argument("TEXT", 'What to ask; "-" reads it from standard input.')],
    person: AsPerson = None,
    conversation: Conversation = "",
    timeout: Timeout = None,
    deadline: Deadline = None,
    schema: Annotated[
        Path | None, option("--schema FILE", "The JSON Schema that the answer must satisfy.")
    ] = None,
    budget: Annotated[
        str | None,
        option(
            "--budget AMOUNT", 'What it may cost, with all that is asked for it: credits, or "9000 tokens".'
        ),
    ] = None,
    watch: Watch = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Ask an agent something, as a person, and print the answer.

    Ticks are run until the answer is there; where an engine runs already, it does that. Who is at work is
    said on standard error; on a terminal also for how long, how long it may take, which tools are called, and
    the words as they come. Ctrl-C leaves the request open, and says how to come back to it.

    Exit status: 0 answered; 1 it failed, was refused or cancelled, or expired; 9 no answer yet, the request
    stays open; 5 no model could be asked; 6 whoever holds it is out of credits.

    \b
    Examples:
      lemming ask editor "Which story leads today?"
      lemming ask editor --watch "And why?"
      lemming ask editor --timeout 5m --conversation ferry "And tomorrow?"
      lemming ask editor --schema verdict.json --json "Is it true?" | jq .answer
    """
    base = here.org
    require_folder(base, agent)
    said = " ".join(text)
    options: dict[str, Any] = {"schema": _schema_in(schema)} if schema else {}
    options["budget"] = _amount(budget)
    agree_to_run(base, trusts=trust, can_ask=not here.as_json and said != "-")
    outcome, status = put(
        base,
        agent,
        text_typed(text),
        quiet=quiet,
        person=person,
        conversation=conversation,
        timeout_s=timeout,
        deadline=deadline,
        watch=watch,
        **options,
    )
    if here.as_json:
        now = requests_now(base)
        facts = request_shown(
            outcome.request, now, costs_of(base, [it for _, it in now.requests.tree(outcome.request)])
        )
        shown = {
            "answer": outcome.answer,
            "why": outcome.why,
            "reason": outcome.reason,
            "error": outcome.error,
        }
        show_json("answer", {**facts, **shown})
    else:
        show_answer(outcome)
    raise typer.Exit(status)


def _amount(typed: str | None) -> float | str | None:
    """Return a budget as it was typed: a number is credits."""
    try:
        return None if typed is None else float(typed)
    except ValueError:
        return typed


def _schema_in(file: Path) -> dict[str, Any]:
    """Return the JSON Schema in a file; raise `UsageError` for what is none."""
    try:
        with file.open("rb") as opened:
            schema = parse(opened.read(DEFAULT_LIMIT_BYTES + 1), allow_bom=True)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint="--schema FILE") from error
    except JsonProblem as error:
        raise UsageError(f"{file} is not JSON: {error.message} (line {error.line})") from error
    if not isinstance(schema, dict):
        raise UsageError(f"{file} holds no JSON Schema", hint="it is a JSON object")
    flaw, pointer = flaw_of(schema)
    if flaw:
        raise UsageError(
            f"{file}{pointer and ' ' + pointer}: {flaw}", hint="json-schema.org says what a schema is"
        )
    return schema


def chat(
    here: Here,
    agent: AgentName,
    person: AsPerson = None,
    conversation: Annotated[
        str, option("--conversation NAME", "Go on with this one. Default: a new one.")
    ] = "",
    timeout: Timeout = None,
    watch: Watch = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Talk with an agent: each line is a question, and the next one is read when it is answered.

    The agent is shown what was said before in the same conversation. Ctrl-D or `/quit` ends it. Lines may
    come from a pipe. On a terminal a line such as `/approve 3fa9`, `/waiting` or `/cost` is that command of
    lemming, `/help` lists them, and `//` begins a text with a slash. Exit status: that of the last question
    without an answer, as of `lemming ask`; else 0.

    \b
    Examples:
      lemming chat editor
      printf 'Who leads?\\nWhy?\\n' | lemming chat editor --conversation ferry
    """
    base = here.org
    require_folder(base, agent)
    now = requests_now(base)
    person = person_for(now, person)
    require_reach(now, person, agent)
    agree_to_run(base, trusts=trust, can_ask=not here.as_json and sys.stdin.isatty())
    name = conversation or SystemClock().now().strftime("chat-%Y%m%d-%H%M%S")
    if not quiet:
        tell(f"conversation {name} of {person} with {agent}; Ctrl-D ends it", style="dim")
    status = 0
    for text in _lines():
        if _is_typed() and text in ("/quit", "/exit"):
            break
        if _is_typed() and text.startswith("/") and not text.startswith("//"):
            _run_command(here.context, text[1:])
            continue
        text = text.removeprefix("/") if _is_typed() and text.startswith("//") else text
        outcome, ended = put(
            base,
            agent,
            text,
            quiet=quiet,
            person=person,
            conversation=name,
            timeout_s=timeout,
            watch=watch,
        )
        if not here.shows(
            "answer", {"id": outcome.id, "end": outcome.end, "answer": outcome.answer, "why": outcome.why}
        ):
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
    session: CommandSession = root.obj

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
