"""The screen of the status: a row for each agent. `lemming status` prints them below the state of the organisation."""

from __future__ import annotations

from typing import Any

from lemming.kernel.base.clock import SystemClock, parse_timestamp
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_table import JUDGES
from lemming.libraries.everyday_times import format_remaining_time
from lemming.libraries.wording import format_usd
from lemming.queries.org_status import AgentStatus, OrgStatus, load_org_status
from lemming.queries.pending_questions import describe_pending
from lemming.queries.screens.screen import Column, Screen
from lemming.queries.sentences import AGENT_STATES

Json = dict[str, Any]


def list_agent_statuses(org: OrgPath) -> list[AgentStatus]:
    """Return the status of each agent, by name."""
    return load_org_status(org).agent_statuses


def _format_next_turn(status: AgentStatus) -> str:
    if status.next_at is None:
        return "-" if status.next_tick is None else str(status.next_tick)
    return format_remaining_time(parse_timestamp(status.next_at), SystemClock().now())


def _format_last_turn(status: AgentStatus) -> str:
    """Return the outcome and the tick of the latest turn."""
    state = status.state
    text = AGENT_STATES["out_of_credits"] if state.end == "out_of_credits" else state.end.replace("_", " ")
    ending = f", {text}" if state.end not in ("", "waits") else ""
    return f"{state.status}{ending} ({state.tick})" if state.status else "-"


def _format_turns(status: AgentStatus) -> str:
    if not status.has_ledger:
        return "-"
    return f"{status.state.turns}" + (f" ({status.state.failed} failed)" if status.state.failed else "")


def _format_credits(status: AgentStatus) -> str:
    limit = "" if status.max_credits is None else f" of {status.max_credits:.10g}"
    if not status.has_ledger:
        return "-"
    unknown = "" if status.model else " of ?"  # a broken resume holds the limit
    return f"{status.state.consumed_credits:.10g}{unknown or limit}"


def _format_cost(status: AgentStatus) -> str:
    state = status.state
    return format_usd(state.cost_usd, calls=state.unpriced_calls, unpriced=state.unpriced_calls)


def _format_state(status: AgentStatus) -> str:
    if status.has_issue or status.problem:
        return "PROBLEM"
    return "paused" if status.reason_code == "paused" else describe_pending(status.state)


STATUS = Screen(
    "status",
    kind="status",
    inside="agents",
    title="Status",
    query=list_agent_statuses,
    row=AgentStatus,
    empty="no agents yet: `lemming agents new NAME` creates one",
    columns=(
        Column("agent", "AGENT", "Name of the agent.", shown="agent"),
        Column("model_key", "MODEL", "Model key of the resume.", path="model", text=lambda status: status.model or "-"),
        Column("next_tick", "NEXT", "Tick of the next turn, or null.", int | None, text=_format_next_turn),
        Column("next_at", about="Time of the next turn, or null without a clock schedule.", type=str | None),
        Column("why", about="Code of the reason for a turn, or for none, in the next tick.", type=str, path="reason_code"),
        Column("reason", about="The same reason in words."),
        Column(
            "last_status", "LAST", "Status of the last turn, or null.", str | None,
            value=lambda status: status.state.status or None, text=_format_last_turn,
        ),
        Column(
            "last_tick", about="Tick of the last turn, or null.", type=int | None,
            value=lambda status: status.state.tick if status.state.status else None,
        ),
        Column(
            "last_end", about="End of the last turn, or null.", type=str | None,
            value=lambda status: status.state.end or None,
        ),
        Column(
            "turns", "TURNS", "Completed turns of the agent.", path="state.turns", metric="lemming_turns_total",
            text=_format_turns,
        ),
        Column(
            "failed_turns", about="Failed turns of the agent.", path="state.failed", metric="lemming_failed_turns_total"
        ),
        Column(
            "credits", about="Credits the agent has spent.", path="state.credits", metric="lemming_credits_total"
        ),
        Column(
            "used_up", "CREDITS", "Credits that count against the limit.", float, path="state.consumed_credits",
            text=_format_credits,
        ),
        Column(
            "judged_credits", about="Of the credits, those of judges.", type=float,
            value=lambda status: status.state.aside.get(JUDGES, 0.0), metric="lemming_judging_credits_total",
        ),
        Column("max_credits", about="Credit limit of the agent, or null."),
        Column(
            "cost_usd", "COST", "Cost of the agent's calls in dollars, where prices are known.", path="state.cost_usd",
            text=_format_cost, metric="lemming_cost_dollars_total",
        ),
        Column(
            "unpriced_calls", about="Number of model calls without a price.", path="state.unpriced_calls",
            metric="lemming_unpriced_calls_total",
        ),
        Column("waits", "", "The answer or approval that the agent waits for, or empty.", text=_format_state,
               value=lambda status: describe_pending(status.state)),
        Column("problem", about="The reason for which the agent cannot run, or empty."),
        Column(
            "", about="Credits transferred to agents that it created.", path="state.passed_on",
            metric="lemming_credits_passed_on_total",
        ),
        Column("", about="Tokens sent to models.", path="state.input_tokens", metric="lemming_input_tokens_total"),
        Column("", about="Tokens that models wrote.", path="state.output_tokens", metric="lemming_output_tokens_total"),
    ),
)  # fmt: skip


def status_to_json(status: OrgStatus) -> Json:
    """Return the status of an organisation as JSON values."""
    commit = status.last_commit
    return {
        "org": str(status.base),
        "tick": status.tick,
        "is_interrupted": status.is_interrupted,
        **status.progress,
        "engine": status.engine,
        "paused": status.config.org.paused,
        "last_tick": {"tick": commit.tick, "totals": commit.totals} if commit else None,
        "agents": [STATUS.to_json(agent_status) for agent_status in status.agent_statuses],
        "troubles": [issue.as_json("issue") for issue in status.issues],
        "waiting": len(status.waiting),
        "warnings": len(status.survey.warnings),
        "misplaced": [problem.as_json() for problem in status.misplaced],
        "capabilities": {name: [fact._asdict() for fact in facts] for name, facts in status.capability_status.items()},
    }
