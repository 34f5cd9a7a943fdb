"""Load the current requests of an organisation from files, for commands and observers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import is_

from lemming.kernel.agents import Survey, list_agent_folders, survey_agents
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import ConfigError, NotAnOrg, UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.obligations.request_deadlines import get_extended_last_tick
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.tick.firing_plan import find_people
from lemming.kernel.tick.tick_counter import load_tick
from lemming.obligations.request_index import RequestEntryIndex
from lemming.obligations.request_outcome import build_requests
from lemming.obligations.request_view import AllRequests, RequestView

SHOWN_WHEN_AMBIGUOUS = 10


@dataclass(frozen=True)
class RequestsSnapshot:
    """The requests of an organisation, with the agents, the agents operated by persons, and the broken resumes."""

    requests: AllRequests
    agents: dict[str, Agent]
    people: frozenset[str]
    broken: Mapping[str, ConfigError] = field(default_factory=dict)

    @property
    def agent_names(self) -> frozenset[str]:
        """The names of all agents, including agents with a broken resume."""
        return frozenset((*self.agents, *self.broken))

    def may_read(self, reader: str, author: str) -> bool:
        """Return True if an agent's resume permits reading an author's entries."""
        return reader in self.agents and self.agents[reader].may_read(author)


class _RequestsCache:
    """Cache of an organisation's requests and the inputs used to build them.

    Except for ages, the cached requests are valid through tick `valid_through`, or until a new entry arrives
    if the tick is None.
    """

    def __init__(self, _: Organisation) -> None:
        self.snapshot: RequestsSnapshot | None = None
        self.sources: tuple[object, ...] = ()
        self.valid_through: int | None = None
        self.valid_until = ""

    def get(self, tick: int, at: str, *sources: object) -> RequestsSnapshot | None:
        """Return the requests before `tick` runs, unless an entry was written or a deadline has passed since."""
        if self.snapshot is None or not all(map(is_, self.sources, sources)):
            return None
        requests = self.snapshot.requests
        if self.valid_until and at > self.valid_until:
            return None
        if tick < requests.tick or (self.valid_through is not None and tick > self.valid_through):
            return None
        if tick > requests.tick:
            self.snapshot = replace(self.snapshot, requests=AllRequests(requests.by_identity, tick))
        return self.snapshot

    def store(
        self, snapshot: RequestsSnapshot, entries: Mapping[EntryName, OutboxEntry], survey: Survey, config: Config
    ) -> RequestsSnapshot:
        """Store the current requests and the inputs used to build them."""
        requests = snapshot.requests
        # an entry for a later tick, put there by hand, is part of the picture from then on
        before_next_entry = min((name.tick - 1 for name in entries if name.tick > requests.tick), default=None)
        self.snapshot, self.sources = snapshot, (entries, survey, config)
        self.valid_until = requests.next_moment
        self.valid_through = min(
            (tick for tick in (requests.next_deadline, before_next_entry) if tick is not None), default=None
        )
        return snapshot


def require_agents(org: Organisation, survey: Survey) -> None:
    """Raise `NotAnOrg` for a folder without agents and without `agents/`."""
    if not (survey.agents or survey.broken or (org / "agents").is_dir()):
        hint = "create an organisation with `lemming init`"
        raise NotAnOrg("the folder has no agents/ folder", where=str(org), hint=hint)


def load_requests(base_path: str | os.PathLike[str]) -> RequestsSnapshot:
    """Return the requests before the next tick.

    With an `Organisation`, this function reads only new entries. Callers must not modify the result. Raises
    `NotAnOrg` for a folder without `agents/`.
    """
    org = Organisation.from_path(base_path)
    survey, config, tick = survey_agents(org), load_config(org), load_tick(org)
    require_agents(org, survey)
    entries, cache = (org.get_cache(RequestEntryIndex).refresh(list_agent_folders(org)), org.get_cache(_RequestsCache))
    at = timestamp(SystemClock().now())
    if snapshot := cache.get(tick, at, entries, survey, config):
        return snapshot
    people = frozenset(find_people(survey, config))
    requests = build_requests(
        entries,
        agents=survey.agents,
        people=people,
        order=survey.turn_order,
        tick=tick,
        broken=survey.broken,
        at=at,
        last_tick_of=lambda request: get_extended_last_tick(org, request, people=people, current_tick=tick),
    )
    snapshot = RequestsSnapshot(requests, survey.agents, people, survey.broken)
    return cache.store(snapshot, entries, survey, config)


def find_request(requests: AllRequests, reference: str) -> RequestView:
    """Return the request with a reference. Raise `UsageError` that lists the closest names or all matches."""
    matches = requests.find_matches(reference)
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = ", ".join(match.identity for match in matches[:SHOWN_WHEN_AMBIGUOUS])
        suffix = f" and {len(matches) - SHOWN_WHEN_AMBIGUOUS} more" if len(matches) > SHOWN_WHEN_AMBIGUOUS else ""
        raise UsageError(f'"{reference}" matches {len(matches)} requests', hint=f"write one of {listed}{suffix}")
    hint = (
        did_you_mean(reference, [*requests.ids, *requests.by_identity]) or "list the requests with `lemming requests`"
    )
    raise UsageError(f'there is no request "{reference}"', hint=hint)


def find_unreachable_assignees(request: RequestView, snapshot: RequestsSnapshot) -> list[str]:
    """Return the assignees without permission to read the asker: the request cannot reach them."""
    return [assignee for assignee in request.assignees if not snapshot.may_read(assignee, request.asker)]
