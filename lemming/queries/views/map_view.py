"""The view of the map: reads, requests and handoffs between agents, their traffic, and the position of each agent.

Columns follow the longest path (with the order of Eades, Lin and Smyth against cycles); within a column, agents are
sorted by the mean height of their neighbours, as in Sugiyama's method. If nearly every agent reads every other, columns
carry no information and the layout is a circle. Weights and names decide everything: the same map always gets the same
layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import cos, pi, sin
from typing import Any, Literal

from lemming.kernel.agents import Survey
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.inboxes.entry_index import EntryIndex
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.validation.agent_validation import load_validated_survey
from lemming.obligations.request_outcome import get_targets
from lemming.read_model.tick_facts import TickFacts
from lemming.read_model.tick_queries import list_newest_ticks, load_newest_ticks

Kind = Literal["reads", "asks", "hands"]
Pair = tuple[str, str]

DEFAULT_TICKS = 100
MAX_TICKS = 2000
MAX_NODES = 24
MAX_AGENTS_FOR_ALL_ARROWS = 40
"""Maximum agents for which every path between readers of all is drawn."""


@dataclass(frozen=True)
class Arrow:
    """An arrow from one agent to another: `reads` (the second reads the first), `asks` or `hands`.

    `traffic`: number of entries in the scanned ticks. `is_wide`: the second agent reads every agent.
    """

    source: str
    target: str
    kind: Kind
    traffic: int
    is_wide: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the arrow as JSON values."""
        return {"from": self.source, "to": self.target, "kind": self.kind, "traffic": self.traffic,
                "is_wide": self.is_wide}  # fmt: skip


def build_map_view(
    org: OrgPath, *, agent: str = "", ticks: int = DEFAULT_TICKS, most: int = MAX_NODES
) -> dict[str, Any]:
    """Return the agents with their positions, and the arrows between them.

    With more than `most` agents, the agents with the most traffic are returned, and `left_out` counts the
    remaining agents; with `agent`, this agent and its neighbours. Traffic is measured over the newest `ticks`
    ticks with a journal.
    """
    org = Organisation.from_path(org)
    nodes, arrows = build_graph(org, ticks=ticks)
    if agent and agent not in nodes:
        raise UsageError(f'agent "{agent[:80]}" does not exist', hint=did_you_mean(agent[:80], [*nodes]))
    visible = _select_nodes(nodes, arrows, agent, max(most, 2))
    visible_arrows = [arrow for arrow in arrows if {arrow.source, arrow.target} <= visible.keys()]
    weights: Counter[Pair] = Counter()
    for arrow in visible_arrows:
        weights[arrow.source, arrow.target] += arrow.traffic + (1 if arrow.is_wide else 2)
    positions, layout = layout_nodes(visible, weights)
    return {
        "agent": agent,
        "ticks": list_newest_ticks(org, min(max(ticks, 1), MAX_TICKS)),
        "form": layout,
        "nodes": [{**visible[name], "x": positions[name][0], "y": positions[name][1]} for name in visible],
        "arrows": [arrow.as_json() for arrow in visible_arrows],
        "names": sorted(nodes),
        "left_out": len(nodes) - len(visible),
    }


def build_graph(org: OrgPath, *, ticks: int = DEFAULT_TICKS) -> tuple[dict[str, dict[str, Any]], list[Arrow]]:
    """Return the nodes of all agents, and all arrows between them, heaviest first.

    For an agent that reads every other agent, only arrows with traffic are included, unless there are few agents.
    """
    org = Organisation.from_path(org)
    survey, config = load_validated_survey(org), load_config(org)
    traffic = _Traffic(org, survey, config, load_newest_ticks(org, min(max(ticks, 1), MAX_TICKS)))
    arrows = [*_iter_read_arrows(survey, traffic.read_counts), *_iter_ask_arrows(survey, traffic)]
    arrows.sort(key=lambda arrow: (-arrow.traffic, arrow.source, arrow.target, arrow.kind))
    return {
        name: _build_node(name, survey, config, traffic.written_counts) for name in (*survey.agents, *survey.broken)
    }, arrows


def _build_node(name: str, survey: Survey, config: Config, wrote: Mapping[str, int]) -> dict[str, Any]:
    agent = survey.agents.get(name)
    speaks = "broken"
    if agent:
        speaks = "person" if config.is_person(agent) else "model" if config.has_model_turns(agent) else "channel"
    return {
        "name": name,
        "title": agent.title if agent else "",
        "model": agent.model.key if agent else "",
        "speaks": speaks,
        "reads_all": bool(agent and "*" in agent.permissions.read_outboxes),
        "paused": bool(agent and agent.paused),
        "wrote": wrote.get(name, 0),
    }


class _Traffic:
    """Counts of entries written (by author), read (author, reader) and requested (requester, target) in some ticks."""

    def __init__(self, org: Organisation, survey: Survey, config: Config, ticks: list[TickFacts]) -> None:
        self._index, self._agent_names = org.get_cache(EntryIndex), frozenset((*survey.agents, *survey.broken))
        self.request_counts, self.handoff_counts = Counter[Pair](), Counter[Pair]()
        author_by_entry = {entry: author for facts in ticks for entry, (author, _) in facts.wrote.items()}
        self.written_counts = Counter(author_by_entry.values())
        non_model_agents = [name for name, agent in survey.agents.items() if not config.has_model_turns(agent)]
        for name in non_model_agents:  # messages of people and channels are in no journal
            outbox = self._index.list_outbox(name)
            own_entries = outbox.all[outbox.next_index(ticks[0].tick - 1) :] if ticks else []
            self.written_counts[name] += len(own_entries)
            author_by_entry |= {entry.id: name for entry in outbox.all}
            self._add_requests(own_entries)
        for facts in ticks:
            wrote = facts.wrote.items()
            self._add_requests(
                EntryName(facts.tick, 0, id, author) for id, (author, kind) in wrote if kind == "request"
            )
        self.read_counts = Counter(
            (author_by_entry[entry], reader)
            for facts in ticks
            for reader, entries in facts.shown.items()
            for entry in entries
            if author_by_entry.get(entry, reader) != reader
        )
        for name in non_model_agents:  # they are shown all that they may read
            self.read_counts.update({(author, name): n for author, n in self.written_counts.items() if author != name})

    def _add_requests(self, names: Iterable[EntryName]) -> None:
        """Count the targets of the requests among these entries."""
        for name in names:
            entry = self._index.read(name)
            if isinstance(entry, OutboxEntry) and entry.kind == "request":
                count = self.handoff_counts if "hands_on" in entry.payload else self.request_counts
                count.update((name.author, target) for target in get_targets(entry, self._agent_names))


def _iter_read_arrows(survey: Survey, read_counts: Mapping[Pair, int]) -> Iterator[Arrow]:
    draws_all = len(survey.agents) <= MAX_AGENTS_FOR_ALL_ARROWS
    for name, agent in survey.agents.items():
        is_wide = "*" in agent.permissions.read_outboxes
        authors = survey.agents if is_wide else survey.agents.keys() & {*agent.permissions.read_outboxes}
        for author in authors:
            if author != name and (draws_all or not is_wide or (author, name) in read_counts):
                yield Arrow(author, name, "reads", read_counts.get((author, name), 0), is_wide)


def _iter_ask_arrows(survey: Survey, traffic: _Traffic) -> Iterator[Arrow]:
    """Yield an arrow for each allowed or actual request and handoff between two agents."""
    for name, agent in survey.agents.items():
        if team := agent.extensions.get("team"):
            traffic.request_counts.update({(name, member.agent): 0 for member in team.ask_members})
            traffic.handoff_counts.update({(name, handoff_target): 0 for handoff_target in team.hand_to})
    kinds: tuple[tuple[Kind, Counter[Pair]], ...] = (
        ("asks", traffic.request_counts),
        ("hands", traffic.handoff_counts),
    )
    for kind, counts in kinds:
        yield from (Arrow(*pair, kind, count) for pair, count in counts.items() if {*pair} <= survey.agents.keys())


def _select_nodes(
    nodes: dict[str, dict[str, Any]], arrows: list[Arrow], agent: str, max_nodes: int
) -> dict[str, dict[str, Any]]:
    """Return the nodes to draw: an agent and its neighbours, or the nodes with the most traffic."""
    if not agent and len(nodes) <= max_nodes:
        return nodes
    chosen = {agent: None} if agent else {}
    for arrow in arrows:  # the heaviest come first
        arrow_ends = (arrow.source, arrow.target)
        if len(chosen) < max_nodes and (not agent or agent in arrow_ends):
            chosen |= dict.fromkeys(arrow_ends)
    return {name: nodes[name] for name in nodes if name in chosen} or dict([*nodes.items()][:max_nodes])


Spot = tuple[float, float]

SWEEPS = 6
LONGEST_COLUMN = 12


def layout_nodes(names: Collection[str], arrows: Mapping[Pair, float]) -> tuple[dict[str, Spot], str]:
    """Return the position of each name, and the layout, "columns" or "circle"; neighbours are one unit apart.

    `arrows` are weighted: of two opposite arrows the heavier points to the right.

    >>> layout_nodes(["b", "a", "c"], {("a", "b"): 1, ("b", "c"): 1})
    ({'a': (0.0, 0.0), 'b': (1.0, 0.0), 'c': (2.0, 0.0)}, 'columns')
    """
    proper_arrows = {(source, target): weight for (source, target), weight in arrows.items() if source != target}
    order = _order_without_cycles(sorted(names), proper_arrows)
    rank = {name: number for number, name in enumerate(order)}
    forward_arrows = {arrow for arrow in proper_arrows if rank[arrow[0]] < rank[arrow[1]]}
    columns = _split_into_columns(order, forward_arrows)
    if len(names) > 3 and len(columns) > max(4, len(names) * 2 // 3):
        return _place_on_circle(order), "circle"
    spots = {
        name: (float(x), index - (len(column) - 1) / 2)
        for x, column in enumerate(_sort_columns(columns, proper_arrows))
        for index, name in enumerate(column)
    }
    return spots, "columns"


def _order_without_cycles(names: list[str], arrows: Mapping[Pair, float]) -> list[str]:
    """Return an order with few and light backward arrows: pure sources first, pure readers last."""
    leading, trailing, remaining = list[str](), list[str](), dict.fromkeys(names)
    out_weight, in_weight = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    neighbours: dict[str, list[tuple[str, float, bool]]] = {name: [] for name in names}
    for (begin, neighbour), weight in arrows.items():
        out_weight[begin] += weight
        in_weight[neighbour] += weight
        neighbours[begin].append((neighbour, weight, True))
        neighbours[neighbour].append((begin, weight, False))
    while remaining:
        sink = next((name for name in remaining if not out_weight[name] and in_weight[name]), None)
        source = next((name for name in remaining if not in_weight[name]), None)
        name = sink or source or max(remaining, key=lambda candidate: out_weight[candidate] - in_weight[candidate])
        (trailing if name == sink else leading).append(name)
        del remaining[name]
        for neighbour, weight, is_outgoing in neighbours[name]:
            (in_weight if is_outgoing else out_weight)[neighbour] -= weight
    return leading + trailing[::-1]


def _split_into_columns(order: list[str], forward_arrows: Collection[Pair]) -> list[list[str]]:
    """Return the names in columns by their longest incoming path; a column that is too long is split."""
    predecessors: dict[str, list[str]] = {name: [] for name in order}
    for source, target in forward_arrows:
        predecessors[target].append(source)
    column: dict[str, int] = {}
    for name in order:
        column[name] = max((column[source] + 1 for source in predecessors[name]), default=0)
    columns: list[list[str]] = [[] for _ in range(max(column.values(), default=-1) + 1)]
    for name in order:
        columns[column[name]].append(name)
    return [
        full_column[start : start + LONGEST_COLUMN]
        for full_column in columns
        for start in range(0, len(full_column), LONGEST_COLUMN)
    ]


def _sort_columns(columns: list[list[str]], arrows: Mapping[Pair, float]) -> list[list[str]]:
    """Return the columns, each sorted by the mean height of the neighbours."""
    neighbours: dict[str, set[str]] = {name: set() for column in columns for name in column}
    for source, target in arrows:
        neighbours[source].add(target)
        neighbours[target].add(source)
    height = {name: index - len(column) / 2 for column in columns for index, name in enumerate(column)}
    for sweep in range(SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            beside = {name: [height[neighbour] for neighbour in neighbours[name] - {*column}] for name in column}
            middle = {name: sum(beside[name]) / len(beside[name]) if beside[name] else height[name] for name in column}
            column.sort(key=lambda name: (middle[name], name))
            height.update({name: index - len(column) / 2 for index, name in enumerate(column)})
    return columns


def _place_on_circle(order: list[str]) -> dict[str, Spot]:
    radius = max(len(order) / (2 * pi) * 1.2, 1.0)
    angle = 2 * pi / len(order)
    return {
        name: (round(radius * sin(index * angle), 4), round(-radius * cos(index * angle), 4))
        for index, name in enumerate(order)
    }
