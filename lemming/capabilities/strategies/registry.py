"""Strategies by name: those that ship, and those that plugins bring with `@strategy`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.files.documents import problems_of, value_of
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.catalogue import Catalogue
from lemming.kernel.plugins.registry import offered, register
from lemming.kernel.plugins.shipped import STRATEGIES_SHIPPED
from lemming.kernel.turn.strategy import Strategy

_POINTER = "/turn/options"
F = TypeVar("F", bound=Strategy)


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """The options of a strategy that has none."""


class Beforehand(NamedTuple):
    """What a turn's strategy may look at as the turn is put together, beside the prompt.

    `request`: the id of the request that the turn is for, empty for its inbox. `memories`: values by key, of
    which `damaged` ones cannot be read. `agents`: the resumes of the organisation, by name. `tell_task`
    returns what the turn is about in words, with the files and memories that rules name.
    """

    agent: Agent
    options: Any
    request: str
    memories: Mapping[str, Any]
    damaged: frozenset[str]
    agents: Mapping[str, Agent]
    tell_task: Callable[[Iterable[str]], str] = lambda rules: ""


Given = Callable[[Beforehand], dict[str, Any]]


class NamedStrategy(NamedTuple):
    """A strategy, the dataclass of its options, and what it needs beside the prompt."""

    name: str
    steps: Strategy
    options: type[Any] = NoOptions
    given: Given | None = None

    def options_of(self, plain: Mapping[str, Any]) -> Any:
        """Return the options that a resume gives; raise `ConfigError` with all that is wrong with them."""
        problems = [*self._unknown(plain)]
        try:
            if not problems:
                return value_of(self.options, dict(plain))
        except TypeError as error:  # a plugin's own class
            problems = [Problem(f'turn.options of strategy "{self.name}": {error}', pointer=_POINTER)]
        except ValueError:
            problems = [self._spelled_out(problem) for problem in problems_of(self.options, dict(plain))]
        first = problems[0]
        raise ConfigError(first.message, hint=first.hint, problems=tuple(problems))

    def _unknown(self, plain: Mapping[str, Any]) -> Iterator[Problem]:
        known = [field.name for field in dataclasses.fields(self.options)]
        for key in plain:
            if key not in known:
                hint = nearest(key, known) or (f"it has {', '.join(known)}" if known else "it has none")
                message = f'turn.options: strategy "{self.name}" has no option "{key}"'
                yield Problem(message, pointer=f"{_POINTER}/{key}", hint=hint)

    def _spelled_out(self, problem: Problem) -> Problem:
        """Return what is wrong with one option, said so that it is clear without its place."""
        option = problem.pointer.lstrip("/").replace("/", ".")
        place = f"turn.options.{option}" if option else "turn.options"
        message = f'{place} of strategy "{self.name}": {problem.message}'
        return dataclasses.replace(problem, message=message, pointer=f"{_POINTER}{problem.pointer}")


def strategy(name: str, *, options: type[Any] = NoOptions, given: Given | None = None) -> Callable[[F], F]:
    """Make a generator over a `Turn` the strategy that resumes call `name`; for modules that are plugins.

    `options` is a dataclass of what `turn.options` may say, `given` returns, as JSON values, what it needs
    beside the prompt: that is recorded as the turn begins. Raises `ValueError` for a name that is taken.
    """

    def registered(steps: F) -> F:
        register(
            "strategy",
            name,
            NamedStrategy(name, steps, options, given),
            defined_by=steps,
            shipped=STRATEGIES_SHIPPED,
        )
        return steps

    return registered


def strategies_of(plugins: tuple[str, ...] | None) -> Mapping[str, NamedStrategy]:
    """Return the strategies of an organisation that names these plugins; None: of the process."""
    return offered(
        "strategy", plugins, lambda found: Catalogue(STRATEGIES_SHIPPED, found, lambda known: known)
    )


def strategy_of(name: str, plugins: tuple[str, ...] | None) -> NamedStrategy:
    """Return a strategy by its name; raise `ConfigError` with the nearest one there is."""
    known = strategies_of(plugins)
    if name not in known:
        hint = nearest(name, list(known)) or f"there are {', '.join(known)}; a plugin's: `lemming trust`"
        raise ConfigError(f'there is no strategy "{name}"', hint=hint)
    return known[name]
