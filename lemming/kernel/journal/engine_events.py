"""Events of an engine run, as values for observers.

Every journal record is an event (`lemming.kernel.journal.journal_records`: a turn starts, a model answers, a
tool is called). This module holds the events without a record. To add an event, add a class; `docs/events.md`
lists them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar, dataclass_transform

from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.errors import LemmingError, Problem
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, turn_key
from lemming.kernel.journal.turn_report import TickReport


@accept_old_names
@dataclass_transform(frozen_default=True, kw_only_default=True)
class Event:
    """An event: a frozen value with the keyword arguments as its attributes.

    `as_json` returns the keyword arguments in their order. A field with a value in the class may be omitted.
    (As dataclasses, all the kinds would add 30 ms to every start.)
    """

    kind: ClassVar[str]
    is_bookkeeping: ClassVar[bool] = False
    """True for internal events, which `--json` leaves out."""
    is_warning: ClassVar[bool] = False
    """True for an event that is printed even with --quiet."""

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
    def agent_name(self) -> str:
        """Name of the agent whose turn the event belongs to; empty for events of the tick."""
        return str(vars(self).get("agent", ""))

    @property
    def turn(self) -> int:
        """Number of the turn among the agent's turns in the tick; usually 0."""
        fields = vars(self)
        number = fields.get("call", fields.get("index", fields.get("number", 0)))
        return number // NUMBERS_PER_TURN if isinstance(number, int) else 0

    @property
    def turn_key(self) -> str:
        """The key of the turn: `lemming.kernel.base.turn_numbers.turn_key`."""
        return turn_key(self.agent_name, self.turn)

    def as_json(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return vars(self)

    def as_output_json(self) -> dict[str, Any]:
        """Return the event as `--json` prints it, beside the tick."""
        return self.as_json()

    def as_line(self) -> str:
        """Return the line printed for a person if the screen has no format of its own for the event."""
        return ""


Observer = Callable[[Event], None]
"""Called with every event, one at a time. Its exception ends the run, unless a plugin registered it."""
ObserverT = TypeVar("ObserverT", bound=Observer)


_OBSERVERS = "raised_by_an_observer"


def ignore_event(_: Event) -> None:
    """Ignore an event."""


def observer(function: ObserverT) -> ObserverT:
    """Register a function as an observer for organisations that list its module as a plugin: docs/events.md.

    An exception from the observer is reported and ends its calls for the current tick; the run continues.
    """
    from lemming.kernel.plugins.plugin_registry import register

    register("observer", function.__name__, function, defined_by=function, shipped={})
    return function


def notify_observers(event: Event, observers: Iterable[Observer]) -> None:
    """Pass an event to the observers, in order. Re-raise an observer's exception, marked as an observer's error."""
    for observe in observers:
        try:
            observe(event)
        except Exception as error:
            # Marked for the error boundaries above, which would otherwise blame the current turn.
            vars(error)[_OBSERVERS] = True
            raise


def is_observer_error(error: Exception) -> bool:
    """Return True if an observer raised the error, in which case no turn failed."""
    return _OBSERVERS in vars(error)


class TickBegins(Event):
    """A tick starts or an interrupted tick resumes. `turns_left` then lists the unfinished turns."""

    tick: int
    order: list[str]
    not_due: list[str]
    skipped: dict[str, str]
    broken: dict[str, str]
    answers_kept: int = 0
    answers_missing: int = 0
    turns_left: list[str] | None = None


class TickEnds(Event):
    """A tick ended, including a tick without turns."""

    report: TickReport

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return self.report.as_json()


class ModelAsked(Event):
    """A model call starts because no answer is recorded. `deadline_s`: the longest time it may take, in seconds."""

    agent: str
    call: int
    deadline_s: float


class ModelWrote(Event):
    """A piece of a streamed answer, if answers are observed. A retried attempt is streamed again."""

    agent: str
    call: int
    text: str


class ProblemFound(Event):
    """A problem for a person to fix, reported once. `agent` is empty if the problem concerns the organisation."""

    agent: str
    problem: Problem

    def as_json(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return {"agent": self.agent, "problem": self.problem.as_json()}


class HistoryNotKept(Event):
    """Writing the history failed."""

    problem: LemmingError

    def as_json(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return {"problem": self.problem.as_json()}


class Sleeping(Event):
    """The engine sleeps until something changes, for at most `seconds`, until agents are due."""

    next_tick: int
    until_tick: int | None
    until: str
    seconds: float
    due: list[str]


class Woken(Event):
    """The engine continues. `why`: change, time or stop."""

    why: str
    next_tick: int
    slept_through: int
    changed: list[str]
