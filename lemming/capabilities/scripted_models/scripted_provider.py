"""Answers from a JSONL file, for tests, demonstrations and simulations. Format: docs/formats.md.

Each line is an object. The first line with all conditions fulfilled answers, any number of times. A file with
`question` in its lines is a recording, and rejects unknown questions.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from lemming.ext import Capability, ConfigError, Problem, make_field
from lemming.kernel.base import errors
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.base.errors import RequestRejected
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import parse_document
from lemming.kernel.llm import model_call
from lemming.kernel.providers import Backend, Message, Reply, Request
from lemming.libraries.lenient_json import parse_object_or_empty

_LIMIT_BYTES = 64 << 20
NEEDS_A_MODEL = "list the models with `lemming models list`, then choose one with `lemming models use KEY`"

ErrorName = Literal["Unavailable", "RateLimited", "TimedOut", "AuthenticationFailed", "UnknownModel", "RequestRejected"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScriptLine:
    """One line of a script: the conditions and the answer."""

    agent: str = make_field("*", 'The agent that asks; "*" is any.')
    tick: int | None = make_field(None, "The tick; null is any.")
    step: int | None = make_field(None, "The step in the turn, from 0; null is any.")
    contains: str = make_field("", "Text that the last message to the model holds.")
    question: str = make_field("", "The question, and no other: 16 digits that the refusal of an unknown one names.")
    reply: dict[str, Any] | str | None = make_field(None, "The answer: an object, or the text itself.")
    calls: list[dict[str, Any]] = make_field(
        list, 'Tools it calls as a backend\'s own: {"tool", "args"} each, and "id" if you like.'
    )
    thinking: str = make_field("", "What it thought first.")
    error: ErrorName | None = make_field(None, "The error raised instead of a reply.")
    input_tokens: int | None = make_field(None, "", ge=0)
    output_tokens: int | None = make_field(None, "", ge=0)
    delay_s: float = make_field(0.0, "How long the answer takes.", ge=0)
    at: str = make_field("", "When it came, such as 2026-11-23T09:00:00.000Z: a recording. Empty: now.")

    def matches(self, request: Request) -> bool:
        """Return True if all conditions hold. A `question` in the line decides alone, besides `agent`."""
        if self.question:
            return self.agent in ("*", request.agent) and self.question == question_digest(request.messages)
        last_message = next((m["content"] for m in reversed(request.messages) if m["role"] in ("user", "tool")), "")
        return (
            self.agent in ("*", request.agent)
            and self.tick in (None, request.tick)
            and self.step in (None, request.step % NUMBERS_PER_TURN)
            and self.contains in last_message
        )


class ScriptedAnswersCapability(Capability):
    """Scripts and recordings, given by lines of `config/models.json` with one of these providers."""

    name = "scripted"


class ScriptedProvider(Backend):
    """Answers from `file`, absolute or in the organisation, read once. Raises `ConfigError` for an invalid line."""

    keeps_deadline = True
    takes_tools = True
    writes_contract = True

    def __init__(self, *, file: str, base: Path | None = None) -> None:
        self._file = file
        self._lines = tuple(_iter_lines((base or Path()) / file, file))

    def complete(self, request: Request) -> Reply:
        """Return the answer of the first matching line. Raise its error, or `RequestRejected` without a match."""
        for line in self._lines:
            if line.matches(request):
                if line.delay_s:
                    self.pause(min(line.delay_s, request.deadline_s))
                if line.delay_s > request.deadline_s:
                    raise model_call.timeout_error(request.deadline_s)
                return _reply_from_line(line, request)
        question = question_digest(request.messages)
        if any(line.question for line in self._lines):
            message = f"these answers are recorded, and this was not asked then (question {question})"
            raise RequestRejected(message, where=self._file, hint=NEEDS_A_MODEL)
        call_description = f"agent {request.agent!r}, tick {request.tick}, step {request.step}, question {question}"
        raise RequestRejected(
            f"no line answers {call_description}", where=self._file, hint='add one, or one with agent "*"'
        )


def _reply_from_line(line: ScriptLine, request: Request) -> Reply:
    if line.error is not None:
        error: errors.ProviderError = getattr(errors, line.error)("the script says so", where="scripted")
        error.may_be_paid = isinstance(error, errors.TimedOut)
        raise error
    text = line.reply if isinstance(line.reply, str) else dump_compact(line.reply).decode() if line.reply else ""
    calls_with_ids = ({"id": f"call_{request.step}_{index}", **call} for index, call in enumerate(line.calls))
    return Reply(
        text=text,
        input_tokens=line.input_tokens,
        output_tokens=line.output_tokens,
        model=request.model_name or "scripted",
        calls=tuple(calls_with_ids),
        thinking=line.thinking,
        at=line.at,
    )


def _iter_lines(path: Path, file: str) -> Iterator[ScriptLine]:
    try:
        raw = fs.read_bytes(path, _LIMIT_BYTES)
    except OSError as error:
        message = f"the script cannot be read: {error.strerror or error}"
        raise ConfigError(message, where=file, hint="check options.file in config/models.json") from error
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if line.strip():
            yield _parse_line(line, file, number)


def _parse_line(raw: bytes, file: str, number: int) -> ScriptLine:
    try:
        document = parse_document(raw, file, ScriptLine)
        problems = document.warnings  # a misspelt condition would always hold
    except ConfigError as error:
        problems = error.problems
    else:
        problems = problems or _validate_line(document.value, file)
        if not problems:
            return document.value
    placed = tuple(dataclasses.replace(item, line=number, severity="error") for item in problems)
    raise ConfigError(str(placed[0]), problems=placed)


def _validate_line(line: ScriptLine, file: str) -> tuple[Problem, ...]:
    has_answer = line.reply is not None or bool(line.calls)
    if has_answer == (line.error is not None):
        return (Problem('a line must have either "reply" or "error"', file, 1, 1),)
    if line.at and not is_timestamp(line.at):
        return (Problem(f'"at" must be a time such as 2026-11-23T09:00:00.000Z, got "{line.at}"', file, 1, 1),)
    return ()


# --- the digest of a prompt in a recording --------------------------------------------------------
# Covers the instructions and all visible content: memory, files, entries, results. Leaves out the parts that
# differ between equal prompts: the tick, ids, the account of a file, and the form of the reply.

_INSTRUCTIONS = re.compile(r"^# Instructions\n(.*?)(?=^# |\Z)", re.MULTILINE | re.DOTALL)
_SAYS_NOTHING = frozenset({"# Now", "# Your reply"})
_OPENS = re.compile(r"<<<DATA [0-9a-f]+\Z")
_MARK = re.compile(r"\b[0-9a-f]{32}\b")  # of data: another one in each tick
_TICK = re.compile(r"^It is tick \d+\.")
_DIGITS = 16


def question_digest(messages: list[Message]) -> str:
    """Return the digest that identifies the question in messages: 16 hexadecimal digits.

    >>> lines = "# Now", "It is tick {}.", "# Memory"
    >>> ask = lambda tick: [dict(role="user", content=chr(10).join(lines).format(tick))]
    >>> question_digest(ask(1)) == question_digest(ask(7))
    True
    """
    significant = [{**message, "content": _significant_messages(message)} for message in messages]
    return sha256(dump_compact(significant)).hexdigest()[:_DIGITS]


def _significant_messages(message: Message) -> str:
    content = message["content"]
    if message["role"] != "system":
        return "\n".join(_significant_lines(content))
    match = _INSTRUCTIONS.search(content)
    return match[1] if match else _MARK.sub("", content)


def _significant_lines(content: str) -> Iterator[str]:
    """Yield the lines that identify the question. Lines of quoted data count as data, regardless of their form."""
    end_line, is_skipped = "", False
    for line in content.split("\n"):
        if end_line:  # a judge is shown the prompt of the judged agent
            yield _TICK.sub("", _MARK.sub("", _mask_ids(line))) if line != end_line else "DATA>>>"
            end_line = "" if line == end_line else end_line
        elif _OPENS.match(line):
            end_line = f"{line.removeprefix('<<<DATA ')} DATA>>>"
            yield "<<<DATA"
        else:
            is_skipped = line in _SAYS_NOTHING if line.startswith("# ") else is_skipped
            if not is_skipped:
                yield line


def _mask_ids(line: str) -> str:
    if not line.startswith('{"id": '):
        return line
    entry = parse_object_or_empty(line)
    if not isinstance(entry.get("payload"), dict):  # or a long line, which is cut
        return line
    payload = {key: value for key, value in entry["payload"].items() if key not in ("from", "message_id")}
    entry_fields = {key: value for key, value in entry.items() if key not in ("id", "tick")}
    return dump_compact({**entry_fields, "payload": payload}).decode()
