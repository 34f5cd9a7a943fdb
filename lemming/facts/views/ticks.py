"""The strip of ticks: for each how it ended at worst, what it cost, how long it took."""

from __future__ import annotations

from typing import Any

from lemming.base.errors import CorruptState, UsageError
from lemming.facts.views.glances import Glance, glances_at
from lemming.journal.file import begun_journals
from lemming.org.organisation import Organisation, OrgPath
from lemming.tick.counter import load_tick
from lemming.tick.under_way import running_engine
from lemming.timeline.record import read_tick

SHOWN = 60
MOST_SHOWN = 500
_WORST_FIRST = ("failed", "waiting", "done", "skipped")


def ticks(org: OrgPath, *, before: int | None = None, count: int = SHOWN) -> dict[str, Any]:
    """Return the newest ticks that have a journal, oldest first; with `before`, those before that tick.

    `older` says whether there are more; pass the first one's number as `before` for them. A tick's
    `quiet_before` counts the ticks before it in which nobody took a turn, or of which the journal is gone.
    """
    org, count = Organisation.at(org), min(max(count, 1), MOST_SHOWN)
    numbers = begun_journals(org, count + 1, before=before)
    older, numbers = len(numbers) > count, numbers[-count:]
    is_running = running_engine(org) is not None
    return {
        "next_tick": load_tick(org),
        "is_running": is_running,
        "older": older,
        "ticks": [_facts(org, glance, is_running) for glance in glances_at(org, numbers)],
    }


def _facts(org: Organisation, glance: Glance, is_running: bool) -> dict[str, Any]:
    totals, problem = glance.totals, glance.problem
    if not (totals or problem):
        totals, problem = _so_far(org, glance.tick)
    return {
        "tick": glance.tick,
        "at": glance.at,
        "status": "damaged" if problem else _status(glance, is_running),
        "worst": worst_of(totals),
        "ends": dict(sorted(glance.ended.items())),
        "quiet_before": 0 if glance.after is None else glance.tick - glance.after - 1,
        "planned": glance.planned,
        "turns": sum(glance.ended.values()),
        "begun": len(glance.begun),
        "starts": glance.starts,
        "duration_ms": glance.duration_ms,
        "problem": problem,
        **{key: totals.get(key) for key in ("entries", "calls", "credits", "cost_usd")},
    }


def worst_of(totals: dict[str, Any]) -> str:
    """Return the worst status among a tick's turns; empty when no turn has ended.

    >>> worst_of({"done": 3, "waiting": 1, "skipped": 2, "failed": 0})
    'waiting'
    """
    return next((status for status in _WORST_FIRST if totals.get(status)), "")


def _status(glance: Glance, is_running: bool) -> str:
    if glance.is_over:
        return "committed"
    return "running" if is_running else "interrupted"


def _so_far(org: Organisation, tick: int) -> tuple[dict[str, Any], str]:
    """Return what a tick that is not over has come to, and what is wrong with its journal."""
    try:
        return read_tick(org, tick).totals, ""
    except (CorruptState, UsageError) as error:
        return {}, str(error)
