"""The requests of an organisation as they stand now: looked up in its files, for commands and observers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import is_

from lemming.agents import Survey, agent_folders, survey_agents
from lemming.config import Config, load_config
from lemming.errors import UsageError
from lemming.files.jsontext import nearest
from lemming.mail.request_entries import RequestEntries
from lemming.mail.request_rules import requests_of
from lemming.mail.requests import Requests, RequestView
from lemming.messages import EntryName, OutboxEntry
from lemming.organisation import Organisation
from lemming.resume import Agent
from lemming.tick.counter import load_tick
from lemming.tick.plan import people_in

SHOWN_WHEN_AMBIGUOUS = 10


@dataclass(frozen=True)
class Standing:
    """The requests of an organisation, its agents, and which of them persons speak for."""

    requests: Requests
    agents: dict[str, Agent]
    people: frozenset[str]

    def may_read(self, reader: str, author: str) -> bool:
        """Return whether an agent's resume lets it read an author's entries."""
        return reader in self.agents and self.agents[reader].may_read(author)


class _Latest:
    """The requests of an organisation as they were last, and what they were made of.

    They hold, but for their age, through tick `holds_through`; None: until an entry is added.
    """

    def __init__(self, _: Organisation) -> None:
        self.standing: Standing | None = None
        self.made_of: tuple[object, ...] = ()
        self.holds_through: int | None = None

    def at(self, tick: int, *made_of: object) -> Standing | None:
        """Return the requests before `tick` runs, if nothing was written and no deadline has passed since."""
        if self.standing is None or not all(map(is_, self.made_of, made_of)):
            return None
        requests = self.standing.requests
        if tick < requests.tick or (self.holds_through is not None and tick > self.holds_through):
            return None
        if tick > requests.tick:
            self.standing = replace(self.standing, requests=Requests(requests.by_identity, tick))
        return self.standing

    def keep(
        self, standing: Standing, entries: Mapping[EntryName, OutboxEntry], survey: Survey, config: Config
    ) -> Standing:
        """Take note of what the requests are now, and of what they were made of."""
        requests = standing.requests
        to_come = min((name.tick - 1 for name in entries if name.tick > requests.tick), default=None)
        self.standing, self.made_of = standing, (entries, survey, config)
        self.holds_through = min(
            (it for it in (requests.next_deadline, to_come) if it is not None), default=None
        )
        return standing


def standing_of(base_path: str | os.PathLike[str]) -> Standing:
    """Return the requests as they stand before the next tick.

    Of an `Organisation` only what is new is read; the result is not to be changed.
    """
    org = Organisation.at(base_path)
    survey, config, tick = survey_agents(org), load_config(org), load_tick(org)
    entries, latest = org.own(RequestEntries).look(agent_folders(org)), org.own(_Latest)
    if standing := latest.at(tick, entries, survey, config):
        return standing
    people = frozenset(people_in(survey, config))
    found = requests_of(
        entries, agents=survey.agents, people=people, order=survey.order, tick=tick, broken=survey.broken
    )
    return latest.keep(Standing(found, survey.agents, people), entries, survey, config)


def find_request(requests: Requests, reference: str) -> RequestView:
    """Return the request that was meant; raise `UsageError` that names the nearest, or all that it may be."""
    found = requests.named(reference)
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(it.identity for it in found[:SHOWN_WHEN_AMBIGUOUS])
        more = f" and {len(found) - SHOWN_WHEN_AMBIGUOUS} more" if len(found) > SHOWN_WHEN_AMBIGUOUS else ""
        raise UsageError(
            f'"{reference}" may be any of {len(found)} requests', hint=f"write one of {listed}{more}"
        )
    hint = nearest(reference, [*requests.ids, *requests.by_identity]) or "`lemming requests` lists them"
    raise UsageError(f'there is no request "{reference}"', hint=hint)
