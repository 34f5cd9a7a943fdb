"""A tick for agents that somebody named: they are due whatever their schedules say, and nobody else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lemming.kernel.agents import nearest_agent
from lemming.kernel.base.errors import UsageError
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot


def select_agents(runtime: Runtime, snapshot: Snapshot, *, is_begun: bool) -> Snapshot:
    """Return the snapshot as `choose` does for the agents that `runtime` is told to run.

    A tick that was begun keeps its plan: it is theirs, or the agents are still to be run after it.
    """
    if not is_begun:
        snapshot = choose(snapshot, runtime.chosen)
    if runtime.chosen == tuple(snapshot.plan.chosen):
        runtime.chosen = ()
    return snapshot


def choose(snapshot: Snapshot, names: Sequence[str]) -> Snapshot:
    """Return the snapshot of a tick in which only the agents of these names are due.

    A paused agent, a broken one and one that a person speaks for stay without a turn. Agents that are due by
    the clock and are not named are recorded as left out: their moments are still due in the next tick.
    Raises `UsageError` for a name that no agent has.
    """
    plan, survey = snapshot.plan, snapshot.survey
    for name in names:
        if name not in plan.everyone:
            hint = nearest_agent(name, sorted(plan.everyone))
            raise UsageError(f'there is no agent "{name}"', hint=hint)
    kept_out = {*plan.skipped, *plan.broken}
    order = [name for name in survey.order if name in names and name not in kept_out]
    by_clock = {name for part in snapshot.parts if part.by_clock for name in part.agents}
    chosen = replace(
        plan,
        order=order,
        not_due=[name for name in survey.agents if name not in kept_out and name not in order],
        chosen=list(names),
        left_out=[name for name in plan.order if name in by_clock and name not in names],
    )
    return replace(snapshot, plan=chosen)
