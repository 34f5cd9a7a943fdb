"""The header of every screen: tick, next tick, pending items, spending, health issues."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from lemming.kernel.agents import Survey
from lemming.kernel.base import paths
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.schedule import next_due
from lemming.kernel.tick.firing_plan import format_pause
from lemming.obligations.waiting_items import list_person_inbox
from lemming.queries.checks.health_checks import group_issues, make_issue
from lemming.queries.credit_accounts import Account, load_accounts, load_removed_accounts, sum_accounts
from lemming.queries.org_status import TickStatus, load_tick_status
from lemming.read_model.tick_queries import find_working_turns

Json = dict[str, Any]


def build_header_view(org: OrgPath) -> Json:
    """Return the status of an organisation and the number of items that wait for a person."""
    waiting_count, removed = 0, list[Account]()
    with suppress(LemmingError):
        waiting_count = len(list_person_inbox(org))
    with suppress(LemmingError):
        removed = load_removed_accounts(org)
    return {**build_status(org, removed=removed), "waiting": waiting_count}


def build_status(org: OrgPath, *, removed: Sequence[Account] = ()) -> Json:
    """Return an organisation's status without pending items, or its errors. `removed`: accounts without a ledger."""
    try:
        return _build_valid_status(org, removed)
    except LemmingError as error:
        return build_broken_status(org, error)


def build_broken_status(org: OrgPath, error: LemmingError) -> Json:
    """Return the header of an organisation that cannot be read, with its error."""
    issue = make_issue(error.where or "organisation", error.message, error.hint)
    base_fields = {"org": str(org), "tick": None, "next_at": None, "engine": None, "spent": None}
    return {**base_fields, "state": "broken", "why": str(error), "troubles": [issue.as_json("issue")]}


def _build_valid_status(org: OrgPath, removed: Sequence[Account]) -> Json:
    status = load_tick_status(org)
    tick, config, survey = status.tick, status.config, status.survey
    next_due_tick = _find_next_due_tick(tick, config, survey)
    account_list, damaged = load_accounts(org, survey, config)
    total = sum_accounts([*account_list, *removed])
    state, explanation = _describe_state(org, status, next_due_tick)
    reported = " ".join(issue.message for issue in status.issues)
    ledger_issues = [
        make_issue(ledger_error.where, f"{ledger_error.where}: {ledger_error.message}", ledger_error.hint)
        for ledger_error in damaged
        if ledger_error.where not in reported
    ]
    return {
        "org": str(org),
        "purpose": config.org.purpose,
        "tick": tick,
        "state": state,
        "why": explanation,
        "engine": status.engine,
        "last": status.last_commit and {"tick": status.last_commit.tick, "totals": status.last_commit.totals},
        "next_tick": next_due_tick,
        "next_at": _estimate_tick_time(org, status, next_due_tick),
        "agents": len(survey.agents) + len(survey.broken),
        "spent": {  # the limit is null if any agent has none
            "credits": total["credits"],
            "used_up": total["used_up"],
            "max": total["max_credits"],
            "dollars": total["cost_usd"] or 0.0,
            "unpriced": total["unpriced_calls"],
        },
        "troubles": [issue.as_json("issue") for issue in group_issues([*status.issues, *ledger_issues])],
    }


def _describe_state(org: OrgPath, status: TickStatus, next_due_tick: int | None) -> tuple[str, str]:
    """Return the state of the organisation as a code, and a sentence with the reason."""
    tick, paused = status.tick, status.config.org.paused
    if paused:
        return "paused", f"{format_pause(paused)}; `lemming unpause` ends it"
    if status.engine and status.is_interrupted:
        working = [*find_working_turns(org, tick)]
        names = ", ".join(working[:3]) + (f" and {len(working) - 3} more" if len(working) > 3 else "")
        return "working", f"{names or 'no agent yet'} working on tick {tick}"
    if status.engine:
        if next_due_tick:
            return "idle", f"no agent is working, and none is due until tick {next_due_tick}"
        return "idle", "no agent is working or due; the engine waits for new entries or the clock"
    if status.is_interrupted:
        return "interrupted", f"tick {tick} was interrupted; `lemming run-once` continues it"
    return "stopped", "no engine runs; `lemming run-forever` starts one"


def _find_next_due_tick(tick: int, config: Config, survey: Survey) -> int | None:
    """Return the first tick with an agent due by number, or None if no agent is due by number."""
    due_ticks = (
        next_due(agent.schedule, tick)
        for agent in survey.agents.values()
        if agent.schedule.cron is None and not agent.paused and config.has_model_turns(agent)
    )
    return min((due_tick for due_tick in due_ticks if due_tick is not None), default=None)


def _estimate_tick_time(org: OrgPath, status: TickStatus, next_due_tick: int | None) -> str | None:
    """Return the start time of the next due tick, estimated from the interval in the settings, while an engine waits."""
    if not (status.engine and next_due_tick) or status.is_interrupted:
        return None
    try:
        last_end = (org / paths.TICK_FILE).stat().st_mtime  # the engine writes it as the last tick ends
    except FileNotFoundError:
        return None
    last_start = datetime.fromtimestamp(last_end, UTC)
    wait_s = status.config.org.tick_interval_s * (next_due_tick - status.tick + 1)
    return timestamp(last_start + timedelta(seconds=wait_s))
