"""The view of spending over time, by agent and by model, with the spending limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.times import get_zone
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import find_fact
from lemming.queries.credit_accounts import load_accounts, load_removed_accounts, sum_accounts
from lemming.read_model.tick_facts import TickFacts
from lemming.read_model.tick_queries import load_newest_ticks

DEFAULT_TICKS = 120
MAX_TICKS = 2000
MAX_NAMES = 7
MAX_AGENTS_SHOWN = 100
UNNAMED_MODEL = "(a model without a name)"
UNITS = ("credits", "cost_usd")
REMAINDER = ""
"""The row for the spending of all others together."""

Amounts = dict[str, defaultdict[str, float]]
"""Spending by unit, then by agent."""


@dataclass
class _Column:
    """The spending in a tick or on a day: credits and dollars by agent and by model."""

    at: str = ""
    calls: int = 0
    credits: float = 0.0
    cost_usd: float | None = None
    agents: Amounts = field(default_factory=lambda: {unit: defaultdict(float) for unit in UNITS})
    models: Amounts = field(default_factory=lambda: {unit: defaultdict(float) for unit in UNITS})

    def add(self, agent: str, report: dict[str, Any]) -> None:
        """Add the spending of a turn, told by its report."""
        self.calls += report["calls"]
        self.credits += report["credits"]
        if report["cost_usd"] is not None:
            self.cost_usd = (self.cost_usd or 0.0) + report["cost_usd"]
        for amounts, name in ((self.agents, agent), (self.models, report.get("model") or UNNAMED_MODEL)):
            amounts["credits"][name] += report["credits"]
            amounts["cost_usd"][name] += report["cost_usd"] or 0.0


def build_money_view(org: OrgPath, *, by: str = "tick", ticks: int = DEFAULT_TICKS) -> dict[str, Any]:
    """Return the spending of the newest `ticks` ticks with a journal, by "tick" or "day", and the totals.

    A column names the seven agents, and models, with the highest spending; "" stands for all remaining names.
    Days follow the organisation's time zone, or UTC if none is set.
    """
    if by not in ("tick", "day"):
        raise UsageError(f'by must be tick or day, got "{by[:80]}"', hint="by=tick")
    org = Organisation.from_path(org)
    config, survey = load_config(org), survey_agents(org)
    ticks = min(max(ticks, 1), MAX_TICKS)
    newest = load_newest_ticks(org, ticks + 1)
    older, newest = len(newest) > ticks, newest[-ticks:]
    numbers = [facts.tick for facts in newest]
    time_zone = get_zone(config.org.timezone) if config.org.timezone else UTC
    columns = _build_columns(newest, time_zone if by == "day" else None)
    account_list, damaged = load_accounts(org, survey, config)
    account_list += load_removed_accounts(org)
    account_list.sort(key=lambda account: (-account.spent, account.agent))
    return {
        "by": by,
        "ticks": numbers[:1] + numbers[-1:],
        "older": older,
        "columns": _columns_to_json(columns),
        "has_dollars": any(column.cost_usd is not None for column in columns.values()),
        "agents": [{**account.as_json(), "credits": account.spent} for account in account_list[:MAX_AGENTS_SHOWN]],
        "left_out": len(account_list[MAX_AGENTS_SHOWN:]),
        "total": sum_accounts(account_list),
        "limits": list_limits(config.org) if (list_limits := find_fact("gates.spending_limits")) else [],
        "damaged": [*map(str, damaged)],
    }


def _build_columns(ticks: Iterable[TickFacts], time_zone: tzinfo | None) -> dict[str, _Column]:
    columns: dict[str, _Column] = {}
    for facts in ticks:
        if facts.at:
            start = parse_timestamp(facts.at)
            name = start.astimezone(time_zone).strftime("%Y-%m-%d") if time_zone else str(facts.tick)
            column = columns.setdefault(name, _Column(facts.at))
            for agent, report in facts.spent.items():
                column.add(agent, report)
    return columns


def _columns_to_json(columns: Mapping[str, _Column]) -> list[dict[str, Any]]:
    """Return the columns as JSON values, naming only the agents and models with the highest total spending."""
    groups = ("agents", "models")
    names_by_group = {key: _top_spenders(getattr(column, key) for column in columns.values()) for key in groups}
    return [
        {
            "name": name,
            "at": column.at,
            "calls": column.calls,
            "credits": round(column.credits, 6),
            "cost_usd": column.cost_usd,
            **{group: _sum_remainder(getattr(column, group), names_by_group[group]) for group in names_by_group},
        }
        for name, column in columns.items()
    ]


def _top_spenders(columns: Iterable[Amounts]) -> list[str]:
    sums: defaultdict[str, float] = defaultdict(float)
    for amounts in columns:
        for name, amount in amounts["credits"].items():
            sums[name] += amount
    return sorted(sums, key=lambda name: (-sums[name], name))[:MAX_NAMES]


def _sum_remainder(amounts: Amounts, names: list[str]) -> dict[str, dict[str, float]]:
    folded = {}
    for unit, unit_amounts in amounts.items():
        named_amounts = {name: unit_amounts[name] for name in names if name in unit_amounts}
        remainder = sum(amount for name, amount in unit_amounts.items() if name not in named_amounts)
        folded[unit] = {**named_amounts, **({REMAINDER: remainder} if remainder else {})}
    return folded
