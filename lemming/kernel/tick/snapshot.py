"""What a tick starts from: agents, plan and outboxes as they stood when it began, for all its turns alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lemming.kernel.agents import Agent, Survey, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.patterns import is_named
from lemming.kernel.files.documents import once_saved
from lemming.kernel.files.fields import Json
from lemming.kernel.files.stamps import opened
from lemming.kernel.journal.report import Reason, TurnReport
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.shipped import PREFIXES
from lemming.kernel.tick.clock_reading import kept_reading, next_reading
from lemming.kernel.tick.edge import tried
from lemming.kernel.tick.firing_plan import Plan, callers_in, channels_in, make_plan, people_in
from lemming.kernel.tick.pausing import Pauses
from lemming.kernel.tick.seams import (
    TickLook,
    TickPart,
    collect_schedules,
    goes_by_the_clock,
    parts_in,
    who_rests,
)
from lemming.kernel.tick.soundness.judged import who_may_run
from lemming.kernel.tools import has_own_tools, refresh_tools, server_sources, toolset_of, why_no_server
from lemming.kernel.tools.toolset import Toolset

if TYPE_CHECKING:
    from lemming.kernel.journal.records import TickStarted
    from lemming.kernel.mail.visibility import Mail
    from lemming.kernel.tick.idle import IdleAgents
    from lemming.kernel.turn.inputs import FurtherTurn, Gathered

T = TypeVar("T")
NOTHING: Mapping[str, bytes] = {}


@dataclass(frozen=True)
class Snapshot:
    """One look at an organisation. An edit made after it counts from the next tick."""

    org: Organisation
    config: Config
    survey: Survey
    plan: Plan
    servers: Mapping[str, Json] = field(default_factory=dict)  # what servers have, by who has looked
    began_ns: int = 0  # when it was taken, by the clock of the machine
    reports: dict[str, TurnReport] = field(default_factory=dict)  # of the tick's turns that are over

    @property
    def base(self) -> Path:
        """The organisation's folder."""
        return self.org.base

    @property
    def toolset(self) -> Toolset:
        """The tools that the organisation has; more, once installed packages have been asked for theirs."""
        return toolset_of(self.config.org, self.org if self._has_own_tools else None)

    @cached_property
    def _has_own_tools(self) -> bool:
        return has_own_tools(self.config.org, self.survey)

    def own(self, kind: Callable[[Snapshot], T]) -> T:
        """Return what somebody keeps of this look, made once."""
        if kind not in self._kept:
            self._kept.setdefault(kind, kind(self))  # turns look at once
        found: T = self._kept[kind]
        return found

    @cached_property
    def _kept(self) -> dict[object, Any]:
        return {}

    @cached_property
    def pauses(self) -> Pauses:
        """Who has been paused since, and who is not any more."""
        return Pauses(self.org, self.config, self.survey, self.began_ns)

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
        """The reading up to which the ticks before it went; empty where none is needed."""
        return self.plan.since

    @property
    def chosen(self) -> Sequence[str]:
        """The agents that somebody named for this tick: they take a turn even if nothing is new to them."""
        return self.plan.chosen

    @cached_property
    def parts(self) -> list[TickPart]:
        """The parts of the capabilities that agents use."""
        return parts_in(self.org, self.survey, self.config)

    @property
    def look(self) -> TickLook:
        """The look, as capabilities have it."""
        return TickLook(self.org, self.config, self.survey, self.tick, self.at, self.since)

    @property
    def kept_reading(self) -> str:
        """The reading of the clock that the next tick starts from; empty where nothing goes by the clock."""
        if not goes_by_the_clock(self.parts):
            return ""
        return next_reading(self.plan)

    def note_schedules(self) -> None:
        """Take note of the schedules that there are, so that the next tick knows which are new."""
        schedules = collect_schedules(self.parts, self.look) if goes_by_the_clock(self.parts) else None
        if schedules is not None:
            from lemming.kernel.tick.first_readings import note_schedules

            unsure = self.survey.broken
            note_schedules(self.org, schedules, unsure=unsure, since=self.since, at=self.at)

    @cached_property
    def mail(self) -> Mail:
        """Who can see what; an outbox is looked at when it is first asked for."""
        from lemming.kernel.mail.visibility import Mail

        persons = people_in(self.survey, self.config)
        return Mail(
            self.org,
            tick=self.tick,
            order=in_order_of_entries(self.survey, self.config, persons),
            firing=self.plan.order,
            visibility=self.config.org.visibility,
            persons=persons,
            broken=self.survey.broken,
            at=kept_reading(self.plan.at, self.plan.since),
            callers=callers_in(self.survey, self.config),
            askers=self.survey.askers,
            agents=self.survey.agents,
        )

    def open_mail(self) -> Mail:
        """Look at all outboxes that those who are due may read: now, before anybody writes.

        The tick has its first record by now, and from there on nobody takes anything back. What a person took
        back since the plan was made is shown to nobody.
        """
        from lemming.kernel.mail.index import EntryIndex

        index, listed = self.org.own(EntryIndex), self.mail.listed
        if any(index.outbox(name) is not listed[name] for name in self.mail.persons if name in listed):
            for name in ("mail", "_kept"):
                vars(self).pop(name, None)
        readers = (self.survey.agents[name] for name in self.plan.order if name in self.survey.agents)
        self.mail.open_for(readers)
        return self.mail

    def agent(self, name: str) -> Agent:
        """Return the agent; raise what is wrong with it when its resume broke since the tick was planned."""
        if name in self.survey.agents:
            return self.survey.agents[name]
        if name in self.survey.broken:
            raise self.survey.broken[name]
        raise ConfigError("the agent is gone: it has no resume", where=paths.agent_folder(name))

    def inputs_of(self, name: str, held: Mapping[str, bytes] = NOTHING) -> Gathered | Reason:
        """Return what an agent's turn starts from, or why it takes none; see `gather`."""
        from lemming.kernel.turn.inputs import gather

        agent = self.agent(name)
        digest = self.survey.digests[name]
        return gather(self, agent, digest, held)

    def inputs_of_next(
        self, name: str, turn: FurtherTurn, held: Mapping[str, bytes] = NOTHING
    ) -> Gathered | Reason:
        """Return the inputs of a further turn of an agent in this tick, or the reason for having none."""
        from lemming.kernel.turn.inputs import gather

        return gather(self, self.agent(name), self.survey.digests[name], held, turn)

    def reason_of(self, name: str) -> Reason:
        """Return why an agent that is due would take a turn now, or none. Raises as `inputs_of`."""
        from lemming.kernel.turn.inputs import reason_of

        return reason_of(self, self.agent(name), self.survey.digests[name])

    def why_quiet(self) -> Sequence[TurnReport] | None:
        """Return why each agent that is due would take no turn; None when one would, or a journal is needed.

        That says of a tick which is run at once that it counts for nobody.
        """
        if self.plan.at_once:
            return None
        if not self.plan.order:
            return []
        if self.plan.chosen:
            return None
        turns = tried(lambda: self._why_quiet(self.plan.order))
        return None if isinstance(turns, Exception) else turns  # a turn that fails is recorded as one

    @cached_property
    def idle(self) -> IdleAgents:
        """The agents that had nothing new before, under the same resumes and settings."""
        from lemming.kernel.tick.idle import IdleAgents

        return self.org.own(IdleAgents).under(self.survey, self.config, self.tick)

    def _why_quiet(self, order: list[str]) -> Sequence[TurnReport] | None:
        from lemming.kernel.tick.idle import waits_for_others

        idle = self.idle
        if any(not waits_for_others(self.org, name) for name in idle.always_asking.intersection(order)):
            return None
        with opened(f"{self.base}/.") as root:
            if turns := idle.recall_all(order, root):
                return turns
            turns = []
            for name in order:
                turn = idle.recall(name, self.mail, root) or self._why_not(name, idle, root)
                if turn is None:
                    return None
                turns.append(turn)
            idle.remember_all(order, turns, self.mail, root)
        return turns

    def _why_not(self, name: str, idle: IdleAgents, root: int) -> TurnReport | None:
        from lemming.kernel.turn.inputs import why_not

        agent, digest = self.survey.agents[name], self.survey.digests[name]
        looks = idle.look_at(name, root)
        why = why_not(self, agent, digest)
        if why is None:
            return None
        turn = why.report(name)
        idle.remember(turn, looks, self.mail)
        return turn


def in_order_of_entries(survey: Survey, config: Config, persons: Sequence[str]) -> Sequence[str]:
    """Return the agents in the order of a tick's entries: who has no turn wrote before those who have.

    So an answer never stands before its question.
    """
    channels = channels_in(survey, config) if config.has_channels else []
    outside = {*persons, *channels}
    if not outside:
        return survey.order
    return [*filter(outside.__contains__, survey.order), *(it for it in survey.order if it not in outside)]


def take_snapshot(
    org: Organisation,
    config: Config,
    tick: int,
    plan: Plan | None = None,
    *,
    at: str = "",
    since: Callable[[], str] = str,
) -> Snapshot:
    """Look at an organisation as a tick begins. `plan` is that of an interrupted attempt: it is kept.

    `at` is the tick's reading of the clock; `since` gives that of the tick before, where one is needed.
    Raises `ConfigError` for settings that nobody understands.
    """
    began_ns = time.time_ns()
    survey = once_saved(org.base, lambda: survey_agents(org), _problems_of)
    survey = who_may_run(org, config, survey)
    if plan is None:
        parts = parts_in(org, survey, config)
        before = since() if goes_by_the_clock(parts) else ""
        resting = who_rests(parts, TickLook(org, config, survey, tick, at, before)) if parts else {}
        plan = make_plan(tick, survey, config, at=at, since=before, resting=resting)
    return Snapshot(org, config, survey, plan, began_ns=began_ns)


def with_servers(
    snapshot: Snapshot, started: TickStarted | None, look: Callable[[Snapshot], dict[str, Json]]
) -> Snapshot:
    """Return the snapshot with what servers have: as the tick's record says, else as a look does now."""
    if not snapshot.survey.names_servers:
        return snapshot
    servers = started.servers if started else look(snapshot)
    for name, source in server_sources(snapshot.org).items():
        source.go_by(servers.get(name, {}))
    refresh_tools(snapshot.config.org, snapshot.org)
    return replace(snapshot, servers=servers)


def _problems_of(survey: Survey) -> list[Problem]:
    return [problem for error in survey.broken.values() for problem in error.problems]


def unknown_tools(snapshot: Snapshot) -> list[Problem]:
    """Return a warning for each tool in a resume that no tool has as its name."""
    survey = snapshot.survey
    known = {name: snapshot.toolset.of(name) for places in survey.by_tool.values() for name, _ in places}
    return [
        Problem(
            message,
            paths.resume_file(name),
            pointer=f"/permissions/tools/{index}",
            hint=hint,
            severity="warning",
            code="LMG-301",
        )
        for tool, places in sorted(survey.by_tool.items())
        for name, index in places
        if not survey.agents[name].permissions.may_be_absent
        and not any(is_named(each, tool) for each in known[name])
        for message, hint in _why_unknown(snapshot.org, tool, known[name])
    ]


def _why_unknown(org: Organisation, tool: str, known: Toolset) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the name of a tool in a resume, and what to do."""
    if not tool.startswith(PREFIXES):
        yield f'no tool "{tool}"', known.hint_for(tool)
    elif wrong := why_no_server(org, tool, today=True):
        yield wrong
