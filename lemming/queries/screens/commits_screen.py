"""The screen of the history: its commits, one for each tick with changes and for edits by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lemming.git_history.history_reader import Commit, GitHistory
from lemming.kernel.agents import require_agent_folder
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.wording import format_count, format_usd
from lemming.queries.screens.screen import Column, Parameter, Screen


def list_commits(
    org: OrgPath,
    agent: Annotated[
        str, Parameter("[AGENT|on|off]", 'Agent to filter by, or "on" / "off" to switch the history.')
    ] = "",
    number: Annotated[int, Parameter("-n --limit N", "Show the newest N commits; 0 shows all.", minimum=0)] = 20,
) -> list[Commit]:
    """Return the newest commits, oldest first. Raises `UsageError` without a history."""
    if agent:
        require_agent_folder(org, agent, other_words=("on", "off"))
    return GitHistory(Path(org)).list_commits(agent=agent, limit=number or None)[::-1]


def _format_spending(commit: Commit) -> str:
    return f"{format_count(commit.credits, 'credit')}, {format_usd(commit.cost_usd)}" if commit.calls else ""


COMMITS = Screen(
    "history",
    kind="commit",
    title="History in git",
    query=list_commits,
    empty="no commits yet",
    columns=(
        Column("commit", "COMMIT", "Id of the commit.", path="id", text=lambda commit: commit.short),
        Column("at", "WHEN (UTC)", "Time of the commit.", text=lambda commit: commit.at[:16].replace("T", " ")),
        Column("subject", "CHANGE", "Subject of the commit."),
        Column(
            "tick", about="Tick of the commit, or null for edits by hand.", type=int | None,
            value=lambda commit: None if commit.is_by_hand else commit.tick,
        ),
        Column(
            "before_tick", about="Tick before which files were edited by hand, or null.", type=int | None,
            value=lambda commit: commit.tick if commit.is_by_hand else None,
        ),
        Column("agents", "AGENTS", "Agents that took turns.", list[str], text=lambda commit: ", ".join(commit.agents)),
        Column("calls", about="Number of model calls.", type=int),
        Column("credits", about="Credits spent.", type=float),
        Column("cost_usd", about="Cost in dollars, as far as prices are known.", type=float | None),
        Column("", "SPENT", text=_format_spending),
    ),
)  # fmt: skip
