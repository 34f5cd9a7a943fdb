"""The runtime of a replay: model replies and tool results come from the journal, and each turn is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from pathlib import Path
from typing import Any

from lemming.journal_tools.recorded_tick import RecordedTick, first_prompt
from lemming.journal_tools.tick_records import to_reply
from lemming.journal_tools.verify.state_root import compute_file_digest
from lemming.kernel.base import paths
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.jsontext import dump_compact, dump_pretty, parse
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, turn_key
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.engine_events import Event, TickBegins
from lemming.kernel.journal.journal_records import ModelReplied, TickStarted, TurnEnded
from lemming.kernel.journal.turn_report import FileWritten, TurnReport
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.org.config import Config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_loader import get_capability
from lemming.kernel.plugins.capability_table import STRATEGIES_SHIPPED
from lemming.kernel.providers import Reply, Request
from lemming.kernel.tick.recorded_answers import restore_finding, restore_result
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick_context import TickContext
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.dialogue import drop_unanswered
from lemming.kernel.turn.turn_values import CheckFinding

_MAX_DIFF_BYTES = 1 << 20


def to_recorded_format(report: TurnReport, recorded: TurnReport) -> dict[str, Any]:
    """Return a report as JSON with the fields of the journal: version 0.1.0 did not record `end`."""
    fields = report.as_json()
    if not recorded.end:
        del fields["end"]
        fields["tools"] = [{"tool": tool_use["tool"], "success": tool_use["success"]} for tool_use in report.tools]
    return fields


def to_recorded_state(state: dict[str, Any], recorded: TickStarted) -> dict[str, Any]:
    """Return a state with the fields of the journal: up to version 0.2.0 a request that waited had no `dialogue`."""
    if recorded.settings or not state.get("requests"):  # those versions recorded no settings files
        return state
    requests = [{key: request[key] for key in request if key != "dialogue"} for request in state["requests"]]
    return {**state, "requests": requests}


@dataclass
class ReplayRuntime(Runtime):
    """A runtime with a recording in place of the world: models, tools and the clock answer from the record.

    Compares during the run and raises `ReplayMismatch` at the first difference.
    """

    is_live: bool = False
    uses_gateways: bool = False
    original: Path = Path()
    recorded: RecordedTick = field(default_factory=RecordedTick)
    _time: str = ""

    def __post_init__(self) -> None:
        self.observers = (self._on_event,)

    def begin_tick(self, recorded: RecordedTick) -> None:
        """Select the next tick of the recording."""
        self.recorded, self._time = recorded, recorded.start_record.at

    def load_config(self) -> Config:
        """Load the settings. A script is not read, because the file may lie outside the copy."""
        config = super().load_config()
        models = {
            key: replace(entry, provider="replay", options={"journals": paths.JOURNALS})
            if entry.provider == "scripted"
            else entry
            for key, entry in config.models.items()
        }
        return replace(config, models=models)

    def now(self) -> str:
        """Return the recorded time."""
        return self._time

    def previous_reading(self, tick: int, ticks: list[int]) -> str:
        """Return the clock reading the recorded tick started from: ticks without turns are not replayed."""
        return self.recorded.start_record.since

    def complete(self, entry: ModelEntry, request: Request, *, live: bool = False) -> Reply:
        """Return the recorded answer or raise the recorded failure, after comparing the prompt with the record."""
        record = self.recorded.answers.get((request.agent, request.step))
        if record is None:
            raise missing_answer_error(self.recorded, request.agent, f"call {request.step} of its model")
        turn, step = divmod(request.step, NUMBERS_PER_TURN)
        started = self.recorded.started[turn_key(request.agent, turn)]
        # A capability adds messages after the prompt, or a result that waited.
        continues = step or any(get_capability(name).can_begin for name in started.given)
        recorded = [*started.prompt, *drop_unanswered(started.dialogue)] if continues else first_prompt(started)
        messages = request.messages[: len(recorded)] if continues else request.messages
        strategy = started.resume["turn"].get("strategy")
        # A judge asks with instructions of its own; a strategy may ask anything after its first question.
        is_own = step and (strategy or messages[:1] != recorded[:1])
        is_free = is_own or strategy not in (None, *STRATEGIES_SHIPPED)
        if strategy and not is_free and len(recorded) <= len(messages) and recorded:
            # without the text that a strategy has appended
            last, content = messages[len(recorded) - 1], recorded[-1]["content"]
            if last["content"].startswith(content):
                messages = [*messages[: len(recorded) - 1], {**last, "content": content}]
        if messages != recorded and not is_free:
            raise ReplayMismatch(
                "the prompt differs from the recorded prompt",
                tick=request.tick,
                agent=request.agent,
                subject="prompt",
                diff=make_diff(prompt_to_text(recorded), prompt_to_text(messages), "prompt"),
                hint=(
                    "check its sources for changes: the resume, a context file, a setting, a memory; the prompts of an "
                    "earlier version are compared without --into only"
                ),
            )
        # The clock of a replay moves with the recorded answers.
        self._time = record.at if isinstance(record, ModelReplied) else self._time
        return to_reply(record)

    def write_off(self, agent: str, call: int, write_off: WriteOff) -> WriteOff:
        """Return the write-off of the recorded tick."""
        record = self.recorded.answers.get((agent, call))
        return WriteOff.from_json(record.lost) if record else write_off

    def scan_servers(self, tick_context: TickContext) -> dict[str, Json]:
        """Return the scan result of the recorded tick; no server is contacted."""
        return self.recorded.start_record.server_tools

    def recorded_decision(self, agent: str, index: int, call: ToolCall) -> ToolCall | ToolResult:
        """Return the recorded call or its recorded result; no interceptor and no person is asked."""
        announced = self.recorded.announced.get((agent, index))
        finished = self.recorded.tools.get((agent, index))
        if finished and not announced:
            outcomes = [verdict["then"] for verdict in finished.verdicts if verdict["at"] == "call"]
            is_blocked = finished.outcome in ("refused", "deferred") or bool(finished.entries_by)
            if is_blocked or not {"ask", "block", "stop"}.isdisjoint(outcomes):
                return restore_result(finished)
        return call._replace(args=announced.args) if announced else call

    def call_function(
        self, agent: str, number: int, name: str, ask: Callable[[], CheckFinding | None]
    ) -> CheckFinding | None:
        """Return the recorded result of the function; no function is called."""
        record = self.recorded.checked.get((agent, number))
        if record is None:
            raise missing_answer_error(self.recorded, agent, f"the answer of {name} to a gate")
        return restore_finding(record)

    def find_urgent(self, agent: str, call: int, look: Callable[[], dict[str, str]]) -> Mapping[str, str]:
        """Return the recorded urgent entries; no outbox is looked at."""
        record = self.recorded.urgent.get((agent, call))
        return record.entries if record else {}

    def call_tool(self, index: int, call: ToolCall, context: ToolContext) -> ToolResult:
        """Return the recorded result; no tool runs, and files outside the organisation stay unchanged."""
        finished = self.recorded.tools.get((context.agent.name, index))
        if finished is None:
            raise missing_answer_error(self.recorded, context.agent.name, f"tool call {index}")
        result = restore_result(finished)
        return replace(result, effects=tuple(redirect_inside(self.base, effect) for effect in result.effects))

    def _on_event(self, event: Event) -> None:
        tick = self.recorded.tick
        if isinstance(event, TickBegins):
            plan = self.recorded.start_record.as_json()
            require_equal(plan, event.as_json(), tick, "", subject="plan", ignored=["broken"])
        elif isinstance(event, TurnEnded):
            self._compare_turn(event.report)

    def _compare_turn(self, report: TurnReport) -> None:
        ended, outside = self.recorded.ended[report.turn_key], f"{self.base}/{OUTSIDE}"
        files = [FileWritten(path=file["path"].removeprefix(outside), sha256=file["sha256"]) for file in report.files]
        replayed = {
            **to_recorded_format(report, ended.report),
            "files": files,
            "written_ahead": sorted(path.removeprefix(outside) for path in report.written_ahead),
        }
        if report.removed:
            replayed["removed"] = [path.removeprefix(outside) for path in report.removed]
        # The reason of a failure may name a path, and the duration is no effect.
        ignored, place = ["reason", "duration_ms"], (self.recorded.tick, report.agent)
        try:
            require_equal(ended.as_json(), replayed, *place, subject="turn", ignored=ignored)
        except ReplayMismatch as mismatch:
            mismatch.diff = "\n".join([mismatch.diff, *self._iter_changed_files(ended, files)])
            raise

    def _iter_changed_files(self, ended: TurnEnded, files: list[FileWritten]) -> Iterator[str]:
        """Yield the diff of each changed file of the organisation if its recorded bytes still exist."""
        replayed_digests = {file["path"]: file["sha256"] for file in files}
        for file in ended.report.files:
            path, digest = file["path"], file["sha256"]
            original_path, replayed_path = self.original / path, self.base / path
            if replayed_digests.get(path, digest) == digest or path.startswith("/") or not original_path.is_file():
                continue
            if compute_file_digest(self.original, path) == digest:
                contents = (fs.read_bytes(file, _MAX_DIFF_BYTES) for file in (original_path, replayed_path))
                old_text, new_text = (raw[:_MAX_DIFF_BYTES].decode("utf-8", "replace") for raw in contents)
                yield make_diff(old_text, new_text, path)


NOT_REPEATABLE = ("Interrupted", "DiskError", "NoLongerAllowed", "TurnBroke")
"""Errors caused by the engine or the disk: the recorded answers do not lead to them again."""

_CONTEXT_LINES = 2


class ReplayMismatch(LemmingError):
    """A replay that differs from the recorded tick. `diff` is a unified diff from recorded to replayed."""

    code = "LMG-107"

    def __init__(
        self, message: str, *, tick: int, agent: str = "", subject: str = "", diff: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, where=f"tick {tick}" + (f", {agent}" if agent else ""), hint=hint)
        self.tick, self.agent, self.what, self.diff = tick, agent, subject, diff

    def as_json(self) -> dict[str, Any]:
        """Return the error with its location and the diff."""
        location = {"tick": self.tick, "agent": self.agent, "what": self.what}
        return {**super().as_json(), **location, "diff": self.diff}


def missing_answer_error(recorded: RecordedTick, agent: str, description: str) -> ReplayMismatch:
    """Return the error for an answer missing from the recorded turn."""
    ended = recorded.ended.get(agent)
    status = f"the recorded turn ended as {ended.report.status}" if ended else "it had no turn in the record"
    reason = f": {ended.report.reason}" if ended and ended.report.reason else ""
    return ReplayMismatch(
        f"no recorded answer for {description}; {status}{reason}", tick=recorded.tick, agent=agent, subject="answer"
    )


def require_equal(
    recorded: Json, replayed: Json, tick: int, agent: str, *, subject: str, ignored: Iterable[str] = (), hint: str = ""
) -> None:
    """Raise `ReplayMismatch` unless both agree in all common keys, except the keys in `ignored`."""
    keys = [key for key in replayed if key in recorded and key not in set(ignored)]
    recorded_values = {key: recorded[key] for key in keys}
    replayed_values = parse(dump_compact({key: replayed[key] for key in keys}), limit_bytes=1 << 30)
    if recorded_values == replayed_values:
        return
    changed = ", ".join(key for key in keys if recorded_values[key] != replayed_values[key])
    diff = make_diff(dump_pretty(recorded_values).decode(), dump_pretty(replayed_values).decode(), subject)
    raise ReplayMismatch(f"{subject} differs: {changed}", tick=tick, agent=agent, subject=subject, diff=diff, hint=hint)


def make_diff(recorded: str, replayed: str, name: str) -> str:
    """Return a unified diff of two texts, without a final line end."""
    lines = unified_diff(
        recorded.splitlines(), replayed.splitlines(), f"{name} (recorded)", f"{name} (now)",
        lineterm="", n=_CONTEXT_LINES,
    )  # fmt: skip
    return "\n".join(lines)


def prompt_to_text(messages: Iterable[dict[str, str]]) -> str:
    """Return a prompt as text, for a diff."""
    return "\n".join(f"--- {message['role']}\n{message['content']}" for message in messages)


OUTSIDE = ".lemming/outside"
"""Folder of replayed ticks."""


def redirect_inside(base: Path, effect: FileEffect) -> FileEffect:
    """Return an effect confined to the organisation in `base`."""
    if not effect.root:
        return effect
    # A replay must not write into the granted folders outside the organisation.
    root = Path(f"{base}/{OUTSIDE}{effect.root}")
    fs.make_root(root)
    return replace(effect, root=str(root))
