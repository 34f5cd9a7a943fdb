"""Where an organisation stands, and what is wrong with it: the same facts for screens and for monitors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.capabilities.requests.waiting import WaitsForPerson, waiting
from lemming.facts.checklist.check import CheckScope
from lemming.facts.checklist.standing import Trouble, seconds_since_tick, troubles_of
from lemming.facts.next_turn import next_turn
from lemming.facts.pending import pending_text
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import CorruptState, LemmingError, Problem
from lemming.kernel.journal.file import read_journal, read_plan
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.records import TickCommitted
from lemming.kernel.journal.report import Reason, Why
from lemming.kernel.mail.misplaced import misplaced
from lemming.kernel.org.config import Config, credits_of, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.shipped import JUDGES
from lemming.kernel.tick.counter import load_counter, load_tick
from lemming.kernel.tick.firing_plan import Plan, make_plan
from lemming.kernel.tick.next_tick import progress_of
from lemming.kernel.tick.seams import TickLook, goes_by_the_clock, parts_in, who_rests
from lemming.kernel.tick.soundness.judged import sound_survey
from lemming.service.under_way import has_been_interrupted, last_committed_tick, running_engine

if TYPE_CHECKING:
    from lemming.kernel.turn.seams import Fact


@dataclass(frozen=True)
class StatusLine:
    """One agent's line: the tick it fires next (None: never), how its last turn ended, what it has spent.

    `next_at`: the moment, of one that goes by the clock. `why`: whether it is to take a turn in the tick that
    runs next, and why not; `reason`: the same in words, where there is something to say.
    """

    agent: str
    model: str = ""
    next_tick: int | None = None
    next_at: str | None = None
    state: AgentState = field(default_factory=AgentState)
    max_credits: float | None = None
    why: Why = "broken"
    reason: str = ""
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the line as JSON values."""
        state = self.state
        return {
            "agent": self.agent,
            "model_key": self.model,
            "next_tick": self.next_tick,
            "next_at": self.next_at,
            "why": self.why,
            "reason": self.reason,
            "waits": pending_text(state),
            "last_tick": state.tick if state.status else None,
            "last_status": state.status or None,
            "last_end": state.end or None,
            "turns": state.turns,
            "failed_turns": state.failed,
            "credits": state.credits,
            "used_up": state.used_up,
            "judged_credits": state.aside.get(JUDGES, 0.0),
            "max_credits": self.max_credits,
            "cost_usd": state.cost_usd,
            "unpriced_calls": state.unpriced_calls,
            "problem": self.problem,
        }


class Whereabouts(NamedTuple):
    """Which tick is next, whether it was begun, who runs it, what ended last, and what is wrong."""

    tick: int
    config: Config
    survey: Survey
    engine: dict[str, Any] | None
    is_begun: bool
    last: TickCommitted | None
    troubles: list[Trouble]


def whereabouts_of(base: OrgPath) -> Whereabouts:
    """Look at an organisation, but for its agents one by one. Raises `ConfigError` and `CorruptState`."""
    tick, config, survey = load_tick(base), load_config(base), sound_survey(base)
    engine, is_begun = running_engine(base), has_been_interrupted(base, tick)
    troubles = troubles_of(CheckScope(base, lambda _: config))
    return Whereabouts(tick, config, survey, engine, is_begun, _last_tick(base), troubles)


def _last_tick(base: OrgPath) -> TickCommitted | None:
    """Return how the last tick ended, as `run-once` says it: people, who take no turns, are not skipped."""
    if (last := last_committed_tick(base)) is None:
        return None
    plan = None
    with suppress(CorruptState):
        plan = read_plan(base, last.tick)
    skipped = last.totals["skipped"] - len(plan.skipped if plan else ())
    return TickCommitted(tick=last.tick, advanced=last.advanced, totals={**last.totals, "skipped": skipped})


@dataclass(frozen=True)
class Standing:
    """One look at an organisation. `progress`: of a tick that was interrupted; `engine`: who runs it now.

    `said`: what capabilities say, by their names.
    """

    base: OrgPath
    tick: int
    is_interrupted: bool
    progress: dict[str, Any]
    engine: dict[str, Any] | None
    last: TickCommitted | None
    config: Config
    survey: Survey
    lines: list[StatusLine]
    troubles: list[Trouble]
    waiting: list[WaitsForPerson]
    misplaced: list[Problem]
    said: dict[str, list[Fact]]

    @property
    def in_trouble(self) -> set[str]:
        """The agents, and whatever else, that a trouble is about."""
        return {trouble.about for trouble in self.troubles}

    def as_json(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        return {
            "org": str(self.base),
            "tick": self.tick,
            "is_interrupted": self.is_interrupted,
            **self.progress,
            "engine": self.engine,
            "paused": self.config.org.paused,
            "last_tick": {"tick": self.last.tick, "totals": self.last.totals} if self.last else None,
            "agents": [line.as_json() for line in self.lines],
            "troubles": [trouble.as_json() for trouble in self.troubles],
            "waiting": len(self.waiting),
            "warnings": len(self.survey.warnings),
            "misplaced": [problem.as_json() for problem in self.misplaced],
            "capabilities": {name: [it._asdict() for it in facts] for name, facts in self.said.items()},
        }


def standing_of(base: OrgPath, *, max_age_s: float | None = None, also: Sequence[Trouble] = ()) -> Standing:
    """Look at an organisation; a last tick older than `max_age_s` is wrong, and so is what `also` names.

    Raises `ConfigError` and `CorruptState` where that is all there is to say.
    """
    tick, config, survey, engine, is_interrupted, last, troubles = whereabouts_of(base)
    lines = _lines(base, config, survey, tick)
    troubles += also
    if (age := seconds_since_tick(base)) is not None and max_age_s is not None and age > max_age_s:
        text = f"the last tick ended {age:.0f} s ago"
        troubles.append(Trouble(text, hint="is the engine running?", about="tick"))
    named = {trouble.about for trouble in troubles}
    left = (line for line in lines if line.problem and line.agent not in named)
    troubles += [Trouble(line.problem, about=line.agent) for line in left]
    return Standing(
        base=base,
        tick=tick,
        is_interrupted=is_interrupted,
        progress=progress_of(read_journal(base, tick)) if is_interrupted else {},
        engine=engine,
        last=last,
        config=config,
        survey=survey,
        lines=lines,
        troubles=troubles,
        waiting=waiting(base),
        misplaced=list(misplaced(Path(base), [*survey.agents, *survey.broken], tick)),
        said=_capability_facts(base, config, survey),
    )


def _capability_facts(base: OrgPath, config: Config, survey: Survey) -> dict[str, list[Fact]]:
    if not (config.org.capabilities or survey.names_capabilities):
        return {}
    from lemming.facts.capabilities import facts_of  # with it comes all that takes turns

    return facts_of(base, config, survey)


def _lines(base: OrgPath, config: Config, survey: Survey, tick: int) -> list[StatusLine]:
    org, at = Organisation.at(base), timestamp(SystemClock().now())
    parts = parts_in(org, survey, config)
    since = load_counter(base)[1] if goes_by_the_clock(parts) else ""
    resting = who_rests(parts, TickLook(org, config, survey, tick, at, since)) if parts else {}
    plan = make_plan(tick, survey, config, at=at, since=since, resting=resting)
    reasons = plan.reasons
    lines = [_line(base, agent, config, plan, reasons[agent.name]) for agent in survey.agents.values()]
    lines += [_broken_line(base, name, str(error)) for name, error in survey.broken.items()]
    return sorted(lines, key=lambda line: line.agent)


def _broken_line(base: OrgPath, name: str, problem: str) -> StatusLine:
    """Return the line of an agent whose resume says nothing; what it has done and spent, its ledger says."""
    state = AgentState()
    with suppress(LemmingError, ValueError):  # a damaged ledger, a folder that no agent can be named like
        state = read_state(base, name)
    return StatusLine(name, problem=problem, state=state)


def _line(base: OrgPath, agent: Agent, config: Config, plan: Plan, reason: Reason) -> StatusLine:
    coming = next_turn(base, agent, config, plan.tick, since=plan.since)
    is_out = reason.why in ("person", "channel", "paused")
    problem, state = "", AgentState()
    try:
        state = read_state(base, agent.name)
        config.model(agent.model.key)
    except LemmingError as error:
        problem = str(error)
    if reason.why == "broken":
        problem = reason.text
    return StatusLine(
        agent=agent.name,
        model=agent.model.key,
        next_tick=None if is_out else coming.tick,
        next_at=None if is_out else coming.as_text,
        why=reason.why,
        reason=reason.text,
        state=state,
        max_credits=credits_of(config, agent.name, agent.credits).max_credits,
        problem=problem,
    )
