"""Where the boxes of a map stand: in columns, what is written flowing from left to right. Pure.

Columns by the longest way (Eades, Lin and Smyth's order against cycles), within them by the middle of the
neighbours, as Sugiyama does it. Where nearly everybody reads everybody columns say nothing, so the boxes
stand on a circle. Everything is decided by weights and names: the same map looks the same everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import cos, pi, sin

Arrow = tuple[str, str]
Spot = tuple[float, float]

SWEEPS = 6
LONGEST_COLUMN = 12


def laid_out(names: Collection[str], arrows: Mapping[Arrow, float]) -> tuple[dict[str, Spot], str]:
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


def _without_cycles(names: list[str], arrows: Mapping[Arrow, float]) -> list[str]:
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


def _in_columns(order: list[str], onward: Collection[Arrow]) -> list[list[str]]:
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


def _sorted(columns: list[list[str]], arrows: Mapping[Arrow, float]) -> list[list[str]]:
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
