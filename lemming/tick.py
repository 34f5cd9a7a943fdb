"""A tick under way: the snapshot its turns share, and how each turn is taken, applied and committed.

    answer < effects < commit

A turn found in the journal is not asked for again: its outcome is worked out from its record, and its
files are written where they are not there yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lemming import fs, paths
from lemming.agents import Agent, Survey, survey_agents
from lemming.clock import elapsed_ms
from lemming.config import Config
from lemming.effects import apply_effect
from lemming.errors import ConfigError, DiskError, LemmingError, Problem
from lemming.inbox import Mailroom
from lemming.journal import Journal, Record
from lemming.jsontext import nearest
from lemming.ledger import AgentState, write_state
from lemming.logging_config import engine_logger, log_agent_action
from lemming.messages import expired_entries
from lemming.plan import Plan, make_plan, seating_order
from lemming.report import TickReport, TurnReport
from lemming.runtime import Runtime, Stopped, load_installed_plugins
from lemming.tools import ToolRegistry

if TYPE_CHECKING:  # what a turn needs is imported with the first turn: an idle tick has none
    from lemming.tape import JournalTape
    from lemming.turn import Seat, TurnOutcome

STARTS = ("turn_started", "turn_resumed")


@dataclass
class Tick:
    """One tick of one organisation. `turns` are the reports so far, in the order of the plan."""

    runtime: Runtime
    journal: Journal
    config: Config
    survey: Survey
    plan: Plan
    mailroom: Mailroom
    turns: list[TurnReport] = field(default_factory=list)

    @classmethod
    def begin(cls, runtime: Runtime, journal: Journal, config: Config, tick: int) -> Tick:
        """Take the snapshot. A tick that was interrupted keeps the plan it began with."""
        survey = survey_agents(runtime.base)
        if journal.records:
            plan = Plan.from_json(journal.records[0])
        else:
            plan = make_plan(tick, survey, config)
            journal.append("tick_started", at=runtime.now(), boot=runtime.clock.boot_id, **plan.as_json())
        if plan.order:
            load_installed_plugins()
        runtime.notify({"type": "tick_started", **plan.as_json()})
        for problem in (*config.warnings, *survey.warnings, *_unknown_tools(survey)):
            runtime.tell(problem)
        mailroom = Mailroom(
            runtime.base,
            tick=tick,
            agents=survey.agents,
            order=seating_order(survey),
            firing=plan.order,
            visibility=config.org.visibility,
        )
        mailroom.open_for(survey.agents[name] for name in plan.order if name in survey.agents)
        return cls(runtime, journal, config, survey, plan, mailroom)

    def turn(self, name: str) -> None:
        """Take one agent's turn, or finish the one that was interrupted. Raises `Stopped` and `DiskError`."""
        if self.runtime.stop.is_set():
            raise Stopped
        records = self.journal.records_of(name)
        by_type = {record["type"]: record for record in records}
        if ended := by_type.get("turn_committed") or by_type.get("turn_skipped"):
            report = self._again(ended, by_type.get("turn_started"))
        elif started := by_type.get("turn_started"):
            report = self._resume(started, records)
        else:
            report = self._start(name)
        self.turns.append(report)
        self.runtime.notify({"type": "turn_ended", "tick": self.plan.tick, **report.as_json()})

    def report(self, began: float, *, is_complete: bool = True) -> TickReport:
        """Return what the tick has come to; `began` is a `time.perf_counter()` reading."""
        return TickReport(
            tick=self.plan.tick,
            turns=(*self.turns, *turns_not_taken(self.plan)),
            is_complete=is_complete,
            duration_ms=elapsed_ms(began),
        )

    def remove_expired_entries(self) -> None:
        """Remove entries past their retention; which ones is recorded first, so a second attempt agrees."""
        recorded = [record for record in self.journal.records if record["type"] == "entries_expired"]
        if recorded:
            expired = recorded[0]["files"]
        else:
            expired = expired_entries(self.runtime.base, self.plan.tick, self.config.org.retention_ticks)
            if expired:
                self.journal.append("entries_expired", sync=True, files=expired)
        for file in expired:
            fs.remove(self.runtime.base, file)

    def _start(self, name: str) -> TurnReport:
        from lemming.seating import Skip, as_record, find_seat

        try:
            found = find_seat(
                self.runtime.base,
                self._agent(name),
                self.survey.digests[name],
                self.config,
                self.mailroom,
                self.plan.tick,
            )
        except DiskError:
            raise
        except LemmingError as error:
            return self._record_end(
                "turn_committed",
                TurnReport(agent=name, status="failed", reason=str(error), error=type(error).__name__),
            )
        if isinstance(found, Skip):
            return self._record_end(
                "turn_skipped",
                TurnReport(agent=name, status="skipped", reason=found.reason, error=found.error),
            )
        for problem in found.problems:
            self.runtime.tell(problem, name)
        self.journal.append("turn_started", agent=name, **as_record(found))
        return self._take(found.seat, again=False)

    def _resume(self, started: Record, records: list[Record]) -> TurnReport:
        from lemming.seating import from_record

        attempts = _attempts_without_progress(records)
        if attempts >= self.config.org.max_attempts:
            return self._give_up(started, records, attempts)
        self.journal.append("turn_resumed", agent=started["agent"])
        return self._take(from_record(started, self.plan.tick), again=True)

    def _again(self, ended: Record, started: Record | None) -> TurnReport:
        """Return a committed turn's report, and let the others see what it wrote.

        Its files are written again only after the machine went down: then the record may be all that was
        kept. As long as it was up, a file that differs is somebody's later work.
        """
        from lemming.seating import from_record
        from lemming.turn import take_turn

        report = TurnReport.from_json(ended)
        if "state" in ended:
            if self.may_have_lost_files:
                write_state(self.runtime.base, report.agent, AgentState.from_json(ended["state"]))
        elif started:
            seat = from_record(started, self.plan.tick)
            outcome = take_turn(seat, self._tape(seat))
            if self.may_have_lost_files:
                self._apply(outcome, again=True)
            else:
                self.mailroom.add(report.agent, outcome.entries)
        return report

    @property
    def may_have_lost_files(self) -> bool:
        """Whether the machine may have gone down since an earlier attempt at this tick."""
        before, now = self.journal.records[0].get("boot", ""), self.runtime.clock.boot_id
        return not now or before != now

    def _take(self, seat: Seat, *, again: bool) -> TurnReport:
        from lemming.turn import take_turn

        self.runtime.notify({"type": "turn_started", "agent": seat.agent.name, "tick": self.plan.tick})
        try:
            outcome = take_turn(seat, self._tape(seat))
        except Stopped:
            self.journal.append("turn_stopped", agent=seat.agent.name)
            raise
        try:
            self._apply(outcome, again=again)
        except DiskError as error:
            if not error.concerns_one_file:
                raise
            outcome = _failed_to_write(outcome, error)
            write_state(self.runtime.base, seat.agent.name, outcome.state)
        return self._commit(outcome, soft_cap_warned=seat.warned)

    def _apply(self, outcome: TurnOutcome, *, again: bool) -> None:
        """Write a turn's files: memories and workspace, then the outbox, then the agent's new state."""
        self.journal.settle()
        for effect in outcome.effects:
            apply_effect(self.runtime.base, effect, again=again)
        write_state(self.runtime.base, outcome.report.agent, outcome.state)
        self.mailroom.add(outcome.report.agent, outcome.entries)

    def _commit(self, outcome: TurnOutcome, *, soft_cap_warned: bool = False) -> TurnReport:
        failed = outcome.report.status == "failed"
        extra = {"state": outcome.state.as_json()} if failed else {}
        report = self._record_end("turn_committed", outcome.report, **extra)
        if soft_cap_warned and not failed:
            engine_logger(self.runtime.base).warning(
                "soft_cap_reached", agent=report.agent, tick=self.plan.tick, credits=outcome.state.credits
            )
        return report

    def _record_end(self, kind: str, report: TurnReport, **extra: Any) -> TurnReport:
        self.journal.append(kind, **report.as_json(), **extra)
        level = "warning" if report.status == "failed" else "info"
        facts = {
            "status": report.status,
            "reason": report.reason,
            "entries": len(report.entries),
            "calls": report.calls,
            "credits": report.credits,
            "duration_ms": report.duration_ms,
        }
        getattr(engine_logger(self.runtime.base), level)(
            "turn", tick=self.plan.tick, agent=report.agent, **facts
        )
        action = {"done": "agent_completed", "waiting": "agent_completed"}.get(
            report.status, f"agent_{report.status}"
        )
        log_agent_action(self.runtime.base, report.agent, self.plan.tick, action, **facts, notes=report.notes)
        return report

    def _give_up(self, started: Record, records: list[Record], attempts: int) -> TurnReport:
        from lemming.seating import from_record
        from lemming.tape import recorded_answer
        from lemming.turn import TurnOutcome, spending, state_after_spending

        seat = from_record(started, self.plan.tick)
        answers = [recorded_answer(record) for record in records if record["type"] == "model_replied"]
        state = state_after_spending(seat, answers, "failed")
        reason = (
            f"the engine ended {attempts} times during this turn; given up so that the tick can go on "
            "(config/org.json max_attempts)"
        )
        report = TurnReport(
            agent=started["agent"],
            status="failed",
            reason=reason,
            error="Interrupted",
            **spending(answers),
        )
        self.journal.settle()
        write_state(self.runtime.base, report.agent, state)
        return self._commit(TurnOutcome(report=report, state=state, state_if_unwritten=state))

    def _tape(self, seat: Seat) -> JournalTape:
        from lemming.tape import JournalTape

        return JournalTape(self.runtime, self.journal, self.config.org, seat)

    def _agent(self, name: str) -> Agent:
        """Return the agent; raise what is wrong with it when its resume broke since the tick was planned."""
        if name in self.survey.agents:
            return self.survey.agents[name]
        if name in self.survey.broken:
            raise self.survey.broken[name]
        raise ConfigError("the agent's folder is gone", where=paths.agent_folder(name))


def turns_not_taken(plan: Plan) -> list[TurnReport]:
    """Return the reports of the agents that had no turn in a tick."""
    skipped = [TurnReport(agent=name, status="skipped", reason=why) for name, why in plan.skipped.items()]
    broken = [
        TurnReport(agent=name, status="failed", reason=why, error="ConfigError")
        for name, why in plan.broken.items()
    ]
    return [*skipped, *broken]


def _unknown_tools(survey: Survey) -> list[Problem]:
    """Return a warning for each tool in a resume that no tool has as its name."""
    known = ToolRegistry.names()
    return [
        Problem(
            f'no tool "{tool}"',
            paths.resume_file(name),
            pointer=f"/permissions/tools/{index}",
            hint=nearest(tool, known) or f"tools: {', '.join(known)}",
            severity="warning",
            code="LMG-301",
        )
        for name, agent in survey.agents.items()
        for index, tool in enumerate(agent.permissions.tools)
        if tool not in known
    ]


def _attempts_without_progress(records: list[Record]) -> int:
    """Return how often this turn was begun since it last came any further."""
    count = 0
    for record in records:
        count = count + 1 if record["type"] in STARTS else 0
    return count


def _failed_to_write(outcome: TurnOutcome, error: DiskError) -> TurnOutcome:
    """Return the outcome of a turn that failed at the very end; some of its files may be there."""
    from lemming.turn import TurnOutcome

    reason = f"its files could not all be written: {error}"
    report = replace(outcome.report, status="failed", reason=reason, error="DiskError", entries=[])
    state = outcome.state_if_unwritten
    return TurnOutcome(report=report, state=state, state_if_unwritten=state)
