"""Ended runs of plans: all except the newest are removed.

The choice depends only on memories and the ledger, so a second attempt removes the same runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lemming.capabilities.plans.plan_format import AgentPlan, load_plan
from lemming.capabilities.plans.plan_run import PREFIX, run_key
from lemming.ext import ConfigError
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.memory import list_memories, load_memories
from lemming.kernel.org.organisation import Organisation


class _EndedRun(NamedTuple):
    tick: int
    key: str


def list_surplus_runs(org: Organisation, name: str) -> list[str]:
    """Return the memories of an agent's ended runs, except the newest."""
    ended = sorted(_find_ended(org, name), reverse=True)
    return [run.key for run in ended[_max_kept_runs(org, name) :]]


def _max_kept_runs(org: Organisation, name: str) -> int:
    try:
        return load_plan(org, name).value.keep_runs
    except ConfigError:
        return AgentPlan().keep_runs


def _find_ended(org: Organisation, name: str) -> Iterator[_EndedRun]:
    """Yield the ended runs, including runs of closed requests regardless of their status."""
    try:
        keys = [key for key in list_memories(org, name) if key.startswith(PREFIX)]
        open_keys = {run_key(request.request.rpartition("_")[2]) for request in read_state(org, name).requests}
    except CorruptState:  # told elsewhere
        return
    values = load_memories(org, name).values if keys else {}
    for key in keys:
        run = values.get(key)
        # of a request that is still open the memory is all that says its run has ended
        if key not in open_keys and isinstance(run, dict) and isinstance(run.get("request"), str):
            tick = run.get("ended", run.get("began"))
            yield _EndedRun(tick if isinstance(tick, int) else 0, key)
