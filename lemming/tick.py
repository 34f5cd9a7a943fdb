"""A tick under way: the snapshot its turns share, and how each turn is begun, resumed or found done.

A turn found in the journal is not asked for again: its outcome is worked out from its record, and its
files are written where they are not there yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from lemming import fs, paths
from lemming.agents import Agent, Survey, survey_agents
from lemming.clock import Clock, elapsed_ms
from lemming.commits import Commits
from lemming.config import Config
from lemming.errors import ConfigError, DiskError, LemmingError, Problem
from lemming.executors.threads import run_all
from lemming.inbox import Mailroom
from lemming.journal import Journal, Record
from lemming.jsontext import nearest
from lemming.ledger import AgentState, write_state
from lemming.messages import expired_entries
from lemming.plan import Plan, make_plan, seating_order
from lemming.report import TickReport, TurnReport
from lemming.runtime import Runtime, Stopped, load_installed_plugins
from lemming.seating import Skip, as_record, find_seat, from_record
from lemming.tape import JournalTape, recorded_answer
from lemming.tools import ToolRegistry
from lemming.turn import Seat, TurnOutcome, spending, state_after_spending, take_turn
from lemming.waiting import find_waits

STARTS = ("turn_started", "turn_resumed")


@dataclass
class Tick:
    """One tick of one organisation. `is_stopped` when the operator stopped it before all turns were over."""

    runtime: Runtime
    journal: Journal
    config: Config
    survey: Survey
    plan: Plan
    mailroom: Mailroom
    commits: Commits
    is_stopped: bool = False

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
        commits = Commits(runtime, journal, mailroom, config.org)
        return cls(runtime, journal, config, survey, plan, mailroom, commits)

    def take_turns(self) -> None:
        """Take every turn, or finish those that were interrupted; as many at once as the settings allow.

        What the tick writes does not depend on how many that are. Raises `DiskError`.
        """
        org, order = self.config.org, self.plan.order
        waits = find_waits(order, self.survey.agents, org, self.runtime.base) if org.max_parallel > 1 else {}
        try:
            run_all(order, waits, self._turn, at_once=org.max_parallel)
        except BaseException:
            self.runtime.stop.set()
            raise
        self.commits.write_held()

    def report(self, began: float) -> TickReport:
        """Return what the tick has come to; `began` is a `time.perf_counter()` reading."""
        reports = self.commits.reports
        return TickReport(
            tick=self.plan.tick,
            turns=(
                *(reports[name] for name in self.plan.order if name in reports),
                *turns_not_taken(self.plan),
            ),
            is_complete=not self.is_stopped,
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

    def _turn(self, name: str) -> None:
        """Take one agent's turn, or finish the one that was interrupted."""
        if self.runtime.stop.is_set():
            self.is_stopped = True
            return
        records = self.journal.records_of(name)
        by_type = {record["type"]: record for record in records}
        try:
            if ended := by_type.get("turn_committed") or by_type.get("turn_skipped"):
                self._again(ended, by_type.get("turn_started"))
            elif started := by_type.get("turn_started"):
                self._resume(started, records)
            else:
                self._start(name)
        except Stopped:
            self.journal.append("turn_stopped", agent=name)
            self.is_stopped = True
        except BaseException:
            self.runtime.stop.set()  # nothing that the others come to could be kept
            raise
        else:
            ended_turn = self.commits.reports[name].as_json()
            self.runtime.notify({"type": "turn_ended", "tick": self.plan.tick, **ended_turn})

    def _start(self, name: str) -> None:
        try:
            found = find_seat(
                self.runtime.base,
                self._agent(name),
                self.survey.digests[name],
                self.config,
                self.mailroom,
                self.plan.tick,
                self.commits.held_files,
            )
        except DiskError:
            raise
        except LemmingError as error:
            failed = TurnReport(agent=name, status="failed", reason=str(error), error=type(error).__name__)
            self.commits.end("turn_committed", failed)
            return
        if isinstance(found, Skip):
            skipped = TurnReport(agent=name, status="skipped", reason=found.reason, error=found.error)
            self.commits.end("turn_skipped", skipped)
            return
        for problem in found.problems:
            self.runtime.tell(problem, name)
        self.journal.append("turn_started", agent=name, **as_record(found))
        self._take(found.seat, again=False)

    def _resume(self, started: Record, records: list[Record]) -> None:
        attempts = _attempts_without_progress(records)
        if attempts >= self.config.org.max_attempts:
            self.commits.add(self._given_up(started, records, attempts))
            return
        self.journal.append("turn_resumed", agent=started["agent"])
        self._take(from_record(started, self.plan.tick), again=True)

    def _again(self, ended: Record, started: Record | None) -> None:
        """Take a committed turn's report from its record, and let the others see what it wrote.

        Its files are written again only after the machine went down: then the record may be all that was
        kept. As long as it was up, a file that differs is somebody's later work.
        """
        report = TurnReport.from_json(ended)
        if "state" in ended:
            if self.may_have_lost_files:
                write_state(self.runtime.base, report.agent, AgentState.from_json(ended["state"]))
        elif started:
            seat = from_record(started, self.plan.tick)
            outcome = take_turn(seat, self._tape(seat))
            if self.may_have_lost_files:
                self.commits.write_again(outcome)
            else:
                self.mailroom.add(report.agent, outcome.entries)
        self.commits.reports[report.agent] = report

    @property
    def may_have_lost_files(self) -> bool:
        """Whether the machine may have gone down since an earlier attempt at this tick."""
        return may_have_gone_down(self.journal.records, self.runtime.clock)

    def _take(self, seat: Seat, *, again: bool) -> None:
        self.runtime.notify({"type": "turn_started", "agent": seat.agent.name, "tick": self.plan.tick})
        outcome = take_turn(seat, self._tape(seat))
        self.commits.add(outcome, again=again, warned=seat.warned)

    def _given_up(self, started: Record, records: list[Record], attempts: int) -> TurnOutcome:
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
        return TurnOutcome(report=report, state=state, state_if_unwritten=state)

    def _tape(self, seat: Seat) -> JournalTape:
        return JournalTape(self.runtime, self.journal, self.config.org, seat, self.commits)

    def _agent(self, name: str) -> Agent:
        """Return the agent; raise what is wrong with it when its resume broke since the tick was planned."""
        if name in self.survey.agents:
            return self.survey.agents[name]
        if name in self.survey.broken:
            raise self.survey.broken[name]
        raise ConfigError("the agent's folder is gone", where=paths.agent_folder(name))


def may_have_gone_down(records: list[Record], clock: Clock) -> bool:
    """Return whether the machine may have gone down since a journal was begun."""
    return not clock.boot_id or records[0].get("boot", "") != clock.boot_id


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
