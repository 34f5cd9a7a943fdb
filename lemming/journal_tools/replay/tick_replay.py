"""Replays recorded ticks with recorded answers and compares the results. No provider is ever called.

In place: the outcome of each turn is computed again from its record (`take_turn` with answers from records
only). Into another folder: the whole engine runs again from the first journal on, in a copy of the
organisation's initial state; models, tools and clock are replaced by the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lemming.capabilities.scripted_models.journal_provider import to_reply
from lemming.engine import run_opened
from lemming.journal_tools.recorded_tick import RecordedTick
from lemming.journal_tools.repair.unknown_calls import without_notes
from lemming.journal_tools.replay.external_arrivals import Arrivals, find_arrivals
from lemming.journal_tools.replay.replay_mismatch import (
    NOT_REPEATABLE,
    OUTSIDE,
    ReplayMismatch,
    make_diff,
    missing_answer_error,
    prompt_to_text,
    redirect_inside,
    require_equal,
    strip_strategy_suffix,
)
from lemming.journal_tools.turn_replay import RecordedAnswers, RecordingExhausted
from lemming.journal_tools.verify.state_root import compute_file_digest
from lemming.kernel.base import paths
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, split_key, turn_key
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.engine_events import Event, TickBegins
from lemming.kernel.journal.journal_file import Journal, journal_ticks, make_prompt_reader, read_journal
from lemming.kernel.journal.journal_records import ModelReplied, TickStarted, TurnCommitted, TurnEnded
from lemming.kernel.journal.ledger import AgentState, amend_state, read_state
from lemming.kernel.journal.turn_report import FileWritten, TurnReport
from lemming.kernel.journal.turn_start import first_prompt
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_loader import can_begin_turn
from lemming.kernel.plugins.capability_table import STRATEGIES_SHIPPED
from lemming.kernel.providers import Reply, Request
from lemming.kernel.tick.recorded_answers import restore_finding, restore_result
from lemming.kernel.tick.runtime import Runtime, open_org
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.tick.state_merge import join_outcome
from lemming.kernel.tick.tick_counter import load_counter, persist_tick
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.dialogue import drop_unanswered
from lemming.kernel.turn.guards import AllowedCall, CheckFinding
from lemming.kernel.turn.recorded_inputs import from_record
from lemming.kernel.turn.turn_loop import take_turn

_MAX_DIFF_BYTES = 1 << 20


@dataclass(frozen=True)
class ReplayResult:
    """A tick with equal results: the number of compared turns, and the turns that cannot be compared."""

    tick: int
    turns: int
    not_repeatable: tuple[str, ...] = ()


# --- in place ----------------------------------------------------------------------------------


def replay_ticks(base: OrgPath, ticks: list[int]) -> Iterator[ReplayResult]:
    """Replay the turns of these ticks in place, and yield each tick with equal results.

    Raises `ReplayMismatch` at the first differing turn. Writes nothing. Unfinished turns of the current tick
    are skipped. Raises `ConfigError` for a turn started with a capability that is not installed.
    """
    expected_states, prompts = _ExpectedStates(), make_prompt_reader(base)
    for tick in ticks:
        recorded = RecordedTick(tick, read_journal(base, tick, prompts=prompts))
        names = [name for name, ended in recorded.ended.items() if isinstance(ended, TurnCommitted)]
        names = [name for name in names if name in recorded.started]
        not_repeatable = tuple(name for name in names if recorded.ended[name].report.error in NOT_REPEATABLE)
        for name in names:
            expected_states.compare(recorded, name)
            if name not in not_repeatable:
                agent = split_key(name)[0]
                expected_states.states[agent] = _replay_turn(
                    base, recorded, name, expected_states.states.get(agent)
                )
        yield ReplayResult(tick, len(names) - len(not_repeatable), not_repeatable)


def _to_recorded_format(report: TurnReport, recorded: TurnReport) -> dict[str, Any]:
    """Return a report as JSON with the fields of the journal: version 0.1.0 did not record `end`."""
    fields = report.as_json()
    if not recorded.end:
        del fields["end"]
        fields["tools"] = [
            {"tool": tool_use["tool"], "success": tool_use["success"]} for tool_use in report.tools
        ]
    return fields


def _replay_turn(
    base: OrgPath, recorded: RecordedTick, name: str, current: dict[str, Any] | None
) -> dict[str, Any]:
    """Replay a recorded turn and return the agent's state after the turn.

    `current`: the agent's state after its previous turn in the same tick.
    """
    started, ended, tick = recorded.started[name], recorded.ended[name], recorded.tick
    answers = RecordedAnswers(recorded, started.agent, started.turn)
    plugins = tuple(load_config(base).org.plugins) if started.given else None
    try:
        inputs = from_record(started, tick)
        outcome = take_turn(inputs, answers, plugins)
        if current:
            outcome = join_outcome(inputs, outcome, AgentState.from_json(current))
    except RecordingExhausted as end:
        raise missing_answer_error(recorded, name, str(end)) from None
    replayed = _to_recorded_format(outcome.report, ended.report)
    require_equal(ended.as_json(), replayed, tick=tick, agent=name, subject="turn")
    state = outcome.state.as_json()
    require_equal(ended.state or {}, state, tick=tick, agent=name, subject="state")
    return state


@dataclass
class _ExpectedStates:
    """The state after each agent's last turn, from which its next turn must start.

    People may add notes on calls in between.
    """

    states: dict[str, dict[str, Any]] = field(default_factory=dict)

    def compare(self, recorded: RecordedTick, name: str) -> None:
        started = recorded.started[name]
        if started.turn:  # it may have started from what the first one did
            return
        start_state, state = started.state, self.states.pop(started.agent, None)
        if state is not None and start_state["tick"] == state["tick"]:
            require_equal(
                without_notes(start_state),
                without_notes(state),
                tick=recorded.tick,
                agent=name,
                subject="state before the turn",
            )


# --- into another folder -----------------------------------------------------------------------


def replay_into(base: OrgPath, into: Path, ticks: list[int]) -> Iterator[ReplayResult]:
    """Replay recorded ticks in the folder `into`, and yield each tick with equal results.

    `ticks` must begin with the first journal. `into` must be empty or missing; afterwards the folder is an
    independent organisation, up to the last equal tick. Raises `ReplayMismatch` at the first differing
    prompt, plan or effect, and `UsageError` for an unusable folder.
    """
    into = paths.as_base(into)
    _require_empty_folder(base, into)
    arrivals = find_arrivals(base)
    fs.make_root(into)
    fs.make_folder(into, "agents")
    with open_org(into, command="replay") as open_runtime:
        runtime = ReplayRuntime(
            open_runtime.org, open_runtime.clock, epoch=open_runtime.epoch, original=Path(base)
        )
        prompts = make_prompt_reader(base)
        for tick in ticks:
            recorded = RecordedTick(tick, read_journal(base, tick, prompts=prompts))
            yield _replay_tick(runtime, arrivals, recorded)
        if ticks[-1] == journal_ticks(base)[-1]:
            arrivals.deliver(Path(base), into, None)
            counter_tick, read_at = max(load_counter(base), load_counter(into))
            persist_tick(into, counter_tick, read_at=read_at)  # quiet ticks at the end


def list_replayable_ticks(base: OrgPath, last: int | None) -> list[int]:
    """Return the committed ticks from the first journal on, up to `last`.

    Raises `UsageError` if there are none, or if earlier journals are missing.
    """
    ticks = [tick for tick in journal_ticks(base) if last is None or tick <= last]
    while ticks and not RecordedTick(ticks[-1], read_journal(base, ticks[-1])).commit_record:
        ticks.pop()
    if not ticks:
        raise UsageError("there is no finished tick to run again", hint="`lemming run-once` makes one")
    for agent, started in RecordedTick(ticks[0], read_journal(base, ticks[0])).started.items():
        if started.state["status"] and not started.turn:
            raise UsageError(
                f"the journals begin at tick {ticks[0]}, when {agent} had had turns already",
                hint="without --into, each turn is worked out again from its own record",
            )
    return ticks


def _require_empty_folder(base: OrgPath, into: Path) -> None:
    if into.resolve().is_relative_to(Path(base).resolve()):
        raise UsageError(f"{into} lies inside the organisation", hint="name a folder elsewhere")
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageError(f"{into} is not an empty folder", hint="name one that does not exist yet")


def _replay_tick(runtime: ReplayRuntime, arrivals: Arrivals, recorded: RecordedTick) -> ReplayResult:
    runtime.begin_tick(recorded)
    arrivals.deliver(runtime.original, runtime.base, recorded.tick)
    if not (runtime.base / paths.TICK_FILE).exists():
        persist_tick(runtime.base, recorded.tick)
    restore_call_notes(runtime, recorded)
    abandoned = restore_abandoned_turns(runtime, recorded)
    runtime.is_immediate = recorded.start_record.at_once
    runtime.chosen = tuple(recorded.start_record.chosen)
    run_opened(
        runtime, recorded.tick, advance=recorded.commit_record is not None and recorded.commit_record.advanced
    )
    return ReplayResult(recorded.tick, len(recorded.ended) - len(abandoned), abandoned)


def restore_call_notes(runtime: Runtime, recorded: RecordedTick) -> None:
    """Restore people's notes about unknown calls from before this tick."""
    for name, started in recorded.started.items():
        if started.turn:
            continue
        recorded_state, state = started.state, read_state(runtime.org, name)
        current_state = state.as_json()
        if recorded_state != current_state and without_notes(recorded_state) == without_notes(current_state):
            amend_state(runtime.org, name, AgentState.from_json(recorded_state))


def restore_abandoned_turns(runtime: Runtime, recorded: RecordedTick) -> tuple[str, ...]:
    """Write the ends of unrepeatable turns into the new journal, in the role of an earlier attempt."""
    ends = [ended for ended in recorded.ended.values() if ended.report.error in NOT_REPEATABLE]
    if ends:
        with Journal(runtime.base, recorded.tick, epoch=runtime.epoch, durability="off") as journal:
            plan_fields = {
                key: value for key, value in recorded.start_record.as_json().items() if key != "boot"
            }
            for record in [TickStarted(**plan_fields), *ends]:
                journal.append(record)  # without a boot, files count as lost and are written
    return tuple(ended.agent_name for ended in ends)


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
        """Return the recorded answer, or raise the recorded failure, after comparing the prompt with the
        recorded one.
        """
        record = self.recorded.answers.get((request.agent, request.step))
        if record is None:
            raise missing_answer_error(self.recorded, request.agent, f"call {request.step} of its model")
        turn, step = divmod(request.step, NUMBERS_PER_TURN)
        started = self.recorded.started[turn_key(request.agent, turn)]
        # What a capability shows first comes after the prompt, or is a result that waited.
        continues = step or any(map(can_begin_turn, started.given))
        recorded = (
            [*started.prompt, *drop_unanswered(started.dialogue)] if continues else first_prompt(started)
        )
        messages = request.messages[: len(recorded)] if continues else request.messages
        if strategy := started.resume["turn"].get("strategy"):  # it asks what it likes
            is_free = step or strategy not in STRATEGIES_SHIPPED
            messages = recorded if is_free else strip_strategy_suffix(messages, recorded)
        if messages != recorded:
            raise ReplayMismatch(
                "the prompt is not the recorded one",
                tick=request.tick,
                agent=request.agent,
                subject="prompt",
                diff=make_diff(prompt_to_text(recorded), prompt_to_text(messages), "prompt"),
                hint="what it is built from has changed: the resume, a context file, a setting, a memory",
            )
        self._time = record.at if isinstance(record, ModelReplied) else self._time
        return to_reply(record)

    def write_off(self, agent: str, call: int, write_off: WriteOff) -> WriteOff:
        """Return the write-off of the recorded tick."""
        return WriteOff.from_json(self.recorded.answers[agent, call].lost)

    def before_model_call(self, *_: Any) -> Iterator[GateVerdict]:
        """Return no verdicts: the recording contains the prevented calls."""
        return iter(())

    def scan_servers(self, snapshot: Snapshot) -> dict[str, Json]:
        """Return the scan result of the recorded tick; no server is contacted."""
        return self.recorded.start_record.server_tools

    def before_tool_call(
        self, agent: str, index: int, call: ToolCall, look: Callable[[], AllowedCall | ToolResult]
    ) -> AllowedCall | ToolResult:
        """Return the recorded call or its recorded result; no guard and no person is asked."""
        announced = self.recorded.announced.get((agent, index))
        finished = self.recorded.tools.get((agent, index))
        outcomes = (
            [verdict["then"] for verdict in finished.verdicts if verdict["at"] == "call"] if finished else []
        )
        if finished and not {"ask", "block", "stop"}.isdisjoint(outcomes):
            return restore_result(finished)
        return AllowedCall(call._replace(args=announced.args) if announced else call)

    def call_function(
        self, agent: str, number: int, name: str, ask: Callable[[], CheckFinding | None]
    ) -> CheckFinding | None:
        """Return the recorded result of the function; no function is called."""
        record = self.recorded.checked.get((agent, number))
        if record is None:
            raise missing_answer_error(self.recorded, agent, f"what {name} said to a gate")
        return restore_finding(record)

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
            require_equal(plan, event.as_json(), tick=tick, agent="", subject="plan", ignored=["broken"])
        elif isinstance(event, TurnEnded):
            self._compare_turn(event.report)

    def _compare_turn(self, report: TurnReport) -> None:
        agent, ended = report.agent, self.recorded.ended[report.turn_key]
        outside = f"{self.base}/{OUTSIDE}"
        files = [
            FileWritten(path=file["path"].removeprefix(outside), sha256=file["sha256"])
            for file in report.files
        ]
        removed = [path.removeprefix(outside) for path in report.removed]
        early_paths = sorted(path.removeprefix(outside) for path in report.written_ahead)
        try:
            # Why a turn failed may name a path, and how long it took is not an effect.
            ignored = ["reason", "duration_ms"]
            require_equal(
                ended.as_json(),
                {**_to_recorded_format(report, ended.report), "files": files, "written_ahead": early_paths}
                | ({"removed": removed} if removed else {}),
                tick=self.recorded.tick,
                agent=agent,
                subject="turn",
                ignored=ignored,
            )
        except ReplayMismatch as mismatch:
            texts = [mismatch.diff, *self._iter_changed_files(ended, files)]
            mismatch.diff = "\n".join(texts)
            raise

    def _iter_changed_files(self, ended: TurnEnded, files: list[FileWritten]) -> Iterator[str]:
        """Yield the diff of each changed file of the organisation if its recorded bytes still exist."""
        replayed_digests = {file["path"]: file["sha256"] for file in files}
        for file in ended.report.files:
            path, digest = file["path"], file["sha256"]
            original_path, replayed_path = self.original / path, self.base / path
            if (
                replayed_digests.get(path, digest) == digest
                or path.startswith("/")
                or not original_path.is_file()
            ):
                continue
            if compute_file_digest(self.original, path) == digest:
                yield make_diff(_load_text(original_path), _load_text(replayed_path), path)


def _load_text(file: Path) -> str:
    return fs.read_bytes(file, _MAX_DIFF_BYTES)[:_MAX_DIFF_BYTES].decode("utf-8", "replace")
