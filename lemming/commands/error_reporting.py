"""Error boundary of the process: every failure of a command becomes a few lines and an exit status.

    warning[LMG-301]: agents/ada/resume.json:4:3 /modle: unknown key "modle"
      4 |   "modle": {"key": "fast"},
        |   ^^^^^^^
      fix: did you mean "model"?

Exit statuses: docs/cli.md.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lemming.commands import terminal
from lemming.commands.terminal import OutputClosed, Style, print_warning
from lemming.kernel.base.errors import ConfigError, DiskError, LemmingError, UsageError
from lemming.kernel.base.jsontext import closest_match, did_you_mean

if TYPE_CHECKING:
    from lemming.kernel.base.errors import Problem
    from lemming.kernel.org.organisation import OrgPath

INTERNAL_ERROR = 70
INTERRUPTED = 130
BROKEN_PIPE = 141
DEBUG_ENV = "LEMMING_DEBUG"

_COLOURS: dict[str, Style] = {"error": "red", "warning": "yellow"}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,:{}\[\]]+|.')
_SOURCE_WIDTH = 100


@dataclass
class CommandSession:
    """State of the running command, before its module is loaded.

    `root`: the folder typed for the organisation. `base`: the organisation's folder, once looked up by a
    command. `command`: the typed command. `typed_within`: the first word after the command, and a function
    that returns known words there with suggestions.
    """

    root: str | None = None
    base: Path | None = None
    command: str = "lemming"
    typed_within: tuple[str, Callable[[], Mapping[str, str]]] | None = None


def run_guarded(run: Callable[[], int], session: CommandSession, *, as_json: bool) -> int:
    """Run a command, print any error (`as_json`: also as an object on standard output), return the exit status."""
    try:
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OutputClosed:
        return _silence_output()
    except typer.Abort:
        return 1
    except Exception as error:  # noqa: BLE001 - the edge of the process
        return _report_error(error, session, as_json=as_json)


def print_error(error: LemmingError, base: OrgPath | None) -> None:
    """Print an error with location and fix."""
    if isinstance(error, ConfigError):
        for problem in error.problems:
            print_problem(problem, base)
        return
    location = f"{error.where}: " if error.where else ""
    _print_headline("error", error.code, f"{location}{error.message}")
    _print_fix(error.hint)


def print_problem(problem: Problem, base: OrgPath | None) -> None:
    """Print a problem of a file with the source line."""
    if base is not None and problem.pointer and not problem.line:
        from lemming.kernel.tick.validation.agent_validation import locate_problem  # most errors have no pointer

        problem = locate_problem(problem, base)
    location = f"{problem.where}: " if problem.where else ""
    _print_headline(problem.severity, problem.code, f"{location}{problem.message}")
    for line in _format_source_lines(problem, base):
        print_warning(line, style="dim")
    _print_fix(problem.hint)


def _report_error(error: Exception, session: CommandSession, *, as_json: bool) -> int:
    lemming_error = _to_lemming_error(error, session.command)
    if isinstance(lemming_error, UsageError) and session.typed_within:
        _suggest_command(lemming_error, session.command, *session.typed_within)
    if os.environ.get(DEBUG_ENV):
        for line in "".join(traceback.format_exception(error)).splitlines():
            print_warning(line, style="plain")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    reported = lemming_error or LemmingError(
        f"internal error: {type(error).__name__}: {terminal.one_line(str(error), 300)}",
        where=f"{Path(frame.filename).name}:{frame.lineno}",
        hint=f"set {DEBUG_ENV}=1 to see the traceback, and report the bug (in LeMMing or a plugin)",
    )
    try:
        print_error(reported, session.base)
        if as_json:
            terminal.print_object("error", reported.as_json())
    except OutputClosed:
        return _silence_output()
    return lemming_error.exit_status if lemming_error else INTERNAL_ERROR


def _suggest_command(
    error: UsageError, command: str, typed_word: str, suggest: Callable[[], Mapping[str, str]]
) -> None:
    """Replace the hint with a suggested command if the word is closer to a command than to the hint."""
    match = closest_match(typed_word, suggestions := suggest())

    def similarity(other: str) -> float:
        return SequenceMatcher(None, other.lower(), typed_word.lower()).ratio()

    # A list of agents counts as 0.8, where 1 is an equal word.
    hint_similarity = 0.8 if error.hint.startswith("agents here: ") else 0.0
    if not match or similarity(match) <= max(map(similarity, _MEANT.findall(error.hint)), default=hint_similarity):
        return
    concerns_word = f'"{typed_word}"' in error.message or error.message.startswith("got unexpected extra argument")
    if concerns_word or _MEANT.match(suggestions[match]):
        error.message, error.hint = f'there is no command "{typed_word}" within {command}', suggestions[match]


def _to_lemming_error(error: Exception, command: str) -> LemmingError | None:
    """Convert an exception to a `LemmingError`, or return None for an internal error."""
    if isinstance(error, LemmingError):
        return error
    if isinstance(error, typer.TyperException):
        return _to_usage_error(error, command)
    if isinstance(error, ModuleNotFoundError):
        from lemming.kernel.plugins.capability_loader import import_failure_reason  # commands load it themselves

        if import_problem := import_failure_reason(error.name or ""):
            return ConfigError(f"{command} cannot continue: {import_problem}", hint="install lemming-engine again")
    if isinstance(error, OSError) and error.filename is not None:
        return DiskError(error.strerror or str(error), where=os.fsdecode(error.filename))
    return None


_MEANT = re.compile(r'did you mean "(.*)"')
_CHOICE = re.compile(r"'([^']*)' is not one of (.*)")
_NO_COMMAND = re.compile(r"No such command '([^']*)'")
_NO_OPTION = re.compile(r"(No such option: --(\S+)) \(Possible options: (.*)\)")
"""Messages of the command-line parser for an unknown value, command or option."""


def _describe_required(context: Any) -> str:
    """Return a command with the options and arguments that it requires, as in `lemming fork --at TICK DIR`."""
    required = [parameter for parameter in context.command.params if parameter.required]
    required.sort(key=lambda parameter: parameter.param_type_name == "argument")
    parts = [context.command_path]
    for parameter in required:
        parts += [] if parameter.param_type_name == "argument" else [parameter.opts[0]]
        parts.append(str(parameter.metavar or parameter.name).upper())
    return " ".join(parts)


def _to_usage_error(error: typer.TyperException, command: str) -> UsageError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else command
    option = getattr(error, "option_name", "")
    if option in ("-C", "--root", "--version"):
        hint = f"put {option} before the command: lemming {option} ..."
    else:
        hint = f"{command} --help"
    message = str(error.format_message()).replace("Value error, ", "").replace("'-n' / '--limit'", "'-n'")
    cause: Any = error.__cause__
    if hasattr(cause, "errors"):  # pydantic's, which reads arguments for the parser
        from lemming.kernel.files.unknown_keys import describe_validation_error

        (item,) = cause.errors()
        message = message.replace(item["msg"], describe_validation_error(item))
    if context and message.startswith("Missing "):
        hint = f"{_describe_required(context)} (`{command} --help`)"
    if choice := _CHOICE.search(message):
        hint = did_you_mean(choice[1], re.findall(r"'([^']*)'", choice[2])) or hint
    elif unknown_command := _NO_COMMAND.match(message):
        message = f'there is no command "{unknown_command[1]}" within {command}'
        hint = did_you_mean(unknown_command[1], context.command.list_commands(context)) if context else ""
        hint = hint or f"{command} --help"
    elif unknown_option := _NO_OPTION.match(message):
        message, options = unknown_option[1], re.findall(r"--([^\s,]+)", unknown_option[3])
        matches = get_close_matches(unknown_option[2], options, n=1)  # the dashes would make any two look alike
        hint = f"did you mean --{matches[0]}? {hint}" if matches else hint
    return UsageError(message[:1].lower() + message[1:].rstrip("."), hint=hint)


def _silence_output() -> int:
    """Discard all further output after the reader closed the pipe, including the flush at exit."""
    null_fd = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # a pipe without a reader, or a closed terminal
            os.dup2(null_fd, stream.fileno())
    return BROKEN_PIPE


def _print_headline(severity: str, code: str, text: str) -> None:
    mark = terminal.style_text(f"{severity}[{code}]", _COLOURS.get(severity, "red"), sys.stderr)
    print_warning(f"{mark}: {text}", style="plain")


def _print_fix(hint: str) -> None:
    if hint:
        print_warning(f"  fix: {hint}", style="plain")


def _format_source_lines(problem: Problem, base: OrgPath | None) -> list[str]:
    """Return the source line of a problem and a line of carets below. Empty for an unreadable file."""
    if base is None or not problem.line or not problem.file:
        return []
    try:
        source = (base / problem.file).read_text("utf-8", "replace").split("\n")[problem.line - 1]
    except (OSError, IndexError):
        return []
    column = max(problem.column, 1) - 1
    token = _TOKEN.match(source, column)
    width = min(len(token.group()) if token else 1, _SOURCE_WIDTH)
    start = max(0, column + width - _SOURCE_WIDTH)
    excerpt = terminal.sanitize_text(source[start : start + _SOURCE_WIDTH].replace("\t", " "))
    margin = " " * (len(str(problem.line)) + 3)
    return [f"  {problem.line} | {excerpt}", f"{margin}| {' ' * (column - start)}{'^' * width}"]
