"""Load the current requests of an organisation from files, for commands and observers.

The entries about requests are indexed in all outboxes; later reads cover only new entries. Most entries are irrelevant,
and their bytes show this before parsing. The read model caches the relevant file names; a
cached outbox is valid only if each file still has the same identity. An in-place edit invalidates it, and so does a copy.
"""

from __future__ import annotations

import marshal
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.util import find_spec
from operator import is_
from pathlib import Path

from lemming.kernel.agents import Survey, list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import ConfigError, NotAnOrg, UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import file_identity, has_stable_mtime, open_folder, to_identity
from lemming.kernel.inboxes.entry_index import NO_NAMES, EntryIndex, EntryNames
from lemming.kernel.messages import ENTRY_LIMIT_BYTES, EntryName, OutboxEntry, decode_entry, parse_file_names
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.resume import Agent
from lemming.kernel.tick.tick_counter import load_tick
from lemming.obligations.request_deadlines import get_extended_last_tick
from lemming.obligations.request_outcome import build_requests, concerns_requests, may_concern_requests
from lemming.obligations.request_view import AllRequests, RequestView


class RequestEntryIndex:
    """The entries about requests in all outboxes, for one thread at a time: `org.own(RequestEntryIndex)`."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._base, self._index = org, org.base, org.get_cache(EntryIndex)
        self._outboxes: dict[str, _OutboxScan] = {}
        self._all: dict[EntryName, OutboxEntry] = {}

    def refresh(self, authors: Iterable[str], *, decides: bool = False) -> Mapping[EntryName, OutboxEntry]:
        """Return the authors' entries about requests; the same object if nothing is new.

        `decides`: a turn depends on the result, which makes this method read each entry and ignore the cache.
        """
        valid_authors = [*filter(paths.AGENT_NAME.match, authors)]
        if not self._outboxes and valid_authors and not decides and find_spec("_sqlite3"):
            self._scan_all_outboxes(valid_authors)
            return self._all
        old_scans, is_new = self._outboxes, False
        self._outboxes = {}
        for author in valid_authors:
            scan = old_scans.get(author)
            if scan and scan.is_cached:
                if not (decides or scan.unusable) and scan.folder and folder_state(self._base, author) == scan.folder:
                    self._outboxes[author] = scan
                    continue
                scan = None
            names = self._index.list_outbox(author)
            if scan is None or scan.names is not names or scan.unusable:
                new_scan = self._read_outbox(author, names, scan)
                is_new = is_new or scan is None or new_scan.entries != scan.entries
                scan = new_scan
            self._outboxes[author] = scan
        if is_new or old_scans.keys() != self._outboxes.keys():
            self._merge_outboxes()
        return self._all

    def _merge_outboxes(self) -> None:
        self._all = {name: entry for scan in self._outboxes.values() for name, entry in scan.entries.items()}

    def _scan_all_outboxes(self, authors: Sequence[str]) -> None:
        """Read all outboxes and cache the relevant files. Of unchanged outboxes, read only the cached files."""
        from lemming.read_model.read_model import ReadModel  # turns decide without it

        model = self._org.get_cache(ReadModel)
        # the time before the scan: later changes must count as doubtful
        started_ns, cache, rescanned = time.time_ns(), model.load_outboxes(), list[str]()
        for author in authors:
            folder = folder_state(self._base, author)
            digest = outbox_stamp(self._base, author) if author in cache else ""
            if digest and cache[author][0] == digest:
                names = parse_file_names(author, cache[author][1])
                self._outboxes[author] = self._add_entries(names, _OutboxScan(NO_NAMES, folder, is_cached=True))
            else:
                self._outboxes[author] = self._read_outbox(author, self._index.list_outbox(author), None)
                rescanned.append(author)
        self._merge_outboxes()
        if sum(len(self._outboxes[author].names.all) for author in rescanned) >= MIN_ENTRIES_TO_CACHE:
            stamps = {author: outbox_stamp(self._base, author, since_ns=started_ns) for author in rescanned}
            outboxes = {author: cached for author, cached in cache.items() if author in self._outboxes}
            for author, digest in stamps.items():
                if digest:  # with the files that are relevant, or may be
                    scan = self._outboxes[author]
                    outboxes[author] = digest, [name.file_name for name in (*scan.entries, *scan.unusable)]
            model.save_outboxes(outboxes)

    def _read_outbox(self, author: str, names: EntryNames, previous: _OutboxScan | None) -> _OutboxScan:
        """Read the new entries of an outbox. If the names are unchanged, an entry was replaced under its name."""
        previous_names = frozenset(previous.names.all) if previous and previous.names.all != names.all else frozenset()
        previous_entries = previous.entries if previous else {}
        scan, to_read = _OutboxScan(names), list[EntryName]()
        for name in names.all:
            if not (name in previous_names and previous and name not in previous.unusable):
                to_read.append(name)
            elif name in previous_entries:
                scan.entries[name] = previous_entries[name]
        return self._add_entries(to_read, scan)

    def _add_entries(self, names: Iterable[EntryName], scan: _OutboxScan) -> _OutboxScan:
        """Add the entries with these names to a scan."""
        for name in names:
            try:
                if entry := self._load_entry(name):
                    scan.entries[name] = entry
            except (OSError, ConfigError):  # removed since, or not an entry, which is reported elsewhere
                scan.unusable.add(name)
        return scan

    def _load_entry(self, name: EntryName) -> OutboxEntry | None:
        cached = self._index.entries.get(name)
        if cached is None:
            return _decode_entry(name, self._index.load_raw(name))
        return cached if concerns_requests(cached) else None


def load_request_entry(base: OrgPath, name: EntryName) -> OutboxEntry | None:
    """Return an entry that opens, affects or ends a request; None for any other entry or a missing file."""
    try:
        return _decode_entry(name, fs.read_bytes(f"{base}/{name.file}", ENTRY_LIMIT_BYTES))
    except (OSError, ConfigError):
        return None


def _decode_entry(name: EntryName, raw: bytes) -> OutboxEntry | None:
    if not may_concern_requests(raw):
        return None
    entry = decode_entry(name, raw)
    return entry if concerns_requests(entry) else None


class _OutboxScan:
    """The scan of an outbox with these names.

    Each scan retries `unusable` entries, because their files may be repaired. `is_cached`: the relevant entries came
    from the cache, no names were listed, and this holds while the outbox's folder has the state `folder`.
    """

    def __init__(self, names: EntryNames, folder: str = "", *, is_cached: bool = False) -> None:
        self.names, self.folder, self.is_cached = names, folder, is_cached
        self.entries: dict[EntryName, OutboxEntry] = {}
        self.unusable: set[EntryName] = set()


MIN_ENTRIES_TO_CACHE = 1000
"""Number of entries that are faster to read than to check for changes."""


def outbox_stamp(base: Path, author: str, *, since_ns: int | None = None) -> str:
    """Return a digest of an outbox's files, "" if unreliable: with `since_ns`, if a file may have changed since."""
    try:
        with open_folder(base / paths.outbox_folder(author)) as folder:
            files = sorted(os.listdir(folder))
            lstat = os.lstat  # not `status_of`: there may be a hundred thousand
            identities = [to_identity(lstat(file, dir_fd=folder)) for file in files]
    except OSError:
        return ""
    if since_ns is not None and not all(has_stable_mtime(identity, since_ns) for identity in identities):
        return ""
    return sha256(marshal.dumps((files, identities), 2)).hexdigest()  # version 2 has the same bytes for the same values


def folder_state(base: Path, author: str) -> str:
    """Return the state of an outbox's folder, or an empty text in doubt.

    A file that comes, goes or is replaced changes the state; an edit in place does not.
    """
    try:
        identity = file_identity(f"{base}/{paths.outbox_folder(author)}")
    except OSError:
        return ""
    return repr(identity) if has_stable_mtime(identity, time.time_ns()) else ""


SHOWN_WHEN_AMBIGUOUS = 10


@dataclass(frozen=True)
class OrgRequests:
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

    Except for ages, the requests are valid through tick `valid_through`, or until a new entry if the tick is None.
    """

    def __init__(self, _: Organisation) -> None:
        self.org_requests: OrgRequests | None = None
        self.sources: tuple[object, ...] = ()
        self.valid_through: int | None = None
        self.valid_until = ""

    def get(self, tick: int, at: str, *sources: object) -> OrgRequests | None:
        """Return the requests before `tick` runs, unless an entry was written or a deadline has passed since."""
        if self.org_requests is None or not all(map(is_, self.sources, sources)):
            return None
        requests = self.org_requests.requests
        if self.valid_until and at > self.valid_until:
            return None
        if tick < requests.tick or (self.valid_through is not None and tick > self.valid_through):
            return None
        if tick > requests.tick:
            self.org_requests = replace(self.org_requests, requests=AllRequests(requests.by_identity, tick))
        return self.org_requests

    def store(
        self, org_requests: OrgRequests, entries: Mapping[EntryName, OutboxEntry], survey: Survey, config: Config
    ) -> OrgRequests:
        """Store the current requests and the inputs used to build them."""
        requests = org_requests.requests
        # an entry for a later tick, put there by hand, is part of the picture from then on
        before_next_entry = min((name.tick - 1 for name in entries if name.tick > requests.tick), default=None)
        self.org_requests, self.sources = org_requests, (entries, survey, config)
        self.valid_until = requests.next_moment
        ticks = (requests.next_deadline, before_next_entry)
        self.valid_through = min((tick for tick in ticks if tick is not None), default=None)
        return org_requests


def require_agents(org: Organisation, survey: Survey) -> None:
    """Raise `NotAnOrg` for a folder without agents and without `agents/`."""
    if not (survey.agents or survey.broken or (org / "agents").is_dir()):
        hint = "create an organisation with `lemming init`"
        raise NotAnOrg("the folder has no agents/ folder", where=str(org), hint=hint)


def load_requests(base_path: str | os.PathLike[str]) -> OrgRequests:
    """Return the requests before the next tick.

    With an `Organisation`, this function reads only new entries. Callers must not modify the result. Raises
    `NotAnOrg` for a folder without `agents/`.
    """
    org = Organisation.from_path(base_path)
    survey, config, tick = survey_agents(org), load_config(org), load_tick(org)
    require_agents(org, survey)
    entries, cache = (org.get_cache(RequestEntryIndex).refresh(list_agent_folders(org)), org.get_cache(_RequestsCache))
    at = timestamp(SystemClock().now())
    if org_requests := cache.get(tick, at, entries, survey, config):
        return org_requests
    people = frozenset(survey.find_people(config))
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
    org_requests = OrgRequests(requests, survey.agents, people, survey.broken)
    return cache.store(org_requests, entries, survey, config)


def find_request(requests: AllRequests, reference: str) -> RequestView:
    """Return the request with a reference. Raise `UsageError` that lists the closest names or all matches."""
    matches = requests.find_matches(reference)
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = ", ".join(match.identity for match in matches[:SHOWN_WHEN_AMBIGUOUS])
        suffix = f" and {len(matches) - SHOWN_WHEN_AMBIGUOUS} more" if len(matches) > SHOWN_WHEN_AMBIGUOUS else ""
        raise UsageError(f'"{reference}" matches {len(matches)} requests', hint=f"write one of {listed}{suffix}")
    hint = did_you_mean(reference, [*requests.ids, *requests.by_identity])
    hint = hint or "list the requests with `lemming requests`"
    raise UsageError(f'there is no request "{reference}"', hint=hint)


def find_unreachable_assignees(request: RequestView, org_requests: OrgRequests) -> list[str]:
    """Return the assignees that may not read the agent that asked them, or that handed the request on to them."""
    givers = {
        item.assignee: item.handoffs[-1].by if item.handoffs else request.asker for item in request.open_assignments
    }
    return [assignee for assignee, giver in givers.items() if not org_requests.may_read(assignee, giver)]
