"""`lemming agents graph`: the graph of who reads, asks and delegates to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from lemming.commands.command_context import CommandContext, option, require_agent_folder
from lemming.commands.terminal import one_line, print_data, print_object
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.queries.views.map_view import DEFAULT_TICKS, Arrow, build_graph

FORMATS = ("mermaid", "dot", "json")
_ARROWS = {"reads": "-->", "asks": "-.->", "hands": "==>"}
_STYLES = {"reads": "solid", "asks": "dashed", "hands": "bold"}
_SHAPES = {"person": ("([", "])"), "channel": ("[/", "/]"), "model": ("[", "]"), "broken": ("{{", "}}")}
_DOT_SHAPES = {"person": "ellipse", "channel": "parallelogram", "model": "box", "broken": "hexagon"}


def graph(
    context: CommandContext,
    format: Annotated[
        str, option("--format FORMAT", f"Output format: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    ] = "mermaid",
    agent: Annotated[
        str | None, option("--agent AGENT", "Show only this agent and its neighbours.", completes_agents=True)
    ] = None,
    ticks: Annotated[int, option("--ticks N", "Count traffic of the newest N ticks.", min=1)] = DEFAULT_TICKS,
) -> None:
    """Draw the graph of who reads, asks and delegates to whom, with traffic counts.

    An arrow points in the direction of entries: from author to reader, and from asker to assignee. The number
    is the count of entries sent. In organisations with more than forty agents, arrows of an agent with access
    to all outboxes are drawn only if entries were sent along the arrow.

    \b
    Examples:
      lemming agents graph
      lemming agents graph --format dot | dot -Tsvg > org.svg
      lemming agents graph --agent editor --ticks 20
      lemming agents graph --json | jq -r 'select(.type == "arrow") | .from + " " + .to'
    """
    if format not in FORMATS:
        hint = did_you_mean(format, FORMATS) or "--format mermaid"
        raise UsageError(f'--format must be one of {", ".join(FORMATS)}, got "{format}"', hint=hint)
    base = context.org
    if agent is not None:
        require_agent_folder(base, agent)
    nodes, arrows = build_graph(base, ticks=ticks)
    if agent is not None:
        arrows = [arrow for arrow in arrows if agent in (arrow.source, arrow.target)]
        ends = {agent, *(name for arrow in arrows for name in (arrow.source, arrow.target))}
        nodes = {name: node for name, node in nodes.items() if name in ends}
    if context.as_json or format == "json":
        for node in nodes.values():
            print_object("node", node)
        for arrow in arrows:
            print_object("arrow", arrow.as_json())
        return
    speakers = {name: node["speaks"] for name, node in nodes.items()}
    for line in (_render_mermaid if format == "mermaid" else _render_dot)(speakers, arrows):
        print_data(line)


def _render_mermaid(speakers: dict[str, str], arrows: list[Arrow]) -> Iterator[str]:
    """Yield a Mermaid flowchart. Nodes have numbered ids because names such as `end` are reserved words."""
    node_ids = {name: f"a{index}" for index, name in enumerate(speakers)}
    yield "flowchart LR"
    for name, speaks in speakers.items():
        opening, closing = _SHAPES[speaks]
        yield f'  {node_ids[name]}{opening}"{_quote_label(name)}"{closing}'
    for arrow in arrows:
        label = f"|{_format_arrow_label(arrow)}| " if _format_arrow_label(arrow) else ""
        yield f"  {node_ids[arrow.source]} {_ARROWS[arrow.kind]} {label}{node_ids[arrow.target]}"


def _render_dot(speakers: dict[str, str], arrows: list[Arrow]) -> Iterator[str]:
    """Yield a Graphviz digraph."""
    yield "digraph organisation {"
    yield "  rankdir=LR;"
    for name, speaks in speakers.items():
        yield f'  "{_quote_label(name)}" [shape={_DOT_SHAPES[speaks]}];'
    for arrow in arrows:
        attributes = (
            f'style={_STYLES[arrow.kind]}, label="{_format_arrow_label(arrow)}", penwidth={_compute_line_width(arrow)}'
        )
        yield f'  "{_quote_label(arrow.source)}" -> "{_quote_label(arrow.target)}" [{attributes}];'
    yield "}"


def _format_arrow_label(arrow: Arrow) -> str:
    """Return the label of an arrow: the kind, except for reading, and the traffic."""
    kind_text = "" if arrow.kind == "reads" else arrow.kind
    return " ".join(filter(None, (kind_text, str(arrow.traffic) if arrow.traffic else "")))


def _compute_line_width(arrow: Arrow) -> float:
    """Return the line width of an arrow in points, plus a point for each eightfold growth of traffic."""
    return round(1 + arrow.traffic.bit_length() / 3, 1)


def _quote_label(name: str) -> str:
    """Escape a folder's name as a label; a folder that is no agent may contain any character."""
    return one_line(name, 100).replace("\\", "/").replace('"', "'").replace("<", "&lt;")
