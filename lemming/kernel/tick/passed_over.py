"""Agents that are due and to whom nothing is new, nor can become so in the tick: known before any turn.

Thousands may be idle while a few take turns; none of these is handed to a thread, nor waited for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lemming.kernel.agents import Agent
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.tick.dependencies import Connections, reached_by
from lemming.kernel.tick.files_looked_at import looked_at_by
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.turn.seams import Capability


def connections_of(now: Snapshot, agents: Mapping[str, Agent], in_use: Sequence[Capability]) -> Connections:
    """Return what connects the turns of a tick, by the capabilities that are in use."""
    settings = now.config.org
    shared = [it for each in in_use for it in each.shares(agents, settings)]
    looked_at = looked_at_by(now.org, now.survey, now.config)
    return Connections(agents, settings, now.toolset, now.org, looked_at, shared)


def passed_over(
    now: Snapshot, begun: Collection[str], root: int, connections: Connections
) -> dict[str, TurnReport]:
    """Return how the turns end that need not be looked at, in their order.

    Those are of agents that had nothing new before, for whom everything is as it was, and whom no turn of
    this tick can reach; a turn that was begun is none. `root` is the organisation's folder, opened.
    """
    order, idle = now.plan.order, now.idle
    turns = {
        name: turn
        for name in order
        if name in idle.often_idle and name not in begun and (turn := idle.recall(name, now.mail, root))
    }
    writers = [name for name in order if name not in turns]
    while turns and (woken := reached_by(writers, turns, connections)):
        for name in woken:
            del turns[name]
        writers = [*woken]  # who may take a turn after all may reach others
    return turns
