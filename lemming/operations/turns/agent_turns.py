"""Run the turns of a tick: for each agent, start, resume or skip up to one turn per request.

Turns of an agent run in sequence, each from the state the previous turn left. Turns without a connection run
concurrently, all from the inputs of the first turn (`lemming.operations.turns.state_merge`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from lemming.kernel.agents import Agent
from lemming.kernel.base.turn_numbers import TURNS_PER_TICK, turn_key
from lemming.kernel.files.stat_cache import open_folder
from lemming.kernel.journal.journal_parser import find_start_and_end
from lemming.kernel.journal.journal_records import (
    Record,
    TurnCommitted,
    TurnEnded,
    TurnResumed,
    TurnSkipped,
    TurnStarted,
    TurnStopped,
)
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.turn_report import TurnReason
from lemming.kernel.llm.call_cost import to_decimal
from lemming.kernel.plugins.capability_table import NO_MODELS
from lemming.kernel.tick.error_boundary import EngineStopped, isolate, to_skip_reason
from lemming.kernel.tools import EngineTool, Tool
from lemming.kernel.turn.turn_inputs import GatheredInputs, begin_turn, from_record, gather_inputs
from lemming.kernel.turn.turn_values import TurnInputs, TurnOutcome
from lemming.kernel.turn.wake_check import FurtherTurn
from lemming.operations.misplaced_files import find_misplaced
from lemming.operations.turns.idle_cache import find_idle_cache
from lemming.operations.turns.lanes import make_lane_lookup
from lemming.operations.turns.parallel_turns import ConcurrentTurns, FinishedAgents, limit_garbage_collection, run_turns
from lemming.operations.turns.running_tick import (
    NO_LONGER_ALLOWED,
    RunningTick,
    find_refused_paths,
    restore_inputs,
    resume_blocker,
)
from lemming.operations.turns.turn_dependencies import TurnWaits, build_dependencies, find_waits, skip_idle

CONCURRENT_SAFE = frozenset({"requests", "answers"})
"""Capabilities that may have inputs in concurrent turns: no turn changes these inputs for the next."""
REPLACES_A_MEMORY = "memory_write"


def take_turns(running_tick: RunningTick) -> None:
    """Run every turn of a tick, or finish interrupted turns, concurrently as far as the settings allow.

    The result does not depend on the number of concurrent turns. Raises `DiskError`.
    """
    runtime, tick_context, commits = running_tick.runtime, running_tick.tick_context, running_tick.commits
    misplaced = tick_context.mail.iter_misplaced()
    for problem in (item for author, files in misplaced for item in find_misplaced(author, files, tick_context.tick)):
        runtime.report_problem(problem)
    order, agents, settings = tick_context.plan.order, tick_context.survey.agents, tick_context.config.org
    max_turns = sum(agents[name].turn.requests for name in order if name in agents)
    max_parallel, waits, finished_agents = _max_concurrent_turns(running_tick, max_turns), dict[str, TurnWaits](), None
    get_lane = None
    if not runtime.batcher and max_turns > settings.parallel_limit:  # else all turns fit without lanes
        get_lane = make_lane_lookup(agents, tick_context.config, runtime.backends.max_calls)
    with commits.log, open_folder(f"{runtime.base}/.") as running_tick.root, limit_garbage_collection():
        # In series each turn sees the writes of the turns before it: no waits are needed.
        if max_parallel > 1:
            dependencies = build_dependencies(running_tick, _turn_agents(running_tick))
            if not (tick_context.plan.at_once or tick_context.plan.chosen or runtime.stop.is_set()):
                started = {record.agent_name for record in running_tick.journal.records}
                idle = skip_idle(tick_context, started, running_tick.root, dependencies)
                for report in idle.values():
                    commits.record_end(TurnSkipped(report=report))
                order = [name for name in order if name not in idle]
            waits = find_waits(order, dependencies)
            if begun := {name: wait.begun for name, wait in waits.items() if wait.begun}:
                finished_agents = FinishedAgents(begun, runtime.stop)
                running_tick.scope.wait_for_earlier = finished_agents.wait_for_earlier
        run_turns(
            order,
            waits,
            lambda name: AgentTurns(running_tick, name).run(),
            max_parallel=max_parallel,
            get_lane=get_lane,
            turn_lock=runtime.turn_lock,
            stop=runtime.stop,
            batcher=runtime.batcher,
            finished_agents=finished_agents,
        )
        commits.write_deferred()


def _max_concurrent_turns(running_tick: RunningTick, max_turns: int) -> int:
    settings = running_tick.tick_context.config.org
    names = running_tick.plan.order if running_tick.journal.records else ()
    attempts = (
        running_tick.count_attempts(name, turn) for name in names for turn in running_tick.iter_recorded_turns(name)
    )
    # A crash then costs no other turn an attempt.
    if settings.executor == "serial" or any(count >= settings.max_attempts - 1 for count in attempts):
        return 1
    if not running_tick.runtime.batcher:
        return settings.parallel_limit
    return max(settings.parallel_limit, max_turns)  # a turn that waits for its batch holds no other up


def _turn_agents(running_tick: RunningTick) -> Mapping[str, Agent]:
    """Return the agents for their turns; a turn already started has the current grants."""
    agents = running_tick.tick_context.survey.agents
    records = [record for record in running_tick.journal.records if isinstance(record, TurnStarted)]
    if not records:
        return agents
    return {**agents, **{record.agent: restore_inputs(record, running_tick.tick_context).agent for record in records}}


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class _StartedTurn:
    """A started turn: its inputs, and its record if an earlier attempt started it."""

    inputs: TurnInputs
    earlier: TurnStarted | None = None

    @property
    def request(self) -> str | None:
        """The turn's request id; empty for the agent's own sub-requests, None for the inbox."""
        return self.inputs.current_request.request if self.inputs.current_request else None


class AgentTurns:
    """Runs the turns of an agent in a tick, or finishes interrupted turns."""

    def __init__(self, running_tick: RunningTick, name: str) -> None:
        self._running_tick, self._name = running_tick, name
        self._journal, self._commits = running_tick.journal, running_tick.commits
        self._tick_context = running_tick.tick_context
        self._served_requests: frozenset[str] = frozenset()
        agent = running_tick.tick_context.survey.agents.get(name)
        is_one = agent is not None and agent.turn.requests == 1
        self._can_have_several = bool(not is_one or self._journal.records)
        self._can_begin = True  # False: only turns on record may follow

    def run(self) -> ConcurrentTurns | None:
        """Run the turns, or return a group of turns to run concurrently with a step that follows them."""
        for turn in range(TURNS_PER_TICK):
            if self._running_tick.runtime.stop.is_set():
                self._running_tick.is_stopped = True
                return None
            started, ended = self._find_records(turn) if self._journal.records else (None, None)
            if ended:
                self._running_tick.replay_committed(ended, started)
                request = _find_request(started, ended)
                self._can_begin &= not (
                    started
                    and self._can_run_concurrently(from_record(started, self._tick_context.tick, self._tick_context.at))
                )
            else:
                turn_start = self._start_turn(turn, started)
                if turn_start is None:
                    return None
                if not turn and self._can_have_several and (group := self._start_group(turn_start)):
                    return group
                if not self._finish_turn(turn_start):
                    return None
                request = turn_start.request
            if request is None or not self._has_next_turn(turn):
                return None
            self._served_requests |= {request}
        return None

    def _find_records(self, turn: int) -> tuple[TurnStarted | None, TurnEnded | None]:
        records = self._journal.find_agent_records(self._name, turn)
        return find_start_and_end(records) if records else (None, None)

    def _start_turn(self, turn: int, started: TurnStarted | None) -> _StartedTurn | None:
        """Start or resume a turn; return None if no turn is due."""
        if started:
            return _StartedTurn(restore_inputs(started, self._tick_context), started)
        inputs = self._start_next_turn(turn, self._commits.states[self._name]) if turn else self._start_first_turn()
        return _StartedTurn(inputs) if inputs else None

    def _has_next_turn(self, turn: int) -> bool:
        """Return True if the agent's next turn of the tick can follow this turn."""
        if self._journal.find_agent_records(self._name, turn + 1):  # started by an earlier attempt
            return True
        report = self._commits.reports.get(turn_key(self._name, turn))
        agent = self._tick_context.survey.agents.get(self._name)
        if report is None or agent is None or report.end == "paused" or not self._can_begin:
            return False
        return turn + 1 < agent.turn.requests and not self._commits.is_removed(self._name)

    def _finish_turn(self, turn_start: _StartedTurn) -> bool:
        """Run a turn to its end and commit the outcome; return False if the turn was stopped."""
        if (outcome := self._run_to_outcome(turn_start)) is None:
            return False
        self._running_tick.commit(turn_start.inputs, outcome, is_replay=turn_start.earlier is not None)
        return True

    def _run_to_outcome(self, turn_start: _StartedTurn) -> TurnOutcome | None:
        """Return the outcome of a turn, or None if the operator stopped the turn."""
        try:
            if not self._running_tick.runtime.stop.is_set():
                if turn_start.earlier:
                    return self._resume(turn_start.earlier, turn_start.inputs)
                return self._running_tick.run_turn(turn_start.inputs)
        except EngineStopped:
            numbered = {"turn": turn_start.inputs.turn} if turn_start.inputs.turn else {}
            self._journal.append(TurnStopped(agent=self._name, **numbered))
        self._running_tick.is_stopped = True
        return None

    # --- concurrent turns ---------------------------------------------------------------------

    def _can_run_concurrently(self, inputs: TurnInputs) -> bool:
        agent = self._tick_context.survey.agents.get(self._name)
        if agent is None or agent.turn.requests == 1 or self._running_tick.has_limits:
            return False
        tools = self._tick_context.toolset.allowed_tools(agent, self._tick_context.config.org).values()
        return _can_run_concurrently(inputs, tools, agent.turn.requests)

    def _start_group(self, first: _StartedTurn) -> ConcurrentTurns | None:
        """Start the turns that run concurrently with the first; return None for a single or ordered turn."""
        is_recorded = self._find_records(1)[0] is not None  # a second turn began, and the first is not over
        can_begin = self._can_run_concurrently(first.inputs)
        if first.request is None or not (is_recorded or can_begin):
            return None
        group, self._served_requests, self._can_begin = [first], frozenset({first.request}), False
        # Without content shown to one turn only. As the first turn serves its request, an older inbox entry ends the group.
        serving = first.request or first.inputs.state.serving
        state = replace(first.inputs.state, results=(), in_vain={}, expired_unread=0, serving=serving)
        for turn in range(1, TURNS_PER_TICK):
            started, _ = self._find_records(turn)
            next_start = self._start_turn(turn, started) if started else None
            if not started and can_begin and turn < self._tick_context.survey.agents[self._name].turn.requests:
                next_inputs = self._start_next_turn(turn, state, may_have_budget=False)
                next_start = _StartedTurn(next_inputs) if next_inputs else None
            if next_start is None:
                break
            group.append(next_start)
            self._served_requests |= {next_start.request or ""}
        if len(group) == 1:
            return None
        outcomes: dict[int, TurnOutcome] = {}

        def store_outcome(turn_start: _StartedTurn) -> None:
            if outcome := self._run_to_outcome(turn_start):
                outcomes[turn_start.inputs.turn] = outcome

        def finish() -> None:
            if len(outcomes) == len(group):  # else one was stopped: the next run uses the recorded answers
                for turn_start in group:
                    is_replay = turn_start.earlier is not None
                    self._running_tick.commit(turn_start.inputs, outcomes[turn_start.inputs.turn], is_replay=is_replay)

        return ConcurrentTurns([partial(store_outcome, turn_start) for turn_start in group], finish)

    # --- start of a turn --------------------------------------------------------------------------

    def _start_first_turn(self) -> TurnInputs | None:
        """Start the agent's first turn and return its inputs, or record the reason for skipping the turn."""
        tick_context, name, path_states, plan = self._tick_context, self._name, None, self._tick_context.plan
        root, commits = self._running_tick.root, self._commits
        idle_cache = tick_context.get_cache(find_idle_cache)
        if name in idle_cache.news_driven and not (plan.at_once or plan.chosen):
            if report := idle_cache.get_report(name, tick_context.mail, root, commits.unwritten_paths):
                commits.record_end(TurnSkipped(report=report))
                return None
            # Before anything is read: a change during the reading then differs from these states.
            path_states = idle_cache.capture_states(name, root)
        gathered = isolate(lambda: gather_inputs(tick_context, name, commits.unwritten_files))
        if isinstance(gathered, Exception):
            commits.record_end(TurnCommitted(report=to_skip_reason(gathered).to_report(name)))
            return None
        if isinstance(gathered, TurnReason):
            report = gathered.to_report(name)
            if path_states:
                idle_cache.store(report, path_states, tick_context.mail)
            commits.record_end(TurnSkipped(report=report))
            return None
        for problem in gathered.problems:
            self._running_tick.runtime.report_problem(problem, name)
        begin_turn(self._journal, gathered)
        return gathered.inputs

    def _start_next_turn(self, turn: int, state: AgentState, *, may_have_budget: bool = True) -> TurnInputs | None:
        """Start a further turn if a request remains, and return its inputs."""
        self._commits.write_deferred()  # it starts from the files of the turns before it
        next_turn = FurtherTurn(number=turn, served_requests=self._served_requests, state=state)
        gathered = isolate(lambda: gather_inputs(self._tick_context, self._name, turn=next_turn))
        if not isinstance(gathered, GatheredInputs):  # the agent's first turn of the next tick reports the problem
            return None
        request = gathered.inputs.current_request
        if request and request.has_budget and not may_have_budget:  # it waits until its turn is the first
            return None
        begin_turn(self._journal, gathered)
        return gathered.inputs

    def _resume(self, started: TurnStarted, inputs: TurnInputs) -> TurnOutcome:
        """Resume an interrupted turn, or abandon it; return the outcome."""
        running_tick, records = self._running_tick, self._journal.find_agent_records(started.agent, started.turn)
        attempts, reason = running_tick.count_attempts(started.agent, started.turn), ""
        # A turn that kills the engine each time would keep its tick from ever ending.
        if attempts >= self._tick_context.config.org.max_attempts:
            interruptions = f"the engine ended {attempts} times during this turn"
            reason = f"{interruptions}; abandoned so that the tick can continue (config/org.json max_attempts)"
        elif self._commits.is_removed(started.agent):
            reason = "the agent was removed during its turn"
        if reason:
            return running_tick.abandon_turn(started, records, reason, "Interrupted")
        # A person may have edited the journal or added a gate since: checked before the turn goes on.
        blocker = isolate(lambda: self._find_blocker(inputs, records))
        if isinstance(blocker, Exception):
            return running_tick.to_broken_outcome(inputs, blocker)
        if blocker:
            return running_tick.abandon_turn(started, records, blocker, NO_LONGER_ALLOWED)
        # Recorded before it goes on: an attempt that ends the engine counts towards `max_attempts`.
        numbered = {"turn": started.turn} if started.turn else {}
        self._journal.append(TurnResumed(agent=started.agent, **numbered))
        return running_tick.run_turn(inputs)

    def _find_blocker(self, inputs: TurnInputs, records: list[Record]) -> str:
        """Return the reason the turn cannot resume, or an empty text."""
        for path, refusal in find_refused_paths(self._tick_context, inputs.agent, records).items():
            return f"the journal records a file that may not be written now, {path}: {refusal}"
        return resume_blocker(inputs, self._tick_context)


def _find_request(started: TurnStarted | None, ended: TurnEnded) -> str | None:
    """Return the request of a recorded turn, or None for a turn without a request."""
    if started is None:  # a further turn in a replay may have an end only
        return ended.report.request if ended.turn else None
    return started.task["request"] if started.task else None


def _can_run_concurrently(inputs: TurnInputs, tools: Iterable[Tool], max_turns: int) -> bool:
    """Return True if an agent's turns of a tick cannot affect each other.

    Required: only tools that read, or the tool that replaces a memory; no gate, approval, judge, trust or
    window; a request without a budget; no wake-up by files; and enough credits for any cost of `max_turns`
    turns.
    """
    request = inputs.current_request
    if request is None or request.has_budget:  # spending by sub-requests counts against it too
        return False
    if inputs.fingerprint is not None or inputs.agent.turn.strategy:
        return False
    if inputs.model.provider in NO_MODELS or not inputs.given.keys() <= CONCURRENT_SAFE:
        return False
    if not all(
        isinstance(tool, EngineTool) and (tool.tool_class == "read" or tool.name == REPLACES_A_MEMORY) for tool in tools
    ):
        return False
    return inputs.allocation.max_credits is None or _can_afford(inputs, max_turns)


def _can_afford(inputs: TurnInputs, max_turns: int) -> bool:
    """Return True if the remaining credits cover all calls of `max_turns` turns."""
    entry, limit = inputs.model, inputs.allocation.max_credits
    if entry.per_1k_input_tokens or entry.per_1k_output_tokens or inputs.agent.model.fallback:
        return False  # the cost is known only after the call
    calls = max_turns * inputs.max_steps * (1 + inputs.repairs)
    return limit is not None and to_decimal(inputs.state.consumed_credits) + calls * to_decimal(
        entry.per_call
    ) <= to_decimal(limit)
