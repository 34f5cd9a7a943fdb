"""The edge of the process: every way a command can end badly becomes a few lines and an exit status.

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
from dataclasses import replace
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lemming.commands import screen
from lemming.commands.screen import ReaderGone, Style, tell
from lemming.commands.session import CommandSession
from lemming.kernel.base.errors import ConfigError, DiskError, LemmingError, Problem, UsageError
from lemming.kernel.base.jsontext import near, nearest

if TYPE_CHECKING:
    from lemming.kernel.org.organisation import OrgPath

INTERNAL_ERROR = 70
INTERRUPTED = 130
BROKEN_PIPE = 141
DEBUG_ENV = "LEMMING_DEBUG"

_COLOURS: dict[str, Style] = {"error": "red", "warning": "yellow"}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,:{}\[\]]+|.')
_SOURCE_WIDTH = 100


def guarded(work: Callable[[], int], session: CommandSession, *, as_json: bool) -> int:
    """Run a command and return the exit status of the process; whatever it raises is told to the person.

    With `as_json` the error is also an object on standard output.
    """
    try:
        status = work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except ReaderGone:
        return _silenced()
    except typer.Abort:
        return 1
    except Exception as error:  # noqa: BLE001 - the edge of the process
        return _reported(error, session, as_json=as_json)
    return status


def tell_error(error: LemmingError, base: OrgPath | None) -> None:
    """Tell what happened, where, and what to do."""
    if isinstance(error, ConfigError):
        for problem in error.problems:
            tell_problem(problem, base)
        return
    where = f"{error.where}: " if error.where else ""
    _tell_head("error", error.code, f"{where}{error.message}")
    _tell_fix(error.hint)


def tell_problem(problem: Problem, base: OrgPath | None) -> None:
    """Tell one problem of a file, with the line it is on."""
    problem = _located(problem, base)
    where = f"{problem.where}: " if problem.where else ""
    _tell_head(problem.severity, problem.code, f"{where}{problem.message}")
    for line in _source_lines(problem, base):
        tell(line, style="dim")
    _tell_fix(problem.hint)


def _reported(error: Exception, session: CommandSession, *, as_json: bool) -> int:
    known = _as_lemming_error(error, session.command)
    if isinstance(known, UsageError) and session.typed_within:
        _lead(known, session.command, *session.typed_within)
    if os.environ.get(DEBUG_ENV):
        screen.tell_text("".join(traceback.format_exception(error)))
    shown = known or _internal_error(error)
    try:
        tell_error(shown, session.base)
        if as_json:
            screen.show_json("error", shown.as_json())
    except ReaderGone:
        return _silenced()
    return known.exit_status if known else INTERNAL_ERROR


def _lead(error: UsageError, command: str, word: str, meant: Mapping[str, str]) -> None:
    """Say what to type in the place of a word behind a command, unless the error has one that is as near."""
    found = near(word, meant)
    if not found or _likeness(word, found) <= _likeness_in_hint(word, error.hint):
        return
    is_about_it = f'"{word}"' in error.message or error.message.startswith("got unexpected extra argument")
    if is_about_it or _MEANT.match(meant[found]):
        error.message, error.hint = f'there is no command "{word}" within {command}', meant[found]


def _likeness_in_hint(word: str, hint: str) -> float:
    """Return how like the word is what a hint offers: a list of agents is as good as one slip of the pen."""
    offered = _MEANT.findall(hint)
    return max(
        (_likeness(word, it) for it in offered), default=0.8 if hint.startswith("agents here: ") else 0
    )


def _likeness(word: str, other: str) -> float:
    """Return 1 for the same word, 0 for one that has no letter of it."""
    return SequenceMatcher(None, other.lower(), word.lower()).ratio()


def _as_lemming_error(error: Exception, command: str) -> LemmingError | None:
    if isinstance(error, LemmingError):
        return error
    if isinstance(error, typer.TyperException):
        return _usage_error(error, command)
    if isinstance(error, ModuleNotFoundError) and (why := _why_not_imported(error.name or "")):
        return ConfigError(f"{command} cannot go on: {why}", hint="install lemming-engine again")
    if isinstance(error, OSError) and error.filename is not None:
        return DiskError(error.strerror or str(error), where=os.fsdecode(error.filename))
    return None


def _why_not_imported(module: str) -> str:
    from lemming.kernel.plugins.capabilities import (
        why_not_imported,  # a command that is there loads it itself
    )

    return why_not_imported(module)


_MEANT = re.compile(r'did you mean "(.*)"')
_CHOICE = re.compile(r"'([^']*)' is not one of (.*)")
_NO_COMMAND = re.compile(r"No such command '([^']*)'")
_NO_OPTION = re.compile(r"(No such option: --(\S+)) \(Possible options: (.*)\)")
"""What the command line's parser says of a word that is none of several, no command, or no option."""


def _usage_error(error: typer.TyperException, command: str) -> UsageError:
    """Return what the command line's parser complains about, in the form of our own errors."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else command
    option = getattr(error, "option_name", "")
    if option in ("-C", "--root", "--version"):
        hint = f"{option} stands before the command: lemming {option} ..."
    else:
        hint = f"{command} --help"
    message = str(error.format_message()).replace("Value error, ", "").replace("'-n' / '--limit'", "'-n'")
    cause: Any = error.__cause__
    if hasattr(cause, "errors"):  # pydantic's, which reads arguments for the parser
        from lemming.kernel.files.documents import in_plain_words

        (item,) = cause.errors()
        message = message.replace(item["msg"], in_plain_words(item))
    if choice := _CHOICE.search(message):
        hint = nearest(choice[1], re.findall(r"'([^']*)'", choice[2])) or hint
    elif inner := _NO_COMMAND.match(message):
        message = f'there is no command "{inner[1]}" within {command}'
        hint = nearest(inner[1], context.command.list_commands(context)) if context else ""
        hint = hint or f"{command} --help"
    elif wrong := _NO_OPTION.match(message):
        message, options = wrong[1], re.findall(r"--([^\s,]+)", wrong[3])
        near = get_close_matches(wrong[2], options, n=1)  # the dashes would make any two look alike
        hint = f"did you mean --{near[0]}? {hint}" if near else hint
    return UsageError(message[:1].lower() + message[1:].rstrip("."), hint=hint)


def _internal_error(error: Exception) -> LemmingError:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return LemmingError(
        f"internal error: {type(error).__name__}: {screen.one_line(str(error), 300)}",
        where=f"{Path(frame.filename).name}:{frame.lineno}",
        hint=f"this is a mistake in LeMMing or in a plugin; {DEBUG_ENV}=1 shows the traceback",
    )


def _silenced() -> int:
    """Whoever read our output is gone: say nothing more, not even when the interpreter flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # a pipe that nobody reads, or a terminal that was closed
            os.dup2(nowhere, stream.fileno())
    return BROKEN_PIPE


def _tell_head(severity: str, code: str, text: str) -> None:
    mark = screen.painted(f"{severity}[{code}]", _COLOURS.get(severity, "red"), sys.stderr)
    tell(f"{mark}: {text}")


def _tell_fix(hint: str) -> None:
    if hint:
        tell(f"  fix: {hint}")


def _located(problem: Problem, base: OrgPath | None) -> Problem:
    """Return the problem with the line its pointer names, where only the pointer was known."""
    if base is None or problem.line or not problem.pointer:
        return problem
    try:
        text = (base / problem.file).read_text("utf-8", "replace")
    except OSError:
        return problem
    from lemming.kernel.base.jsontext import locate

    line, column = locate(text.removeprefix("\ufeff"), problem.pointer)
    return replace(problem, line=line, column=column)


def _source_lines(problem: Problem, base: OrgPath | None) -> list[str]:
    """Return the line a problem is on and a line that points at it; nothing when it cannot be read."""
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
    shown = screen.printable(source[start : start + _SOURCE_WIDTH].replace("\t", " "))
    margin = " " * (len(str(problem.line)) + 3)
    return [f"  {problem.line} | {shown}", f"{margin}| {' ' * (column - start)}{'^' * width}"]
