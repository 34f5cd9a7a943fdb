"""The head of every screen: which tick, when the next is, what waits, what was spent, what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from lemming.capabilities.requests.waiting import waiting
from lemming.facts.accounts import Account, accounts, removed_accounts, total_of
from lemming.facts.checklist.standing import Trouble
from lemming.facts.standing import whereabouts_of
from lemming.facts.views.glances import doing_in
from lemming.kernel.agents import Survey
from lemming.kernel.base import paths
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.schedule import next_due
from lemming.kernel.tick.firing_plan import pause_reason, takes_turns

Json = dict[str, Any]


def header(org: OrgPath) -> Json:
    """Return where an organisation stands, and how many things wait for a person."""
    waits, removed = 0, list[Account]()
    with suppress(LemmingError):
        waits = len(waiting(org))
    with suppress(LemmingError):
        removed = removed_accounts(org)
    return {**standing(org, removed=removed), "waiting": waits}


def standing(org: OrgPath, *, removed: Sequence[Account] = ()) -> Json:
    """Return where an organisation stands, without what waits; of one that is broken what is wrong.

    `removed`: those who have no ledger any more; what they spent counts.
    """
    try:
        return _standing(org, removed)
    except LemmingError as error:
        return broken(org, error)


def broken(org: OrgPath, error: LemmingError) -> Json:
    """Return the head of an organisation of which there is nothing to say but what is wrong with it."""
    trouble = Trouble(error.message, hint=error.hint, about=error.where or "organisation")
    plain = {"org": str(org), "tick": None, "next_at": None, "engine": None, "spent": None}
    return {**plain, "state": "broken", "why": str(error), "troubles": [trouble.as_json()]}


def _standing(org: OrgPath, removed: Sequence[Account]) -> Json:
    tick, config, survey, engine, is_begun, last, troubles = whereabouts_of(org)
    coming = _coming(tick, config, survey)
    state, why = _state(org, tick, config, engine, coming, is_begun=is_begun)
    found, damaged = accounts(org, survey, config)
    known = " ".join(trouble.message for trouble in troubles)
    uncounted = [
        Trouble(f"{it.where}: {it.message}", hint=it.hint, about=it.where)
        for it in damaged
        if it.where not in known
    ]
    return {
        "org": str(org),
        "purpose": config.org.purpose,
        "tick": tick,
        "state": state,
        "why": why,
        "engine": engine,
        "last": {"tick": last.tick, "totals": last.totals} if last else None,
        "next_tick": coming,
        "next_at": _next_at(org, tick, config, coming) if engine and not is_begun and coming else None,
        "agents": len(survey.agents) + len(survey.broken),
        "spent": _spent([*found, *removed]),
        "troubles": [trouble.as_json() for trouble in (*troubles, *uncounted)],
    }


def _state(
    org: OrgPath, tick: int, config: Config, engine: Json | None, coming: int | None, *, is_begun: bool
) -> tuple[str, str]:
    """Return in one word what goes on, and in one sentence why it is so."""
    if config.org.paused:
        return "paused", f"{pause_reason(config.org.paused)}; `lemming resume` ends it"
    if engine and is_begun:
        working = [name for name, doing in doing_in(org, tick).items() if not doing.is_over]
        listed = ", ".join(working[:3]) + (f" and {len(working) - 3} more" if len(working) > 3 else "")
        return "working", f"{listed or 'nobody yet'} at work on tick {tick}"
    if engine:
        until = f"until tick {coming}" if coming else "by a tick: it waits for news, or for a moment"
        return "idle", f"nobody is at work, and nobody is due {until}"
    if is_begun:
        return "interrupted", f"tick {tick} was interrupted; `lemming run-once` continues it"
    return "stopped", "no engine runs; `lemming run-forever` starts one"


def _coming(tick: int, config: Config, survey: Survey) -> int | None:
    """Return the first tick in which somebody is due by number; None where all go by the clock, or nobody."""
    due = (
        next_due(agent.schedule, tick)
        for agent in survey.agents.values()
        if agent.schedule.cron is None and not agent.paused and takes_turns(agent, config)
    )
    return min((it for it in due if it is not None), default=None)


def _next_at(org: OrgPath, tick: int, config: Config, coming: int) -> str | None:
    """Return when that tick begins, as far as the interval of the settings tells."""
    try:
        over = (org / paths.TICK_FILE).stat().st_mtime  # the engine writes it as the last tick ends
    except FileNotFoundError:
        return None
    began = datetime.fromtimestamp(over, UTC)
    return timestamp(began + timedelta(seconds=config.org.tick_interval_s * (coming - tick + 1)))


def _spent(found: Sequence[Account]) -> Json:
    """Return what all have spent, and how much is used up of what may be: null where one has no limit."""
    total = total_of(found)
    dollars = {"dollars": total["cost_usd"] or 0.0, "unpriced": total["unpriced_calls"]}
    return {
        "credits": total["credits"],
        "used_up": total["used_up"],
        "max": total["max_credits"],
        **dollars,
    }
