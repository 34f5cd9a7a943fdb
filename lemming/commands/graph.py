"""`lemming agents graph`: the graph of who reads, asks and delegates to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from lemming.commands.command_context import CommandContext, option, with_parameters_of
from lemming.commands.terminal import one_line, output_mode, print_data
from lemming.queries.screens.graph_screen import ARROWS, NODES, select_graph
from lemming.queries.views.map_view import Arrow

_ARROWS = {"reads": "-->", "asks": "-.->", "hands": "==>"}
_STYLES = {"reads": "solid", "asks": "dashed", "hands": "bold"}
_SHAPES = {"person": ("([", "])"), "channel": ("[/", "/]"), "model": ("[", "]"), "broken": ("{{", "}}")}
_DOT_SHAPES = {"person": "ellipse", "channel": "parallelogram", "model": "box", "broken": "hexagon"}


@with_parameters_of(ARROWS)
def graph(
    context: CommandContext,
    format: Annotated[Literal["mermaid", "dot", "json"], option("--format", "Output format.")] = "mermaid",
    **values: Any,
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
    nodes, arrows = select_graph(context.org, **values)
    if context.as_json or format == "json":
        with output_mode(as_json=True):
            context.print_lines(NODES, nodes.values())
            context.print_lines(ARROWS, arrows)
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
    yield "digraph organisation {"
    yield "  rankdir=LR;"
    for name, speaks in speakers.items():
        yield f'  "{_quote_label(name)}" [shape={_DOT_SHAPES[speaks]}];'
    for arrow in arrows:
        label = _format_arrow_label(arrow)
        width = round(1 + arrow.traffic.bit_length() / 3, 1)  # a point more for each eightfold growth of traffic
        attributes = f'style={_STYLES[arrow.kind]}, label="{label}", penwidth={width}'
        yield f'  "{_quote_label(arrow.source)}" -> "{_quote_label(arrow.target)}" [{attributes}];'
    yield "}"


def _format_arrow_label(arrow: Arrow) -> str:
    """Return the label of an arrow: the kind, except for reading, and the traffic."""
    kind_text = "" if arrow.kind == "reads" else arrow.kind
    return " ".join(filter(None, (kind_text, str(arrow.traffic) if arrow.traffic else "")))


def _quote_label(name: str) -> str:
    """Escape a folder's name as a label; a folder that is no agent may contain any character."""
    return one_line(name, 100).replace("\\", "/").replace('"', "'").replace("<", "&lt;")
