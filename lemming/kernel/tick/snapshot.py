"""The start of a tick: agents, plan and outboxes as of its beginning, the same for all turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lemming.kernel.agents import Agent, Survey, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.json_documents import retry_while_saving
from lemming.kernel.journal.turn_report import TurnReason, TurnReport
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.firing_plan import PauseCheck, TickPlan, make_plan
from lemming.kernel.tick.tick_hooks import (
    CapabilityUse,
    find_skipped_agents,
    get_capability_uses,
    later_reading,
    next_reading,
    uses_clock,
)
from lemming.kernel.tick.validation.agent_validation import require_valid_survey
from lemming.kernel.tools import (
    get_toolset,
    has_own_tools,
)
from lemming.kernel.tools.toolset import Toolset

if TYPE_CHECKING:
    from lemming.kernel.inboxes.visibility import MailView
    from lemming.kernel.turn.descriptions import TickView
    from lemming.kernel.turn.turn_inputs import GatheredInputs
    from lemming.kernel.turn.wake_check import FurtherTurn

T = TypeVar("T")
NOTHING: Mapping[str, bytes] = {}


@dataclass(frozen=True)
class Snapshot:
    """A view of an organisation. Later edits count from the next tick."""

    org: Organisation
    config: Config
    survey: Survey
    plan: TickPlan
    servers: Mapping[str, Json] = field(default_factory=dict)  # server catalogues, by source
    began_ns: int = 0  # wall clock of the machine as it was taken
    reports: dict[str, TurnReport] = field(default_factory=dict)  # of the tick's finished turns

    @property
    def base(self) -> Path:
        """The organisation's folder."""
        return self.org.base

    @property
    def toolset(self) -> Toolset:
        """The tools of the organisation, including those of installed packages once loaded."""
        return get_toolset(self.config.org, self.org if self._has_own_tools else None)

    @cached_property
    def _has_own_tools(self) -> bool:
        return has_own_tools(self.config.org, self.survey)

    def get_cache(self, kind: Callable[[Snapshot], T]) -> T:
        """Return an object cached for this snapshot, created once."""
        if kind not in self._caches:
            self._caches.setdefault(kind, kind(self))  # turns call this concurrently
        cached: T = self._caches[kind]
        return cached

    @cached_property
    def _caches(self) -> dict[object, Any]:
        return {}

    @cached_property
    def pause_check(self) -> PauseCheck:
        """Check for agents paused or unpaused since the snapshot."""
        return PauseCheck(self.org, self.config, self.survey, self.began_ns)

    @property
    def tick(self) -> int:
        """The tick's number."""
        return self.plan.tick

    @property
    def at(self) -> str:
        """The tick's reading of the wall clock."""
        return self.plan.at

    @property
    def since(self) -> str:
        """The reading up to which earlier ticks ran, or an empty text."""
        return self.plan.since

    @property
    def chosen(self) -> Sequence[str]:
        """Agents selected by name for this tick: they take a turn even without news."""
        return self.plan.chosen

    @cached_property
    def capability_uses(self) -> list[CapabilityUse]:
        """The capabilities in use that take part in ticks."""
        return get_capability_uses(self.org, self.survey, self.config)

    @property
    def view(self) -> TickView:
        """The snapshot in the form passed to capabilities."""
        from lemming.kernel.turn.descriptions import TickView

        return TickView(self.org, self.config, self.survey, self.tick, self.at, self.since)

    @property
    def next_reading(self) -> str:
        """The clock reading from which the next tick starts; empty without clock schedules."""
        return next_reading(self.plan) if uses_clock(self.capability_uses) else ""

    @cached_property
    def mail(self) -> MailView:
        """Visibility of entries; an outbox is read on first access."""
        from lemming.kernel.inboxes.visibility import MailView

        persons = self.survey.find_people(self.config)
        return MailView(
            self.org,
            tick=self.tick,
            order=_entry_order(self.survey, self.config, persons),
            firing=self.plan.order,
            visibility=self.config.org.visibility,
            persons=persons,
            broken=self.survey.broken,
            at=later_reading(self.plan.at, self.plan.since),
            callers=self.survey.find_callers(self.config),
            askers=self.survey.teams_by_member,
            agents=self.survey.agents,
        )

    def open_mail(self) -> MailView:
        """Read all outboxes visible to due agents, before any agent writes.

        The tick's first record exists, so from here on no entry is withdrawn. An entry withdrawn by a person
        since the plan was made is shown to no agent.
        """
        from lemming.kernel.inboxes.entry_index import EntryIndex

        index, listed = self.org.get_cache(EntryIndex), self.mail.listed
        if any(index.list_outbox(name) is not listed[name] for name in self.mail.persons if name in listed):
            for name in ("mail", "_caches"):
                vars(self).pop(name, None)
        readers = (self.survey.agents[name] for name in self.plan.order if name in self.survey.agents)
        self.mail.scan_outboxes(readers)
        return self.mail

    def agent(self, name: str) -> Agent:
        """Return the agent, or raise the error in a resume that broke since the tick was planned."""
        if name in self.survey.agents:
            return self.survey.agents[name]
        if name in self.survey.broken:
            raise self.survey.broken[name]
        raise ConfigError("the agent does not exist any more: it has no resume", where=paths.agent_folder(name))

    def gather_inputs(
        self, name: str, unwritten: Mapping[str, bytes] = NOTHING, turn: FurtherTurn | None = None
    ) -> GatheredInputs | TurnReason:
        """Return the inputs of an agent's first or further `turn` in this tick, or the reason for having none."""
        from lemming.kernel.turn.turn_inputs import gather_inputs

        return gather_inputs(self, self.agent(name), self.survey.digests[name], unwritten, turn)

    def turn_reason(self, name: str) -> TurnReason:
        """Return the reason a due agent would take a turn now or skip it. Raises as `gather_inputs` does."""
        from lemming.kernel.turn.wake_check import turn_reason

        return turn_reason(self, self.agent(name), self.survey.digests[name])


def _entry_order(survey: Survey, config: Config, persons: Sequence[str]) -> Sequence[str]:
    """Return the agents in the order of a tick's entries: agents without turns first.

    An answer therefore never precedes its question.
    """
    outside = {*persons, *(survey.find_channels(config) if config.has_channels else ())}
    return sorted(survey.turn_order, key=lambda name: name not in outside) if outside else survey.turn_order


def take_snapshot(
    org: Organisation,
    config: Config,
    tick: int,
    plan: TickPlan | None = None,
    *,
    at: str = "",
    since: Callable[[], str] = str,
) -> Snapshot:
    """Take a snapshot of an organisation at the start of a tick. An interrupted attempt's `plan` is reused.

    `at` is the tick's clock reading; `since` returns the reading of the previous tick, if needed. Raises
    `ConfigError` for invalid settings.
    """
    began_ns = time.time_ns()
    # A person's editor may be saving a resume at this moment.
    survey = retry_while_saving(
        org.base,
        lambda: survey_agents(org),
        lambda survey: (problem for error in survey.broken.values() for problem in error.problems),
    )
    survey = require_valid_survey(org, config, survey)
    if plan is None:
        uses = get_capability_uses(org, survey, config)
        previous = since() if uses_clock(uses) else ""
        skipped_agents = {}
        if uses:
            from lemming.kernel.turn.descriptions import TickView

            skipped_agents = find_skipped_agents(uses, TickView(org, config, survey, tick, at, previous))
        plan = make_plan(tick, survey, config, at=at, since=previous, skipped_agents=skipped_agents)
    return Snapshot(org, config, survey, plan, began_ns=began_ns)
