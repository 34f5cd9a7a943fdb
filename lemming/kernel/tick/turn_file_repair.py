"""Rewrite files of turns that are in a journal but no longer on disk."""

from __future__ import annotations

from collections.abc import Mapping

from lemming.kernel.journal.journal_file import Journal, load_plan
from lemming.kernel.org.config import Config
from lemming.kernel.tick.firing_plan import TickPlan
from lemming.kernel.tick.missing_ledger_lines import make_lost_turns_problem
from lemming.kernel.tick.running_tick import Tick
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import take_snapshot


def write_lost_turns(runtime: Runtime, config: Config, lost_turns: Mapping[int, list[str]]) -> None:
    """Rewrite and report the files of the agents' turns, by tick."""
    for tick, agent_names in lost_turns.items():
        plan = load_plan(runtime.org, tick)
        snapshot = take_snapshot(runtime.org, config, tick, TickPlan.from_record(plan) if plan else None)
        with Journal(runtime.org, tick, epoch=runtime.epoch, durability=config.org.durability) as journal:
            Tick.start_or_resume(runtime, journal, snapshot, previous=None).rewrite_committed(agent_names)
        runtime.report_problem(make_lost_turns_problem(tick, agent_names))
