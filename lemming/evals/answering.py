"""Who answers for the models and tools of a copy: a script, what was recorded, or they themselves.

A model is asked only where the case says `live`, or a person said --record; what may be spent is held before.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.capabilities.scripted.scripted import ScriptedProvider
from lemming.evals.rehearsal.budget import Spending
from lemming.evals.rehearsal.questions import question_of
from lemming.facts.cases import RECORD_FILE, SCRIPT_FILE, Case, case_file
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import NoAnswer
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.files import fs
from lemming.kernel.files.documents import unreadable
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.llm import calls
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.shipped import NO_MODELS
from lemming.kernel.providers import Reply, Request
from lemming.kernel.tools import ToolResult, toolset_of
from lemming.kernel.tools.context import ToolContext

COST_NOTHING = frozenset({"scripted", "replay"})
"""Providers that are recordings themselves."""
_SEEDS = 1 << 31
_REPLY = (
    "text", "input_tokens", "output_tokens", "cached_tokens", "written_tokens", "finish", "model", "thinking",
    "kept",
)  # fmt: skip

Ask = Callable[..., Reply]


@dataclass
class Answering:
    """Who answers in one run of a case; `repeat` is its number from 0. `asked` counts calls of models."""

    base: OrgPath
    name: str
    case: Case
    kept: Kept
    spending: Spending
    repeat: int = 0
    records: bool = False
    makes_calls: bool = False
    asked: int = 0
    _again: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # --- models

    def answer(self, entry: ModelEntry, request: Request, ask: Ask) -> Reply:
        """Return the answer to a turn's question; `ask` asks the model itself. Raises `NoAnswer`."""
        if entry.provider in NO_MODELS:
            return ask(request)
        if self.case.answers == "scripted" and self._script:
            return calls.ask(self._script, request)
        if entry.provider in COST_NOTHING:
            return ask(request)
        if self.case.answers == "scripted":
            hint = f"write {SCRIPT_FILE} beside the case: docs/evals.md"
            raise NoAnswer(
                f"nothing is scripted for {_question_in_words(request)}", where=self._where, hint=hint
            )
        # The seed is part of a question: else all repeats would be given the first one's kept answer.
        request = request._replace(seed=(request.seed + self.repeat) % _SEEDS)
        if self.case.answers == "live":
            return self._ask(entry, request, ask)
        return self.once(entry, request, ask, asks=self.records)

    def judge(self, entry: ModelEntry, request: Request, ask: Ask) -> Reply:
        """Return the answer to the question of a judge of the case, whose answers are always kept."""
        if (self.case.answers == "scripted" and self._script) or entry.provider in COST_NOTHING:
            return self.answer(entry, request, ask)
        return self.once(entry, request, ask, asks=self.records or self.case.answers == "live")

    def once(self, entry: ModelEntry, request: Request, ask: Ask, *, asks: bool) -> Reply:
        """Return the kept answer to a question; where there is none, ask (or not: `NoAnswer`) and keep it."""
        question = question_of(entry, request)
        found = self.kept[question]
        if found is None:
            if not asks:
                hint = f"`lemming eval --record {self.name}` asks it once"
                raise NoAnswer(
                    f"no answer is recorded for {_question_in_words(request)}", where=self._where, hint=hint
                )
            reply = self._ask(entry, request, ask)
            about = {"agent": request.agent, "tick": request.tick, "call": request.step}
            self.kept.keep(question, _as_json(reply), **about, model=entry.model)
            # What was kept, with secrets out: the run that records goes by the same words as those after it.
            found = self.kept[question]
        return calls.checked(_reply(found or {}))

    def _ask(self, entry: ModelEntry, request: Request, ask: Ask) -> Reply:
        reply = self.spending.pay(entry, request, ask)
        with self._lock:
            self.asked += 1
        return reply

    @cached_property
    def _script(self) -> ScriptedProvider | None:
        folder = Path(self.base) / Path(self._where).parent
        return ScriptedProvider(file=SCRIPT_FILE, base=folder) if (folder / SCRIPT_FILE).exists() else None

    @property
    def _where(self) -> str:
        return case_file(self.name)

    # --- tools

    def use(self, call: ToolCall, context: ToolContext, make: Callable[[], ToolResult]) -> ToolResult:
        """Return what a tool call gives: what the case says, what it gives in the copy, or what was recorded.

        A call that could reach other machines (class `send`) is made only where a person said --tools.
        """
        tools = toolset_of(context.settings, context.org)
        tool = tools.allowed(context.agent, context.settings).get(call.tool)
        if tool is not None and call.tool in self.case.tools:
            return ToolResult(True, self.case.tools[call.tool])
        if tool is None or tool.tool_class != "send":
            return make()
        name = self._call_named(call, context)
        if found := self.kept[name]:
            effects = tuple(FileEffect.from_json(plain) for plain in found.get("effects", []))
            return ToolResult(bool(found["success"]), str(found["output"]), effects, outcome=found["outcome"])
        if not self.makes_calls:
            why = f"{call.tool} was not called: this is a copy, and nothing is sent from it"
            return ToolResult(False, why, outcome="refused")
        result = make()
        if self.case.answers == "recorded" and self.records:
            plain: Json = {"success": result.success, "outcome": result.outcome, "output": result.output}
            # The files it had written, too: later runs have no call to write them.
            plain["effects"] = [effect.as_json() for effect in result.effects]
            self.kept.keep(name, plain, agent=context.agent.name, tool=call.tool)
        return result

    def _call_named(self, call: ToolCall, context: ToolContext) -> str:
        """Return what names a call: who makes it, of which tool, with what, the first time or a later one."""
        asked = {"agent": context.agent.name, "tool": call.tool, "args": call.args}
        name = sha256(compact(asked)).hexdigest()
        with self._lock:
            self._again[name] = again = self._again.get(name, 0) + 1
        return sha256(f"{name} {again} {self.repeat}".encode()).hexdigest()


def _question_in_words(request: Request) -> str:
    return f"question {request.step} of {request.agent or 'a judge'} in tick {request.tick}"


def _as_json(reply: Reply) -> Json:
    plain: dict[str, Any] = {key: getattr(reply, key) for key in _REPLY}
    told = {key: value for key, value in plain.items() if value != Reply._field_defaults.get(key)}
    return {**told, "calls": [*reply.calls]} if reply.calls else told


def _reply(plain: Json) -> Reply:
    known = {key: plain[key] for key in _REPLY if key in plain}
    return Reply(**{"text": "", **known}, calls=tuple(plain.get("calls", ())))


# --- what was answered before --------------------------------------------------------------------
# By question, a line each: `evals/<name>/recorded.jsonl`.


LIMIT_BYTES = 256 << 20
Json = dict[str, Any]


class Kept:
    """The answers of one case; safe to use from many threads. A line is there before its answer is used.

    The last of several lines of one question counts. A line that is none, such as a crash leaves, is nothing.
    """

    def __init__(self, base: OrgPath, name: str) -> None:
        self._folder = Path(base) / Path(case_file(name)).parent
        self._where = f"{Path(case_file(name)).parent}/{RECORD_FILE}"
        self._lock = threading.Lock()
        self._is_torn = False

    def __getitem__(self, question: str) -> Json | None:
        """Return the answer to a question; None where there is none."""
        with self._lock:
            return self._answers.get(question)

    def keep(self, question: str, answer: Json, **about: Any) -> None:
        """Keep an answer; `about` says for people what the question was. Raises `DiskError`."""
        line = {"question": question, **about, "answer": redact_json(answer)}
        with self._lock:
            self._answers[question] = line["answer"]
            # A line that a crash cut off would swallow this one.
            end = b"\n" if self._is_torn else b""
            fs.append(self._folder, RECORD_FILE, end + compact(line) + b"\n")
            self._is_torn = False

    @cached_property
    def _answers(self) -> dict[str, Json]:
        try:
            raw = fs.read_bytes(self._folder / RECORD_FILE, LIMIT_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise unreadable(self._where, error) from error
        self._is_torn = not raw.endswith(b"\n")
        found: dict[str, Json] = {}
        for line in raw.splitlines():
            with contextlib.suppress(
                JsonProblem, LookupError, TypeError, ValueError
            ):  # then it is asked again
                plain = parse(line, limit_bytes=LIMIT_BYTES)
                found[plain["question"]] = dict(plain["answer"])
        return found
