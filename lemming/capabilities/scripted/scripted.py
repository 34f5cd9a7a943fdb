"""Answers from a JSONL file: for tests, demonstrations and simulations. Format: docs/formats.md.

Each line is an object. The first whose conditions all hold answers; it answers as often as it is asked. Where
lines name their question, the file is a recording, and what nobody asked it before is refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from lemming.kernel.base import errors
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.base.errors import ConfigError, Problem, RequestRejected
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN
from lemming.kernel.files import fs
from lemming.kernel.files.documents import read_text
from lemming.kernel.files.fitting import about
from lemming.kernel.llm import calls
from lemming.kernel.providers import Backend, Message, Reply, Request

_LIMIT_BYTES = 64 << 20
NEEDS_A_MODEL = "`lemming models list` shows what can be used here, `lemming models use KEY` takes it"

ErrorName = Literal[
    "Unavailable", "RateLimited", "TimedOut", "AuthenticationFailed", "UnknownModel", "RequestRejected"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScriptLine:
    """One line of a script: when it answers, and what."""

    agent: str = field(default="*", metadata=about('The agent that asks; "*" is any.'))
    tick: int | None = field(default=None, metadata=about("The tick; null is any."))
    step: int | None = field(default=None, metadata=about("The step in the turn, from 0; null is any."))
    contains: str = field(default="", metadata=about("Text that the last message to the model holds."))
    question: str = field(
        default="",
        metadata=about("The question, and no other: 16 digits that the refusal of an unknown one names."),
    )
    reply: dict[str, Any] | str | None = field(
        default=None, metadata=about("The answer: an object, or the text itself.")
    )
    calls: list[dict[str, Any]] = field(
        default_factory=list,
        metadata=about('Tools it calls as a backend\'s own: {"tool", "args"} each, and "id" if you like.'),
    )
    thinking: str = field(default="", metadata=about("What it thought first."))
    error: ErrorName | None = field(default=None, metadata=about("The error raised instead of a reply."))
    input_tokens: int | None = field(default=None, metadata=about("", ge=0))
    output_tokens: int | None = field(default=None, metadata=about("", ge=0))
    delay_s: float = field(default=0.0, metadata=about("How long the answer takes.", ge=0))
    at: str = field(
        default="", metadata=about("When it came, such as 2026-11-23T09:00:00.000Z: a recording. Empty: now.")
    )

    def answers(self, request: Request) -> bool:
        """Return whether all conditions hold; a question that is named alone decides, beside `agent`."""
        if self.question:
            return self.agent in ("*", request.agent) and self.question == question_in(request.messages)
        asked = next((m["content"] for m in reversed(request.messages) if m["role"] in ("user", "tool")), "")
        return (
            self.agent in ("*", request.agent)
            and self.tick in (None, request.tick)
            and self.step in (None, request.step % NUMBERS_PER_TURN)
            and self.contains in asked
        )


class ScriptedProvider(Backend):
    """Answers from `file`, a path in the organisation or an absolute one, which is read once.

    Raises `ConfigError` that names the line when the file is missing or a line is wrong.
    """

    keeps_deadline = True
    takes_tools = True
    writes_contract = True

    def __init__(self, *, file: str, base: Path | None = None) -> None:
        self._file = file
        self._lines = tuple(_read((base or Path()) / file, file))

    def complete(self, request: Request) -> Reply:
        """Return the first line's answer; raise its error, or `RequestRejected` when no line answers."""
        for line in self._lines:
            if line.answers(request):
                if line.delay_s:
                    self._delay(line.delay_s, request.deadline_s)
                return _play(line, request)
        question = question_in(request.messages)
        if any(line.question for line in self._lines):
            message = f"these answers are recorded, and this was not asked then (question {question})"
            raise RequestRejected(message, where=self._file, hint=NEEDS_A_MODEL)
        asked = f"agent {request.agent!r}, tick {request.tick}, step {request.step}, question {question}"
        raise RequestRejected(
            f"no line answers {asked}", where=self._file, hint='add one, or one with agent "*"'
        )

    def _delay(self, seconds: float, deadline_s: float) -> None:
        self.pause(min(seconds, deadline_s))
        if seconds > deadline_s:
            raise calls.timed_out(deadline_s)


def _play(line: ScriptLine, request: Request) -> Reply:
    if line.error is not None:
        error: errors.ProviderError = getattr(errors, line.error)("the script says so", where="scripted")
        error.may_be_paid = isinstance(error, errors.TimedOut)
        raise error
    text = line.reply if isinstance(line.reply, str) else compact(line.reply).decode() if line.reply else ""
    made = ({"id": f"call_{request.step}_{place}", **call} for place, call in enumerate(line.calls))
    return Reply(
        text=text,
        input_tokens=line.input_tokens,
        output_tokens=line.output_tokens,
        model=request.model_name or "scripted",
        calls=tuple(made),
        thinking=line.thinking,
        at=line.at,
    )


def _read(path: Path, file: str) -> Iterator[ScriptLine]:
    try:
        raw = fs.read_bytes(path, _LIMIT_BYTES)
    except OSError as error:
        message = f"the script cannot be read: {error.strerror or error}"
        raise ConfigError(message, where=file, hint="check options.file in config/models.json") from error
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if line.strip():
            yield _parse(line, file, number)


def _parse(raw: bytes, file: str, number: int) -> ScriptLine:
    try:
        document = read_text(raw, file, ScriptLine)
        problems = document.warnings  # a misspelt condition would always hold
    except ConfigError as error:
        problems = error.problems
    else:
        problems = problems or _wrong_in(document.value, file)
        if not problems:
            return document.value
    placed = tuple(dataclasses.replace(item, line=number, severity="error") for item in problems)
    raise ConfigError(str(placed[0]), problems=placed)


def _wrong_in(line: ScriptLine, file: str) -> tuple[Problem, ...]:
    answers = line.reply is not None or bool(line.calls)
    if answers == (line.error is not None):
        return (Problem('expected either "reply" or "error"', file, 1, 1),)
    if line.at and not is_timestamp(line.at):
        return (
            Problem(f'"at": expected a time such as 2026-11-23T09:00:00.000Z, found "{line.at}"', file, 1, 1),
        )
    return ()


# --- what a question in a recording is named by ---------------------------------------------------
# What the agent is told to be and all that it is shown: instructions, memory, files, entries, results. Left
# out is what differs though the same is asked: the tick, ids, the account that a file came from, and how a
# reply is to be written.

_INSTRUCTIONS = re.compile(r"^# Instructions\n(.*?)(?=^# |\Z)", re.MULTILINE | re.DOTALL)
_SAYS_NOTHING = frozenset({"# Now", "# Your reply"})
_OPENS = re.compile(r"<<<DATA [0-9a-f]+\Z")
_MARK = re.compile(r"\b[0-9a-f]{32}\b")  # of data: another one in each tick
_TICK = re.compile(r"^It is tick \d+\.")
_DIGITS = 16


def question_in(messages: list[Message]) -> str:
    """Return what names the question that these messages ask: 16 hexadecimal digits.

    >>> first = [{"role": "user", "content": "# Now\\nIt is tick 1.\\n# Memory\\n(empty)"}]
    >>> later = [{"role": "user", "content": "# Now\\nIt is tick 7.\\n# Memory\\n(empty)"}]
    >>> question_in(first) == question_in(later)
    True
    """
    asked = [{**message, "content": _instructions_or_all(message)} for message in messages]
    return sha256(compact(asked)).hexdigest()[:_DIGITS]


def _instructions_or_all(message: Message) -> str:
    content = message["content"]
    if message["role"] != "system":
        return "\n".join(_telling(content))
    found = _INSTRUCTIONS.search(content)
    return found[1] if found else _MARK.sub("", content)


def _telling(content: str) -> Iterator[str]:
    """Yield the lines that tell what is asked; those of others' text are data, whatever they look like."""
    end, is_left_out = "", False
    for line in content.split("\n"):
        if end:  # a judge is shown the prompt of whom it judges
            yield _TICK.sub("", _MARK.sub("", _without_ids(line))) if line != end else "DATA>>>"
            end = "" if line == end else end
        elif _OPENS.match(line):
            end = f"{line.removeprefix('<<<DATA ')} DATA>>>"
            yield "<<<DATA"
        else:
            is_left_out = line in _SAYS_NOTHING if line.startswith("# ") else is_left_out
            if not is_left_out:
                yield line


def _without_ids(line: str) -> str:
    if not line.startswith('{"id": '):
        return line
    try:
        entry = parse(line)
    except JsonProblem:  # a long one is cut
        return line
    if not isinstance(entry.get("payload"), dict):
        return line
    payload = {key: value for key, value in entry["payload"].items() if key not in ("from", "message_id")}
    kept = {key: value for key, value in entry.items() if key not in ("id", "tick")}
    return compact({**kept, "payload": payload}).decode()
