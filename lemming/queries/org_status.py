"""Status of an organisation and its health issues: the same data for screens and monitors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.agents import Survey
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import CorruptState, LemmingError, Problem
from lemming.kernel.journal.journal_file import last_record, load_tick_started, read_journal
from lemming.kernel.journal.journal_records import TickCommitted
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.tick_plan import TickPlan
from lemming.kernel.journal.turn_report import ReasonCode, TurnReason
from lemming.kernel.org.capability_usage import resolve_credits
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.firing_plan import make_plan
from lemming.kernel.tick.tick_counter import load_counter, load_tick
from lemming.kernel.tick.tick_hooks import find_skipped_agents, get_capability_uses, uses_clock
from lemming.kernel.tick.validation.agent_validation import load_validated_survey
from lemming.obligations.waiting_items import PersonInboxItem, list_person_inbox
from lemming.operations.engine_lock import find_running_engine, is_tick_incomplete
from lemming.operations.misplaced_files import find_all_misplaced
from lemming.operations.next_tick import summarize_progress
from lemming.queries.checks.check_registry import CheckRun
from lemming.queries.checks.health_checks import find_health_issues, make_issue, seconds_since_tick
from lemming.queries.next_turn import NextTurn, find_next_turn
from lemming.read_model.journal_ticks import newest_journals

if TYPE_CHECKING:
    from lemming.kernel.turn.preparation import CapabilityStatus


@dataclass(frozen=True)
class AgentStatus:
    """Status of an agent: its next turn, the outcome of its last turn, and its spending.

    `upcoming` is None if the agent takes no turns. `reason_code`: the reason for a turn, or for no turn, in the next
    tick; `reason` is the description, possibly empty. `has_issue`: a health issue is about the agent.
    """

    agent: str
    model: str = ""
    upcoming: NextTurn | None = None
    state: AgentState = field(default_factory=AgentState)
    max_credits: float | None = None
    reason_code: ReasonCode = "broken"
    reason: str = ""
    problem: str = ""
    has_issue: bool = False

    @property
    def next_tick(self) -> int | None:
        """The tick of the next turn, or None if no tick is known."""
        return self.upcoming.tick if self.upcoming else None

    @property
    def next_at(self) -> str | None:
        """The time of the next turn, or None without a clock schedule."""
        return self.upcoming.as_text if self.upcoming else None

    @property
    def has_ledger(self) -> bool:
        """True if the agent's ledger was read; totals without a ledger would look like a restart."""
        return not self.problem or self.state.tick >= 0


@dataclass(frozen=True, kw_only=True)
class TickStatus:
    """The next tick and its progress, the running engine, the last committed tick, and the health issues."""

    tick: int
    config: Config
    survey: Survey
    engine: dict[str, Any] | None
    is_interrupted: bool
    last_commit: TickCommitted | None
    issues: list[Problem]


def load_tick_status(base: OrgPath) -> TickStatus:
    """Load the status of an organisation without its agents. Raises `ConfigError` and `CorruptState`."""
    tick, config, survey = load_tick(base), load_config(base), load_validated_survey(base)
    return TickStatus(
        tick=tick,
        config=config,
        survey=survey,
        engine=find_running_engine(base),
        is_interrupted=is_tick_incomplete(base, tick),
        last_commit=_load_last_commit(base),
        issues=find_health_issues(CheckRun(base, lambda _: config)),
    )


def _load_last_commit(base: OrgPath) -> TickCommitted | None:
    """Return the last committed tick with the totals of `run-once`: people take no turns and are not skipped."""
    for tick in reversed(newest_journals(base, 2)):
        if isinstance(record := last_record(base, tick), TickCommitted):
            started = None
            with suppress(CorruptState):
                started = load_tick_started(base, tick)
            skipped = record.totals["skipped"] - len(started.skipped if started else ())
            return TickCommitted(**{**vars(record), "totals": {**record.totals, "skipped": skipped}})
    return None


@dataclass(frozen=True, kw_only=True)
class OrgStatus(TickStatus):
    """Status of an organisation with its agents. `progress`: progress of an interrupted tick.

    `capability_status`: status lines of capabilities, by name.
    """

    base: OrgPath
    progress: dict[str, Any]
    agent_statuses: list[AgentStatus]
    waiting: list[PersonInboxItem]
    misplaced: list[Problem]
    capability_status: dict[str, list[CapabilityStatus]]

    @property
    def issue_subjects(self) -> set[str]:
        """The agents and other subjects of the health issues."""
        return {issue.about for issue in self.issues}


def load_org_status(
    base: OrgPath, *, max_age_s: float | None = None, extra_issues: Sequence[Problem] = ()
) -> OrgStatus:
    """Return the status of an organisation, with `extra_issues`; a tick older than `max_age_s` seconds is an issue.

    Raises `ConfigError` and `CorruptState` if the organisation cannot be read.
    """
    status = load_tick_status(base)
    tick, config, survey, issues = status.tick, status.config, status.survey, [*status.issues, *extra_issues]
    agent_statuses = _build_agent_statuses(base, config, survey, tick)
    if (age := seconds_since_tick(base)) is not None and max_age_s is not None and age > max_age_s:
        text = f"the last tick ended {age:.0f} s ago"
        issues.append(make_issue("tick", text, "start the engine if it is not running"))
    reported = {issue.about for issue in issues}
    unreported = (status for status in agent_statuses if status.problem and status.agent not in reported)
    issues += [make_issue(agent_status.agent, agent_status.problem) for agent_status in unreported]
    subjects = {issue.about for issue in issues}
    agent_statuses = [replace(status, has_issue=status.agent in subjects) for status in agent_statuses]
    capability_status = {}
    if config.org.capabilities or survey.has_plugin_capabilities:
        from lemming.queries.capability_status import collect_capability_status  # with it comes all that takes turns

        capability_status = collect_capability_status(base, config, survey)
    return OrgStatus(
        **{**vars(status), "issues": issues},
        base=base,
        progress=summarize_progress(read_journal(base, tick)) if status.is_interrupted else {},
        agent_statuses=agent_statuses,
        waiting=list_person_inbox(base),
        misplaced=list(find_all_misplaced(Path(base), [*survey.agents, *survey.broken], tick)),
        capability_status=capability_status,
    )


def _build_agent_statuses(base: OrgPath, config: Config, survey: Survey, tick: int) -> list[AgentStatus]:
    org, at = Organisation.from_path(base), timestamp(SystemClock().now())
    uses, resting = get_capability_uses(org, survey, config), {}
    since = load_counter(base)[1] if uses_clock(uses) else ""
    if uses:
        from lemming.kernel.turn.descriptions import TickView

        resting = find_skipped_agents(uses, TickView(org, config, survey, tick, at, since))
    plan = make_plan(tick, survey, config, at=at, since=since, skipped_agents=resting)
    reasons, names = plan.turn_reasons, (*survey.agents, *survey.broken)
    statuses = (build_agent_status(base, survey, config, plan, name, reasons.get(name)) for name in names)
    return sorted(statuses, key=lambda agent_status: agent_status.agent)


def build_agent_status(
    base: OrgPath, survey: Survey, config: Config, plan: TickPlan, name: str, reason: TurnReason | None
) -> AgentStatus:
    """Return the status of an agent, with its reason in the plan. A broken agent's ledger still tells its spending."""
    agent, state, problem = survey.agents.get(name), AgentState(), str(survey.broken.get(name, ""))
    try:
        state = read_state(base, name)
        if agent:
            config.model(agent.model.key)
    except (LemmingError, ValueError) as error:  # a damaged ledger, a folder that no agent can be named like
        problem = problem or str(error)
    if agent is None or reason is None:
        return AgentStatus(name, problem=problem, state=state)
    takes_no_turn = reason.code in ("person", "channel", "paused")
    return AgentStatus(
        agent=name,
        model=agent.model.key,
        upcoming=None if takes_no_turn else find_next_turn(base, agent, config, plan.tick, since=plan.since),
        reason_code=reason.code,
        reason=reason.text,
        state=state,
        max_credits=resolve_credits(config, name, agent.credits).max_credits,
        problem=reason.text if reason.code == "broken" else problem,
    )
