"""Plans in a tick: what their turns read, and runs that have ended: all but the newest are removed.

Which ones follows from the memories and the ledger alone, so a second attempt removes the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lemming.capabilities.plans.format import AgentPlan, plan_file, read_plan, waited_files
from lemming.capabilities.plans.run import PREFIX, run_key
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ConfigError, CorruptState
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.memory import delete_memory, list_memories, read_memories
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.seams import TickLook, TickPart


class _Ended(NamedTuple):
    tick: int
    key: str


class PlansInTicks(TickPart):
    """Its agents are those that follow plans."""

    def reads(self, agent: Agent) -> Mapping[str, str]:
        """Return the agent's plan."""
        return {plan_file(agent.name): "its plan"}

    def may_read(self, org: Organisation, agent: Agent) -> Sequence[str]:
        """Return the files for which its plan waits."""
        return waited_files(org, agent.name)

    def ends(self, look: TickLook, order: Sequence[str]) -> None:
        """Remove the runs of those who had a turn that their plans do not keep."""
        for name in filter(self.agents.__contains__, order):
            ended = sorted(_ended(look.org, name), reverse=True)
            for run in ended[_runs_to_keep(look.org, name) :]:
                delete_memory(look.org.base, name, run.key)


def _runs_to_keep(org: Organisation, name: str) -> int:
    try:
        return read_plan(org, name).value.keep_runs
    except ConfigError:
        return AgentPlan().keep_runs


def _ended(org: Organisation, name: str) -> Iterator[_Ended]:
    """Yield the runs that have ended, and those whose request is open no more, whatever became of it."""
    try:
        keys = [key for key in list_memories(org, name) if key.startswith(PREFIX)]
        begun = {run_key(it.request.rpartition("_")[2]) for it in read_state(org, name).requests}
    except CorruptState:  # told elsewhere
        return
    values = read_memories(org, name).values if keys else {}
    for key in keys:
        run = values.get(key)
        # of a request that is still open the memory is all that says its run has ended
        if key not in begun and isinstance(run, dict) and isinstance(run.get("request"), str):
            tick = run.get("ended", run.get("began"))
            yield _Ended(tick if isinstance(tick, int) else 0, key)
