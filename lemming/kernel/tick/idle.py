"""Agents that had nothing new, remembered for as long as everything they looked at stays as it was.

What is remembered is checked against the files at every look, by their identity
(`files.stamps`), and may be dropped at any moment: an agent that is not remembered is looked at
in full. Whatever is in doubt is not remembered: a file that changed a moment ago, entries of ticks to
come, an entry that could not be read.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from lemming.kernel.access.allowed_paths import Place, kept_at
from lemming.kernel.access.context_files import (
    folder_looked_into,
    folders_of_memories,
    is_pattern,
    place_of_item,
    with_context_found,
)
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, ToolError
from lemming.kernel.files import fs
from lemming.kernel.files.stamps import Look, are_as_before, looks_at
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.mail.index import Names
from lemming.kernel.mail.visibility import Mail
from lemming.kernel.org.config import Config, credits_of
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.uses import habits_of
from lemming.kernel.tick.seams import TickPart, parts_in

ORDERS_REMEMBERED = 16
NEVER = sys.maxsize
NO_FILES: Collection[str] = frozenset()


@dataclass(frozen=True)
class _Idle:
    """The report that an agent took no turn, and what was looked at to find that out.

    It holds up to the tick before `until`, in which something that it waits for is over.
    """

    turn: TurnReport
    looks: Sequence[Look]
    readable: dict[str, Names]
    until: int = NEVER


class IdleAgents:
    """Those of one organisation that had nothing new, under one state of its resumes and settings."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._base = org, org.base
        self._found_under: tuple[Survey, Config] | None = None
        self._tick = -1
        self._idle: dict[str, _Idle] = {}
        self._ticks: dict[tuple[str, ...], tuple[list[TurnReport], list[Look], int]] = {}
        self._agents: Mapping[str, Agent] = {}
        self._parts: Sequence[TickPart] = ()
        self.always_asking: frozenset[str] = frozenset()
        self.often_idle: frozenset[str] = frozenset()

    def under(self, survey: Survey, config: Config, tick: int) -> IdleAgents:
        """Return itself, without what was found under other resumes or settings.

        Nor with what was found in a later tick: that tick was taken back.
        """
        is_same = self._found_under and (self._found_under[0] is survey and self._found_under[1] is config)
        if not is_same or self._tick > tick:
            self._idle.clear()
            self._ticks.clear()
            self._found_under, self._agents = (survey, config), survey.agents
            self.always_asking = _always_asking(survey, config)
            self.often_idle = _often_idle(survey, config)
            self._parts = parts_in(self._org, survey, config)
        self._tick = tick
        return self

    def recall_all(self, order: list[str], root: int) -> Sequence[TurnReport] | None:
        """Return the reports of a tick in which these are due; None when one of them may have something new.

        Whatever concerns several agents is looked at once. `root` is the organisation's folder, opened.
        """
        turns, looks, until = self._ticks.get(tuple(order), (None, (), NEVER))
        if turns is None or (self._tick < until and are_as_before(looks, root)):
            return turns
        del self._ticks[tuple(order)]
        return None

    def remember_all(self, order: list[str], turns: list[TurnReport], mail: Mail, root: int) -> None:
        """Remember a tick in which nobody had anything new, if each of them is remembered."""
        idle = [self._idle[name] for name in order if name in self._idle]
        outboxes = mail.looks_at({author for each in idle for author in each.readable}, root)
        if outboxes is None or len(idle) < len(order):
            return
        if len(self._ticks) >= ORDERS_REMEMBERED:
            self._ticks.clear()
        looks = dict.fromkeys(chain(outboxes, *(each.looks for each in idle)))
        self._ticks[tuple(order)] = turns, list(looks), min((each.until for each in idle), default=NEVER)

    def recall(self, name: str, mail: Mail, root: int, held: Collection[str] = NO_FILES) -> TurnReport | None:
        """Return the report of an agent that has nothing new; None when it may have, or is not remembered.

        `held`: files that the tick's turns wrote and that are not on the disk yet, with the folders above.
        """
        idle = self._idle.get(name)
        if idle is None:
            return None
        if any(mail.today(name) if it == "*" else mail.today_of(it, name) for it in idle.readable):
            return None
        if held and any(path.removesuffix("/.") in held for path, _ in idle.looks):
            return None
        is_same_mail = all(mail.past(author) is names for author, names in idle.readable.items())
        if self._tick < idle.until and is_same_mail and are_as_before(idle.looks, root):
            return idle.turn
        del self._idle[name]
        return None

    def look_at(self, name: str, root: int) -> Sequence[Look] | None:
        """Look at everything an agent's turn depends on, before it is read; None when in doubt."""
        try:
            return looks_at(self._files_of(self._agents[name]), root)
        except (ValueError, ToolError):
            return None

    def remember(self, turn: TurnReport, looks: Sequence[Look] | None, mail: Mail) -> None:
        """Remember that an agent had nothing new after `look_at` said `looks`, unless that is in doubt."""
        agent, state = self._agents[turn.agent], read_state(self._org, turn.agent)
        rests = any(begun.goes_on for begun in state.requests)  # until something outside is there
        if turn.agent in mail.changing or rests:
            return
        # What could not be read is tried again each time its reader is due.
        if looks is not None and state.tick < mail.tick and not state.read.unusable:
            readable = {**mail.readable(agent)}
            if mail.may_be_reminded(agent.name):
                readable[agent.name] = mail.past(agent.name)
            wakes = [tick for begun in state.requests if (tick := begun.wakes_at) is not None]
            self._idle[turn.agent] = _Idle(turn, looks, readable, min(wakes, default=NEVER))

    def _files_of(self, agent: Agent) -> Iterator[str]:
        """Yield what is read of an agent beside its resume and mail. Raises `ValueError` when in doubt."""
        yield paths.ledger_file(agent.name)
        memory = paths.memory_folder(agent.name)
        yield memory
        yield from (f"{memory}/{file_name}" for file_name in fs.list_names(f"{self._base}/{memory}"))
        for part in self._parts:
            if agent.name in part.agents:
                yield from part.reads(agent)
        for place in self._places_of_context(agent):
            if place.root != self._base:
                raise ValueError(f"{place.asked.path} is not in the organisation")
            for depth in range(len(place.parts)):  # a link put in the place of a folder is refused
                yield "/".join(place.parts[: depth + 1])

    def _places_of_context(self, agent: Agent) -> Iterator[Place]:
        for item in filter(is_pattern, agent.context):
            yield folder_looked_into(agent, self._base, item)
        for folder in folders_of_memories(agent):
            yield kept_at(self._base, folder, caller="permissions.read_memories")
        for item in with_context_found(agent, self._base, {}).context:
            yield place_of_item(agent, self._base, item)


def _always_asking(survey: Survey, config: Config) -> frozenset[str]:
    """Return the agents that take a turn whenever they are due, whatever is new and whatever they spent."""
    return frozenset(
        name
        for name, agent in survey.agents.items()
        if habits_of(agent, config).wake == "always"
        and credits_of(config, name, agent.credits).max_credits is None
    )


def _often_idle(survey: Survey, config: Config) -> frozenset[str]:
    """Return the agents that take a turn only if something is new, or asked."""
    return frozenset(
        name for name, agent in survey.agents.items() if habits_of(agent, config).wake != "always"
    )


def waits_for_others(org: Organisation, name: str) -> bool:
    """Return whether an agent waits for what it asked of others: then it has a turn for news only."""
    try:
        return any(begun.open for begun in read_state(org, name).requests)
    except CorruptState:
        return False
