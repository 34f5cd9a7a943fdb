"""The start of a tick: agents, plan and outboxes as of its beginning, the same for all turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.object_cache import ObjectCache
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.tick_plan import TickPlan, later_reading
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import get_toolset, has_own_tools
from lemming.kernel.tools.toolset import Toolset

if TYPE_CHECKING:
    from lemming.kernel.inboxes.visibility import MailView


@dataclass(frozen=True)
class TickContext(ObjectCache):
    """A tick: one view of an organisation, in which its turns run. Later edits count from the next tick.

    Made by `build_tick_context`.

    `reports`: of the tick's finished turns, by agent. A turn may use only the reports of turns in its waits: any other
    turn may finish sooner by chance.
    """

    org: Organisation
    config: Config
    survey: Survey
    plan: TickPlan
    servers: Mapping[str, Json] = field(default_factory=dict)  # server catalogues, by source
    began_ns: int = 0  # wall clock of the machine before the first file was read
    reports: dict[str, TurnReport] = field(default_factory=dict)
    _caches: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

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
            vars(self).pop("mail", None)
            self._caches.clear()
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


def _entry_order(survey: Survey, config: Config, persons: Sequence[str]) -> Sequence[str]:
    """Return the agents in the order of a tick's entries, those without turns first, so answers follow questions."""
    outside = {*persons, *(survey.find_channels(config) if config.has_channels else ())}
    return sorted(survey.turn_order, key=lambda name: name not in outside) if outside else survey.turn_order
