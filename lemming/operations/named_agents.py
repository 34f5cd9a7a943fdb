"""Plan a tick for agents selected by name: only they are due, regardless of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lemming.kernel.agents import suggest_agent
from lemming.kernel.base.errors import UsageError
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.tick_hooks import get_capability_uses
from lemming.kernel.tick_context import TickContext


def select_agents(runtime: Runtime, tick_context: TickContext, *, is_begun: bool) -> TickContext:
    """Return the tick's context with only the agents selected in `runtime` due, as `choose_agents` does.

    A tick in progress keeps its plan. The selected agents run in this tick if the plan names them, else after
    the tick.
    """
    if not is_begun:
        tick_context = choose_agents(tick_context, runtime.chosen)
    if runtime.chosen == tuple(tick_context.plan.chosen):
        runtime.chosen = ()
    return tick_context


def choose_agents(tick_context: TickContext, names: Sequence[str]) -> TickContext:
    """Return the context of a tick in which only the named agents are due.

    Paused and broken agents and agents of a person still take no turn. Agents due by the clock but not named
    are recorded as left out: they stay due in the next tick. Raises `UsageError` for an unknown agent name.
    """
    plan, survey = tick_context.plan, tick_context.survey
    for name in names:
        if name not in plan.all_agents:
            hint = suggest_agent(name, sorted(plan.all_agents))
            raise UsageError(f'agent "{name}" does not exist', hint=hint)
    excluded = {*plan.skipped, *plan.broken}
    order = [name for name in survey.turn_order if name in names and name not in excluded]
    uses = get_capability_uses(tick_context.org, survey, tick_context.config)
    by_clock = {name for use in uses if use.uses_clock for name in use.agents}
    chosen = replace(
        plan,
        order=order,
        not_due=[name for name in survey.agents if name not in excluded and name not in order],
        chosen=list(names),
        left_out=[name for name in plan.order if name in by_clock and name not in names],
    )
    return replace(tick_context, plan=chosen)
