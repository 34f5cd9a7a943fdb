"""Agents that had nothing new, remembered for as long as everything they looked at stays as it was.

What is remembered is checked against the files at every look, by their identity (`lemming.readings`), and may
be dropped at any moment: an agent that is not remembered is looked at in full. Whatever is in doubt is not
remembered: a file that changed a moment ago, entries of ticks to come, an entry that could not be read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from lemming import fs, paths
from lemming.agents import Agent, Survey
from lemming.config import Config, credits_of
from lemming.guards.grants import resolve
from lemming.ledger import read_state
from lemming.mailroom import Mailroom
from lemming.outboxes import Shelf
from lemming.readings import Identity, has_rested, identity_of

if TYPE_CHECKING:
    from lemming.seating import Skip

LookedAt = tuple[tuple[str, Identity | None], ...]


@dataclass(frozen=True)
class _Rest:
    """Why an agent took no turn, and what it looked at to find that out."""

    skip: Skip
    files: LookedAt
    mail: tuple[tuple[str, Shelf], ...]


class QuietAgents:
    """Those of one organisation that had nothing new, under one state of its resumes and settings."""

    def __init__(self, base: Path, survey: Survey, config: Config) -> None:
        self.survey, self.config = survey, config
        self._base = base
        self._rests: dict[str, _Rest] = {}

    @cached_property
    def always_asking(self) -> frozenset[str]:
        """The agents that take a turn whenever they are due, whatever is new and whatever they spent."""
        default = self.config.org.defaults.wake
        return frozenset(
            name
            for name, agent in self.survey.agents.items()
            if (agent.schedule.wake or default) == "always"
            and credits_of(self.config, name, agent.credits).max_credits is None
        )

    @property
    def remembered(self) -> frozenset[str]:
        """The agents that had nothing new when they were last looked at in full."""
        return frozenset(self._rests)

    def recall(self, name: str, mailroom: Mailroom, root: int) -> Skip | None:
        """Return why an agent has nothing new; None when it may have, or is not remembered.

        `root` is the organisation's folder, opened.
        """
        rest = self._rests.get(name)
        if rest is None:
            return None
        if _is_as_it_was(rest, mailroom, root):
            return rest.skip
        del self._rests[name]
        return None

    def look_at(self, name: str, root: int) -> LookedAt | None:
        """Return the identity of every file an agent's look depends on, before it; None when in doubt."""
        now = time.time_ns()
        try:
            files = self._files_of(self.survey.agents[name])
            looked_at = tuple((path, _identity(path, root)) for path in files)
        except (OSError, ValueError):
            return None
        return looked_at if all(was is None or has_rested(was, now) for _, was in looked_at) else None

    def remember(self, name: str, skip: Skip, files: LookedAt | None, mailroom: Mailroom) -> None:
        """Remember that an agent had nothing new after `look_at` said `files`, unless that is in doubt."""
        patterns = mailroom.shelves_of(self.survey.agents[name])
        mail = tuple((pattern, mailroom.shelf(pattern)) for pattern in patterns)
        is_past = all(shelf.last_tick < mailroom.tick for _, shelf in mail)
        if files is not None and is_past and not read_state(self._base, name).read.unusable:
            self._rests[name] = _Rest(skip, files, mail)

    def _files_of(self, agent: Agent) -> Iterator[str]:
        """Yield what is read of an agent beside its resume and mail. Raises `ValueError` when in doubt."""
        yield paths.ledger_file(agent.name)
        memory = paths.memory_folder(agent.name)
        yield memory
        yield from (f"{memory}/{file_name}" for file_name in fs.list_names(f"{self._base}/{memory}"))
        for item in agent.context:
            place = resolve(agent, self._base, item.file, "read", caller="context")
            if place.root != self._base:
                raise ValueError(f"{item.file} is not in the organisation")
            for depth in range(len(place.parts)):  # a link put in the place of a folder is refused
                yield "/".join(place.parts[: depth + 1])


def quiet_agents(base: Path, survey: Survey, config: Config) -> QuietAgents:
    """Return those that had nothing new in an organisation whose resumes and settings are these."""
    latest = _latest(base)
    if not latest or latest[0].survey is not survey or latest[0].config is not config:
        latest[:] = [QuietAgents(base, survey, config)]
    return latest[0]


@lru_cache(maxsize=8)
def _latest(base: Path) -> list[QuietAgents]:
    """Return where the quiet agents of an organisation are kept."""
    return []


def _is_as_it_was(rest: _Rest, mailroom: Mailroom, root: int) -> bool:
    for path, identity in rest.files:
        if _identity(path, root) != identity:
            return False
    return all(mailroom.shelf(pattern) is shelf for pattern, shelf in rest.mail)


def _identity(path: str, root: int) -> Identity | None:
    try:
        return identity_of(path, root)
    except FileNotFoundError:
        return None
