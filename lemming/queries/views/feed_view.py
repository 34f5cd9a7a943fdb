"""The view of all entries, newest first, each with its request and its time of writing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from lemming.kernel.agents import Agent, list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.base.errors import UsageError
from lemming.kernel.inboxes.entry_index import EntryIndex
from lemming.kernel.messages import EntryName, OutboxEntry, may_be_from_turn, parse_identities
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import find_fact
from lemming.kernel.tick.tick_counter import load_tick
from lemming.obligations.org_requests import load_requests
from lemming.obligations.request_view import AllRequests, RequestView
from lemming.queries.sentences import entry_to_message
from lemming.read_model.tick_queries import load_start_time

Json = dict[str, Any]
Agents = Mapping[str, Agent]
NamedEntry = tuple[EntryName, OutboxEntry | None]
MAX_ENTRIES, MAX_ENTRIES_SCANNED = 200, 3000
MAX_TEXT_CHARS = 20_000


def build_feed_view(
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
    """Return the newest matching entries, by time of writing, newest first.

    The result's `before` is the position to continue from, or None after the last entry.

    `thread`: return only entries of the same request as this entry (`AUTHOR/TICK_ID`), oldest first. `before`: return
    only entries older than this entry. A search through many entries returns partial results and can be continued. With
    `threads` 0, entries have no request information, and no other entries are read for it.
    """
    builder = _FeedBuilder(Organisation.from_path(org), with_requests=bool(threads or thread))
    if kind and kind not in MESSAGE_KINDS:
        raise UsageError(f'kind "{kind[:40]}" does not exist', hint=", ".join(MESSAGE_KINDS))
    if thread:
        return {"entries": builder.build_thread(thread), "before": None, "looked_at": 0, "people": builder.people}
    search_text, rows, scanned = find.casefold(), list[Json](), 0
    position = _parse_position(before) if before else None
    names = builder.list_entry_names(agent, position)
    for scanned, entry in enumerate(builder.iter_by_time(names, position), 1):
        if entry and kind in ("", entry.kind) and (not search_text or search_text in entry.prompt_line.casefold()):
            rows.append(builder.build_entry_row(entry))
        if len(rows) >= min(limit, MAX_ENTRIES) or scanned >= MAX_ENTRIES_SCANNED:
            break
    continue_from = None if builder.is_last else builder.last
    place = {"before": continue_from, "looked_at": scanned, "total": len(names)}
    return {"entries": rows, **place, "people": builder.people}


class _FeedBuilder:
    """Builds the rows for the entries of all outboxes."""

    def __init__(self, org: Organisation, *, with_requests: bool) -> None:
        self._org, self._index = org, org.get_cache(EntryIndex)
        self._survey, self._config = survey_agents(org), load_config(org)
        self._requests = load_requests(org).requests if with_requests else AllRequests({}, 0)
        self.people = sorted(self._survey.find_people(self._config))
        self._find_trust_label = make_trust_lookup(org, self._config, self._survey.agents)
        self.last, self.is_last = "", True

    def list_entry_names(self, agent: str, position: EntryName | None) -> list[EntryName]:
        """Return names of all or an agent's entries up to the tick of a position, newest first."""
        folders = [*filter(paths.AGENT_NAME.match, list_agent_folders(self._org))]
        if agent and agent not in folders:
            raise UsageError(f'agent "{agent[:80]}" does not exist')
        names = [name for author in ([agent] if agent else folders) for name in self._index.list_outbox(author).all]
        return sorted((name for name in names if position is None or name.tick <= position.tick), reverse=True)

    def iter_by_time(self, names: list[EntryName], position: EntryName | None) -> Iterator[OutboxEntry | None]:
        """Yield the entries older than a position, newest first; ticks follow each other in time.

        `last` is the identity of the last yielded entry, and `is_last` is True if no older entry exists.
        """
        groups = [[*group] for _, group in groupby(names, key=lambda name: name.tick)]
        for group_index, group in enumerate(groups):
            read = ((name, self._index.read(name)) for name in group)
            entries = [(name, entry if isinstance(entry, OutboxEntry) else None) for name, entry in read]
            entries.sort(key=lambda pair: (pair[1].created_at if pair[1] else "", pair[0]), reverse=True)
            if position and group_index == 0:
                entries = _skip_to_position(entries, position)
            for count, (name, entry) in enumerate(entries, 1):
                self.last, self.is_last = (name.identity, count == len(entries) and group_index == len(groups) - 1)
                yield entry

    def build_thread(self, identity: str) -> list[Json]:
        """Return the entries of an entry's request and of all its sub-requests."""
        entry = find_entry(self._org, identity)
        if entry is None:
            raise UsageError(f'entry "{identity[:80]}" does not exist')
        request = self._find_request(entry)
        if request is None:
            return [self.build_entry_row(entry)]
        requests, rows = self._requests, dict[str, Json]()
        for depth, member in requests.iter_tree(requests.get_root(request)):
            for member_entry in (member.entry, *(hop.entry for hop in member.handoffs), *member.answers):
                rows.setdefault(member_entry.identity, {**self.build_entry_row(member_entry), "depth": depth})
        return sorted(rows.values(), key=lambda row: (row["tick"], row["identity"]))

    def _find_request(self, entry: OutboxEntry) -> RequestView | None:
        requests = self._requests
        if request := requests.by_identity.get(entry.identity):
            return request
        reference = entry.payload.get("reply_to")
        named = requests.find_matches(reference) if isinstance(reference, str) else []
        return named[0] if len(named) == 1 else None

    def build_entry_row(self, entry: OutboxEntry) -> Json:
        """Return an entry as a row of the feed."""
        text, payload = entry.payload.get("text"), entry.payload
        if text is None or isinstance(text, str):
            payload = {key: payload_value for key, payload_value in payload.items() if key != "text"}
        request = self._find_request(entry)
        return {
            **entry_to_message(entry, MAX_TEXT_CHARS),
            "at": find_local_time(self._org, entry),
            "to": sorted(entry.targets),
            "payload": payload,
            "tags": entry.tags,
            "trust": self._find_trust_label(entry),
            "request": self._build_request_summary(request, entry) if request else None,
        }

    def _build_request_summary(self, request: RequestView, entry: OutboxEntry) -> Json:
        return {
            "identity": request.identity,
            "is_this": request.identity == entry.identity,
            "asker": request.asker,
            "text": request.text[:200],
            "file": request.entry.file,
            "end": request.end,
            "end_tick": request.end_tick,
            "holders": list(request.assignees),
            "answers": len(request.answers),
        }


def make_trust_lookup(org: Organisation, config: Config, agents: Agents) -> Callable[[OutboxEntry], str]:
    """Return a function from an entry to its trust label; the label is empty if trust is not tracked."""
    if "trust" in config.org.extensions and (label_entries := find_fact("trust.entry_labels")):
        lookup: Callable[[OutboxEntry], str] = label_entries(org, config, agents, load_tick(org))
        return lookup
    return lambda _: ""


def _parse_position(entry_id: str) -> EntryName:
    entry_name = next(iter(parse_identities([entry_id])), None)
    if entry_name is None:
        raise UsageError(f'expected the id of an entry, got "{entry_id[:80]}"', hint="before=AUTHOR/TICK_ID")
    return entry_name


def _skip_to_position(entries: list[NamedEntry], position: EntryName) -> list[NamedEntry]:
    """Return the entries after an entry of the same tick; for a missing entry, by comparison of names."""
    for index, (name, _) in enumerate(entries):
        if name.identity == position.identity:
            return entries[index + 1 :]
    return [named_entry for named_entry in entries if named_entry[0] < position]


def find_entry(org: Organisation, identity: str) -> OutboxEntry | None:
    """Return the entry `AUTHOR/TICK_ID`, or None if there is none that can be read."""
    entry = next((org.get_cache(EntryIndex).read(name) for name in parse_identities([identity])), None)
    return entry if isinstance(entry, OutboxEntry) else None


def find_local_time(org: Organisation, entry: OutboxEntry) -> str:
    """Return the local time of writing of an entry, as a timestamp."""
    name = next(iter(parse_identities([entry.identity])), None)
    if name is None or not may_be_from_turn(name):
        return entry.created_at
    return max(entry.created_at, load_start_time(org, entry.tick))
