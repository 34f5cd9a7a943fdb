"""What the rules look at: the turns of the newest ticks, and the requests. Read once, from the files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import chain

from lemming.capabilities.requests.all_requests import requests_of
from lemming.capabilities.requests.index import read_request_entry
from lemming.capabilities.requests.now import requests_now
from lemming.capabilities.requests.view import AllRequests, RequestView
from lemming.kernel.agents import Agent, Survey, agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, UsageError
from lemming.kernel.base.turn_numbers import split_key
from lemming.kernel.files import fs
from lemming.kernel.journal.file import begun, begun_journals, journal_ticks, prompts_in
from lemming.kernel.journal.prompts import PromptReader
from lemming.kernel.journal.records import ToolFinished, ToolStarted
from lemming.kernel.messages import ENTRY_LIMIT_BYTES, decode_entry, names_in
from lemming.kernel.org.blocks import FindingSettings
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import people_in, takes_turns
from lemming.timeline.record import RecordedTick, TurnRecord, read_tick

MOST_TURNS = 2000
"""Where a tick has so many turns that the window has more, it ends with the newest that have so many."""
MOST_ENTRIES = 10_000
"""Of an organisation that has more entries, the requests are looked at that were made in the window."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at an organisation. `ticks` are those that were read, `damaged` those that cannot be.

    `turns`: those that have ended, in their order. `tick` is the one that runs next.
    """

    org: Organisation
    survey: Survey
    config: Config
    tick: int
    ticks: list[RecordedTick]
    turns: list[TurnRecord]
    damaged: list[int] = field(default_factory=list)
    most_entries: int = MOST_ENTRIES

    @property
    def settings(self) -> FindingSettings:
        """From when on something is told."""
        return self.config.org.findings

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents whose resumes can be read."""
        return self.survey.agents

    @property
    def first(self) -> int:
        """The first tick that was read; the one that runs next where there is none."""
        return self.ticks[0].tick if self.ticks else self.tick

    def tells_of(self, tick: int) -> bool:
        """Return whether all turns from a tick on were read, as far as there are journals."""
        return self.first <= tick or not any(tick <= it < self.first for it in self._journals)

    @cached_property
    def _journals(self) -> list[int]:
        return journal_ticks(self.org)

    @cached_property
    def people(self) -> frozenset[str]:
        """The agents that persons speak for."""
        return frozenset(people_in(self.survey, self.config))

    @cached_property
    def by_agent(self) -> dict[str, list[TurnRecord]]:
        """The turns of each agent, in their order."""
        found: dict[str, list[TurnRecord]] = {}
        for turn in self.turns:
            found.setdefault(turn.agent, []).append(turn)
        return found

    @cached_property
    def author_of(self) -> dict[str, str]:
        """Who wrote which entry, by its id, of those that turns wrote."""
        return {entry.id: turn.agent for turn in self.turns for entry in turn.entries}

    @cached_property
    def requests(self) -> AllRequests:
        """The requests as they stand before the next tick."""
        authors = filter(paths.AGENT_NAME.match, agent_folders(self.org))
        files = {author: _files_of(self.org, author) for author in authors}
        if sum(map(len, files.values())) <= self.most_entries:
            return requests_now(self.org).requests
        oldest = f"{self.first:08}"
        recent = (names_in(author, [it for it in found if it >= oldest]) for author, found in files.items())
        found = {name: read_request_entry(self.org.base, name) for name in chain.from_iterable(recent)}
        return requests_of(
            {name: entry for name, entry in found.items() if entry},
            agents=self.survey.agents,
            people=self.people,
            order=self.survey.order,
            tick=self.tick,
            broken=self.survey.broken,
        )

    def takes_turns(self, name: str) -> bool:
        """Return whether a model speaks for somebody: neither a person nor a channel does."""
        return name in self.agents and takes_turns(self.agents[name], self.config)

    def request_of(self, turn: TurnRecord) -> RequestView | None:
        """Return the request that a turn was for; None for none, and for one that is gone."""
        return self.requests.by_identity.get(turn.report.request) if turn.report else None


def look_at(
    base_path: str | os.PathLike[str],
    *,
    first: int | None = None,
    last: int | None = None,
    most_turns: int = MOST_TURNS,
) -> Look:
    """Read the ticks of the window that the settings name, or all of those from `first` to `last`.

    The window ends with the newest ticks that have `most_turns`; of one it is all that is read.
    Journals that cannot be read are passed over: `lemming verify` tells of them. Raises `ConfigError` and
    `CorruptState` for settings and a counter that cannot be.
    """
    org = Organisation.at(base_path)
    config, survey, tick = load_config(org), survey_agents(org), load_tick(org)
    is_window = first is None and last is None
    if is_window:
        wanted = begun_journals(org.base, config.org.findings.window)
    else:
        wanted = [
            it
            for it in begun(org.base, journal_ticks(org.base))
            if (first or 0) <= it <= (tick if last is None else last)
        ]
    look = Look(org=org, survey=survey, config=config, tick=tick, ticks=[], turns=[])
    prompts, found = prompts_in(org.base), list[tuple[RecordedTick, list[TurnRecord]]]()
    room = most_turns
    for number in reversed(wanted):
        try:
            found.append(_read(org, number, prompts))
        except (CorruptState, UsageError):  # damaged, or emptied
            look.damaged.append(number)
            continue
        room -= len(found[-1][1])
        if is_window and room <= 0:
            break
    for recorded, turns in reversed(found):
        look.ticks.append(recorded)
        look.turns.extend(turns)
    return look


def _files_of(org: Organisation, author: str) -> list[str]:
    """Return the files in an outbox, by their names alone; none where it cannot be read."""
    try:
        return fs.list_names(f"{org}/{paths.outbox_folder(author)}")
    except OSError:
        return []


def _read(org: Organisation, tick: int, prompts: PromptReader) -> tuple[RecordedTick, list[TurnRecord]]:
    recorded = read_tick(org.base, tick, prompts)
    ended = [key for key in recorded.turn_keys if key in recorded.ended]
    turns = (_at_hand(org, recorded, key) or recorded.turn_of(key) for key in ended)
    return recorded, [turn for turn in turns if turn]


def _at_hand(org: Organisation, recorded: RecordedTick, key: str) -> TurnRecord | None:
    """Return a turn that called no tool, if its entries still lie there as it wrote them; else None.

    To take a turn again needs all that takes turns: thrice the time of `lemming status`.
    """
    report, (agent, turn) = recorded.ended[key].report, split_key(key)
    if report.status not in ("done", "skipped") or any(
        isinstance(it, (ToolStarted, ToolFinished)) for it in recorded.records_of(key)
    ):
        return None
    digests = {file["path"]: file["sha256"] for file in report.files}
    entries = []
    for written in report.entries:
        try:
            raw = fs.read_bytes(f"{org}/{written['file']}", ENTRY_LIMIT_BYTES)
            if sha256(raw).hexdigest() != digests.get(written["file"]):
                return None
            entries.append(decode_entry(names_in(agent, [written["file"].rpartition("/")[2]])[0], raw))
        except (OSError, ConfigError):
            return None
    return TurnRecord(
        tick=recorded.tick,
        place=recorded.turn_keys.index(key),
        agent=agent,
        turn=turn,
        report=report,
        started=recorded.started.get(key),
        entries=entries,
    )
