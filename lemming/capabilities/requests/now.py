"""The requests of an organisation as they stand now: looked up in its files, for commands and observers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Any, TypedDict

from lemming.capabilities.requests.all_requests import requests_of
from lemming.capabilities.requests.costs import RequestCosts, RequestCostShown
from lemming.capabilities.requests.deadlines import last_tick_for
from lemming.capabilities.requests.index import RequestEntries
from lemming.capabilities.requests.view import AllRequests, RequestView
from lemming.kernel.agents import Survey, agent_folders, survey_agents
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import ConfigError, NotAnOrg, UsageError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.mail.answers import answer_in
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import people_in

SHOWN_WHEN_AMBIGUOUS = 10


@dataclass(frozen=True)
class RequestsNow:
    """The requests of an organisation, its agents, which of them persons speak for, and what is broken."""

    requests: AllRequests
    agents: dict[str, Agent]
    people: frozenset[str]
    broken: Mapping[str, ConfigError] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """The agents there are, also those whose resume is broken."""
        return frozenset((*self.agents, *self.broken))

    def may_read(self, reader: str, author: str) -> bool:
        """Return whether an agent's resume lets it read an author's entries."""
        return reader in self.agents and self.agents[reader].may_read(author)


class _Latest:
    """The requests of an organisation as they were last, and what they were made of.

    They hold, but for their age, through tick `holds_through`; None: until an entry is added.
    """

    def __init__(self, _: Organisation) -> None:
        self.now: RequestsNow | None = None
        self.made_of: tuple[object, ...] = ()
        self.holds_through: int | None = None
        self.holds_until = ""

    def at(self, tick: int, at: str, *made_of: object) -> RequestsNow | None:
        """Return the requests before `tick` runs, if nothing was written and no deadline has passed since."""
        if self.now is None or not all(map(is_, self.made_of, made_of)):
            return None
        requests = self.now.requests
        if self.holds_until and at > self.holds_until:
            return None
        if tick < requests.tick or (self.holds_through is not None and tick > self.holds_through):
            return None
        if tick > requests.tick:
            self.now = replace(self.now, requests=AllRequests(requests.by_identity, tick))
        return self.now

    def keep(
        self, now: RequestsNow, entries: Mapping[EntryName, OutboxEntry], survey: Survey, config: Config
    ) -> RequestsNow:
        """Take note of what the requests are now, and of what they were made of."""
        requests = now.requests
        # an entry for a later tick, put there by hand, is part of the picture from then on
        to_come = min((name.tick - 1 for name in entries if name.tick > requests.tick), default=None)
        self.now, self.made_of = now, (entries, survey, config)
        self.holds_until = requests.next_moment
        self.holds_through = min(
            (it for it in (requests.next_deadline, to_come) if it is not None), default=None
        )
        return now


def require_agents(org: Organisation, survey: Survey) -> None:
    """Raise `NotAnOrg` for a folder in which nobody is, for there is no `agents/`."""
    if not (survey.agents or survey.broken or (org / "agents").is_dir()):
        hint = "make one with `lemming init`"
        raise NotAnOrg("there is no agents/ folder here", where=str(org), hint=hint)


def requests_now(base_path: str | os.PathLike[str]) -> RequestsNow:
    """Return the requests as they stand before the next tick.

    Of an `Organisation` only what is new is read; the result is not to be changed. Raises `NotAnOrg` for a
    folder without `agents/`.
    """
    org = Organisation.at(base_path)
    survey, config, tick = survey_agents(org), load_config(org), load_tick(org)
    require_agents(org, survey)
    entries, latest = org.own(RequestEntries).look(agent_folders(org)), org.own(_Latest)
    at = timestamp(SystemClock().now())
    if now := latest.at(tick, at, entries, survey, config):
        return now
    people = frozenset(people_in(survey, config))
    found = requests_of(
        entries,
        agents=survey.agents,
        people=people,
        order=survey.order,
        tick=tick,
        broken=survey.broken,
        at=at,
        last_tick_of=lambda request: last_tick_for(org, request, people=people, now=tick),
    )
    now = RequestsNow(found, survey.agents, people, survey.broken)
    return latest.keep(now, entries, survey, config)


def find_request(requests: AllRequests, reference: str) -> RequestView:
    """Return the request that was meant; raise `UsageError` that names the nearest, or all that it may be."""
    found = requests.find(reference)
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


class HopShown(TypedDict):
    """A request handed on, as screens and programs have it."""

    tick: int
    by: str
    to: str
    file: str


class AnswerShown(TypedDict):
    """An answer of one of those that were asked."""

    agent: str
    tick: int
    file: str
    answer: Any


class RequestShown(TypedDict):
    """A request as `lemming requests --json` prints it: `docs/requests.md`."""

    id: str
    file: str
    asker: str
    targets: list[str]
    holders: list[str]
    out_of_reach: list[str]
    tick: int
    age_ticks: int
    text: str
    conversation: str
    not_before: str
    parent: str | None
    children: list[str]
    deadline: int | None
    not_after: str
    end: str | None
    end_tick: int | None
    closed_by: str | None
    held_since: dict[str, int]
    hops: list[HopShown]
    answers: list[AnswerShown]
    default: Any
    cost: RequestCostShown
    cost_with_children: RequestCostShown


def request_shown(request: RequestView, now: RequestsNow, costs: RequestCosts) -> RequestShown:
    """Return a request as JSON values: who asked, who holds it, every hop, what it has cost, its result."""
    requests, closed = now.requests, request.closed_by
    return {
        "id": request.id,
        "file": request.entry.file,
        "asker": request.asker,
        "targets": list(request.targets),
        "holders": list(request.holders),
        "out_of_reach": out_of_reach(request, now),
        "tick": request.tick,
        "age_ticks": request.age_ticks(requests.tick),
        "text": request.text,
        "conversation": request.conversation,
        "not_before": request.not_before,
        "parent": request.parent,
        "children": list(request.children),
        "deadline": request.deadline,
        "not_after": request.not_after,
        "end": request.end,
        "end_tick": request.end_tick,
        "closed_by": closed.file if closed else None,
        "held_since": {share.holder: share.since for share in request.open_shares},
        "hops": [
            {"tick": hop.tick, "by": hop.by, "to": hop.to, "file": hop.entry.file} for hop in request.hops
        ],
        "answers": [
            {
                "agent": it.agent,
                "tick": it.tick,
                "file": it.file,
                "answer": answer_in(it.payload, request.schema),
            }
            for it in request.answers
        ],
        "default": request.default if request.end == "expired" else None,
        "cost": costs.of(request).as_json(),
        "cost_with_children": costs.of_tree(request, requests).as_json(),
    }


def out_of_reach(request: RequestView, now: RequestsNow) -> list[str]:
    """Return who owes an answer and may not read the asker: a request does not reach them."""
    return [holder for holder in request.holders if not now.may_read(holder, request.asker)]
