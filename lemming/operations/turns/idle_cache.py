"""Cache of idle agents, valid while every file their reports depend on is unchanged.

Each lookup checks the cached entries against the files, by file identity (`files.stat_cache`). An entry may
be dropped at any time: an agent without an entry is checked in full. Nothing doubtful is cached: a recently
changed file, entries of future ticks, an unreadable entry.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from lemming.kernel.access.allowed_paths import AllowedPath, resolve_org_path
from lemming.kernel.access.context_files import (
    expand_context,
    granted_memory_folders,
    is_pattern,
    resolve_item,
    resolve_pattern_folder,
)
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, ToolError
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import PathState, capture_states, is_unchanged, open_folder
from lemming.kernel.inboxes.entry_index import EntryNames
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.org.capability_usage import resolve_credits, resolve_turn_policy
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.error_boundary import isolate
from lemming.kernel.tick.tick_hooks import CapabilityUse, get_capability_uses
from lemming.kernel.tick_context import TickContext
from lemming.kernel.turn.descriptions import OrgQuery, ReadPath
from lemming.kernel.turn.wake_check import skip_reason

ORDERS_REMEMBERED = 16
NEVER = sys.maxsize
NO_FILES: Collection[str] = frozenset()


@dataclass(frozen=True)
class _IdleEntry:
    """Cached report of a skipped turn, with the state of the files the report depends on.

    Valid up to the tick before `until`, when a wait of the agent ends.
    """

    report: TurnReport
    path_states: Sequence[PathState]
    outboxes: dict[str, EntryNames]
    until: int = NEVER


class IdleCache:
    """The idle agents of an organisation, under one version of its resumes and settings."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._base = org, org.base
        self._cached_for: tuple[Survey, Config] | None = None
        self._tick = -1
        self._entries: dict[str, _IdleEntry] = {}
        self._quiet_ticks: dict[tuple[str, ...], tuple[list[TurnReport], list[PathState], int]] = {}
        self._agents: Mapping[str, Agent] = {}
        self._uses: Sequence[CapabilityUse] = ()
        self.always_active: frozenset[str] = frozenset()
        self.news_driven: frozenset[str] = frozenset()

    def for_settings(self, survey: Survey, config: Config, tick: int) -> IdleCache:
        """Return this cache, cleared if resumes or settings changed, or if it is from a later tick, now rolled back."""
        is_same = self._cached_for and (self._cached_for[0] is survey and self._cached_for[1] is config)
        if not is_same or self._tick > tick:
            self._entries.clear()
            self._quiet_ticks.clear()
            self._cached_for, self._agents = (survey, config), survey.agents
            self.always_active = _always_active(survey, config)
            self.news_driven = _news_driven(survey, config)
            self._uses = get_capability_uses(self._org, survey, config)
        self._tick = tick
        return self

    def get_reports(self, order: list[str], root: int) -> Sequence[TurnReport] | None:
        """Return the reports of a tick with the due agents, or None if an agent may have news.

        Files shared by several agents are checked once. `root` is a descriptor of the organisation's open
        folder.
        """
        reports, path_states, until = self._quiet_ticks.get(tuple(order), (None, (), NEVER))
        if reports is None or (self._tick < until and is_unchanged(path_states, root)):
            return reports
        del self._quiet_ticks[tuple(order)]
        return None

    def store_all(self, order: list[str], reports: list[TurnReport], mail: MailView, root: int) -> None:
        """Cache a tick without news for any agent, if every agent is cached."""
        entries = [self._entries[name] for name in order if name in self._entries]
        outboxes = mail.capture_states({author for entry in entries for author in entry.outboxes}, root)
        if outboxes is None or len(entries) < len(order):
            return
        if len(self._quiet_ticks) >= ORDERS_REMEMBERED:
            self._quiet_ticks.clear()
        path_states = dict.fromkeys(chain(outboxes, *(entry.path_states for entry in entries)))
        until = min((entry.until for entry in entries), default=NEVER)
        self._quiet_ticks[tuple(order)] = (reports, list(path_states), until)

    def get_report(
        self, name: str, mail: MailView, root: int, unwritten: Collection[str] = NO_FILES
    ) -> TurnReport | None:
        """Return the report of an agent without news, or None if not cached or possibly outdated.

        `unwritten`: paths of files written by the tick's turns but not yet on disk, with their parent
        folders.
        """
        entry = self._entries.get(name)
        if entry is None:
            return None
        if any(
            mail.entries_this_tick(name) if author_name == "*" else mail.author_entries_this_tick(author_name, name)
            for author_name in entry.outboxes
        ):
            return None
        if unwritten and any(path.removesuffix("/.") in unwritten for path, _ in entry.path_states):
            return None
        is_same_mail = all(mail.past_names(author) is names for author, names in entry.outboxes.items())
        if self._tick < entry.until and is_same_mail and is_unchanged(entry.path_states, root):
            return entry.report
        del self._entries[name]
        return None

    def capture_states(self, name: str, root: int) -> Sequence[PathState] | None:
        """Return the state of every file an agent's turn depends on, before any read. Returns None if doubtful."""
        try:
            return capture_states(self._iter_input_files(self._agents[name]), root)
        except (ValueError, ToolError):
            return None

    def store(self, report: TurnReport, path_states: Sequence[PathState] | None, mail: MailView) -> None:
        """Cache an agent without news, with the `path_states` captured before, unless doubtful."""
        agent, state = self._agents[report.agent], read_state(self._org, report.agent)
        can_continue = any(
            open_request.can_continue for open_request in state.requests
        )  # until something arrives from outside
        if report.agent in mail.changing or can_continue:
            return
        # An unreadable file is tried again each time its reader is due.
        if path_states is not None and state.tick < mail.tick and not state.read.unusable:
            readable = {**mail.readable_names(agent)}
            if mail.has_hidden_entries(agent.name):
                readable[agent.name] = mail.past_names(agent.name)
            wake_ticks = [tick for open_request in state.requests if (tick := open_request.next_wake_tick) is not None]
            self._entries[report.agent] = _IdleEntry(report, path_states, readable, min(wake_ticks, default=NEVER))

    def _iter_input_files(self, agent: Agent) -> Iterator[str]:
        """Yield the files read for an agent besides its resume and mail. Raises `ValueError` in doubt."""
        yield paths.ledger_file(agent.name)
        memory = paths.memory_folder(agent.name)
        yield memory
        yield from (f"{memory}/{file_name}" for file_name in fs.list_names(f"{self._base}/{memory}"))
        for use in self._uses:
            if agent.name in use.agents:
                query = OrgQuery(ReadPath, self._org, {agent.name: agent})
                yield from (item.path for item in query.ask(use.capability))
        for path in self._iter_context_paths(agent):
            if path.root != self._base:
                raise ValueError(f"{path.attempt.path} is not in the organisation")
            for depth in range(len(path.parts)):  # a link put in the place of a folder is refused
                yield "/".join(path.parts[: depth + 1])

    def _iter_context_paths(self, agent: Agent) -> Iterator[AllowedPath]:
        for item in filter(is_pattern, agent.context):
            yield resolve_pattern_folder(agent, self._base, item)
        for folder in granted_memory_folders(agent):
            yield resolve_org_path(self._base, folder, caller="permissions.read_memories")
        for item in expand_context(agent, self._base, {}).context:
            yield resolve_item(agent, self._base, item)


def _always_active(survey: Survey, config: Config) -> frozenset[str]:
    """Return the agents that take every due turn, regardless of news and without a credit limit."""
    return frozenset(
        name
        for name, agent in survey.agents.items()
        if resolve_turn_policy(agent, config).wake == "always"
        and resolve_credits(config, name, agent.credits).max_credits is None
    )


def _news_driven(survey: Survey, config: Config) -> frozenset[str]:
    """Return the agents that take a turn only for news or a request."""
    return frozenset(
        name for name, agent in survey.agents.items() if resolve_turn_policy(agent, config).wake != "always"
    )


def find_idle_cache(tick_context: TickContext) -> IdleCache:
    """Return the cache of agents without news, under the resumes and settings of a tick."""
    return tick_context.org.get_cache(IdleCache).for_settings(
        tick_context.survey, tick_context.config, tick_context.tick
    )


def find_quiet_reports(tick_context: TickContext) -> Sequence[TurnReport] | None:
    """Return the skip report of each due agent, or None if a turn or a journal is needed. Pending work needs one."""
    if tick_context.plan.at_once:
        return None
    if not tick_context.plan.order:
        return []
    if tick_context.plan.chosen:
        return None
    reports = isolate(lambda: _find_skip_reports(tick_context))
    return None if isinstance(reports, Exception) else reports  # a failing turn needs a journal


def _find_skip_reports(tick_context: TickContext) -> Sequence[TurnReport] | None:
    order, idle_cache = tick_context.plan.order, tick_context.get_cache(find_idle_cache)
    if any(not _waits_for_answers(tick_context.org, name) for name in idle_cache.always_active.intersection(order)):
        return None
    with open_folder(f"{tick_context.base}/.") as root:
        if reports := idle_cache.get_reports(order, root):
            return reports
        reports = []
        for name in order:
            report = idle_cache.get_report(name, tick_context.mail, root)
            if report is None:
                # Before the files are read: a change during the reading then differs from these states.
                path_states = idle_cache.capture_states(name, root)
                reason = skip_reason(tick_context, name)
                if reason is None:
                    return None
                report = reason.to_report(name)
                idle_cache.store(report, path_states, tick_context.mail)
            reports.append(report)
        idle_cache.store_all(order, reports, tick_context.mail, root)
    return reports


def _waits_for_answers(org: Organisation, name: str) -> bool:
    """Return True if an agent waits for answers to its sub-requests; the agent then takes turns for news only."""
    try:
        return any(open_request.open_sub_requests for open_request in read_state(org, name).requests)
    except CorruptState:
        return False
