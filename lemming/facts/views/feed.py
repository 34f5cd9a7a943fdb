"""The entries of all agents, newest first, each with what it belongs to: who is asked, what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from lemming.capabilities.requests.now import requests_now
from lemming.capabilities.requests.view import AllRequests, RequestView
from lemming.facts.views.moments import TickTimes
from lemming.facts.views.sentences import message_of
from lemming.kernel.agents import Agent, agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.kinds import MESSAGE_KINDS
from lemming.kernel.mail.index import EntryIndex
from lemming.kernel.messages import EntryName, OutboxEntry, names_of
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import people_in

Json = dict[str, Any]
Agents = Mapping[str, Agent]
Found = tuple[EntryName, OutboxEntry | None]
MOST_ENTRIES, MOST_LOOKED_AT = 200, 3000
TEXT_CHARS = 20_000


def feed(
    org: OrgPath,
    *,
    agent: str = "",
    kind: str = "",
    find: str = "",
    before: str = "",
    thread: str = "",
    threads: int = 1,
    limit: int = 50,
) -> Json:
    """Return the newest entries that fit, by the moment at which each was written, the newest first.

    `before` is from which entry to go on; None when that was all.

    `thread`: an entry (`AUTHOR/TICK_ID`): only what belongs to the same request, oldest first. `before`: only
    what is older than this entry. Who searches among many is given what was found so far, and goes on.
    With `threads` 0 entries do not say which request they belong to, and no others are read for it.
    """
    look = _Look(Organisation.at(org), with_requests=bool(threads or thread))
    if kind and kind not in MESSAGE_KINDS:
        raise UsageError(f'there is no kind "{kind[:40]}"', hint=", ".join(MESSAGE_KINDS))
    if thread:
        return {"entries": look.thread(thread), "before": None, "looked_at": 0, "people": look.people}
    wanted, shown, looked_at = find.casefold(), list[Json](), 0
    names = look.names(agent, before)
    for looked_at, entry in enumerate(look.by_moment(names, before), 1):
        if entry and kind in ("", entry.kind) and (not wanted or wanted in entry.line.casefold()):
            shown.append(look.shown(entry))
        if len(shown) >= min(limit, MOST_ENTRIES) or looked_at >= MOST_LOOKED_AT:
            break
    rest = None if look.is_last else look.last
    return {
        "entries": shown,
        "before": rest,
        "looked_at": looked_at,
        "total": len(names),
        "people": look.people,
    }


class _Look:
    """One look at the outboxes."""

    def __init__(self, org: Organisation, *, with_requests: bool) -> None:
        self._org, self._index, self._times = org, org.own(EntryIndex), org.own(TickTimes)
        self._survey, self._config = survey_agents(org), load_config(org)
        self._requests = requests_now(org).requests if with_requests else AllRequests({}, 0)
        self.people = sorted(people_in(self._survey, self._config))
        self._trust_of = trust_of_entries(org, self._config, self._survey.agents)
        self.last, self.is_last = "", True

    def names(self, agent: str, before: str) -> list[EntryName]:
        """Return the names of all entries, or of one agent's, of the ticks up to `before`, newest first."""
        folders = [*filter(paths.AGENT_NAME.match, agent_folders(self._org))]
        if agent and agent not in folders:
            raise UsageError(f'there is no agent "{agent[:80]}"')
        names = [
            name for author in ([agent] if agent else folders) for name in self._index.outbox(author).all
        ]
        names.sort(reverse=True)
        if not before:
            return names
        mark = _mark(before)
        return [name for name in names if name.tick <= mark.tick]

    def by_moment(self, names: list[EntryName], before: str) -> Iterator[OutboxEntry | None]:
        """Yield the entries that are older than `before`, newest first: ticks follow each other in time.

        `last` is the one that was yielded last, and `is_last` whether it is the oldest of all.
        """
        groups = [[*group] for _, group in groupby(names, key=lambda name: name.tick)]
        for place, group in enumerate(groups):
            found = [(name, self.read(name)) for name in group]
            found.sort(key=lambda it: (it[1].created_at if it[1] else "", it[0]), reverse=True)
            if before and place == 0:
                found = _after_mark(found, _mark(before))
            for at, (name, entry) in enumerate(found, 1):
                self.last, self.is_last = name.identity, at == len(found) and place == len(groups) - 1
                yield entry

    def read(self, name: EntryName) -> OutboxEntry | None:
        found = self._index.read(name)
        return found if isinstance(found, OutboxEntry) else None

    def thread(self, identity: str) -> list[Json]:
        """Return the entries of the request that an entry belongs to, and of all that was asked for it."""
        name = next(iter(names_of([identity])), None)
        entry = self.read(name) if name else None
        if entry is None:
            raise UsageError(f'there is no entry "{identity[:80]}"')
        request = self._request_of(entry)
        if request is None:
            return [self.shown(entry)]
        requests = self._requests
        found: dict[str, Json] = {}
        for depth, each in requests.tree(requests.root_of(request)):
            for one in (each.entry, *(hop.entry for hop in each.hops), *each.answers):
                found.setdefault(one.identity, {**self.shown(one), "depth": depth})
        return sorted(found.values(), key=lambda it: (it["tick"], it["identity"]))

    def _request_of(self, entry: OutboxEntry) -> RequestView | None:
        requests = self._requests
        if found := requests.by_identity.get(entry.identity):
            return found
        reference = entry.payload.get("reply_to")
        named = requests.find(reference) if isinstance(reference, str) else []
        return named[0] if len(named) == 1 else None

    def shown(self, entry: OutboxEntry) -> Json:
        """Return an entry as the feed has it."""
        text, payload = entry.payload.get("text"), entry.payload
        if text is None or isinstance(text, str):
            payload = {key: it for key, it in payload.items() if key != "text"}
        request = self._request_of(entry)
        return {
            **message_of(entry, TEXT_CHARS),
            "at": self._times.find_moment(entry),
            "to": sorted(entry.targets),
            "payload": payload,
            "tags": entry.tags,
            "trust": self._trust_of(entry),
            "request": self._request(request, entry) if request else None,
        }

    def _request(self, request: RequestView, entry: OutboxEntry) -> Json:
        return {
            "identity": request.identity,
            "is_this": request.identity == entry.identity,
            "asker": request.asker,
            "text": request.text[:200],
            "file": request.entry.file,
            "end": request.end,
            "end_tick": request.end_tick,
            "holders": list(request.holders),
            "answers": len(request.answers),
        }


def trust_of_entries(org: Organisation, config: Config, agents: Agents) -> Callable[[OutboxEntry], str]:
    """Return what says how far an entry is trusted; nothing where that is not tracked."""
    if "trust" not in config.org.further:
        return lambda _: ""
    from lemming.capabilities.trust.authors import Authors  # only where it is tracked

    return Authors(org, config, agents, load_tick(org)).of_entry


def _mark(before: str) -> EntryName:
    mark = next(iter(names_of([before])), None)
    if mark is None:
        raise UsageError(f'"{before[:80]}" is no entry', hint="before=AUTHOR/TICK_ID")
    return mark


def _after_mark(found: list[Found], mark: EntryName) -> list[Found]:
    """Return what comes after an entry among those of its tick; of one that is not there, by names."""
    for at, (name, _) in enumerate(found):
        if name.identity == mark.identity:
            return found[at + 1 :]
    return [it for it in found if it[0] < mark]
