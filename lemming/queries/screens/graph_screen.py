"""The screen of the graph: who reads, asks and hands over to whom."""

from __future__ import annotations

from typing import Annotated, Any

from lemming.kernel.agents import require_agent_folder
from lemming.kernel.org.organisation import OrgPath
from lemming.queries.screens.screen import Column, Parameter, Screen
from lemming.queries.views.map_view import DEFAULT_TICKS, Arrow, build_graph


def list_arrows(
    org: OrgPath,
    agent: Annotated[str | None, Parameter("--agent AGENT", "Show only this agent and its neighbours.")] = None,
    ticks: Annotated[int, Parameter("--ticks N", "Count traffic of the newest N ticks.", minimum=1)] = DEFAULT_TICKS,
) -> list[Arrow]:
    """List the arrows between agents, heaviest first."""
    return select_graph(org, agent, ticks)[1]


def select_graph(org: OrgPath, agent: str | None, ticks: int) -> tuple[dict[str, dict[str, Any]], list[Arrow]]:
    """Return the nodes by name, and the arrows between them; with `agent`, only this agent and its neighbours."""
    nodes, arrows = build_graph(org, ticks=ticks)
    if not agent:
        return nodes, arrows
    require_agent_folder(org, agent)
    arrows = [arrow for arrow in arrows if agent in (arrow.source, arrow.target)]
    ends = {agent, *(name for arrow in arrows for name in (arrow.source, arrow.target))}
    return {name: node for name, node in nodes.items() if name in ends}, arrows


ARROWS = Screen(
    "graph",
    kind="arrow",
    title="Who reads and asks whom",
    command="agents graph",
    query=list_arrows,
    row=Arrow,
    is_table=False,
    empty="no agent reads another",
    columns=(
        Column("from", "FROM", "Author or asker.", path="source", shown="agent"),
        Column("to", "TO", "Reader or assignee.", path="target", shown="agent"),
        Column("kind", "KIND", "reads, asks or hands.", str),
        Column("traffic", "ENTRIES", "Number of entries sent."),
        Column("is_wide", about="True if the reader reads all agents."),
    ),
)
NODES = Screen(
    "nodes",
    kind="node",
    title="Agents of the graph",
    columns=(
        Column("name", about="Name of the agent."),
        Column("title", about="Title of its resume."),
        Column("model", about="Model key of its resume."),
        Column("speaks", about="model, person, channel, or broken for a resume that cannot be read."),
        Column("reads_all", about="True if it reads all agents.", type=bool),
        Column("paused", about="True if it is paused.", type=bool),
        Column("wrote", about="Number of entries that it wrote in these ticks.", type=int),
    ),
)
