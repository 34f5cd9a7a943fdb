"""What a strategy that a resume names does in a turn: it says what to ask and to do, in place of `react`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from lemming.capabilities.strategies.registry import Beforehand, strategy_of
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, LemmingError, Problem
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.report import End
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.shipped import STRATEGIES
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.forms.task_words import describe_task
from lemming.kernel.turn.results import as_shown
from lemming.kernel.turn.seams import Capability, Moment, Preparation, Showing, TurnPart
from lemming.kernel.turn.seen import Seen

if TYPE_CHECKING:
    from lemming.kernel.turn.draft import Draft
    from lemming.kernel.turn.strategy import Turn
    from lemming.kernel.turn.values import Steps

_PLAN = re.compile(r"plan(-[0-9a-f]{12})?")
"""Where `plan_execute` keeps plans: its questions show the one that counts."""


class Strategies(Capability):
    """Strategies, which the key `turn.strategy` of a resume names."""

    name = STRATEGIES

    def prepare(self, moment: Moment) -> Preparation:
        """Return what it has of what a turn starts from."""
        return StrategyPreparation(moment)

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return its part in a turn that goes by a strategy of its own."""
        return StrategyPart(self.name, draft, given)

    def problems_of_key(self, base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
        """Yield what is wrong with the strategy that a resume names, and with its options."""
        if agent is not None:
            from lemming.capabilities.strategies.problems import problems_of_strategy

            yield from problems_of_strategy(base, agent, config)


class StrategyPreparation(Preparation):
    """Gathers what a strategy needs beside the prompt."""

    def shows(self, shown: Showing) -> Showing:
        """Take note of what is shown; a plan that the strategy tells of stands nowhere else."""
        self._shown, values = shown, shown.memories.values
        if self.moment.agent.turn.strategy == "plan_execute":
            told = {key: value for key, value in values.items() if not _PLAN.fullmatch(key)}
            shown = replace(shown, memories=shown.memories._replace(values=told))
        return replace(shown, also_memories=[*shown.also_memories, *values])

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Take note of what the turn sees, of which a strategy may tell a critic."""
        self._seen = seen

    def given(self) -> Json:
        """Return what the strategy is, and what it needs; raise `ConfigError` for a wrong one."""
        now, agent, shown = self.moment.now, self.moment.agent, self._shown
        assert agent.turn.strategy, "who has none is not asked"
        asked = shown.task.request if shown.task else None
        request = (asked.payload.get("hands_on") or asked.id) if asked else ""
        damaged = frozenset(PurePosixPath(p.file).name.removesuffix(".json") for p in shown.memories.problems)
        try:
            strategy = strategy_of(agent.turn.strategy, tuple(now.config.org.plugins))
            options = strategy.options_of(agent.turn.options)
            resumes = now.mail.resumes
            tell_task = partial(describe_task, self._seen, to_come=shown.to_come)
            memories = shown.memories.values
            seen = Beforehand(agent, options, str(request), memories, damaged, resumes, tell_task)
            return {"name": strategy.name, "needs": strategy.given(seen) if strategy.given else {}}
        except ConfigError as error:
            where = error.where or paths.resume_file(agent.name)
            raise ConfigError(error.message, where=where, hint=error.hint) from error


class StrategyPart(TurnPart):
    """A strategy in one turn. `given`: its `name`, and what it `needs` beside the prompt."""

    def steps(self, turn: Turn, plugins: tuple[str, ...] | None) -> Steps:
        """Return the steps of the strategy."""
        known = strategy_of(self.given["name"], plugins)
        turn.options = known.options_of(self.draft.inputs.agent.turn.options)
        turn.given = self.given["needs"]
        return known.steps(turn)

    def concludes(self, end: End, error: LemmingError | None) -> End:
        """Leave what the strategy says to the agent's next turn, as a result."""
        draft = self.draft
        if draft.left and not (draft.task or draft.asked):
            draft.results.append(as_shown("strategy", {}, ToolResult(True, draft.left)))
        return end
