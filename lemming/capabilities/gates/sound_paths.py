"""Paths in gates by which no place is ever named: such a gate would let everything through, or nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lemming.capabilities.gates.format import Gate
from lemming.kernel.agents import Agent
from lemming.kernel.files.real_place import opened_place
from lemming.kernel.tick.soundness.inventory import Fault, Inventory

_LITERAL = re.compile(r"\^((?:[A-Za-z0-9_ -]|/|\\?\.)+/)(?![*+?{])")
_TOPS = ("shared", "agents")
_SAME = {"is", "is_not"}
_AMONG = {"in", "not_in"}


class Test(NamedTuple):
    """One test of a condition, and where it stands."""

    pointer: str
    field: str
    op: str
    value: Any

    @property
    def values(self) -> Sequence[Any]:
        """The values that it holds the field against, one of which it must be."""
        return (self.value,) if self.op in _SAME else self.value if self.op in _AMONG else ()


def wrong_with_paths(
    gate: Gate, tests: Iterable[Test], known: Inventory, agent: Agent | None
) -> Iterator[Fault]:
    """Yield the paths of a gate that name no place; `tests` are those of its condition."""
    names = _places_of(gate, known, agent)
    for pointer, field, op, value in tests:
        head, *below = field.split(".")
        if head != "args" or not below or below[0] not in names:
            continue
        if op == "matches" and isinstance(value, str) and (why := _why_never(value, known)):
            hint = "a place begins in the organisation, as shared/... and agents/NAME/workspace/... do"
            yield Fault(f"{pointer}/value", why, f'{hint}; or "op": "starts_with" with the path itself')
        elif op == "starts_with" and _is_the_whole(value, known):
            yield Fault(f"{pointer}/value", *_WHOLE)
    for name, patterns in gate.args.items():
        for index, pattern in enumerate([patterns] if isinstance(patterns, str) else patterns):
            if name in names and "*" in pattern and _is_the_whole(pattern.partition("*")[0], known):
                at = f"/args/{name}" if isinstance(patterns, str) else f"/args/{name}/{index}"
                yield Fault(at, *_WHOLE)


_WHOLE = (
    "no place begins so: those in the organisation are relative to it",
    "name its folders, such as shared/ and agents/",
)


def _places_of(gate: Gate, known: Inventory, agent: Agent | None) -> set[str]:
    """Return the arguments that name places for each tool that the gate concerns."""
    tools = [
        tool
        for tool in (known.tools_of(agent) or {}).values()
        if gate.concerns_tool(tool.name, tool.tool_class)
    ]
    named = {name for tool in tools for name in tool.place_arguments}
    return {
        name
        for name in named
        if all(
            name in tool.place_arguments for tool in tools if name in tool.parameters.get("properties", {})
        )
    }


def _why_never(pattern: str, known: Inventory) -> str:
    """Return why an expression finds no place, as far as its beginning tells."""
    found = _LITERAL.match(pattern)
    if found is None or "|" in pattern:
        return ""
    begins = found[1].replace("\\.", ".")
    first, *below = begins.split("/")[:-1]
    if not first:
        is_inside = not opened_place(known.org.base, begins).startswith("/")
        return f"no place begins with {begins}: it lies in the organisation" if is_inside else ""
    is_place = first in _TOPS or os.path.lexists(f"{known.org.base}/{first}")
    if is_place and not {first, *below} & {"", ".", ".."}:
        return ""
    return f"no place begins with {begins}"


def _is_the_whole(path: Any, known: Inventory) -> bool:
    """Return whether a path is that of the organisation itself."""
    if not isinstance(path, str) or not path.startswith("/"):
        return False
    return os.path.realpath(path) == os.path.realpath(known.org.base)
