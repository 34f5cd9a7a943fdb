"""The scan read by the rules: the turns of the newest ticks, and the requests. And the findings made of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import chain

from lemming.journal_tools.recorded_tick import RecordedTick, RecordedTurn, load_tick_record
from lemming.kernel.agents import Agent, Survey, list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, Problem, UsageError
from lemming.kernel.base.turn_numbers import split_key
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks, make_prompt_reader
from lemming.kernel.journal.journal_records import ToolFinished, ToolStarted
from lemming.kernel.messages import ENTRY_LIMIT_BYTES, decode_entry, parse_file_names
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.settings_blocks import FindingSettings
from lemming.kernel.tick.tick_counter import load_tick
from lemming.obligations.org_requests import load_request_entry, load_requests
from lemming.obligations.request_outcome import build_requests
from lemming.obligations.request_view import AllRequests, RequestView
from lemming.read_model.journal_ticks import drop_unstarted, started_journals

MAX_TURNS = 2000
"""Maximum turns in the window; with many turns in a tick it ends with the newest."""
MAX_EVIDENCE, MAX_TEXT_CHARS = 12, 80
MAX_ENTRIES = 10_000
"""Maximum entries of an organisation before only requests of the window are scanned."""


@dataclass(frozen=True, kw_only=True)
class FindingScan:
    """A scan of an organisation. `ticks`: the ticks read. `damaged`: the ticks that cannot be read.

    `turns`: the finished turns, in order. `tick`: the next tick to run.
    """

    org: Organisation
    survey: Survey
    config: Config
    tick: int
    ticks: list[RecordedTick]
    turns: list[RecordedTurn]
    damaged: list[int] = field(default_factory=list)
    max_entries: int = MAX_ENTRIES

    @property
    def settings(self) -> FindingSettings:
        """The thresholds of the rules."""
        return self.config.org.findings

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents with a readable resume."""
        return self.survey.agents

    @property
    def first_tick(self) -> int:
        """The first tick read, or the next tick to run if none was read."""
        return self.ticks[0].tick if self.ticks else self.tick

    def is_complete_from_tick(self, tick: int) -> bool:
        """Return True if every existing journal from `tick` on was read."""
        return self.first_tick <= tick or not any(tick <= number < self.first_tick for number in self._journal_ticks)

    @cached_property
    def _journal_ticks(self) -> list[int]:
        return journal_ticks(self.org)

    @cached_property
    def people(self) -> frozenset[str]:
        """The agents with a person in their place."""
        return frozenset(self.survey.find_people(self.config))

    @cached_property
    def by_agent(self) -> dict[str, list[RecordedTurn]]:
        """The turns of each agent, in order."""
        turns_by_agent: dict[str, list[RecordedTurn]] = {}
        for turn in self.turns:
            turns_by_agent.setdefault(turn.agent, []).append(turn)
        return turns_by_agent

    @cached_property
    def authors_by_entry(self) -> dict[str, str]:
        """The author of each entry written in a scanned turn, by entry id."""
        return {entry.id: turn.agent for turn in self.turns for entry in turn.entries}

    @cached_property
    def requests(self) -> AllRequests:
        """The requests in their state before the next tick."""
        files = dict[str, list[str]]()
        for author in filter(paths.AGENT_NAME.match, list_agent_folders(self.org)):
            with suppress(OSError):
                files[author] = fs.list_names(f"{self.org}/{paths.outbox_folder(author)}")
        if sum(map(len, files.values())) <= self.max_entries:
            return load_requests(self.org).requests
        oldest = f"{self.first_tick:08}"
        recent_names = (
            parse_file_names(author, [file_name for file_name in entries if file_name >= oldest])
            for author, entries in files.items()
        )
        entries = {name: load_request_entry(self.org.base, name) for name in chain.from_iterable(recent_names)}
        return build_requests(
            {name: entry for name, entry in entries.items() if entry},
            agents=self.survey.agents,
            people=self.people,
            order=self.survey.turn_order,
            tick=self.tick,
            broken=self.survey.broken,
        )

    def takes_turns(self, name: str) -> bool:
        """Return True if a model speaks for the agent, rather than a person or a channel."""
        return name in self.agents and self.config.has_model_turns(self.agents[name])

    def find_turn_request(self, turn: RecordedTurn) -> RequestView | None:
        """Return the request of a turn, or None if there is none or the request was removed."""
        return self.requests.find_served(turn.report.request) if turn.report else None


def scan_ticks(
    base_path: str | os.PathLike[str], *, first: int | None = None, last: int | None = None, max_turns: int = MAX_TURNS
) -> FindingScan:
    """Scan the ticks in the configured window, or every tick from `first` to `last`.

    The window ends at the newest ticks with `max_turns` turns in total; a single tick is always read whole.
    Unreadable journals are skipped: `lemming verify` reports them. Raises `ConfigError` for broken settings
    and `CorruptState` for a broken counter.
    """
    org = Organisation.from_path(base_path)
    config, survey, tick = load_config(org), survey_agents(org), load_tick(org)
    is_window = first is None and last is None
    if is_window:
        tick_numbers = started_journals(org.base, config.org.findings.window)
    else:
        started, end = drop_unstarted(org.base, journal_ticks(org.base)), tick if last is None else last
        tick_numbers = [number for number in started if (first or 0) <= number <= end]
    scan = FindingScan(org=org, survey=survey, config=config, tick=tick, ticks=[], turns=[])
    prompts = make_prompt_reader(org.base)
    for number in reversed(tick_numbers):
        try:
            recorded = load_tick_record(org.base, number, prompts)
            keys = (key for key in recorded.turn_keys if key in recorded.ended)
            turns = [_build_turn_from_entries(org, recorded, key) or recorded.find_turn(key) for key in keys]
        except (CorruptState, UsageError):  # damaged, or emptied
            scan.damaged.append(number)
            continue
        scan.ticks.insert(0, recorded)
        scan.turns[:0] = filter(None, turns)
        if is_window and len(scan.turns) >= max_turns:
            break
    return scan


def _build_turn_from_entries(org: Organisation, recorded: RecordedTick, key: str) -> RecordedTurn | None:
    """Return a turn without tool calls, built from its unchanged entry files.

    Returns None if a replay is needed. A replay needs everything that takes turns, and would triple the run time of
    `lemming status`.
    """
    report, (agent, turn) = recorded.ended[key].report, split_key(key)
    if report.status not in ("done", "skipped") or any(
        isinstance(record, (ToolStarted, ToolFinished)) for record in recorded.turn_records(key)
    ):
        return None
    digests = {file["path"]: file["sha256"] for file in report.files}
    entries = []
    for entry_report in report.entries:
        try:
            raw = fs.read_bytes(f"{org}/{entry_report['file']}", ENTRY_LIMIT_BYTES)
            if sha256(raw).hexdigest() != digests.get(entry_report["file"]):
                return None
            entries.append(decode_entry(parse_file_names(agent, [entry_report["file"].rpartition("/")[2]])[0], raw))
        except (OSError, ConfigError):
            return None
    return RecordedTurn(
        tick=recorded.tick,
        rank=recorded.turn_keys.index(key),
        agent=agent,
        turn=turn,
        report=report,
        started=recorded.started.get(key),
        entries=entries,
    )


def make_finding(
    agents: tuple[str, ...],
    message: str,
    hint: str,
    turns: Sequence[RecordedTurn] = (),
    *,
    tick: int | None = None,
    evidence: Iterable[str] | None = None,
) -> Problem:
    """Return behaviour that a person should inspect; its rule gives it a kind.

    `tick`: the first scanned tick with the behaviour. `evidence`: turns as TICK/AGENT, the argument form of `lemming why`
    and `lemming tick`, and files, in time order. Both are by default those of `turns`. Of long lists, the first and the
    newest items are kept.
    """
    evidence = limit_evidence(evidence or [f"{turn.tick}/{turn.agent}" for turn in turns])
    tick = turns[0].tick if tick is None else tick
    return Problem(message, hint=hint, severity="warning", agents=agents, tick=tick, evidence=evidence)


def limit_evidence(evidence: Iterable[str]) -> tuple[str, ...]:
    """Return at most 12 items of evidence: the first and the newest.

    >>> limit_evidence(str(number) for number in range(20))[-2:], len(limit_evidence("x" * 20))
    (('18', '19'), 12)
    """
    items = list(evidence)
    return tuple(items if len(items) <= MAX_EVIDENCE else [items[0], *items[1 - MAX_EVIDENCE :]])


def quote_start(text: str) -> str:
    """Return the start of an agent's text as a single quoted line."""
    line = " ".join(text.split())
    return f'"{line if len(line) <= MAX_TEXT_CHARS else line[: MAX_TEXT_CHARS - 1].rstrip() + "…"}"'
