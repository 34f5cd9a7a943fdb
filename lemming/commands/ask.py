"""`lemming ask` and `lemming chat`: ask questions, show progress and print the answers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from lemming.client.ask_client import AskOutcome, WorkProgress
from lemming.client.ask_client import ask as ask_and_wait
from lemming.commands.command_context import (
    AgentName,
    AsPerson,
    CommandContext,
    Quiet,
    Trust,
    Watch,
    argument,
    join_text_argument,
    option,
    parse_seconds,
    parse_ticks_or_duration,
    require_agent_folder,
)
from lemming.commands.error_reporting import run_guarded
from lemming.commands.progress import TurnProgress
from lemming.commands.run_output import (
    NO_CREDITS,
    NO_PROVIDER,
    UNUSABLE_PROVIDER_ERRORS,
    StreamedLines,
    format_tick_start,
)
from lemming.commands.signals import stop_on_signals
from lemming.commands.terminal import (
    has_person,
    one_line,
    print_json,
    print_notice,
    print_pretty_json,
    print_text,
    print_warning,
)
from lemming.commands.trust import require_workspace_trust
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import UsageError, is_provider_error
from lemming.kernel.base.json_schema.schema_violations import find_schema_flaw
from lemming.kernel.base.jsontext import DEFAULT_LIMIT_BYTES, JsonProblem, parse
from lemming.kernel.journal.engine_events import Event, ModelWrote, ProblemFound, TickBegins
from lemming.kernel.journal.journal_records import TurnEnded
from lemming.kernel.org.organisation import OrgPath
from lemming.obligations.org_requests import load_requests
from lemming.obligations.request_costs import compute_request_costs
from lemming.obligations.request_entries import choose_person, require_reachable
from lemming.obligations.request_json import request_to_json
from lemming.operations.engine_lock import find_running_engine

NOT_ANSWERED, NO_ANSWER_YET = 1, 9


@dataclass
class Watcher:
    """Reports which agents work on a question, and their failed turns."""

    progress: TurnProgress = field(default_factory=lambda: TurnProgress(is_shown=False))
    _failed: set[str] = field(default_factory=set)
    _live_text: StreamedLines = field(default_factory=StreamedLines)

    def on_work(self, work: WorkProgress) -> None:
        """Print the agents that must act before the next tick."""
        self.progress.set_workers(() if work.waits else work.assignees)
        if work.waits:
            self.progress.print_line(f"  tick {work.tick}: {one_line(work.waits, 400)}", style="dim")
        elif work.assignees:
            verb = "is" if len(work.assignees) == 1 else "are"
            line = f"  tick {work.tick}: {', '.join(work.assignees)} {verb} at work"
            self.progress.print_line(line, style="dim")

    def on_event(self, event: Event) -> None:
        """Handle an event of the engine."""
        self.progress.on_event(event)
        text = ""
        match event:
            case ModelWrote() if not self.progress.is_shown:
                self._live_text.add_text(event, len(event.agent))
            case TurnEnded(report=report):
                self._live_text.flush(report.agent, len(report.agent))
                text = f"  {report.agent} failed: {one_line(report.reason, 400)}" if report.status == "failed" else ""
            case ProblemFound() if has_person():
                text = f"  {one_line(str(event.problem), 400)}"
            case TickBegins() if event.turns_left is not None:
                self.progress.print_line(f"  {format_tick_start(event)}", style="dim")
        if text and text not in self._failed:
            self._failed.add(text)
            self.progress.print_line(text, style="yellow")


def agree_to_run(base: OrgPath, *, trusts: bool, can_ask: bool) -> None:
    """Require workspace trust for running ticks, unless another engine already runs."""
    if trusts or find_running_engine(base) is None:
        require_workspace_trust(base, is_trusted=trusts, can_ask=can_ask)


def ask_with_progress(
    base: OrgPath, agent: str, text: str, *, quiet: bool, **options: Any
) -> tuple[AskOutcome[Any], int]:
    """Ask a question, wait for the answer and show progress. Returns the outcome and the exit status."""
    streams = bool(options.pop("watch", False)) and not quiet  # then lines of the answer are shown
    is_shown = sys.stderr.isatty() and not (quiet or streams)
    watcher = Watcher(progress=TurnProgress(is_shown=is_shown))
    with stop_on_signals(quiet=quiet) as switch, watcher.progress.display():
        outcome = ask_and_wait(
            base,
            agent,
            text,
            stop=switch.stop,
            notify=watcher.on_event,
            at_work=watcher.on_work,
            watch=streams or is_shown,
            **options,
        )
    return outcome, switch.exit_status if outcome.why == "stopped" else to_exit_status(outcome)


def to_exit_status(outcome: AskOutcome[Any]) -> int:
    """Return the exit status for the outcome of a question. See docs/cli.md."""
    if outcome.has_answer:
        return 0
    if outcome.end not in (None, "failed"):
        return NOT_ANSWERED
    if outcome.error in ("OutOfCredits", "LimitReached"):
        return NO_CREDITS
    is_out_of_reach = is_provider_error(outcome.error) and outcome.error in UNUSABLE_PROVIDER_ERRORS
    return NO_PROVIDER if is_out_of_reach else NOT_ANSWERED if outcome.end else NO_ANSWER_YET


def show_answer(outcome: AskOutcome[Any]) -> None:
    """Print the answer to standard output; without an answer, print the reason and the next step."""
    request = outcome.request
    if outcome.has_answer:
        if outcome.end == "expired":
            names = " and ".join(request.targets)
            print_warning(f"{names} did not answer in time; this is the fallback answer:", style="plain")
        print_text(outcome.answer) if isinstance(outcome.answer, str) else print_pretty_json(outcome.answer)
        return
    print_warning(one_line(outcome.unanswered_reason, 1000))
    if outcome.end is None:
        print_notice(f"it stays open: `lemming requests {request.id}` shows it, `lemming cancel {request.id}` ends it")


Conversation = Annotated[str, option("--conversation NAME", "Continue the conversation with this name.")]
_TIMEOUT_HELP = "Stop waiting after this time: 90 (seconds), 10m, 2h. Default: wait forever."
Timeout = Annotated[float | None, option("--timeout DURATION", _TIMEOUT_HELP, parser=parse_seconds)]
_DEADLINE_HELP = "Expire the request after N ticks or after a time: 30m, 2h."
Deadline = Annotated[Any, option("--deadline TICKS|DURATION", _DEADLINE_HELP, parser=parse_ticks_or_duration)]


def ask(
    context: CommandContext,
    agent: AgentName,
    text: Annotated[list[str], argument("TEXT", 'The question; "-" reads standard input.')],
    person: AsPerson = None,
    conversation: Conversation = "",
    timeout: Timeout = None,
    deadline: Deadline = None,
    schema: Annotated[Path | None, option("--schema FILE", "JSON Schema file that the answer must satisfy.")] = None,
    budget: Annotated[
        str | None, option("--budget AMOUNT", 'Maximum cost including sub-requests: credits, or "9000 tokens".')
    ] = None,
    until: Annotated[
        Path | None, option("--until FILE", "JSON file with the goal: checks, a judge, and the most turns.")
    ] = None,
    watch: Watch = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Ask an agent a question and print the answer.

    Runs ticks until the answer arrives; if an engine is already running, the ticks run there. Standard error
    shows the agents at work. On a terminal, standard error also shows elapsed time, time limits, tool calls
    and streamed text. Ctrl-C leaves the request open and prints the command to return to the request.

    Exit status: 0 answered; 1 failed, refused, cancelled or expired; 9 no answer yet, the request stays open;
    5 no model could be called; 6 the agent that holds the request is out of credits.

    \b
    Examples:
      lemming ask editor "Which story leads today?"
      lemming ask editor --stream "And why?"
      lemming ask editor --timeout 5m --conversation ferry "And tomorrow?"
      lemming ask editor --schema verdict.json --json "Is it true?" | jq .answer
      lemming ask coder --until goal.json "Make the tests pass."
    """
    base = context.org
    require_agent_folder(base, agent)
    typed_text = " ".join(text)
    options: dict[str, Any] = {"budget": budget}
    with suppress(ValueError):  # a plain number is credits
        options["budget"] = float(budget or "")
    options |= {"schema": _load_schema(schema)} if schema else {}
    options |= {"until": _load_object(until, "--until")} if until else {}
    agree_to_run(base, trusts=trust, can_ask=not context.as_json and typed_text != "-")
    outcome, status = ask_with_progress(
        base,
        agent,
        join_text_argument(text),
        quiet=quiet,
        person=person,
        conversation=conversation,
        timeout_s=timeout,
        deadline=deadline,
        watch=watch,
        **options,
    )
    if context.as_json:
        requests = load_requests(base)
        tree = [request for _, request in requests.requests.iter_tree(outcome.request)]
        facts = request_to_json(base, outcome.request, requests, compute_request_costs(base, tree))
        answer_facts = {"answer": outcome.answer, "why": outcome.why, "reason": outcome.reason, "error": outcome.error}
        print_json("answer", {**facts, **answer_facts})
    else:
        show_answer(outcome)
    raise typer.Exit(status)


def _load_object(file: Path, option_name: str) -> dict[str, Any]:
    """Load a JSON object from a file. Raises `UsageError` if the file holds none."""
    try:
        with file.open("rb") as stream:
            value = parse(stream.read(DEFAULT_LIMIT_BYTES + 1), allow_bom=True)
    except OSError as error:
        hint = f"name a readable file with {option_name} FILE"
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint=hint) from error
    except JsonProblem as error:
        raise UsageError(f"{file} is not JSON: {error.message} (line {error.line})") from error
    if not isinstance(value, dict):
        kind = "a JSON Schema (an object)" if option_name == "--schema" else "a JSON object"
        raise UsageError(f"{file} must contain {kind}", hint="see docs/requests.md")
    return value


def _load_schema(file: Path) -> dict[str, Any]:
    """Load a JSON Schema from a file. Raises `UsageError` if the file holds no schema."""
    schema = _load_object(file, "--schema")
    violation, pointer = find_schema_flaw(schema)
    if violation:
        location = f"{file} {pointer}".strip()
        raise UsageError(f"{location}: {violation}", hint="correct the schema; see json-schema.org")
    return schema


def chat(
    context: CommandContext,
    agent: AgentName,
    person: AsPerson = None,
    conversation: Annotated[
        str, option("--conversation NAME", "Continue this conversation. Default: start a new one.")
    ] = "",
    timeout: Timeout = None,
    watch: Watch = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Chat with an agent interactively. Each line is a question.

    The agent sees the earlier messages of the same conversation. Ctrl-D or `/quit` ends the chat. Lines may
    come from a pipe. On a terminal, a line such as `/approve 3fa9`, `/waiting` or `/cost` runs the lemming
    command, `/help` lists the commands, and `//` starts a text with a slash. Exit status: 0 if every question
    was answered, else the status of the last unanswered question, as in `lemming ask`.

    \b
    Examples:
      lemming chat editor
      printf 'Who leads?\\nWhy?\\n' | lemming chat editor --conversation ferry
    """
    base = context.org
    require_agent_folder(base, agent)
    requests = load_requests(base)
    person = choose_person(requests, person)
    require_reachable(requests, person, agent)
    agree_to_run(base, trusts=trust, can_ask=not context.as_json and sys.stdin.isatty())
    name = conversation or SystemClock().now().strftime("chat-%Y%m%d-%H%M%S")
    print_notice(f"conversation {name} of {person} with {agent}; Ctrl-D ends it", style="dim")
    status = 0
    for text in _iter_lines():
        if _is_typed() and text.startswith("/"):
            if text in ("/quit", "/exit"):
                break
            text = text[1:]
            if not text.startswith("/"):
                _run_command(context.typer_context, text)
                continue
        outcome, exit_status = ask_with_progress(
            base, agent, text, quiet=quiet, person=person, conversation=name, timeout_s=timeout, watch=watch
        )
        if not context.print_as_json(
            "answer", {"id": outcome.id, "end": outcome.end, "answer": outcome.answer, "why": outcome.why}
        ):
            show_answer(outcome)
        status = exit_status or status
        if outcome.why == "stopped":
            break
    raise typer.Exit(status)


def _is_typed() -> bool:
    """Return True if a person types the lines. Every line from a pipe is a question."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _run_command(ctx: typer.Context, line: str) -> None:
    """Run a line as a lemming command on this organisation; errors are printed and do not end the chat."""
    root = ctx.find_root()

    def run_line() -> int:
        try:
            args = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"{error}: {line}", hint="close the quotes") from error
        if args[:1] == ["chat"]:
            raise UsageError("a chat is already running", hint="press Ctrl-D to end it")
        if not args or args[0] == "help":
            args = [*args[1:], "--help"]
        status = root.command.main(args, "lemming", standalone_mode=False, obj=root.obj)
        return status if isinstance(status, int) else 0

    run_guarded(run_line, root.obj, as_json=False)


def _iter_lines() -> Iterator[str]:
    """Yield the non-empty lines that the user types."""
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
