"""The seams of a turn: the moments at which a capability takes part, in the order in which they come.

    prepare (files)  ->  given.<name>, recorded before any question  ->  opens  ->  replies, calls  ->  closes

A turn has parts of those capabilities only that gave something as it began: from `given` alone, so
that one that is resumed, replayed or explained has the same. One without parts runs the plain line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.agents import Agent
from lemming.capabilities import SHIPPED, capability, in_order
from lemming.config import Config
from lemming.contract import NewEntry, ToolCall
from lemming.errors import Problem
from lemming.files.fields import Json
from lemming.journal.ledger import AgentState
from lemming.mail.inbox import Inbox
from lemming.mail.tasks import Task
from lemming.memory import Memories
from lemming.messages import OutboxEntry
from lemming.models import ModelEntry
from lemming.providers import Message
from lemming.report import End
from lemming.turn.labels import PLAIN, Labels
from lemming.turn.opening import Surroundings

if TYPE_CHECKING:
    from lemming.turn.draft import Draft


class Moment(NamedTuple):
    """A turn as it is put together: the organisation as the tick found it, and where the agent stands."""

    now: Surroundings
    agent: Agent
    model: ModelEntry
    state: AgentState


class Showing(NamedTuple):
    """What a turn is to be shown, before it is put into a prompt.

    `left_out`: so many entries that were said before are not shown. `before`: sections, title and text, that
    stand before what was said. `also` and `also_memories`: entries, and keys of memories, that another
    question of the turn shows.
    """

    task: Task | None
    inbox: Inbox
    memories: Memories
    labels: Labels = PLAIN
    left_out: int = 0
    before: Sequence[tuple[str, str]] = ()
    also: Sequence[OutboxEntry] = ()
    also_memories: Sequence[str] = ()


class No(NamedTuple):
    """What does not pass, and why: the model is told so in its place."""

    why: str


class Preparation:
    """One capability's look at what a turn starts from: the only part of it that sees files.

    Nothing has happened yet, and nothing is recorded: after a crash it looks again.
    """

    def __init__(self, moment: Moment) -> None:
        self.moment = moment

    def shows(self, shown: Showing) -> Showing:
        """Return what the turn is to be shown; those asked later see what this one leaves."""
        return shown

    def given(self) -> Json:
        """Return what the part starts from, which is recorded as `given.<name>`; empty: it takes no part.

        Asked last. Whatever a part needs of the world stands here, or comes by the turn's answers.
        """
        return {}


class TurnPart:
    """One capability's part in one turn. Pure: values in, values out; what it asks goes through the draft.

    After a crash the turn is taken again with the answers that are on record, so a part comes to the same.
    """

    def __init__(self, name: str, draft: Draft, given: Json) -> None:
        self.name, self.draft, self.given = name, draft, given

    def opens(self) -> End | None:
        """Do what comes before the turn's first question; return how the turn ends, if that ends it.

        Calls through `draft.use`, questions through `draft.ask`: each is recorded before what follows.
        """
        return None

    def before_call(self, call: ToolCall) -> ToolCall | No:
        """Let a call be made, changed or not. Nothing has happened yet; gates look at what this leaves."""
        return call

    def leaving(self, new: NewEntry, at: str) -> NewEntry | No:
        """Let an entry leave, changed or not; it is staged, not written. `at`: when its reply came."""
        return new

    def closes(self, *, is_applied: bool) -> Json:
        """Return what the agent's ledger keeps as `kept.<name>`, all of it; empty: nothing.

        `is_applied`: what the turn wrote counts; else it failed, or asked nobody. A crash before the ledger
        is written takes the turn again.
        """
        kept: Json = self.draft.inputs.state.kept.get(self.name, {})
        return kept


class Capability:
    """What a capability is to the engine: one value for a process, which keeps nothing.

    `name` is its name in the table, in records and in ledgers.
    """

    name: str

    def is_used(self, agent: Agent, config: Config) -> bool:
        """Return whether it may take part in turns of an agent, from settings and resume alone."""
        return True

    def prepare(self, moment: Moment) -> Preparation | None:
        """Return what it has of what a turn starts from; None: it has nothing to do with this turn."""
        return None

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return its part in a turn that began with this."""
        return TurnPart(self.name, draft, given)

    def questions(self, given: Json) -> Mapping[str, Sequence[Message]]:
        """Return the questions that its part asks before the turn's own, by what each is for.

        Limits reserve what they cost, traces tell them from others.
        """
        return {}

    def problems(self, agent: Agent, config: Config) -> Iterator[Problem]:
        """Yield what is wrong with how an agent uses it, for `lemming validate`."""
        yield from ()


class Seams:
    """The parts of one turn, moment by moment, in their order; who does not override a hook is not asked."""

    def __init__(self, parts: Mapping[str, TurnPart]) -> None:
        self.parts = parts
        self.opens: tuple[Callable[[], End | None], ...] = self._at("opens")
        self.before_call: tuple[Callable[[ToolCall], ToolCall | No], ...] = self._at("before_call")
        self.leaving: tuple[Callable[[NewEntry, str], NewEntry | No], ...] = self._at("leaving")
        self.closes = self._at("closes")

    def _at(self, hook: str) -> tuple[Callable[..., Any], ...]:
        own = (it for it in self.parts.values() if getattr(type(it), hook) is not getattr(TurnPart, hook))
        return tuple(getattr(part, hook) for part in own)

    def kept_after(self, *, is_applied: bool) -> dict[str, Json]:
        """Return what ledgers keep of capabilities after the turn; of those without a part, what they had."""
        before = next(iter(self.parts.values())).draft.inputs.state.kept
        kept = {name: part.closes(is_applied=is_applied) for name, part in self.parts.items()}
        return {name: value for name, value in {**before, **kept}.items() if value}


PLAIN_LINE = Seams({})
"""Those of a turn in which no capability takes part."""


def seams_of(draft: Draft) -> Seams:
    """Return the parts of a turn, from what it was given; raise `ConfigError` for one that is not here."""
    given = draft.inputs.given
    if not given:
        return PLAIN_LINE
    plugins = None
    return Seams({it: capability(it, plugins).part(draft, given[it]) for it in in_order(given)})


def used_by(agent: Agent, config: Config) -> Sequence[Capability]:
    """Return the capabilities that may take part in turns of an agent, in their order."""
    names = {it.name for it in SHIPPED.values() if not it.resume.keys().isdisjoint(agent.further)}
    if not names:
        return ()
    found: Iterable[Capability] = (capability(it, config.org.plugins) for it in in_order(names))
    return [it for it in found if it.is_used(agent, config)]


def preparations_of(moment: Moment) -> dict[str, Preparation]:
    """Return what the capabilities have that have to do with a turn, by name, in their order."""
    used = used_by(moment.agent, moment.now.config)
    found = {it.name: it.prepare(moment) for it in used} if used else {}
    return {name: look for name, look in found.items() if look is not None}


def questions_of(given: Mapping[str, Json]) -> Iterator[tuple[str, Sequence[Message]]]:
    """Yield what capabilities ask in a turn before its own questions, each with what it is for."""
    for name in in_order(given) if given else ():
        yield from capability(name).questions(given[name]).items()
