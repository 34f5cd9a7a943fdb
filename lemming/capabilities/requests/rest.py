"""Why those who hold a request take no turn for it, and whether that changes by itself. Looks only."""

from __future__ import annotations

from collections.abc import Collection

from lemming.kernel.agents import Agent
from lemming.kernel.base.clock import Clock, SystemClock, timestamp
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.schedule import next_due
from lemming.kernel.tick.addressed import stands_still, who_goes_on
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.snapshot import Snapshot, take_snapshot
from lemming.kernel.turn.prepared import used_by
from lemming.kernel.turn.seams import Rest

STANDS_STILL = "came no further in its last turn, and gave no answer; a tick by the clock asks it again"


def rest_of(org: Organisation, names: Collection[str], clock: Clock | None) -> Rest:
    """Return why these agents take no turn as things stand."""
    now = _look(org, clock)
    found = [_rest_of_one(now, name) for name in names]
    said = "; ".join(f"{name} {it.why}" for name, it in zip(names, found, strict=True) if it.why)
    return Rest(said, any(it.comes_by_itself for it in found))


def goes_on(org: Organisation, names: Collection[str], clock: Clock | None) -> bool:
    """Return whether one of these agents would take a turn now for what is asked of it."""
    return bool(who_goes_on(_look(org, clock), names).now)


def _look(org: Organisation, clock: Clock | None) -> Snapshot:
    at = timestamp((clock or SystemClock()).now())
    return take_snapshot(org, load_config(org), load_tick(org), at=at)


def _rest_of_one(now: Snapshot, name: str) -> Rest:
    if why := now.plan.skipped.get(name) or now.plan.broken.get(name):
        return Rest(f"takes no turn: {why}", comes_by_itself=False)
    try:
        agent = now.agent(name)
        if rest := _outside(now, agent):
            return rest
        if agent.schedule.cron is not None:
            return Rest("takes turns by the clock, and is not due", comes_by_itself=False)
        if (tick := next_due(agent.schedule, now.tick)) > now.tick:
            return Rest(f"is due in tick {tick}", comes_by_itself=False)
        if stands_still(now.org, name) and name not in who_goes_on(now, [name]).now:
            return Rest(STANDS_STILL, comes_by_itself=False)
        reason = now.reason_of(name)
    except LemmingError as error:
        return Rest(f"takes no turn: {error}", comes_by_itself=False)
    return Rest("" if reason.why == "due" else reason.text, comes_by_itself=False)


def _outside(now: Snapshot, agent: Agent) -> Rest | None:
    begun, asked = read_state(now.org, agent.name).requests, used_by(agent, now.config)
    return next((rest for it in asked if (rest := it.rest(now.org, agent, begun))), None)
