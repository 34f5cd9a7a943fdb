"""Runs of plans that have ended: all but the newest are removed at the end of a tick with turns.

Which ones follows from the memories and the ledger alone, so a second attempt removes the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lemming.agents import Survey
from lemming.capabilities.plans.format import AgentPlan, is_planner, read_plan
from lemming.capabilities.plans.run import PREFIX, run_key
from lemming.errors import ConfigError, CorruptState
from lemming.journal.ledger import read_state
from lemming.memory import delete_memory, list_memories, read_memories
from lemming.org.config import Config
from lemming.org.organisation import Organisation


class _Ended(NamedTuple):
    tick: int
    key: str


def remove_old_runs(org: Organisation, survey: Survey, config: Config, order: Iterable[str]) -> None:
    """Remove the runs of those who had a turn that their plans do not keep. Raises `DiskError`."""
    for name in order:
        agent = survey.agents.get(name)
        if agent is not None and is_planner(agent, config):
            ended = sorted(_ended(org, name), reverse=True)
            for run in ended[_kept(org, name) :]:
                delete_memory(org.base, name, run.key)


def _kept(org: Organisation, name: str) -> int:
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
        if key not in begun and isinstance(run, dict) and isinstance(run.get("request"), str):
            tick = run.get("ended", run.get("began"))
            yield _Ended(tick if isinstance(tick, int) else 0, key)
