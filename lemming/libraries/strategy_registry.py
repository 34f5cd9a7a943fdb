"""The registry of strategies: built-in strategies, and strategies from plugins via `@strategy`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files.json_documents import find_problems, to_value
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.capability_table import STRATEGIES_SHIPPED
from lemming.kernel.plugins.plugin_registry import Catalogue, collect_items, register
from lemming.kernel.turn.strategy import Strategy

_POINTER = "/turn/options"
F = TypeVar("F", bound=Strategy)


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """The options of a strategy without options."""


class StrategyInputs(NamedTuple):
    """The inputs of a strategy at the start of a turn, besides the prompt.

    `request`: the id of the turn's request, empty for the inbox. `memories`: values by key; the `damaged`
    keys are unreadable. `agents`: the resumes of the organisation, by name. `tell_task` returns a description
    of the turn's task, with the files and memories named by rules.
    """

    agent: Agent
    options: Any
    request: str
    memories: Mapping[str, Any]
    damaged: frozenset[str]
    agents: Mapping[str, Agent]
    tell_task: Callable[[Iterable[str]], str] = lambda rules: ""


Given = Callable[[StrategyInputs], dict[str, Any]]


class RegisteredStrategy(NamedTuple):
    """A strategy, the dataclass of its options, and a function for its inputs.

    `has_memory`: the strategy keeps its state in a memory of the agent, without which it restarts.
    """

    name: str
    steps: Strategy
    options: type[Any] = NoOptions
    given: Given | None = None
    has_memory: bool = False

    def parse_options(self, raw: Mapping[str, Any]) -> Any:
        """Return the options in a resume. Raise `ConfigError` with all problems."""
        problems = [*self._unknown_options(raw)]
        try:
            if not problems:
                return to_value(self.options, dict(raw))
        except TypeError as error:  # a plugin's own class
            problems = [Problem(f'turn.options of strategy "{self.name}": {error}', pointer=_POINTER)]
        except ValueError:
            problems = [self._explain(problem) for problem in find_problems(self.options, dict(raw))]
        first = problems[0]
        raise ConfigError(first.message, hint=first.hint, problems=tuple(problems))

    def _unknown_options(self, raw: Mapping[str, Any]) -> Iterator[Problem]:
        option_names = [field.name for field in dataclasses.fields(self.options)]
        for key in raw:
            if key not in option_names:
                hint = did_you_mean(key, option_names) or (
                    f"use one of {', '.join(option_names)}"
                    if option_names
                    else "remove it: the strategy has no options"
                )
                message = f'turn.options: strategy "{self.name}" has no option "{key}"'
                yield Problem(message, pointer=f"{_POINTER}/{key}", hint=hint)

    def _explain(self, problem: Problem) -> Problem:
        """Return the problem of one option with a message understandable without its location."""
        option = problem.pointer.lstrip("/").replace("/", ".")
        option_path = f"turn.options.{option}" if option else "turn.options"
        message = f'{option_path} of strategy "{self.name}": {problem.message}'
        return dataclasses.replace(problem, message=message, pointer=f"{_POINTER}{problem.pointer}")


def strategy(name: str, *, options: type[Any] = NoOptions, given: Given | None = None) -> Callable[[F], F]:
    """Register a generator over a `Turn` as the strategy `name`, for modules of plugins.

    `options` is a dataclass for `turn.options`. `given` returns the strategy's additional inputs as JSON
    values, recorded at the start of the turn. Raises `ValueError` for a duplicate name.
    """

    def decorate(steps: F) -> F:
        registered = RegisteredStrategy(name, steps, options, given)
        register("strategy", name, registered, defined_by=steps, shipped=STRATEGIES_SHIPPED)
        return steps

    return decorate


def load_strategies(plugins: tuple[str, ...] | None) -> Mapping[str, RegisteredStrategy]:
    """Return the strategies available with plugins, or the strategies of the process for None."""
    return collect_items("strategy", plugins, lambda items: Catalogue(STRATEGIES_SHIPPED, items, lambda item: item))


def get_strategy(name: str, plugins: tuple[str, ...] | None) -> RegisteredStrategy:
    """Return a strategy by name. Raise `ConfigError` with the closest existing name."""
    strategies = load_strategies(plugins)
    if name not in strategies:
        hint = (
            did_you_mean(name, list(strategies))
            or f"use one of {', '.join(strategies)}; strategies of plugins require `lemming trust`"
        )
        raise ConfigError(f'there is no strategy "{name}"', hint=hint)
    return strategies[name]
