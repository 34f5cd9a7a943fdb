"""Files of turns that are in a journal and no longer on the disk, written again."""

from __future__ import annotations

from collections.abc import Mapping

from lemming.kernel.journal.file import Journal, read_plan
from lemming.kernel.org.config import Config
from lemming.kernel.tick.firing_plan import Plan
from lemming.kernel.tick.lost_turns import lost_text
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import take_snapshot
from lemming.kernel.tick.tick import Tick


def write_lost_turns(runtime: Runtime, config: Config, lost: Mapping[int, list[str]]) -> None:
    """Write the files of these agents' turns, by tick, again and say so."""
    for tick, agent_names in lost.items():
        plan = read_plan(runtime.org, tick)
        snapshot = take_snapshot(runtime.org, config, tick, Plan.of(plan) if plan else None)
        with Journal(runtime.org, tick, epoch=runtime.epoch, durability=config.org.durability) as journal:
            Tick.begin(runtime, journal, snapshot, after=None).write_again(agent_names)
        runtime.tell(lost_text(tick, agent_names))
