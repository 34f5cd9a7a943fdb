"""What happens while an engine runs an organisation, as values: what observers are told.

All that a journal gets is an event (`lemming.kernel.journal.records`: a turn that begins, a model's answer,
a tool call); here are those that no journal keeps. To add one, add a class; `docs/events.md` lists them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar, dataclass_transform

from lemming.kernel.base.errors import LemmingError, Problem
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, turn_key
from lemming.kernel.journal.report import TickReport


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Event:
    """Something that happened: a frozen value.

    It holds, and `as_json` gives back, what it was made of, in that order: a field with a value in its class
    may be left out. (As dataclasses, all kinds would take 30 ms of every start to be put together.)
    """

    kind: ClassVar[str]
    is_bookkeeping: ClassVar[bool] = False
    """Whether it is the engine's own, and `--json` leaves it out."""
    is_warning: ClassVar[bool] = False
    """Whether a person is told its line even where all is to be quiet."""

    def __init__(self, **fields: Any) -> None:
        object.__setattr__(self, "__dict__", fields)

    def __init_subclass__(cls) -> None:
        cls.kind = re.sub("(?<=.)(?=[A-Z])", "_", cls.__name__).lower()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.as_json() == self.as_json()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"

    @property
    def about(self) -> str:
        """The agent whose turn it tells of; empty for one that tells of the tick."""
        return str(vars(self).get("agent", ""))

    @property
    def turn(self) -> int:
        """The number of that turn among the agent's in the tick; for most of them 0."""
        facts = vars(self)
        number = facts.get("call", facts.get("index", facts.get("number", 0)))
        return number // NUMBERS_PER_TURN if isinstance(number, int) else 0

    @property
    def turn_key(self) -> str:
        """The key of that turn: `lemming.kernel.base.turn_numbers.turn_key`."""
        return turn_key(self.about, self.turn)

    def as_json(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return vars(self)

    def as_shown(self) -> dict[str, Any]:
        """Return it as `--json` prints it, beside the tick."""
        return self.as_json()

    def as_line(self) -> str:
        """Return the line that a person is told, where the screen has none of its own for it."""
        return ""


Observer = Callable[[Event], None]
"""Is told every event, one at a time. What it raises ends the run, unless a plugin brings it."""
Hears = TypeVar("Hears", bound=Observer)


_OBSERVERS = "raised_by_an_observer"


def ignore(_: Event) -> None:
    """Take no notice of an event."""


def observer(function: Hears) -> Hears:
    """Have a function be told what happens in organisations that name its module as a plugin: docs/events.md.

    What it raises is told of, and it hears nothing more in that tick; the run goes on.
    """
    from lemming.kernel.plugins.registry import register

    register("observer", function.__name__, function, defined_by=function, shipped={})
    return function


def tell(event: Event, observers: Iterable[Observer]) -> None:
    """Tell an event to observers, in order. Raises what one raises, marked as an observer's."""
    for observer in observers:
        try:
            observer(event)
        except Exception as error:
            # Marked for the edges on the way up, which would else blame the turn under way.
            vars(error)[_OBSERVERS] = True
            raise


def is_observers(error: Exception) -> bool:
    """Return whether an observer raised this: then no turn went wrong."""
    return _OBSERVERS in vars(error)


class TickBegins(Event):
    """A tick begins, or one that was interrupted goes on: then `turns_left` are those that have not ended."""

    tick: int
    order: list[str]
    not_due: list[str]
    skipped: dict[str, str]
    broken: dict[str, str]
    answers_kept: int = 0
    answers_missing: int = 0
    turns_left: list[str] | None = None


class TickEnds(Event):
    """A tick is over, also one in which nobody took a turn."""

    report: TickReport

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return self.report.as_json()


class ModelAsked(Event):
    """A model is about to be asked, as no answer is recorded; it may take `deadline_s` at most."""

    agent: str
    call: int
    deadline_s: float


class ModelWrote(Event):
    """A piece of an answer under way, where answers are watched; an attempt that failed is heard again."""

    agent: str
    call: int
    text: str


class ProblemFound(Event):
    """There is something that a person should mend; said once. `agent` is empty where it concerns all."""

    agent: str
    problem: Problem

    def as_json(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return {"agent": self.agent, "problem": self.problem.as_json()}


class HistoryNotKept(Event):
    """The history could not be written."""

    problem: LemmingError

    def as_json(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return {"problem": self.problem.as_json()}


class Sleeping(Event):
    """The engine sleeps until something changes, at the longest for `seconds`, until agents are due."""

    next_tick: int
    until_tick: int | None
    until: str
    seconds: float
    due: list[str]


class Woken(Event):
    """The engine goes on. `why`: change, time or stop."""

    why: str
    next_tick: int
    slept_through: int
    changed: list[str]
