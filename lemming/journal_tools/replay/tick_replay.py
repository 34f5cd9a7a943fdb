"""Replays recorded ticks with recorded answers and compares the results. No provider is ever called.

In place: the outcome of each turn is computed again from its record (`take_turn` with answers from records
only). Into another folder: the whole engine runs again from the first journal on, in a copy of the
organisation's initial state; models, tools and clock are replaced by the recording.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemming.engine import run_opened
from lemming.journal_tools.recorded_tick import RecordedTick
from lemming.journal_tools.repair.unknown_calls import without_notes
from lemming.journal_tools.replay.external_arrivals import Arrivals, find_arrivals
from lemming.journal_tools.replay.renamed_authors import rename_authors
from lemming.journal_tools.replay.replay_runtime import (
    NOT_REPEATABLE,
    ReplayRuntime,
    missing_answer_error,
    require_equal,
    to_recorded_format,
    to_recorded_state,
)
from lemming.journal_tools.turn_replay import RecordedAnswers, RecordingExhausted
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.turn_numbers import split_key
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import Journal, journal_ticks, make_prompt_reader, read_journal
from lemming.kernel.journal.journal_records import TickStarted, TurnCommitted, TurnStarted
from lemming.kernel.journal.ledger import AgentState, amend_state, read_state
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_table import LISTED
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.tick_counter import load_counter, persist_tick
from lemming.kernel.turn.turn_inputs import from_record
from lemming.kernel.turn.turn_loop import take_turn
from lemming.libraries.atomic_folder import require_free, require_outside
from lemming.operations.open_org import open_org
from lemming.operations.turns.state_merge import join_outcome


@dataclass(frozen=True)
class ReplayResult:
    """A tick with equal results: the number of compared turns, and the turns without a comparison."""

    tick: int
    turns: int
    not_repeatable: tuple[str, ...] = ()


def replay_ticks(base: OrgPath, ticks: list[int]) -> Iterator[ReplayResult]:
    """Replay the turns of these ticks in place, and yield each tick with equal results.

    Raises `ReplayMismatch` at the first differing turn. Writes nothing. Unfinished turns of the current tick
    are skipped. Raises `ConfigError` for a turn started with a capability that is not installed.
    """
    states: dict[str, dict[str, Any]] = {}  # after each agent's last turn
    plans: dict[str, Collection[str]] = {}
    prompts = make_prompt_reader(base)
    for tick in ticks:
        recorded = RecordedTick(tick, read_journal(base, tick, prompts=prompts))
        # A turn that failed before it began has no inputs to repeat.
        ended = {name: end for name, end in recorded.ended.items() if name in recorded.started}
        names = [name for name, end in ended.items() if isinstance(end, TurnCommitted)]
        not_repeatable = tuple(name for name in names if recorded.ended[name].report.error in NOT_REPEATABLE)
        for name in names:
            _compare_start(recorded, name, states, plans)
            if name not in not_repeatable:
                agent = split_key(name)[0]
                states[agent] = _replay_turn(base, recorded, name, states.get(agent))
                plans[agent] = recorded.plan.all_agents
        yield ReplayResult(tick, len(names) - len(not_repeatable), not_repeatable)


def _replay_turn(base: OrgPath, recorded: RecordedTick, name: str, current: dict[str, Any] | None) -> dict[str, Any]:
    """Replay a turn and return the agent's state afterwards. `current`: the state after the previous turn in the tick."""
    started, ended, tick = recorded.started[name], recorded.ended[name], recorded.tick
    answers = RecordedAnswers(recorded, started.agent, started.turn)
    plugins = tuple(load_config(base).org.plugins) if started.given else None
    try:
        inputs = from_record(started, tick, recorded.start_record.at)
        outcome = take_turn(inputs, answers, plugins)
        if current:
            outcome = join_outcome(inputs, outcome, AgentState.from_json(current))
    except RecordingExhausted as end:
        raise missing_answer_error(recorded, name, str(end)) from None
    replayed = to_recorded_format(outcome.report, ended.report)
    hint = _suspect_plugins(started)
    require_equal(ended.as_json(), replayed, tick, name, subject="turn", hint=hint)
    state = to_recorded_state(outcome.state.as_json(), recorded.start_record)
    require_equal(ended.state or {}, state, tick, name, subject="state", hint=hint)
    return state


def _suspect_plugins(started: TurnStarted) -> str:
    """Return a hint about the capabilities of plugins in a turn, or an empty string without one."""
    names = [name for name in started.given if name not in LISTED]
    rule = "its hooks in a turn must read no file and no clock, and give the same for the same record"
    return f"{' and '.join(names)} took part: {rule}" if names else ""


def _compare_start(
    recorded: RecordedTick, name: str, states: dict[str, dict[str, Any]], plans: Mapping[str, Collection[str]]
) -> None:
    """Compare the start of a turn with the agent's state after the last turn.

    People may add notes and rename other agents in between. `plans`: for each state, the agents in the plan of its tick.
    """
    started = recorded.started[name]
    if started.turn:  # it may have started from the files of the first one
        return
    start_state, state = started.state, states.pop(started.agent, None)
    if state is not None and start_state["tick"] == state["tick"]:
        names, later_names = plans[started.agent], recorded.plan.all_agents
        state = {**state, "read": rename_authors(state["read"], start_state["read"], names, later_names)}
        before, now = without_notes(start_state), without_notes(state)
        require_equal(before, now, recorded.tick, name, subject="state before the turn")


def replay_into(base: OrgPath, into: Path, ticks: list[int]) -> Iterator[ReplayResult]:
    """Replay recorded ticks in the folder `into`, and yield each tick with equal results.

    `ticks` must begin with the first journal. `into` must be empty or missing; afterwards the folder is an
    independent organisation, up to the last equal tick. Raises `ReplayMismatch` at the first differing
    prompt, plan or effect, and `UsageError` for an unusable folder.
    """
    into = paths.as_base(into)
    require_outside(base, into, subject="the replay")
    require_free(into)
    arrivals = find_arrivals(base)
    fs.make_root(into)
    fs.make_folder(into, "agents")
    with open_org(into, command="replay") as open_runtime:
        runtime = ReplayRuntime(open_runtime.org, open_runtime.clock, epoch=open_runtime.epoch, original=Path(base))
        prompts = make_prompt_reader(base)
        for tick in ticks:
            recorded = RecordedTick(tick, read_journal(base, tick, prompts=prompts))
            yield _replay_tick(runtime, arrivals, recorded)
        if ticks[-1] == journal_ticks(base)[-1]:
            arrivals.deliver(Path(base), into, None)
            counter_tick, read_at = max(load_counter(base), load_counter(into))
            persist_tick(into, counter_tick, read_at=read_at)  # later than the last journal after quiet ticks


def list_replayable_ticks(base: OrgPath, last: int | None) -> list[int]:
    """Return the committed ticks up to `last`. Raises `UsageError` for none, or if earlier journals are missing."""
    ticks = [tick for tick in journal_ticks(base) if last is None or tick <= last]
    while ticks and not RecordedTick(ticks[-1], read_journal(base, ticks[-1])).commit_record:
        ticks.pop()
    if not ticks:
        raise UsageError("no finished tick can be replayed", hint="run a tick with `lemming run-once`")
    for agent, started in RecordedTick(ticks[0], read_journal(base, ticks[0])).started.items():
        if started.state["status"] and not started.turn:
            raise UsageError(
                f"the journals begin at tick {ticks[0]}, after the first turns of {agent}",
                hint="run without --into: each turn is then replayed from its own record",
            )
    return ticks


def _replay_tick(runtime: ReplayRuntime, arrivals: Arrivals, recorded: RecordedTick) -> ReplayResult:
    runtime.begin_tick(recorded)
    arrivals.deliver(runtime.original, runtime.base, recorded.tick)
    if not (runtime.base / paths.TICK_FILE).exists():
        persist_tick(runtime.base, recorded.tick)
    restore_call_notes(runtime, recorded)
    abandoned = restore_abandoned_turns(runtime, recorded)
    runtime.is_immediate = recorded.start_record.at_once
    runtime.chosen = tuple(recorded.start_record.chosen)
    run_opened(runtime, recorded.tick, advance=recorded.commit_record is not None and recorded.commit_record.advanced)
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
            plan_fields = {key: value for key, value in recorded.start_record.as_json().items() if key != "boot"}
            for record in [TickStarted(**plan_fields), *ends]:
                journal.append(record)  # without a boot, files count as lost and are written
    return tuple(ended.agent_name for ended in ends)
