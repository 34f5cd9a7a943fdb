"""Money: what was spent over time, by agent and by model, beside what may be spent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from lemming.facts.accounts import accounts, removed_accounts, total_of
from lemming.facts.views.glances import Glance, Spent, glances_at
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.times.zones import zone
from lemming.kernel.journal.file import begun_journals
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath

TICKS = 120
MOST_TICKS = 2000
NAMED = 7
AGENTS_SHOWN = 100
UNITS = ("credits", "cost_usd")
OTHERS = ""
"""The name of what all others spent together."""

Amounts = dict[str, defaultdict[str, float]]
"""What was spent, by unit, then by whom."""


@dataclass
class _Column:
    """What was spent in a tick or on a day: credits and dollars by agent, and by model."""

    at: str = ""
    calls: int = 0
    credits: float = 0.0
    cost_usd: float | None = None
    agents: Amounts = field(default_factory=lambda: {unit: defaultdict(float) for unit in UNITS})
    models: Amounts = field(default_factory=lambda: {unit: defaultdict(float) for unit in UNITS})

    def add(self, agent: str, spent: Spent) -> None:
        """Add what one turn spent."""
        self.calls += spent.calls
        self.credits += spent.credits
        if spent.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + spent.cost_usd
        for amounts, name in ((self.agents, agent), (self.models, spent.model)):
            amounts["credits"][name] += spent.credits
            amounts["cost_usd"][name] += spent.cost_usd or 0.0


def money(org: OrgPath, *, by: str = "tick", ticks: int = TICKS) -> dict[str, Any]:
    """Return what the newest `ticks` that have a journal spent, by "tick" or by "day", and all in all.

    A column names the seven agents, and models, that spent most; "" are all others. A day is one of the
    organisation's time zone, UTC without one.
    """
    if by not in ("tick", "day"):
        raise UsageError(f'by "{by[:80]}" is neither tick nor day', hint="by=tick")
    org = Organisation.at(org)
    config, survey = load_config(org), survey_agents(org)
    ticks = min(max(ticks, 1), MOST_TICKS)
    numbers = begun_journals(org, ticks + 1)
    older, numbers = len(numbers) > ticks, numbers[-ticks:]
    day_in = zone(config.org.timezone) if config.org.timezone else UTC
    columns = _columns(glances_at(org, numbers), day_in if by == "day" else None)
    found, damaged = accounts(org, survey, config)
    found += removed_accounts(org)
    found.sort(key=lambda it: (-it.spent, it.agent))
    return {
        "by": by,
        "ticks": numbers[:1] + numbers[-1:],
        "older": older,
        "columns": _folded(columns),
        "has_dollars": any(column.cost_usd is not None for column in columns.values()),
        "agents": [{**it.as_json(), "credits": it.spent} for it in found[:AGENTS_SHOWN]],
        "left_out": len(found[AGENTS_SHOWN:]),
        "total": total_of(found),
        "limits": _limits(config),
        "damaged": [*map(str, damaged)],
    }


def _columns(glances: Iterable[Glance], day_in: tzinfo | None) -> dict[str, _Column]:
    columns: dict[str, _Column] = {}
    for glance in glances:
        if glance.at:
            moment = parse_timestamp(glance.at)
            name = moment.astimezone(day_in).strftime("%Y-%m-%d") if day_in else str(glance.tick)
            column = columns.setdefault(name, _Column(glance.at))
            for agent, spent in glance.spent.items():
                column.add(agent, spent)
    return columns


def _folded(columns: Mapping[str, _Column]) -> list[dict[str, Any]]:
    """Return columns as JSON values, in which only those are named that spent most in all of them."""
    named = {
        group: _most(getattr(column, group) for column in columns.values()) for group in ("agents", "models")
    }
    return [
        {
            "name": name,
            "at": column.at,
            "calls": column.calls,
            "credits": round(column.credits, 6),
            "cost_usd": column.cost_usd,
            **{group: _with_others(getattr(column, group), named[group]) for group in named},
        }
        for name, column in columns.items()
    ]


def _most(columns: Iterable[Amounts]) -> list[str]:
    sums: defaultdict[str, float] = defaultdict(float)
    for amounts in columns:
        for name, amount in amounts["credits"].items():
            sums[name] += amount
    return sorted(sums, key=lambda name: (-sums[name], name))[:NAMED]


def _with_others(amounts: Amounts, named: list[str]) -> dict[str, dict[str, float]]:
    folded = {}
    for unit, each in amounts.items():
        kept = {name: each[name] for name in named if name in each}
        rest = sum(amount for name, amount in each.items() if name not in kept)
        folded[unit] = {**kept, **({OTHERS: rest} if rest else {})}
    return folded


def _limits(config: Config) -> list[dict[str, Any]]:
    """Return the limits that the organisation's gates set, as the lines that say them."""
    if "gates" not in config.org.further:
        return []
    from lemming.capabilities.gates.keys import rules_in
    from lemming.capabilities.gates.limit import limits_of, window_of

    return [
        {
            "line": rule.line,
            "per": rule.gate.per,
            "window": str(window_of(rule.gate.window) or ""),
            "limits": {key: float(amount) for key, amount in limits_of(rule.gate).items()},
            "then": rule.gate.then,
            "models": [*(rule.gate.models or ())],
        }
        for rule in rules_in(config.org)
        if limits_of(rule.gate)
    ]
