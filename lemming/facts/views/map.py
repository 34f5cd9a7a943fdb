"""The map: who reads whom, who asks and hands on to whom, how much of it happens, where the boxes stand.

Columns by the longest way (Eades, Lin and Smyth's order against cycles), within them by the middle of the
neighbours, as Sugiyama does it. Where nearly everybody reads everybody columns say nothing, so the boxes
stand on a circle. Everything is decided by weights and names: the same map looks the same everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import cos, pi, sin
from typing import Any, Literal

from lemming.capabilities.requests.settling import targets_in
from lemming.facts.views.glances import glances_at
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.journal.file import begun_journals
from lemming.kernel.mail.index import EntryIndex
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.firing_plan import is_for_people, takes_turns
from lemming.kernel.tick.soundness.judged import sound_survey

Kind = Literal["reads", "asks", "hands"]
Pair = tuple[str, str]

TICKS = 100
MOST_TICKS = 2000
MOST_SHOWN = 24
FEW = 40
"""Of so many agents every way is drawn that one could read along who reads everybody."""


@dataclass(frozen=True)
class Arrow:
    """What goes from one agent to another: `reads` entries of the first by the second, `asks`, `hands`.

    `traffic`: how many in the ticks looked at. `is_wide`: the second reads everybody.
    """

    begin: str
    end: str
    kind: Kind
    traffic: int
    is_wide: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the arrow as JSON values."""
        return {"from": self.begin, "to": self.end, "kind": self.kind, "traffic": self.traffic,
                "is_wide": self.is_wide}  # fmt: skip


def map(org: OrgPath, *, agent: str = "", ticks: int = TICKS, most: int = MOST_SHOWN) -> dict[str, Any]:
    """Return the agents and the arrows between them, with where each agent's box stands.

    Of more agents than `most` those with the most traffic are shown, and `left_out` counts the others; with
    `agent`, that one and its neighbours. Traffic is of the newest `ticks` that have a journal.
    """
    org = Organisation.at(org)
    nodes, arrows = graph_of(org, ticks=ticks)
    if agent and agent not in nodes:
        raise UsageError(f'there is no agent "{agent[:80]}"', hint=nearest(agent[:80], [*nodes]))
    shown = _shown(nodes, arrows, agent, max(most, 2))
    inside = [arrow for arrow in arrows if {arrow.begin, arrow.end} <= shown.keys()]
    weights: Counter[Pair] = Counter()
    for arrow in inside:
        weights[arrow.begin, arrow.end] += arrow.traffic + (1 if arrow.is_wide else 2)
    spots, form = laid_out(shown, weights)
    return {
        "agent": agent,
        "ticks": begun_journals(org, min(max(ticks, 1), MOST_TICKS)),
        "form": form,
        "nodes": [{**shown[name], "x": spots[name][0], "y": spots[name][1]} for name in shown],
        "arrows": [arrow.as_json() for arrow in inside],
        "names": sorted(nodes),
        "left_out": len(nodes) - len(shown),
    }


def graph_of(org: OrgPath, *, ticks: int = TICKS) -> tuple[dict[str, dict[str, Any]], list[Arrow]]:
    """Return what is known of every agent, and every arrow between two: the heaviest first.

    Of those that an agent could read because it reads everybody, only those that it was shown something of,
    unless there are few agents.
    """
    org = Organisation.at(org)
    survey, config = sound_survey(org), load_config(org)
    traffic = _Traffic(org, survey, config, begun_journals(org, min(max(ticks, 1), MOST_TICKS)))
    arrows = [*_reads(survey, traffic.shown), *_asks(survey, traffic)]
    arrows.sort(key=lambda arrow: (-arrow.traffic, arrow.begin, arrow.end, arrow.kind))
    return {
        name: _node(name, survey, config, traffic.wrote) for name in (*survey.agents, *survey.broken)
    }, arrows


def _node(name: str, survey: Survey, config: Config, wrote: Mapping[str, int]) -> dict[str, Any]:
    agent = survey.agents.get(name)
    return {
        "name": name,
        "title": agent.title if agent else "",
        "model": agent.model.key if agent else "",
        "speaks": _speaker(agent, config),
        "reads_all": bool(agent) and "*" in agent.permissions.read_outboxes if agent else False,
        "paused": bool(agent and agent.paused),
        "wrote": wrote.get(name, 0),
    }


def _speaker(agent: Agent | None, config: Config) -> str:
    """Return what speaks for an agent: a person, a channel, a model; or that its resume is broken."""
    if agent is None:
        return "broken"
    if is_for_people(agent.model.key, config):
        return "person"
    return "model" if takes_turns(agent, config) else "channel"


class _Traffic:
    """What was written, shown and asked in a few ticks: by author, author and reader, asker and asked."""

    def __init__(self, org: Organisation, survey: Survey, config: Config, ticks: list[int]) -> None:
        self._index, self._known = org.own(EntryIndex), frozenset((*survey.agents, *survey.broken))
        self.asked, self.handed = Counter[Pair](), Counter[Pair]()
        glances = glances_at(org, ticks)
        written = {entry: one.author for glance in glances for entry, one in glance.wrote.items()}
        self.wrote = Counter(written.values())
        silent = [name for name, agent in survey.agents.items() if not takes_turns(agent, config)]
        for name in silent:  # what people and channels write is in no journal
            outbox = self._index.outbox(name)
            theirs = outbox.all[outbox.after(ticks[0] - 1) :] if ticks else []
            self.wrote[name] += len(theirs)
            written |= {entry.id: name for entry in outbox.all}
            self._add_requests(theirs)
        for glance in glances:
            asked = [
                (glance.tick, entry, one) for entry, one in glance.wrote.items() if one.kind == "request"
            ]
            self._add_requests(EntryName(tick, 0, entry, one.author) for tick, entry, one in asked)
        self.shown = Counter(
            (written[entry], reader)
            for glance in glances
            for reader, entries in glance.shown.items()
            for entry in entries
            if written.get(entry, reader) != reader
        )
        for name in silent:  # they are shown all that they may read
            self.shown.update({(author, name): n for author, n in self.wrote.items() if author != name})

    def _add_requests(self, names: Iterable[EntryName]) -> None:
        """Count whom requests among these entries are addressed to."""
        for name in names:
            entry = self._index.read(name)
            if isinstance(entry, OutboxEntry) and entry.kind == "request":
                count = self.handed if "hands_on" in entry.payload else self.asked
                count.update((name.author, target) for target in targets_in(entry, self._known))


def _reads(survey: Survey, shown: Mapping[Pair, int]) -> Iterator[Arrow]:
    for name, agent in survey.agents.items():
        readable = agent.permissions.read_outboxes
        is_wide = "*" in readable
        authors = _all_of(name, survey, shown) if is_wide else survey.agents.keys() & {*readable}
        for author in authors:
            if author != name:
                yield Arrow(author, name, "reads", shown.get((author, name), 0), is_wide)


def _all_of(reader: str, survey: Survey, shown: Mapping[Pair, int]) -> Iterable[str]:
    """Return those whom a reader of all is drawn to read."""
    if len(survey.agents) <= FEW:
        return survey.agents
    return [author for author in survey.agents if (author, reader) in shown]


def _asks(survey: Survey, traffic: _Traffic) -> Iterator[Arrow]:
    """Yield who may ask or hand on to whom, and who has."""
    for name, agent in survey.agents.items():
        if team := agent.further.get("team"):
            traffic.asked.update({(name, member.agent): 0 for member in team.members})
            traffic.handed.update({(name, other): 0 for other in team.hand_to})
    known = survey.agents.keys()
    yield from (Arrow(*pair, "asks", count) for pair, count in traffic.asked.items() if {*pair} <= known)
    yield from (Arrow(*pair, "hands", count) for pair, count in traffic.handed.items() if {*pair} <= known)


def _shown(
    nodes: dict[str, dict[str, Any]], arrows: list[Arrow], agent: str, most: int
) -> dict[str, dict[str, Any]]:
    """Return those that are drawn: an agent and its neighbours, or those with the most traffic."""
    if not agent and len(nodes) <= most:
        return nodes
    chosen = {agent: None} if agent else {}
    for arrow in arrows:  # the heaviest come first
        ends = (arrow.begin, arrow.end)
        if len(chosen) < most and (not agent or agent in ends):
            chosen |= dict.fromkeys(ends)
    return {name: nodes[name] for name in nodes if name in chosen} or dict([*nodes.items()][:most])


Spot = tuple[float, float]

SWEEPS = 6
LONGEST_COLUMN = 12


def laid_out(names: Collection[str], arrows: Mapping[Pair, float]) -> tuple[dict[str, Spot], str]:
    """Return where each name stands, and "columns" or "circle": the unit is the distance of two neighbours.

    `arrows` have weights: of two that contradict each other the heavier points to the right.

    >>> laid_out(["b", "a", "c"], {("a", "b"): 1, ("b", "c"): 1})
    ({'a': (0.0, 0.0), 'b': (1.0, 0.0), 'c': (2.0, 0.0)}, 'columns')
    """
    known = {(one, other): weight for (one, other), weight in arrows.items() if one != other}
    order = _without_cycles(sorted(names), known)
    place = {name: number for number, name in enumerate(order)}
    onward = {arrow for arrow in known if place[arrow[0]] < place[arrow[1]]}
    columns = _in_columns(order, onward)
    if len(names) > 3 and len(columns) > max(4, len(names) * 2 // 3):
        return _on_a_circle(order), "circle"
    return _spots(_sorted(columns, known)), "columns"


def _without_cycles(names: list[str], arrows: Mapping[Pair, float]) -> list[str]:
    """Return an order against which few and light arrows run: what is only read first, readers last."""
    left, right, rest = list[str](), list[str](), dict.fromkeys(names)
    out, into = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    beside: dict[str, list[tuple[str, float, bool]]] = {name: [] for name in names}
    for (one, other), weight in arrows.items():
        out[one] += weight
        into[other] += weight
        beside[one].append((other, weight, True))
        beside[other].append((one, weight, False))
    while rest:
        sink = next((name for name in rest if not out[name] and into[name]), None)
        source = next((name for name in rest if not into[name]), None)
        name = sink or source or max(rest, key=lambda each: out[each] - into[each])
        (right if name == sink else left).append(name)
        del rest[name]
        for other, weight, is_onward in beside[name]:
            (into if is_onward else out)[other] -= weight
    return left + right[::-1]


def _in_columns(order: list[str], onward: Collection[Pair]) -> list[list[str]]:
    """Return the names by the longest way that leads to them; a column that grows too long is broken."""
    before: dict[str, list[str]] = {name: [] for name in order}
    for one, other in onward:
        before[other].append(one)
    column: dict[str, int] = {}
    for name in order:
        column[name] = max((column[one] + 1 for one in before[name]), default=0)
    columns: list[list[str]] = [[] for _ in range(max(column.values(), default=-1) + 1)]
    for name in order:
        columns[column[name]].append(name)
    return [part[at : at + LONGEST_COLUMN] for part in columns for at in range(0, len(part), LONGEST_COLUMN)]


def _sorted(columns: list[list[str]], arrows: Mapping[Pair, float]) -> list[list[str]]:
    """Return the columns, each in the order of the middle of its neighbours' places."""
    beside: dict[str, set[str]] = {name: set() for column in columns for name in column}
    for one, other in arrows:
        beside[one].add(other)
        beside[other].add(one)
    height = {name: at - len(column) / 2 for column in columns for at, name in enumerate(column)}
    for sweep in range(SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            middle = {name: _middle(name, beside[name] - {*column}, height) for name in column}
            column.sort(key=lambda name: (middle[name], name))
            height.update({name: at - len(column) / 2 for at, name in enumerate(column)})
    return columns


def _middle(name: str, others: set[str], height: Mapping[str, float]) -> float:
    return sum(height[other] for other in others) / len(others) if others else height[name]


def _spots(columns: list[list[str]]) -> dict[str, Spot]:
    return {
        name: (float(x), at - (len(column) - 1) / 2)
        for x, column in enumerate(columns)
        for at, name in enumerate(column)
    }


def _on_a_circle(order: list[str]) -> dict[str, Spot]:
    radius = max(len(order) / (2 * pi) * 1.2, 1.0)
    turn = 2 * pi / len(order)
    return {
        name: (round(radius * sin(at * turn), 4), round(-radius * cos(at * turn), 4))
        for at, name in enumerate(order)
    }
