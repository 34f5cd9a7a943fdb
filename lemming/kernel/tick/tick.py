"""A tick under way: the snapshot its turns share, and how each turn is begun, resumed or found done.

A turn found in the journal is not asked for again: its outcome is worked out from its record, and its
files are written where they are not there yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from lemming.kernel.agents import Agent
from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.errors import Problem, UnknownModel, name_of
from lemming.kernel.base.turn_numbers import TURNS_PER_TICK, keys_of, turn_key
from lemming.kernel.files.stamps import opened
from lemming.kernel.journal.file import OWN_LIMIT_BYTES, Journal, read_journal
from lemming.kernel.journal.ledger import AgentState, write_state
from lemming.kernel.journal.lookup import (
    attempts_without_progress,
    may_have_gone_down,
    plan_in,
    start_and_end,
)
from lemming.kernel.journal.records import (
    ModelReplied,
    Record,
    TickStarted,
    ToolFinished,
    TurnCommitted,
    TurnEnded,
    TurnSkipped,
    TurnStarted,
)
from lemming.kernel.journal.report import TickReport
from lemming.kernel.tick.agent_turns import AgentTurns
from lemming.kernel.tick.answers import JournaledAnswers
from lemming.kernel.tick.commits import Commits
from lemming.kernel.tick.dependencies import Connections, Waits, find_waits
from lemming.kernel.tick.edge import tried, why_broken
from lemming.kernel.tick.executors.collecting import rare_collections
from lemming.kernel.tick.executors.lanes import Lane
from lemming.kernel.tick.executors.turns_at_once import run_all
from lemming.kernel.tick.expiry import remove_expired
from lemming.kernel.tick.firing_plan import Plan
from lemming.kernel.tick.giving_up import given_up
from lemming.kernel.tick.lanes_of_models import lanes_of
from lemming.kernel.tick.lost_turns import is_lost
from lemming.kernel.tick.passed_over import connections_of, passed_over
from lemming.kernel.tick.permitted import inputs_of, refused_places
from lemming.kernel.tick.reservations import find_limits
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.side_by_side import Row, joined
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.turn.loop import take_turn
from lemming.kernel.turn.moments import TickLimits
from lemming.kernel.turn.on_record import from_record
from lemming.kernel.turn.prepared import in_use
from lemming.kernel.turn.seams import Capability
from lemming.kernel.turn.values import TurnInputs, TurnOutcome

_WHY_RUN = ("at_once", "chosen", "left_out")  # fields of the plan that are recorded where they say something


@dataclass
class Tick:
    """One tick of one organisation. `is_stopped` when the operator stopped it before all turns were over."""

    runtime: Runtime
    journal: Journal
    snapshot: Snapshot
    commits: Commits
    is_stopped: bool = False
    root: int = -1  # the organisation's folder, open as long as turns are taken

    @classmethod
    def begin(cls, runtime: Runtime, journal: Journal, snapshot: Snapshot, after: int | None) -> Tick:
        """Begin a tick, or go on with one that was interrupted; `after` is the last one with a journal."""
        if not journal.records:
            plan, boot, since = snapshot.plan, runtime.clock.boot_id, snapshot.plan.since
            of_before = {"after": after, "since": since} if since else {"after": after}
            further: dict[str, Any] = {name: found for name, found in snapshot.servers.items() if found}
            further |= {key: value for key in _WHY_RUN if (value := getattr(plan, key))}
            further |= {"settings": {**found}} if (found := snapshot.config.digests) else {}
            journal.append(TickStarted(at=plan.at, boot=boot, **of_before, **plan.as_json(), **further))
            runtime.journaled_settings = found.keys()
        return cls(runtime, journal, snapshot, Commits.begin(runtime, journal, snapshot))

    @cached_property
    def _plugins(self) -> tuple[str, ...]:
        return tuple(self.snapshot.config.org.plugins)

    @property
    def plan(self) -> Plan:
        """Who takes a turn, in what order."""
        return self.snapshot.plan

    def take_turns(self) -> None:
        """Take every turn, or finish those that were interrupted; as many at once as the settings allow.

        What the tick writes does not depend on how many that are. Raises `DiskError`.
        """
        for problem in self.snapshot.mail.misplaced():
            self.runtime.tell(problem)
        order, at_once, waits = self.plan.order, self._at_once(), dict[str, Waits]()
        lock, stop, gathering = self.runtime.turn_lock, self.runtime.stop, self.runtime.gathering
        with self.commits.log, opened(f"{self.runtime.base}/.") as self.root, rare_collections():
            # One at a time, each turn sees what those before it wrote without waiting for anybody.
            if at_once > 1:
                order = self._pass_over(order)
                waits = find_waits(order, self._connections)
            run_all(
                order,
                waits,
                self._turns,
                at_once=at_once,
                lane_of=self._lanes(),
                turn_lock=lock,
                stop=stop,
                register=gathering,
            )
            self.commits.write_held()

    def _pass_over(self, order: list[str]) -> list[str]:
        """End the turns of those to whom nothing is new, nor can become so; return who is left."""
        if self.plan.at_once or self.plan.chosen or self.runtime.stop.is_set():
            return order
        begun = {record.about for record in self.journal.records}
        idle = passed_over(self.snapshot, begun, self.root, self._connections)
        for turn in idle.values():
            self.commits.end(TurnSkipped(report=turn))
        return [name for name in order if name not in idle]

    @cached_property
    def _connections(self) -> Connections:
        return connections_of(self.snapshot, self._agents(), self._in_use)

    @cached_property
    def _in_use(self) -> list[Capability]:
        return in_use(self.snapshot.config, self.snapshot.survey)

    def _at_once(self) -> int:
        settings = self.snapshot.config.org
        last_chance = settings.max_attempts - 1
        names = self.plan.order if self.journal.records else ()
        attempts = (self.count_attempts(name, turn) for name in names for turn in self._turns_of(name))
        suspects = [count for count in attempts if count >= last_chance]
        if settings.executor == "serial" or suspects:  # a turn that ends the engine takes no other with it
            return 1
        if not self.runtime.gathering:
            return settings.parallel
        return max(settings.parallel, self._most_turns())  # whoever waits for others' calls holds nobody up

    def _most_turns(self) -> int:
        agents = self.snapshot.survey.agents
        return sum(agents[it].turn.requests for it in self.plan.order if it in agents)

    def _lanes(self) -> Callable[[str], Lane] | None:
        """Return what says the lane of an agent; None where there is room for all turns without lanes."""
        snapshot = self.snapshot
        if self.runtime.gathering or self._most_turns() <= snapshot.config.org.parallel:
            return None
        return lanes_of(snapshot.survey.agents, snapshot.config, self.runtime.backends.most_calls)

    def count_attempts(self, name: str, turn: int) -> int:
        """Return the number of times that a turn was begun since it last came any further."""
        return attempts_without_progress(self.journal.records_of(name, turn))

    def _turns_of(self, name: str) -> Iterator[int]:
        """Yield the numbers of an agent's turns of which an earlier attempt left records; 0 at least."""
        yield 0
        yield from takewhile(lambda turn: self.journal.records_of(name, turn), range(1, TURNS_PER_TICK))

    def _agents(self) -> Mapping[str, Agent]:
        """Return the agents as their turns take them: a turn that was begun has the grants of now."""
        agents = self.snapshot.survey.agents
        begun = [record for record in self.journal.records if isinstance(record, TurnStarted)]
        if not begun:
            return agents
        return {**agents, **{record.agent: inputs_of(record, self.snapshot).agent for record in begun}}

    def report(self, began: float) -> TickReport:
        """Return what the tick has come to; `began` is a `time.perf_counter()` reading."""
        reports = self.commits.reports
        return TickReport(
            tick=self.plan.tick,
            turns=(
                *[reports[key] for name in self.plan.order for key in keys_of(name, reports)],
                *self.plan.turns_not_taken(),
            ),
            not_due=len(self.plan.not_due),
            is_complete=not self.is_stopped,
            duration_ms=elapsed_ms(began),
            base=str(self.runtime.base),
        )

    def remove_expired_entries(self) -> None:
        """Remove entries past their retention; see `remove_expired`."""
        for part in self.snapshot.parts:
            part.ends(self.snapshot.look, self.plan.order)
        taken = {turn.agent: None for turn in self.commits.reports.values() if turn.status != "skipped"}
        remove_expired(self.runtime, self.journal, self.snapshot, [*taken])

    def _turns(self, name: str) -> Row | None:
        """Take an agent's turns, or return those that may be taken at once."""
        return AgentTurns(self, name).take()

    def refused_places(self, inputs: TurnInputs, records: list[Record]) -> dict[str, str]:
        """Return the reasons that a turn's files may not be written now, by `FileEffect.place`."""
        return refused_places(self.snapshot, inputs.agent, records)

    def again(self, ended: TurnEnded, started: TurnStarted | None) -> None:
        """Take a committed turn's report from its record, and let the others see what it wrote.

        Its files are written again only after the machine went down: then the record may be all that was
        kept. As long as it was up, a file that differs is somebody's later work.
        """
        report = ended.report
        if _is_all_told(ended):
            state = self.commits.states[report.agent] = AgentState.from_json(ended.state or {})
            if self.may_have_lost_files and not self.commits.is_gone(report.agent):
                write_state(self.runtime.org, report.agent, state)
        elif started:
            inputs = from_record(started, self.plan.tick)
            outcome = self._joined(inputs, take_turn(inputs, self._answers(inputs), self._plugins))
            self.commits.states[report.agent] = outcome.state
            if self.may_have_lost_files:
                self.commits.write_again(self._without_refused(outcome, started))
            else:
                self.snapshot.mail.add(report.agent, outcome.entries, report.turn)
        self.commits.reports[report.turn_key] = report
        self.runtime.notify(ended)

    def _without_refused(self, outcome: TurnOutcome, started: TurnStarted) -> TurnOutcome:
        """Return what a committed turn came to without the files that its agent may not write any more."""
        name, records = started.agent, self.journal.records_of(started.agent, started.turn)
        refused = self.refused_places(inputs_of(started, self.snapshot), records)
        for place, why in refused.items():
            problem = Problem(f"not written again: {why}", place, severity="warning", code="LMG-601")
            self.runtime.tell(problem, name)
        effects = tuple(effect for effect in outcome.effects if effect.place not in refused)
        return replace(outcome, effects=effects)

    def write_again(self, agent_names: Iterable[str]) -> None:
        """Write what committed turns of these agents wrote, where it is not there; nothing else happens."""
        for name, turn in ((it, turn) for it in agent_names for turn in self._turns_of(it)):
            records = self.journal.records_of(name, turn)
            started, ended = start_and_end(records)
            assert started, "a committed turn"
            assert ended, "a committed turn"
            kinds = Counter(map(type, records))
            if _is_all_told(ended):
                state = self.commits.states[name] = AgentState.from_json(ended.state or {})
                write_state(self.runtime.org, name, state)
            # Only with every answer on record: to write an old turn again nothing may be asked or called.
            elif kinds[ModelReplied] == ended.report.calls and kinds[ToolFinished] == len(ended.report.tools):
                inputs = replace(
                    from_record(started, self.plan.tick), problem=UnknownModel("a turn that is over")
                )
                answers = self._answers(inputs)  # they are all there: nothing goes live
                outcome = self._joined(inputs, take_turn(inputs, answers, self._plugins))
                self.commits.states[name] = outcome.state
                self.commits.write_again(self._without_refused(outcome, started))

    @cached_property
    def may_have_lost_files(self) -> bool:
        """Whether what an earlier attempt at this tick wrote may be gone.

        The machine may have gone down since, or the storage have gone back without it: then a ledger lacks
        the line of a committed turn.
        """
        records = self.journal.records
        if may_have_gone_down(plan_in(records), self.runtime.clock.boot_id):
            return True
        ended = {record.turn_key for record in records if isinstance(record, TurnCommitted)}
        starts = (it for it in records if isinstance(it, TurnStarted) and it.turn_key in ended)
        return is_lost(self.runtime.org, self.plan.tick, starts)

    def run_turn(self, inputs: TurnInputs) -> TurnOutcome:
        """Take a turn to its end, and return what it has come to."""
        outcome = tried(lambda: take_turn(inputs, self._answers(inputs), self._plugins))
        return self.to_broken_outcome(inputs, outcome) if isinstance(outcome, Exception) else outcome

    def commit(self, inputs: TurnInputs, outcome: TurnOutcome, *, again: bool) -> None:
        """Write what a turn came to, and commit it; `again`: an earlier attempt may have."""
        joined_outcome, seen = self._joined(inputs, outcome), inputs.memories_seen
        self.commits.add(joined_outcome, again=again, warned=inputs.warned, seen=seen)

    def _joined(self, inputs: TurnInputs, outcome: TurnOutcome) -> TurnOutcome:
        current = self.commits.states.get(inputs.agent.name)
        return joined(inputs, outcome, current) if current else outcome

    def to_broken_outcome(self, inputs: TurnInputs, error: Exception) -> TurnOutcome:
        """Return the outcome of a turn that raised this; raise it where it was meant to end the run."""
        broken = why_broken(error)
        # Read again: who writes a journal keeps none of it.
        found = read_journal(self.runtime.org, self.plan.tick, limit_bytes=OWN_LIMIT_BYTES)
        key = turn_key(inputs.agent.name, inputs.turn)
        records = [record for record in found if record.turn_key == key]
        started, _ = start_and_end(records)
        assert started, "a turn that was begun"
        return self.given_up(started, records, str(broken), name_of(broken))

    def given_up(self, started: TurnStarted, records: list[Record], reason: str, error: str) -> TurnOutcome:
        """Return the outcome of a turn that is given up for this reason."""
        inputs = from_record(started, self.plan.tick)
        return given_up(self.journal, inputs, records, reason=reason, error=error, plugins=self._plugins)

    def _answers(self, inputs: TurnInputs) -> JournaledAnswers:
        limits = find_limits(self._limits, self.journal, inputs)
        return JournaledAnswers(self.runtime, self.journal, self.snapshot, inputs, self.commits, limits)

    @property
    def has_limits(self) -> bool:
        """Whether anything limits what the tick's turns may spend."""
        return self._limits is not None

    @cached_property
    def _limits(self) -> TickLimits | None:
        """The limits of what the tick's turns may spend; None where there are none."""
        now, reports = self.snapshot, self.commits.reports
        found = (it.limits(now, self.journal, self.plan.order, reports) for it in self._in_use)
        return next((it for it in found if it is not None), None)


def _is_all_told(ended: TurnEnded) -> bool:
    """Return whether a turn's record says all that it came to: it failed, and left no answer to a request."""
    return ended.state is not None and not ended.report.entries
