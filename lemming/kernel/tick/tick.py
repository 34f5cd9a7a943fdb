"""A tick under way: the snapshot its turns share, and how each turn is begun, resumed or found done.

A turn found in the journal is not asked for again: its outcome is worked out from its record, and its
files are written where they are not there yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lemming.kernel.agents import Agent
from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.errors import Problem, UnknownModel, name_of
from lemming.kernel.files.stamps import opened
from lemming.kernel.journal.file import OWN_LIMIT_BYTES, Journal, read_journal
from lemming.kernel.journal.ledger import AgentState, amend_state, read_state, write_state
from lemming.kernel.journal.lookup import (
    attempts_without_progress,
    may_have_gone_down,
    plan_in,
    start_and_end,
)
from lemming.kernel.journal.records import (
    EntriesExpired,
    ModelReplied,
    Record,
    TickStarted,
    ToolFinished,
    TurnCommitted,
    TurnEnded,
    TurnResumed,
    TurnSkipped,
    TurnStarted,
    TurnStopped,
)
from lemming.kernel.journal.report import Reason, TickReport
from lemming.kernel.mail.index import EntryIndex
from lemming.kernel.tick.answers import JournaledAnswers
from lemming.kernel.tick.commits import Commits
from lemming.kernel.tick.dependencies import Connections, Waits, find_waits
from lemming.kernel.tick.edge import Stopped, tried, why_broken, why_not_begun
from lemming.kernel.tick.executors.turns_at_once import run_all
from lemming.kernel.tick.firing_plan import Plan
from lemming.kernel.tick.giving_up import given_up
from lemming.kernel.tick.lost_turns import is_lost
from lemming.kernel.tick.passed_over import connections_of, passed_over
from lemming.kernel.tick.permitted import NO_LONGER_ALLOWED, inputs_of, refused_places
from lemming.kernel.tick.retention import find_expired, said_of, unread_in_all
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.turn.loop import take_turn
from lemming.kernel.turn.moments import TickLimits
from lemming.kernel.turn.on_record import begin_turn, from_record
from lemming.kernel.turn.parts import why_not_on
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
    _root: int = -1  # the organisation's folder, open as long as turns are taken

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
        mail = snapshot.open_mail()
        return cls(runtime, journal, snapshot, Commits(runtime, journal, mail, snapshot.config.org))

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
        with self.commits.log, opened(f"{self.runtime.base}/.") as self._root:
            # One at a time, each turn sees what those before it wrote without waiting for anybody.
            if at_once > 1:
                order = self._pass_over(order)
                waits = find_waits(order, self._connections)
            run_all(order, waits, self._turn, at_once=at_once, turn_lock=lock, stop=stop, register=gathering)
            self.commits.write_held()

    def _pass_over(self, order: list[str]) -> list[str]:
        """End the turns of those to whom nothing is new, nor can become so; return who is left."""
        if self.plan.at_once or self.plan.chosen or self.runtime.stop.is_set():
            return order
        begun = {record.about for record in self.journal.records}
        idle = passed_over(self.snapshot, begun, self._root, self._connections)
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
        suspects = [name for name in self.plan.order if self._attempts_at(name) >= last_chance]
        if settings.executor == "serial" or suspects:  # a turn that ends the engine takes no other with it
            return 1
        at_once = settings.max_parallel  # whoever waits for others' calls holds nobody up
        return max(at_once, len(self.plan.order)) if self.runtime.gathering else at_once

    def _attempts_at(self, name: str) -> int:
        return attempts_without_progress(self.journal.records_of(name))

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
                *(reports[name] for name in self.plan.order if name in reports),
                *self.plan.turns_not_taken(),
            ),
            not_due=len(self.plan.not_due),
            is_complete=not self.is_stopped,
            duration_ms=elapsed_ms(began),
            base=str(self.runtime.base),
        )

    def remove_expired_entries(self) -> None:
        """Remove entries past their retention; which ones is recorded first, so a second attempt agrees.

        Who was never shown some of them is told so in its next prompt, and a person in the log.
        """
        runtime, snapshot = self.runtime, self.snapshot
        for part in snapshot.parts:
            part.ends(snapshot.look, self.plan.order)
        turned = [name for name, turn in self.commits.reports.items() if turn.status != "skipped"]
        found = find_expired(snapshot.survey, snapshot.config, snapshot.mail, runtime.epoch, turned)
        record = next((record for record in self.journal.records if isinstance(record, EntriesExpired)), None)
        if record is None:
            if not found.files:
                return
            in_all = unread_in_all(runtime.org, found.unread)
            unread: dict[str, Any] = {"unread": found.unread, "unread_in_all": in_all} if in_all else {}
            record = self.journal.append(EntriesExpired(files=found.files, **unread), sync=True)
            if in_all:  # once the files are gone nothing else says so
                self.journal.sync()
        is_flushed = snapshot.config.org.durability != "off"  # what is replaced holds a ledger's old lines
        for reader, count in record.unread_in_all.items():
            if reader in snapshot.survey.agents:
                state = replace(read_state(runtime.org, reader), expired_unread=count)
                amend_state(runtime.org, reader, state, sync=is_flushed)
                runtime.tell(said_of(reader, record.unread.get(reader, count), self.plan.tick), reader)
        for file in filter({*found.files}.__contains__, record.files):  # a journal removes nothing else
            runtime.org.own(EntryIndex).remove(file)

    def _turn(self, name: str) -> None:
        """Take one agent's turn, or finish the one that was interrupted."""
        if self.runtime.stop.is_set():
            self.is_stopped = True
            return
        records = self.journal.records_of(name)
        started, ended = start_and_end(records) if records else (None, None)
        try:
            if ended:
                self._again(ended, started)
            elif started:
                self._resume(started, records)
            else:
                self._start(name)
        except Stopped:
            self.journal.append(TurnStopped(agent=name))
            self.is_stopped = True

    def _start(self, name: str) -> None:
        now, looks = self.snapshot, None
        if name in now.idle.often_idle and not (self.plan.at_once or self.plan.chosen):
            if turn := now.idle.recall(name, now.mail, self._root, self.commits.held_paths):
                self.commits.end(TurnSkipped(report=turn))
                return
            # Before anything is read: a change that comes during the reading then shows.
            looks = now.idle.look_at(name, self._root)
        found = tried(lambda: now.inputs_of(name, self.commits.held_files))
        if isinstance(found, Exception):
            self.commits.end(TurnCommitted(report=why_not_begun(found).report(name)))
            return
        if isinstance(found, Reason):
            turn = found.report(name)
            if looks:
                now.idle.remember(turn, looks, now.mail)
            self.commits.end(TurnSkipped(report=turn))
            return
        for problem in found.problems:
            self.runtime.tell(problem, name)
        begin_turn(self.journal, found)
        self._take(found.inputs, again=False)

    def _resume(self, started: TurnStarted, records: list[Record]) -> None:
        attempts, reason = self._attempts_at(started.agent), ""
        if attempts >= self.snapshot.config.org.max_attempts:
            ended = f"the engine ended {attempts} times during this turn"
            reason = f"{ended}; given up so that the tick can go on (config/org.json max_attempts)"
        elif self.commits.is_gone(started.agent):
            reason = "the agent was removed during its turn"
        if reason:
            self.commits.add(self._given_up(started, records, reason, "Interrupted"))
            return
        inputs = inputs_of(started, self.snapshot)
        why = tried(lambda: self._why_no_more(inputs, records))
        if isinstance(why, Exception):
            self.commits.add(self._broken_off(started.agent, why))
            return
        if why:
            self.commits.add(self._given_up(started, records, why, NO_LONGER_ALLOWED))
            return
        # Recorded before it goes on: an attempt that ends the engine counts towards `max_attempts`.
        self.journal.append(TurnResumed(agent=started.agent))
        self._take(inputs, again=True)

    def _why_no_more(self, inputs: TurnInputs, records: list[Record]) -> str:
        """Return why a turn that was begun may not go on now; empty when it may."""
        for place, why in self._refused_places(inputs, records).items():
            return f"its journal records a file that may not be written now, {place}: {why}"
        return why_not_on(inputs, self.snapshot)

    def _refused_places(self, inputs: TurnInputs, records: list[Record]) -> dict[str, str]:
        return refused_places(self.snapshot, inputs.agent, records)

    def _again(self, ended: TurnEnded, started: TurnStarted | None) -> None:
        """Take a committed turn's report from its record, and let the others see what it wrote.

        Its files are written again only after the machine went down: then the record may be all that was
        kept. As long as it was up, a file that differs is somebody's later work.
        """
        report = ended.report
        if _is_all_told(ended):
            if self.may_have_lost_files and not self.commits.is_gone(report.agent):
                write_state(self.runtime.org, report.agent, AgentState.from_json(ended.state or {}))
        elif started:
            inputs = from_record(started, self.plan.tick)
            outcome = take_turn(inputs, self._answers(inputs), self._plugins)
            if self.may_have_lost_files:
                self.commits.write_again(self._without_refused(outcome, started))
            else:
                self.snapshot.mail.add(report.agent, outcome.entries)
        self.commits.reports[report.agent] = report
        self.runtime.notify(ended)

    def _without_refused(self, outcome: TurnOutcome, started: TurnStarted) -> TurnOutcome:
        """Return what a committed turn came to without the files that its agent may not write any more."""
        name = outcome.report.agent
        refused = self._refused_places(inputs_of(started, self.snapshot), self.journal.records_of(name))
        for place, why in refused.items():
            problem = Problem(f"not written again: {why}", place, severity="warning", code="LMG-601")
            self.runtime.tell(problem, name)
        effects = tuple(effect for effect in outcome.effects if effect.place not in refused)
        return replace(outcome, effects=effects)

    def write_again(self, agent_names: Iterable[str]) -> None:
        """Write what committed turns of these agents wrote, where it is not there; nothing else happens."""
        for name in agent_names:
            records = self.journal.records_of(name)
            started, ended = start_and_end(records)
            assert started, "a committed turn"
            assert ended, "a committed turn"
            kinds = Counter(map(type, records))
            if _is_all_told(ended):
                write_state(self.runtime.org, name, AgentState.from_json(ended.state or {}))
            # Only with every answer on record: to write an old turn again nothing may be asked or called.
            elif kinds[ModelReplied] == ended.report.calls and kinds[ToolFinished] == len(ended.report.tools):
                inputs = replace(
                    from_record(started, self.plan.tick), problem=UnknownModel("a turn that is over")
                )
                answers = self._answers(inputs)  # they are all there: nothing goes live
                outcome = take_turn(inputs, answers, self._plugins)
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
        ended = {record.about for record in records if isinstance(record, TurnCommitted)}
        starts = (record for record in records if isinstance(record, TurnStarted) and record.agent in ended)
        return is_lost(self.runtime.org, self.plan.tick, starts)

    def _take(self, inputs: TurnInputs, *, again: bool) -> None:
        outcome = tried(lambda: take_turn(inputs, self._answers(inputs), self._plugins))
        if isinstance(outcome, Exception):
            outcome = self._broken_off(inputs.agent.name, outcome)
        self.commits.add(outcome, again=again, warned=inputs.warned)

    def _broken_off(self, name: str, error: Exception) -> TurnOutcome:
        """Return the outcome of a turn that raised this; raise it where it was meant to end the run."""
        broken = why_broken(error)
        # Read again: who writes a journal keeps none of it.
        found = read_journal(self.runtime.org, self.plan.tick, limit_bytes=OWN_LIMIT_BYTES)
        records = [record for record in found if record.about == name]
        started, _ = start_and_end(records)
        assert started, "a turn that was begun"
        return self._given_up(started, records, str(broken), name_of(broken))

    def _given_up(self, started: TurnStarted, records: list[Record], reason: str, error: str) -> TurnOutcome:
        inputs = from_record(started, self.plan.tick)
        return given_up(self.journal, inputs, records, reason=reason, error=error, plugins=self._plugins)

    def _answers(self, inputs: TurnInputs) -> JournaledAnswers:
        limits = self._limits.of(inputs) if self._limits else None
        return JournaledAnswers(self.runtime, self.journal, self.snapshot, inputs, self.commits, limits)

    @cached_property
    def _limits(self) -> TickLimits | None:
        """The limits of what the tick's turns may spend; None where there are none."""
        now, reports = self.snapshot, self.commits.reports
        found = (it.limits(now, self.journal, self.plan.order, reports) for it in self._in_use)
        return next((it for it in found if it is not None), None)


def _is_all_told(ended: TurnEnded) -> bool:
    """Return whether a turn's record says all that it came to: it failed, and left no answer to a request."""
    return ended.state is not None and not ended.report.entries
