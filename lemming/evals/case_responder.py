"""Answers for the models and tools of a copy: from a script, from a recording, or live.

A model is called only if the case says `live` or the user passed --record. The cost is reserved before each call.
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

from lemming.evals.rehearsal.rehearsal_runtime import hash_prompt
from lemming.evals.rehearsal.spending_budget import SpendingBudget
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import NoAnswer
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.files import fs
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.files.json_documents import unreadable_error
from lemming.kernel.llm import model_call
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_table import NO_MODELS
from lemming.kernel.providers import LLMProvider, Reply, Request, make_provider
from lemming.kernel.tools import ToolResult, get_toolset
from lemming.kernel.tools.tool_context import ToolContext
from lemming.queries.case_format import RECORD_FILE, SCRIPT_FILE, Case, case_file

Json = dict[str, Any]

FREE_PROVIDERS = frozenset({"scripted", "replay"})
"""Providers that are recordings themselves."""
_SEEDS = 1 << 31
_REPLY_FIELDS = (
    "text", "input_tokens", "output_tokens", "cached_tokens", "written_tokens", "finish", "model", "thinking",
    "kept",
)  # fmt: skip

_DEFAULTS: Json = Reply._field_defaults

Ask = Callable[..., Reply]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of the runs.

    `kept_runs_folder`: folder for the copies of failed runs, or None to delete the copies. `should_record`: call models
    for prompts without a recorded answer. `makes_calls`: run calls of class `send`. `agree`: called with each copy
    before anything of it runs; raises `NotTrusted`.
    """

    spending: SpendingBudget = field(default_factory=SpendingBudget)
    should_record: bool = False
    makes_calls: bool = False
    repeat: int | None = None
    kept_runs_folder: Path | None = None
    agree: Callable[[Path, str, Case], None] = lambda *_: None


@dataclass
class CaseResponder:
    """Source of answers in one run of a case. `repeat`: the run's number from 0; `model_calls`: calls of models."""

    base: OrgPath
    name: str
    case: Case
    cache: AnswerCache
    options: RunOptions
    repeat: int = 0
    model_calls: int = 0
    _call_counts: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # --- models

    def answer_turn(self, entry: ModelEntry, request: Request, ask: Ask) -> Reply:
        """Return the answer to a turn's prompt; `ask` calls the model. Raises: NoAnswer without any answer."""
        if entry.provider in NO_MODELS:
            return ask(request)
        if self.case.answers == "scripted" and self._load_script:
            return model_call.call_provider(self._load_script, request)
        if entry.provider in FREE_PROVIDERS:
            return ask(request)
        if self.case.answers == "scripted":
            hint = f"write {SCRIPT_FILE} next to the case: docs/history.md"
            raise NoAnswer(f"no answer is scripted for {_describe(request)}", where=case_file(self.name), hint=hint)
        # The seed is part of the prompt hash: otherwise all repeats would get the answer recorded for the first.
        request = request._replace(seed=(request.seed + self.repeat) % _SEEDS)
        if self.case.answers == "live":
            return self._ask(entry, request, ask)
        return self.get_or_ask(entry, request, ask, can_ask=self.options.should_record)

    def answer_judge(self, entry: ModelEntry, request: Request, ask: Ask) -> Reply:
        """Return the answer to the prompt of a judge. Answers of judges are always recorded."""
        if (self.case.answers == "scripted" and self._load_script) or entry.provider in FREE_PROVIDERS:
            return self.answer_turn(entry, request, ask)
        return self.get_or_ask(entry, request, ask, can_ask=self.options.should_record or self.case.answers == "live")

    def get_or_ask(self, entry: ModelEntry, request: Request, ask: Ask, *, can_ask: bool) -> Reply:
        """Return the cached answer to a prompt, or ask the model and cache. Raises: NoAnswer unless `can_ask`."""
        prompt_hash = hash_prompt(entry, request)
        answer = self.cache[prompt_hash]
        if answer is None:
            if not can_ask:
                hint = f"`lemming eval --record {self.name}`"
                message = f"no answer is recorded for {_describe(request)}"
                raise NoAnswer(message, where=case_file(self.name), hint=f"record it once with {hint}")
            reply = self._ask(entry, request, ask)
            details = {"agent": request.agent, "tick": request.tick, "call": request.step}
            fields = {key: value for key in _REPLY_FIELDS if (value := getattr(reply, key)) != _DEFAULTS.get(key)}
            record = {**fields, "calls": [*reply.calls]} if reply.calls else fields
            self.cache.store(prompt_hash, record, **details, model=entry.model)
            # Use the redacted answer from the cache, so the recording run sees the same text as later runs.
            answer = self.cache[prompt_hash]
        record = answer or {}
        fields = {key: record[key] for key in _REPLY_FIELDS if key in record}
        return model_call.validate_reply(Reply(**{"text": "", **fields}, calls=tuple(record.get("calls", ()))))

    def _ask(self, entry: ModelEntry, request: Request, ask: Ask) -> Reply:
        reply = self.options.spending.run_within_budget(entry, request, ask)
        with self._lock:
            self.model_calls += 1
        return reply

    @cached_property
    def _load_script(self) -> LLMProvider | None:
        folder = Path(self.base) / Path(case_file(self.name)).parent
        has_script = (folder / SCRIPT_FILE).exists()
        return make_provider("scripted", {"file": SCRIPT_FILE}, base=folder) if has_script else None

    # --- tools

    def run_tool_call(self, call: ToolCall, context: ToolContext, make: Callable[[], ToolResult]) -> ToolResult:
        """Return the result of a tool call: from the case, from the copy, or from the recording.

        A call of class `send` could reach other machines, so such calls run only with --allow-side-effects.
        """
        tools = get_toolset(context.settings, context.org)
        tool = tools.allowed_tools(context.agent, context.settings).get(call.tool)
        if tool is not None and call.tool in self.case.tools:
            return ToolResult(True, self.case.tools[call.tool])
        if tool is None or tool.tool_class != "send":
            return make()
        # The hash includes the number of earlier equal calls.
        content = sha256(dump_compact({"agent": context.agent.name, "tool": call.tool, "args": call.args})).hexdigest()
        with self._lock:
            self._call_counts[content] = count = self._call_counts.get(content, 0) + 1
        call_hash = sha256(f"{content} {count} {self.repeat}".encode()).hexdigest()
        if answer := self.cache[call_hash]:
            effects = tuple(FileEffect.from_json(record) for record in answer.get("effects", []))
            return ToolResult(bool(answer["success"]), str(answer["output"]), effects, outcome=answer["outcome"])
        if not self.options.makes_calls:
            reason = f"{call.tool} was not called: this is a copy, and nothing is sent from it"
            return ToolResult(False, reason, outcome="refused")
        result = make()
        if self.case.answers == "recorded" and self.options.should_record:
            record: Json = {"success": result.success, "outcome": result.outcome, "output": result.output}
            # Record the file effects, too: later runs skip the call that writes the files.
            record["effects"] = [effect.as_json() for effect in result.effects]
            self.cache.store(call_hash, record, agent=context.agent.name, tool=call.tool)
        return result


def _describe(request: Request) -> str:
    return f"question {request.step} of {request.agent or 'a judge'} in tick {request.tick}"


# --- recorded answers ----------------------------------------------------------------------------
# A line for each prompt: `evals/<name>/recorded.jsonl`.


LIMIT_BYTES = 256 << 20


class AnswerCache:
    """The recorded answers of a case. Thread-safe. A line is on disk before the answer is used.

    The last of several lines for the same prompt counts. An unreadable line, for example after a crash, is ignored.
    """

    def __init__(self, base: OrgPath, name: str) -> None:
        self._folder = Path(base) / Path(case_file(name)).parent
        self._where = f"{Path(case_file(name)).parent}/{RECORD_FILE}"
        self._lock = threading.Lock()
        self._is_torn = False

    def __getitem__(self, prompt_hash: str) -> Json | None:
        """Return the answer to a prompt, or None."""
        with self._lock:
            return self._load.get(prompt_hash)

    def store(self, prompt_hash: str, answer: Json, **about: Any) -> None:
        """Append an answer to the file; `about` describes the prompt for human readers. Raises: DiskError."""
        line = {"question": prompt_hash, **about, "answer": redact_json(answer)}
        with self._lock:
            self._load[prompt_hash] = line["answer"]
            # A torn last line would swallow the new line.
            end = b"\n" if self._is_torn else b""
            fs.append(self._folder, RECORD_FILE, end + dump_compact(line) + b"\n")
            self._is_torn = False

    @cached_property
    def _load(self) -> dict[str, Json]:
        try:
            raw = fs.read_bytes(self._folder / RECORD_FILE, LIMIT_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise unreadable_error(self._where, error) from error
        self._is_torn = not raw.endswith(b"\n")
        answers: dict[str, Json] = {}
        for line in raw.splitlines():
            # An unreadable line: the prompt is sent again.
            with contextlib.suppress(JsonProblem, LookupError, TypeError, ValueError):
                record = parse(line, limit_bytes=LIMIT_BYTES)
                answers[record["question"]] = dict(record["answer"])
        return answers
