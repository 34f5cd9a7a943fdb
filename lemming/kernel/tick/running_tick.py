"""A tick in progress: the snapshot shared by its turns, and the start, resumption or replay of each turn.

A turn recorded in the journal is not run again: its outcome is derived from the record, and its missing files
are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from lemming.kernel.agents import Agent
from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.errors import Problem, UnknownModel, error_name
from lemming.kernel.base.turn_numbers import TURNS_PER_TICK, list_turn_keys, turn_key
from lemming.kernel.files.stat_cache import open_folder
from lemming.kernel.journal.journal_file import OWN_LIMIT_BYTES, Journal, read_journal
from lemming.kernel.journal.journal_records import (
    ModelReplied,
    Record,
    TickStarted,
    ToolFinished,
    TurnCommitted,
    TurnEnded,
    TurnSkipped,
    TurnStarted,
)
from lemming.kernel.journal.ledger import AgentState, write_state
from lemming.kernel.journal.record_lookup import (
    attempts_without_progress,
    find_plan,
    find_start_and_end,
    may_have_rebooted,
)
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.tick.agent_turns import AgentTurns
from lemming.kernel.tick.answer_source import JournaledAnswers
from lemming.kernel.tick.error_boundary import isolate, to_turn_error
from lemming.kernel.tick.executors.collecting import reduce_collections
from lemming.kernel.tick.executors.lanes import Lane
from lemming.kernel.tick.executors.parallel_turns import run_turns
from lemming.kernel.tick.expiry import remove_expired, remove_expired_memories
from lemming.kernel.tick.firing_plan import TickPlan
from lemming.kernel.tick.idle_skips import build_dependencies, find_shared_resources, skip_idle
from lemming.kernel.tick.missing_ledger_lines import is_lost
from lemming.kernel.tick.model_lanes import make_lane_lookup
from lemming.kernel.tick.recorded_permissions import find_refused_paths, restore_inputs
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.tick.state_merge import TurnRow, join_outcome
from lemming.kernel.tick.turn_commits import Commits
from lemming.kernel.tick.turn_dependencies import TurnDependencies, TurnWaits, find_waits
from lemming.kernel.tick.turn_progress import TurnProgress
from lemming.kernel.turn.preparation_chain import active_capabilities
from lemming.kernel.turn.turn_hooks import Capability
from lemming.kernel.turn.turn_inputs import from_record
from lemming.kernel.turn.turn_loop import take_turn
from lemming.kernel.turn.turn_values import TurnInputs, TurnOutcome

if TYPE_CHECKING:
    from lemming.kernel.turn.live_phase import TickScope

_RUN_FIELDS = ("at_once", "chosen", "left_out")  # fields of the plan that are recorded only if set


@dataclass
class Tick:
    """A tick of an organisation. `is_stopped`: the operator stopped the tick before all turns were over."""

    runtime: Runtime
    journal: Journal
    snapshot: Snapshot
    commits: Commits
    is_stopped: bool = False
    root: int = -1  # the organisation's folder, open as long as turns are taken

    @classmethod
    def start_or_resume(cls, runtime: Runtime, journal: Journal, snapshot: Snapshot, previous: int | None) -> Tick:
        """Start a tick, or resume an interrupted tick; `previous` is the previous tick with a journal."""
        if not journal.records:
            # This record fixes the plan: a resumed tick takes the same turns, whatever resumes say by then.
            plan, boot, since = snapshot.plan, runtime.clock.boot_id, snapshot.plan.since
            previous_fields = {"after": previous, "since": since} if since else {"after": previous}
            optional_fields: dict[str, Any] = {
                name: recorded for name, recorded in snapshot.servers.items() if recorded
            }
            optional_fields |= {key: value for key in _RUN_FIELDS if (value := getattr(plan, key))}
            optional_fields |= {"settings": {**recorded}} if (recorded := snapshot.config.digests) else {}
            journal.append(TickStarted(at=plan.at, boot=boot, **previous_fields, **plan.as_json(), **optional_fields))
            runtime.journaled_settings = recorded.keys()
        return cls(runtime, journal, snapshot, Commits.from_snapshot(runtime, journal, snapshot))

    @cached_property
    def _plugins(self) -> tuple[str, ...]:
        return tuple(self.snapshot.config.org.plugins)

    @property
    def plan(self) -> TickPlan:
        """The plan of the tick: the agents with a turn, in order."""
        return self.snapshot.plan

    def take_turns(self) -> None:
        """Run every turn, or finish interrupted turns, concurrently as far as the settings allow.

        The result does not depend on the number of concurrent turns. Raises `DiskError`.
        """
        for problem in self.snapshot.mail.find_misplaced():
            self.runtime.report_problem(problem)
        order, max_parallel, waits = self.plan.order, self._max_concurrent_turns(), dict[str, TurnWaits]()
        progress: TurnProgress | None = None
        lock, stop, batcher = self.runtime.turn_lock, self.runtime.stop, self.runtime.batcher
        with self.commits.log, open_folder(f"{self.runtime.base}/.") as self.root, reduce_collections():
            # In series each turn sees the writes of the turns before it: no waits are needed.
            if max_parallel > 1:
                order = self._skip_idle(order)
                waits = find_waits(order, self._turn_dependencies)
                if begun := {name: wait.begun for name, wait in waits.items() if wait.begun}:
                    self._tick_scope.progress = progress = TurnProgress(begun, stop)
            run_turns(
                order,
                waits,
                self._run_agent,
                max_parallel=max_parallel,
                get_lane=self._make_lane_lookup(),
                turn_lock=lock,
                stop=stop,
                batcher=batcher,
                progress=progress,
            )
            self.commits.write_deferred()

    def _skip_idle(self, order: list[str]) -> list[str]:
        """Skip the turns of agents without current or possible news; return the remaining agents."""
        if self.plan.at_once or self.plan.chosen or self.runtime.stop.is_set():
            return order
        started = {record.agent_name for record in self.journal.records}
        idle = skip_idle(self.snapshot, started, self.root, self._turn_dependencies)
        for report in idle.values():
            self.commits.record_end(TurnSkipped(report=report))
        return [name for name in order if name not in idle]

    @cached_property
    def _turn_dependencies(self) -> TurnDependencies:
        return build_dependencies(self.snapshot, self._turn_agents(), self._active_capabilities)

    @cached_property
    def _active_capabilities(self) -> list[Capability]:
        return active_capabilities(self.snapshot.config, self.snapshot.survey)

    def _max_concurrent_turns(self) -> int:
        settings = self.snapshot.config.org
        max_safe_attempts = settings.max_attempts - 1
        names = self.plan.order if self.journal.records else ()
        attempts = (self.count_attempts(name, turn) for name in names for turn in self._iter_recorded_turns(name))
        suspects = [count for count in attempts if count >= max_safe_attempts]
        if settings.executor == "serial" or suspects:  # a crash then costs no other turn an attempt
            return 1
        if not self.runtime.batcher:
            return settings.parallel_limit
        return max(settings.parallel_limit, self._max_turns())  # a turn that waits for its batch holds no other up

    def _max_turns(self) -> int:
        agents = self.snapshot.survey.agents
        return sum(agents[name].turn.requests for name in self.plan.order if name in agents)

    def _make_lane_lookup(self) -> Callable[[str], Lane] | None:
        """Return the lane lookup, or None if all turns fit without lanes."""
        snapshot = self.snapshot
        if self.runtime.batcher or self._max_turns() <= snapshot.config.org.parallel_limit:
            return None
        return make_lane_lookup(snapshot.survey.agents, snapshot.config, self.runtime.backends.max_calls)

    def count_attempts(self, name: str, turn: int) -> int:
        """Return the number of starts of a turn since its last progress."""
        return attempts_without_progress(self.journal.find_agent_records(name, turn))

    def _iter_recorded_turns(self, name: str) -> Iterator[int]:
        """Yield the numbers of an agent's turns with records of an earlier attempt; at least 0."""
        yield 0
        yield from takewhile(lambda turn: self.journal.find_agent_records(name, turn), range(1, TURNS_PER_TICK))

    def _turn_agents(self) -> Mapping[str, Agent]:
        """Return the agents for their turns; a turn already started has the current grants."""
        agents = self.snapshot.survey.agents
        start_records = [record for record in self.journal.records if isinstance(record, TurnStarted)]
        if not start_records:
            return agents
        return {**agents, **{record.agent: restore_inputs(record, self.snapshot).agent for record in start_records}}

    def report(self, began: float) -> TickReport:
        """Return the report of the tick; `began` is a `time.perf_counter()` reading."""
        reports = self.commits.reports
        return TickReport(
            tick=self.plan.tick,
            turns=(
                *[reports[key] for name in self.plan.order for key in list_turn_keys(name, reports)],
                *self.plan.excluded_reports(),
            ),
            not_due=len(self.plan.not_due),
            is_complete=not self.is_stopped,
            duration_ms=elapsed_ms(began),
            base=str(self.runtime.base),
        )

    def remove_expired_entries(self) -> None:
        """Remove memories that capabilities declare expired, and entries past their retention."""
        remove_expired_memories(self.snapshot)
        active_agents = {turn.agent: None for turn in self.commits.reports.values() if turn.status != "skipped"}
        remove_expired(self.runtime, self.journal, self.snapshot, [*active_agents])

    def _run_agent(self, name: str) -> TurnRow | None:
        """Run an agent's turns, or return a row of turns to run concurrently."""
        return AgentTurns(self, name).run()

    def find_refused_paths(self, inputs: TurnInputs, records: list[Record]) -> dict[str, str]:
        """Return the reasons the turn's files cannot be written now, by `FileEffect.path_key`."""
        return find_refused_paths(self.snapshot, inputs.agent, records)

    def replay_committed(self, ended: TurnEnded, started: TurnStarted | None) -> None:
        """Load a committed turn's report from its record, and publish its entries to other agents.

        The files are written again only after a machine crash, when the record may be the only surviving
        copy. Otherwise a file with other content is somebody's later work.
        """
        report = ended.report
        if _is_self_contained(ended):
            state = self.commits.states[report.agent] = AgentState.from_json(ended.state or {})
            if self.may_have_lost_files and not self.commits.is_removed(report.agent):
                write_state(self.runtime.org, report.agent, state)
        elif started:
            inputs = from_record(started, self.plan.tick)
            outcome = self._join_outcome(inputs, take_turn(inputs, self._make_answer_source(inputs), self._plugins))
            self.commits.states[report.agent] = outcome.state
            if self.may_have_lost_files:
                self.commits.rewrite_turn(self._drop_refused(outcome, started))
            else:
                self.snapshot.mail.add(report.agent, outcome.entries, report.turn)
        self.commits.reports[report.turn_key] = report
        self.runtime.notify(ended)

    def _drop_refused(self, outcome: TurnOutcome, started: TurnStarted) -> TurnOutcome:
        """Return a committed turn's outcome without files the agent may no longer write."""
        name, records = started.agent, self.journal.find_agent_records(started.agent, started.turn)
        # A person may have edited the journal: only paths that the current rules allow are written.
        refused = self.find_refused_paths(restore_inputs(started, self.snapshot), records)
        for path, reason in refused.items():
            problem = Problem(f"not written again: {reason}", path, severity="warning", code="LMG-601")
            self.runtime.report_problem(problem, name)
        effects = tuple(effect for effect in outcome.effects if effect.path_key not in refused)
        return replace(outcome, effects=effects)

    def rewrite_committed(self, agent_names: Iterable[str]) -> None:
        """Rewrite missing files of the agents' committed turns; no other action is taken."""
        for name, turn in (
            (agent_name, turn) for agent_name in agent_names for turn in self._iter_recorded_turns(agent_name)
        ):
            records = self.journal.find_agent_records(name, turn)
            started, ended = find_start_and_end(records)
            assert started, "a committed turn"
            assert ended, "a committed turn"
            kinds = Counter(map(type, records))
            if _is_self_contained(ended):
                state = self.commits.states[name] = AgentState.from_json(ended.state or {})
                write_state(self.runtime.org, name, state)
            # Only with every answer on record: rewriting an old turn must call no model and no tool.
            elif kinds[ModelReplied] == ended.report.calls and kinds[ToolFinished] == len(ended.report.tools):
                # With a `problem`, a model call fails: a missing answer cannot turn into a paid call.
                inputs = replace(from_record(started, self.plan.tick), problem=UnknownModel("a turn that is over"))
                answers = self._make_answer_source(inputs)  # all recorded: no live call
                outcome = self._join_outcome(inputs, take_turn(inputs, answers, self._plugins))
                self.commits.states[name] = outcome.state
                self.commits.rewrite_turn(self._drop_refused(outcome, started))

    @cached_property
    def may_have_lost_files(self) -> bool:
        """True if files of an earlier attempt at this tick may be missing.

        The machine may have crashed since, or the storage may have been rolled back: a ledger then lacks the
        line of a committed turn.
        """
        records = self.journal.records
        if may_have_rebooted(find_plan(records), self.runtime.clock.boot_id):
            return True
        ended = {record.turn_key for record in records if isinstance(record, TurnCommitted)}
        starts = (start for start in records if isinstance(start, TurnStarted) and start.turn_key in ended)
        return is_lost(self.runtime.org, self.plan.tick, starts)

    def run_turn(self, inputs: TurnInputs) -> TurnOutcome:
        """Run a turn to its end and return its outcome."""
        outcome = isolate(lambda: take_turn(inputs, self._make_answer_source(inputs), self._plugins))
        return self.to_broken_outcome(inputs, outcome) if isinstance(outcome, Exception) else outcome

    def commit(self, inputs: TurnInputs, outcome: TurnOutcome, *, is_replay: bool) -> None:
        """Write and commit a turn's outcome. `is_replay`: an earlier attempt may have written parts."""
        joined_outcome, memory_digests = self._join_outcome(inputs, outcome), inputs.memories_seen
        self.commits.commit_turn(
            joined_outcome, is_replay=is_replay, has_warned=inputs.warned, memory_digests=memory_digests
        )

    def _join_outcome(self, inputs: TurnInputs, outcome: TurnOutcome) -> TurnOutcome:
        current = self.commits.states.get(inputs.agent.name)
        return join_outcome(inputs, outcome, current) if current else outcome

    def to_broken_outcome(self, inputs: TurnInputs, error: Exception) -> TurnOutcome:
        """Return the outcome of a turn that raised this error. Re-raises errors that end the run."""
        turn_error = to_turn_error(error)
        # Read from disk: the open journal keeps no copy of the records that it appends.
        all_records = read_journal(self.runtime.org, self.plan.tick, limit_bytes=OWN_LIMIT_BYTES)
        key = turn_key(inputs.agent.name, inputs.turn)
        records = [record for record in all_records if record.turn_key == key]
        started, _ = find_start_and_end(records)
        assert started, "a turn that was begun"
        return self.abandon_turn(started, records, str(turn_error), error_name(turn_error))

    def abandon_turn(self, started: TurnStarted, records: list[Record], reason: str, error: str) -> TurnOutcome:
        """Return the outcome of a turn abandoned for this reason."""
        from lemming.kernel.tick.abandoned_turns import abandon_turn  # imported only if needed

        inputs = from_record(started, self.plan.tick)
        return abandon_turn(self.journal, inputs, records, reason=reason, error=error, plugins=self._plugins)

    def _make_answer_source(self, inputs: TurnInputs) -> JournaledAnswers:
        active, get_tick = self._active_capabilities, lambda: self._tick_scope
        return JournaledAnswers(self.runtime, self.journal, self.snapshot, inputs, self.commits, get_tick, active)

    @property
    def has_limits(self) -> bool:
        """True if turns share resources besides files, such as limits on spending."""
        return self._has_limits

    @cached_property
    def _has_limits(self) -> bool:
        resources = find_shared_resources(self.snapshot, self.snapshot.survey.agents, self._active_capabilities)
        return any(not resource.ordered for resource in resources)

    @cached_property
    def _tick_scope(self) -> TickScope:
        from lemming.kernel.turn.live_phase import TickScope

        return TickScope(self.snapshot, self.journal, self.plan.order)


def _is_self_contained(ended: TurnEnded) -> bool:
    """Return True if the record alone describes the turn: a failed turn without an answer to a request."""
    return ended.state is not None and not ended.report.entries
