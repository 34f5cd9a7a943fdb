"""The strategies capability: a strategy named in the resume drives the turn in place of `react`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from lemming.ext import (
    AgentSubject,
    Capability,
    ConfigError,
    Interception,
    Preparation,
    Problem,
    RunTurn,
    SelectContext,
)
from lemming.kernel.base import paths
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.plugins.capability_table import STRATEGIES
from lemming.kernel.plugins.plugin_registry import find_unimported
from lemming.kernel.turn.strategy import react
from lemming.libraries.strategy_registry import RegisteredStrategy, StrategyInputs, get_strategy, load_strategies

if TYPE_CHECKING:
    from lemming.ext import TurnView

REACT = RegisteredStrategy("react", react)


class StrategiesCapability(Capability):
    """Strategies, selected by the key `turn.strategy` of a resume."""

    name = STRATEGIES
    handles = (SelectContext,)

    def intercept(self, effect: SelectContext, turn: Preparation) -> Interception:
        """Note the content: a strategy may use every memory, also hidden ones."""
        turn.get_cache(_StrategyContext).selected = effect
        return (yield replace(effect, other_memories=[*effect.other_memories, *effect.memories.values]))

    def prepare(self, turn: Preparation) -> Json:
        """Return the strategy's name and inputs. Raises `ConfigError` for an invalid strategy."""
        tick_context, agent, selected = turn.context.tick_context, turn.agent, turn.get_cache(_StrategyContext).selected
        assert agent.turn.strategy, "who has none is not asked"
        assert selected, "its content comes first"
        request_entry = selected.task.request if selected.task else None
        request = (request_entry.payload.get("hands_on") or request_entry.id) if request_entry else ""
        try:
            strategy = get_strategy(agent.turn.strategy, tuple(tick_context.config.org.plugins))
            options = strategy.parse_options(agent.turn.options)
            inputs = StrategyInputs(agent, options, str(request), selected.memories.values, tick_context.mail.resumes)
            return {"name": strategy.name, "needs": strategy.given(inputs) if strategy.given else {}}
        except ConfigError as error:
            where = error.where or paths.resume_file(agent.name)
            raise ConfigError(error.message, where=where, hint=error.hint) from error

    def wrap_turn(self, turn: TurnView, run: RunTurn) -> End:
        """Run the turn by the steps of the strategy."""
        strategy, strategy_turn = get_strategy(turn.snapshot["name"], turn.plugins), turn.strategy_turn
        strategy_turn.options = strategy.parse_options(turn.agent.turn.options)
        strategy_turn.snapshot = turn.snapshot["needs"]
        return run(strategy.steps(strategy_turn))


class _StrategyContext:
    """The content of one turn, before anything was hidden from the prompt."""

    def __init__(self, turn: Preparation) -> None:
        self.selected: SelectContext | None = None


def find_strategy_problems(subject: AgentSubject) -> Iterator[Problem]:
    """Yield the problems of an agent's strategy, none without a strategy."""
    agent, config = subject.agent, subject.config
    name, options, plugins = agent.turn.strategy, agent.turn.options, tuple(config.org.plugins)
    if name is None:
        if options:
            hint = 'add a strategy, such as "strategy": "react"'
            yield Problem('"options" requires "strategy"', pointer="/turn/options", hint=hint)
        return
    if name not in load_strategies(plugins) and find_unimported(plugins):
        return  # it may be a plugin's
    try:
        strategy = get_strategy(name, plugins)
    except ConfigError as error:
        yield Problem(error.message, pointer="/turn/strategy", hint=error.hint)
        return
    try:
        strategy.parse_options(options)
    except ConfigError as error:
        yield from (replace(problem, file=subject.file) for problem in error.problems)
