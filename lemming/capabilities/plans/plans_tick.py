"""Plans in a tick: files read by turns, and removal of ended runs except the newest.

The choice depends only on memories and the ledger, so a second attempt removes the same runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lemming.capabilities.plans.plan_format import AgentPlan, find_awaited_files, load_plan, plan_file
from lemming.capabilities.plans.plan_run import PREFIX, run_key
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ConfigError, CorruptState
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.memory import delete_memory, list_memories, load_memories
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.tick_hooks import TickInterceptor, TickView


class _EndedRun(NamedTuple):
    tick: int
    key: str


class PlansTickInterceptor(TickInterceptor):
    """Tick interceptor for agents with plans."""

    def read_paths(self, agent: Agent) -> Mapping[str, str]:
        """Return the agent's plan file."""
        return {plan_file(agent.name): "its plan"}

    def optional_read_paths(self, org: Organisation, agent: Agent) -> Sequence[str]:
        """Return the files awaited by the plan."""
        return find_awaited_files(org, agent.name)

    def on_tick_end(self, view: TickView, order: Sequence[str]) -> None:
        """Remove the surplus ended runs of agents with a turn."""
        for name in filter(self.agents.__contains__, order):
            ended = sorted(_find_ended(view.org, name), reverse=True)
            for run in ended[_max_kept_runs(view.org, name) :]:
                delete_memory(view.org.base, name, run.key)


def _max_kept_runs(org: Organisation, name: str) -> int:
    try:
        return load_plan(org, name).value.keep_runs
    except ConfigError:
        return AgentPlan().keep_runs


def _find_ended(org: Organisation, name: str) -> Iterator[_EndedRun]:
    """Yield the ended runs, including runs of closed requests regardless of their status."""
    try:
        keys = [key for key in list_memories(org, name) if key.startswith(PREFIX)]
        open_keys = {
            run_key(open_request.request.rpartition("_")[2]) for open_request in read_state(org, name).requests
        }
    except CorruptState:  # told elsewhere
        return
    values = load_memories(org, name).values if keys else {}
    for key in keys:
        run = values.get(key)
        # of a request that is still open the memory is all that says its run has ended
        if key not in open_keys and isinstance(run, dict) and isinstance(run.get("request"), str):
            tick = run.get("ended", run.get("began"))
            yield _EndedRun(tick if isinstance(tick, int) else 0, key)
