"""`lemming graph`: who reads, asks and hands on to whom, as a drawing for other programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from lemming.commands.options import Here, option, require_folder
from lemming.commands.screen import one_line, show, show_json
from lemming.facts.views.map import TICKS, Arrow, graph_of
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import nearest

FORMATS = ("mermaid", "dot", "json")
_ARROWS = {"reads": "-->", "asks": "-.->", "hands": "==>"}
_STYLES = {"reads": "solid", "asks": "dashed", "hands": "bold"}
_SHAPES = {"person": ("([", "])"), "channel": ("[/", "/]"), "model": ("[", "]"), "broken": ("{{", "}}")}
_DOT_SHAPES = {"person": "ellipse", "channel": "parallelogram", "model": "box", "broken": "hexagon"}


def graph(
    here: Here,
    format: Annotated[str, option("--format FORMAT", f"One of {', '.join(FORMATS)}.")] = "mermaid",
    agent: Annotated[
        str | None, option("--agent AGENT", "Only this one and its neighbours.", of_agents=True)
    ] = None,
    ticks: Annotated[int, option("--ticks N", "Count the traffic of the newest N ticks.", min=1)] = TICKS,
) -> None:
    """Draw who reads whose entries, who asks and who hands on to whom, with how much of it happened.

    An arrow points where entries go: from who writes to who reads, from who asks to who is asked. Its number
    is how many went that way. Of an agent that may read everybody, where there are more than forty agents,
    only those arrows are drawn along which something went.

    \b
    Examples:
      lemming graph
      lemming graph --format dot | dot -Tsvg > org.svg
      lemming graph --agent editor --ticks 20
      lemming graph --json | jq -r 'select(.type == "arrow") | .from + " " + .to'
    """
    if format not in FORMATS:
        hint = nearest(format, FORMATS) or "--format mermaid"
        raise UsageError(f'--format "{format}" is none of {", ".join(FORMATS)}', hint=hint)
    base = here.org
    if agent is not None:
        require_folder(base, agent)
    nodes, arrows = graph_of(base, ticks=ticks)
    if agent is not None:
        arrows = [arrow for arrow in arrows if agent in (arrow.begin, arrow.end)]
        ends = {agent, *(name for arrow in arrows for name in (arrow.begin, arrow.end))}
        nodes = {name: node for name, node in nodes.items() if name in ends}
    if here.as_json or format == "json":
        for node in nodes.values():
            show_json("node", node)
        for arrow in arrows:
            show_json("arrow", arrow.as_json())
        return
    speakers = {name: node["speaks"] for name, node in nodes.items()}
    for line in (_mermaid if format == "mermaid" else _dot)(speakers, arrows):
        show(line)


def _mermaid(speakers: dict[str, str], arrows: list[Arrow]) -> Iterator[str]:
    """Yield a flowchart. A box has a number for its name: `end` and others mean something there."""
    number = {name: f"a{place}" for place, name in enumerate(speakers)}
    yield "flowchart LR"
    for name, speaks in speakers.items():
        left, right = _SHAPES[speaks]
        yield f'  {number[name]}{left}"{_quoted(name)}"{right}'
    for arrow in arrows:
        label = f"|{_arrow_text(arrow)}| " if _arrow_text(arrow) else ""
        yield f"  {number[arrow.begin]} {_ARROWS[arrow.kind]} {label}{number[arrow.end]}"


def _dot(speakers: dict[str, str], arrows: list[Arrow]) -> Iterator[str]:
    yield "digraph organisation {"
    yield "  rankdir=LR;"
    for name, speaks in speakers.items():
        yield f'  "{_quoted(name)}" [shape={_DOT_SHAPES[speaks]}];'
    for arrow in arrows:
        looks = f'style={_STYLES[arrow.kind]}, label="{_arrow_text(arrow)}", penwidth={_width(arrow)}'
        yield f'  "{_quoted(arrow.begin)}" -> "{_quoted(arrow.end)}" [{looks}];'
    yield "}"


def _arrow_text(arrow: Arrow) -> str:
    """Return what stands at an arrow: what it is, unless it is reading, and how much went along it."""
    what = "" if arrow.kind == "reads" else arrow.kind
    return " ".join(filter(None, (what, str(arrow.traffic) if arrow.traffic else "")))


def _width(arrow: Arrow) -> float:
    """Return how thick an arrow is: a point more each time the traffic grows eightfold."""
    return round(1 + arrow.traffic.bit_length() / 3, 1)


def _quoted(name: str) -> str:
    """Return a folder's name as a label; of one that is no agent's name anything may be part."""
    return one_line(name, 100).replace("\\", "/").replace('"', "'").replace("<", "&lt;")
