"""Recorded ticks, run again with recorded answers and compared. No provider is ever called.

In place: each turn's outcome is worked out again from its record (`take_turn` with answers that have nothing
but records). Into another folder: the whole engine runs again there, from the first journal on, on an
organisation that starts as this one did; its models, tools and clock are the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lemming.capabilities.scripted.replay import replayed
from lemming.engine import run_opened
from lemming.kernel.base import paths
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, split_key, turn_key
from lemming.kernel.files import fs
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.events import Event, TickBegins
from lemming.kernel.journal.file import Journal, journal_ticks, prompts_in, read_journal
from lemming.kernel.journal.ledger import AgentState, amend_state, read_state
from lemming.kernel.journal.lost_calls import Lost
from lemming.kernel.journal.records import ModelReplied, TickStarted, TurnCommitted, TurnEnded
from lemming.kernel.journal.report import FileWritten, TurnReport
from lemming.kernel.journal.turn_start import first_question
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capabilities import may_begin
from lemming.kernel.plugins.shipped import STRATEGIES_SHIPPED
from lemming.kernel.providers import Reply, Request
from lemming.kernel.tick.counter import load_counter, persist_tick
from lemming.kernel.tick.recorded_answers import recorded_finding, recorded_result
from lemming.kernel.tick.runtime import Runtime, open_org
from lemming.kernel.tick.side_by_side import joined
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.turn.dialogue import drop_unanswered
from lemming.kernel.turn.loop import take_turn
from lemming.kernel.turn.on_record import from_record
from lemming.kernel.turn.places import Found, Passed
from lemming.timeline.record import RecordedTick
from lemming.timeline.repair.unknown import without_words
from lemming.timeline.replay.arrivals import Arrivals, find_arrivals
from lemming.timeline.replay.recording import (
    NOT_REPEATABLE,
    OUTSIDE,
    Difference,
    as_text,
    diff_of,
    missing,
    moved_inside,
    require_same,
    without_question,
)
from lemming.timeline.retake import RecordedAnswers, RecordEnds
from lemming.timeline.verify.root import file_digest

_SHOWN_BYTES = 1 << 20


@dataclass(frozen=True)
class Replayed:
    """A tick that came out the same: how many turns were compared, and who could not be."""

    tick: int
    turns: int
    not_repeatable: tuple[str, ...] = ()


# --- in place ----------------------------------------------------------------------------------


def replay(base: OrgPath, ticks: list[int]) -> Iterator[Replayed]:
    """Work out the turns of these ticks again and yield each tick that came out the same.

    Raises `Difference` at the first turn that does not. Nothing is written. Turns that a tick under way has
    not ended are passed over. Raises `ConfigError` for a turn begun with a capability that is not here.
    """
    after, prompts = _After(), prompts_in(base)
    for tick in ticks:
        recorded = RecordedTick(tick, read_journal(base, tick, prompts=prompts))
        names = [name for name, ended in recorded.ended.items() if isinstance(ended, TurnCommitted)]
        names = [name for name in names if name in recorded.started]
        lost = tuple(name for name in names if recorded.ended[name].report.error in NOT_REPEATABLE)
        for name in names:
            after.compare(recorded, name)
            if name not in lost:
                agent = split_key(name)[0]
                after.states[agent] = _retake(base, recorded, name, after.states.get(agent))
        yield Replayed(tick, len(names) - len(lost), lost)


def _as_recorded(report: TurnReport, recorded: TurnReport) -> dict[str, Any]:
    """Return a report as JSON, of what the journal's has: version 0.1.0 did not say how things ended."""
    plain = report.as_json()
    if not recorded.end:
        del plain["end"]
        plain["tools"] = [{"tool": used["tool"], "success": used["success"]} for used in report.tools]
    return plain


def _retake(
    base: OrgPath, recorded: RecordedTick, name: str, current: dict[str, Any] | None
) -> dict[str, Any]:
    """Take one recorded turn again; return the agent's state after it.

    `current`: its state after the turn before in the same tick.
    """
    started, ended, tick = recorded.started[name], recorded.ended[name], recorded.tick
    answers = RecordedAnswers(recorded, started.agent, started.turn)
    plugins = tuple(load_config(base).org.plugins) if started.given else None
    try:
        inputs = from_record(started, tick)
        outcome = take_turn(inputs, answers, plugins)
        if current:
            outcome = joined(inputs, outcome, AgentState.from_json(current))
    except RecordEnds as end:
        raise missing(recorded, name, str(end)) from None
    now = _as_recorded(outcome.report, ended.report)
    require_same(ended.as_json(), now, tick=tick, agent=name, what="turn")
    state = outcome.state.as_json()
    require_same(ended.state or {}, state, tick=tick, agent=name, what="state")
    return state


@dataclass
class _After:
    """The state in which each agent's last turn left it; its next turn must start from there.

    People may have added their word on a call in between.
    """

    states: dict[str, dict[str, Any]] = field(default_factory=dict)

    def compare(self, recorded: RecordedTick, name: str) -> None:
        started = recorded.started[name]
        if started.turn:  # it may have started from what the first one did
            return
        before, state = started.state, self.states.pop(started.agent, None)
        if state is not None and before["tick"] == state["tick"]:
            require_same(
                without_words(before),
                without_words(state),
                tick=recorded.tick,
                agent=name,
                what="state before the turn",
            )


# --- into another folder -----------------------------------------------------------------------


def replay_into(base: OrgPath, into: Path, ticks: list[int]) -> Iterator[Replayed]:
    """Run recorded ticks again in the folder `into`, and yield each that came out the same.

    `ticks` must begin with the first journal. `into` must be empty or not there; afterwards it is an
    organisation of its own, up to where the ticks came out the same. Raises `Difference` at the first prompt,
    plan or effect that does not, and `UsageError` for a folder that cannot be used.
    """
    into = paths.as_base(into)
    _require_room(base, into)
    arrivals = find_arrivals(base)
    fs.make_root(into)
    fs.make_folder(into, "agents")
    with open_org(into, command="replay") as opened:
        runtime = Rerun(opened.org, opened.clock, epoch=opened.epoch, original=Path(base))
        prompts = prompts_in(base)
        for tick in ticks:
            recorded = RecordedTick(tick, read_journal(base, tick, prompts=prompts))
            yield _run_again(runtime, arrivals, recorded)
        if ticks[-1] == journal_ticks(base)[-1]:
            arrivals.deliver(Path(base), into, None)
            counted, read_at = max(load_counter(base), load_counter(into))
            persist_tick(into, counted, read_at=read_at)  # quiet ticks at the end


def ticks_to_rerun(base: OrgPath, last: int | None) -> list[int]:
    """Return the committed ticks from the first journal on, up to `last`.

    Raises `UsageError` when there are none, or when the first one does not begin at the beginning.
    """
    ticks = [tick for tick in journal_ticks(base) if last is None or tick <= last]
    while ticks and not RecordedTick(ticks[-1], read_journal(base, ticks[-1])).end:
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


def _require_room(base: OrgPath, into: Path) -> None:
    if into.resolve().is_relative_to(Path(base).resolve()):
        raise UsageError(f"{into} lies inside the organisation", hint="name a folder elsewhere")
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageError(f"{into} is not an empty folder", hint="name one that does not exist yet")


def _run_again(runtime: Rerun, arrivals: Arrivals, recorded: RecordedTick) -> Replayed:
    runtime.begin(recorded)
    arrivals.deliver(runtime.original, runtime.base, recorded.tick)
    if not (runtime.base / paths.TICK_FILE).exists():
        persist_tick(runtime.base, recorded.tick)
    say_again(runtime, recorded)
    lost = give_up_again(runtime, recorded)
    runtime.hurries = recorded.begin.at_once
    runtime.chosen = tuple(recorded.begin.chosen)
    run_opened(runtime, recorded.tick, advance=recorded.end is not None and recorded.end.advanced)
    return Replayed(recorded.tick, len(recorded.ended) - len(lost), lost)


def say_again(runtime: Runtime, recorded: RecordedTick) -> None:
    """Let agents know what people had found out about their calls before this tick."""
    for name, started in recorded.started.items():
        if started.turn:
            continue
        told, state = started.state, read_state(runtime.org, name)
        plain = state.as_json()
        if told != plain and without_words(told) == without_words(plain):
            amend_state(runtime.org, name, AgentState.from_json(told))


def give_up_again(runtime: Runtime, recorded: RecordedTick) -> tuple[str, ...]:
    """Write the ends of turns that cannot be repeated into the new journal, as an earlier attempt would."""
    ends = [ended for ended in recorded.ended.values() if ended.report.error in NOT_REPEATABLE]
    if ends:
        with Journal(runtime.base, recorded.tick, epoch=runtime.epoch, durability="off") as journal:
            plan = {key: value for key, value in recorded.begin.as_json().items() if key != "boot"}
            for record in [TickStarted(**plan), *ends]:
                journal.append(record)  # without a boot, files count as lost and are written
    return tuple(ended.about for ended in ends)


@dataclass
class Rerun(Runtime):
    """A runtime whose world is a recording: what models, tools and the clock answered, and nothing else.

    It compares as it goes and raises `Difference` from where the two runs part.
    """

    is_live: bool = False
    sees_to_channels: bool = False
    original: Path = Path()
    recorded: RecordedTick = field(default_factory=RecordedTick)
    _time: str = ""

    def __post_init__(self) -> None:
        self.observers = (self._hear,)

    def begin(self, recorded: RecordedTick) -> None:
        """Turn to the next tick of the recording."""
        self.recorded, self._time = recorded, recorded.begin.at

    def load_config(self) -> Config:
        """Read the settings afresh. A script is not read: it may lie outside what was brought here."""
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
        """Return what the recorded tick started from: ticks without turns are not run again."""
        return self.recorded.begin.since

    def complete(self, entry: ModelEntry, request: Request, *, live: bool = False) -> Reply:
        """Return the recorded answer, or raise the recorded failure, to a prompt that is the recorded one."""
        record = self.recorded.answers.get((request.agent, request.step))
        if record is None:
            raise missing(self.recorded, request.agent, f"call {request.step} of its model")
        turn, step = divmod(request.step, NUMBERS_PER_TURN)
        started = self.recorded.started[turn_key(request.agent, turn)]
        # What a capability shows first comes after the prompt, or is a result that waited.
        goes_on = step or any(map(may_begin, started.given))
        recorded = (
            [*started.prompt, *drop_unanswered(started.dialogue)] if goes_on else first_question(started)
        )
        now = request.messages[: len(recorded)] if goes_on else request.messages
        if strategy := started.resume["turn"].get("strategy"):  # it asks what it likes
            is_free = step or strategy not in STRATEGIES_SHIPPED
            now = recorded if is_free else without_question(now, recorded)
        if now != recorded:
            raise Difference(
                "the prompt is not the recorded one",
                tick=request.tick,
                agent=request.agent,
                what="prompt",
                diff=diff_of(as_text(recorded), as_text(now), "prompt"),
                hint="what it is built from has changed: the resume, a context file, a setting, a memory",
            )
        self._time = record.at if isinstance(record, ModelReplied) else self._time
        return replayed(record)

    def lost(self, agent: str, call: int, found: Lost) -> Lost:
        """Return what was lost in the recorded tick."""
        return Lost.of(self.recorded.answers[agent, call].lost)

    def may_ask(self, *_: Any) -> Iterator[GateVerdict]:
        """Return nothing: what was not asked stands in the recording."""
        return iter(())

    def look_at_servers(self, snapshot: Snapshot) -> dict[str, Json]:
        """Return what the recorded tick found; no server is asked."""
        return self.recorded.begin.servers

    def may_call(
        self, agent: str, index: int, call: ToolCall, look: Callable[[], Passed | ToolResult]
    ) -> Passed | ToolResult:
        """Return the call as it was made in the recorded tick, or its result; nobody looks, or is asked."""
        announced = self.recorded.announced.get((agent, index))
        finished = self.recorded.tools.get((agent, index))
        said = [it["then"] for it in finished.verdicts if it["at"] == "call"] if finished else []
        if finished and not {"ask", "block", "stop"}.isdisjoint(said):
            return recorded_result(finished)
        return Passed(call._replace(args=announced.args) if announced else call)

    def check(self, agent: str, number: int, name: str, ask: Callable[[], Found | None]) -> Found | None:
        """Return what the function said in the recorded tick; none is asked."""
        record = self.recorded.checked.get((agent, number))
        if record is None:
            raise missing(self.recorded, agent, f"what {name} said to a gate")
        return recorded_finding(record)

    def use_tool(self, index: int, call: ToolCall, context: ToolContext) -> ToolResult:
        """Return the recorded result; nothing runs, and files outside the organisation stay as they are."""
        finished = self.recorded.tools.get((context.agent.name, index))
        if finished is None:
            raise missing(self.recorded, context.agent.name, f"tool call {index}")
        result = recorded_result(finished)
        return replace(result, effects=tuple(moved_inside(self.base, effect) for effect in result.effects))

    def _hear(self, event: Event) -> None:
        tick = self.recorded.tick
        if isinstance(event, TickBegins):
            plan = self.recorded.begin.as_json()
            require_same(plan, event.as_json(), tick=tick, agent="", what="plan", but=["broken"])
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
        ahead = sorted(path.removeprefix(outside) for path in report.written_ahead)
        try:
            # Why a turn failed may name a path, and how long it took is not an effect.
            but = ["reason", "duration_ms"]
            require_same(
                ended.as_json(),
                {**_as_recorded(report, ended.report), "files": files, "written_ahead": ahead}
                | ({"removed": removed} if removed else {}),
                tick=self.recorded.tick,
                agent=agent,
                what="turn",
                but=but,
            )
        except Difference as difference:
            texts = [difference.diff, *self._changed_files(ended, files)]
            difference.diff = "\n".join(texts)
            raise

    def _changed_files(self, ended: TurnEnded, files: list[FileWritten]) -> Iterator[str]:
        """Yield the diff of each changed file of the organisation whose recorded bytes are still there."""
        now = {file["path"]: file["sha256"] for file in files}
        for file in ended.report.files:
            path, digest = file["path"], file["sha256"]
            there, here = self.original / path, self.base / path
            if now.get(path, digest) == digest or path.startswith("/") or not there.is_file():
                continue
            if file_digest(self.original, path) == digest:
                yield diff_of(_text(there), _text(here), path)


def _text(file: Path) -> str:
    return fs.read_bytes(file, _SHOWN_BYTES)[:_SHOWN_BYTES].decode("utf-8", "replace")
