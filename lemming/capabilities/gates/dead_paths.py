"""Paths in the conditions of gates that no argument of a tool can match."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from lemming.capabilities.gates.condition_tests import LITERAL, PATH_OPS, ROOT_FAULT, TOP_FOLDERS, ConditionTest
from lemming.capabilities.gates.gate_format import Gate
from lemming.ext import Inventory, PointerProblem
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import correct_typo
from lemming.kernel.files.canonical_path import canonical_path


def validate_paths(
    gate: Gate, tests: Iterable[ConditionTest], inventory: Inventory, agent: Agent | None
) -> Iterator[PointerProblem]:
    """Yield the paths in a gate without a matching file. `tests`: the tests of the gate's condition."""
    names = _path_arguments(gate, inventory, agent)
    for pointer, field, op, value in tests:
        head, *parts = field.split(".")
        if head != "args" or not parts or parts[0] not in names:
            continue
        if op == "matches" and isinstance(value, str) and (reason := _unmatchable_reason(value, inventory)):
            hint = "start with a folder of the organisation: shared/... or agents/NAME/workspace/..."
            yield PointerProblem(f"{pointer}/value", reason, f'{hint}; or use "op": "starts_with" with the path itself')
        elif op == "starts_with" and _is_organisation_root(value, inventory):
            yield PointerProblem(f"{pointer}/value", *ROOT_FAULT)
        elif op in PATH_OPS:
            for path in value if isinstance(value, list) else [value]:
                yield from _find_mistyped_folder(path, f"{pointer}/value", inventory)
    for name, patterns in (gate.args or {}).items():
        for index, pattern in enumerate([patterns] if isinstance(patterns, str) else patterns):
            at = f"/args/{name}" if isinstance(patterns, str) else f"/args/{name}/{index}"
            if name in names and "*" in pattern and _is_organisation_root(pattern.partition("*")[0], inventory):
                yield PointerProblem(at, *ROOT_FAULT)
            elif name in names:
                yield from _find_mistyped_folder(pattern, at, inventory)


def _find_mistyped_folder(path: Any, at: str, inventory: Inventory) -> Iterator[PointerProblem]:
    """Yield a path if its first folder is missing and resembles a folder of the organisation."""
    if not isinstance(path, str) or "/" not in path or path.startswith("/"):
        return
    first = path.removeprefix("./").partition("/")[0]
    if not (other := correct_typo(first, (*TOP_FOLDERS, "workspace"))):
        return
    workspaces = [f"{inventory.org.base}/{paths.workspace_folder(name)}" for name in inventory.agent_names]
    if not any(os.path.lexists(f"{folder}/{first}") for folder in (inventory.org.base, *workspaces)):
        yield PointerProblem(
            at, f'folder "{first}" does not exist, in a workspace or beside the workspaces', f'did you mean "{other}"?'
        )


def _path_arguments(gate: Gate, inventory: Inventory, agent: Agent | None) -> set[str]:
    """Return the arguments that are paths for every tool of the gate."""
    tools = [
        tool
        for tool in (inventory.tools_for_agent(agent) or {}).values()
        if gate.concerns_tool(tool.name, tool.tool_class)
    ]
    argument_names = {name for tool in tools for name in tool.place_arguments}
    return {
        name
        for name in argument_names
        if all(name in tool.place_arguments for tool in tools if name in tool.parameters.get("properties", {}))
    }


def _unmatchable_reason(pattern: str, inventory: Inventory) -> str:
    """Return the reason an expression matches no path, judged by its literal prefix, or the empty string."""
    match = LITERAL.match(pattern)
    if match is None or "|" in pattern:
        return ""
    prefix = match[1].replace("\\.", ".")
    first, *parts = prefix.split("/")[:-1]
    if not first:
        is_inside = not canonical_path(inventory.org.base, prefix).startswith("/")
        return f"no place begins with {prefix}: it lies in the organisation" if is_inside else ""
    is_folder = first in TOP_FOLDERS or os.path.lexists(f"{inventory.org.base}/{first}")
    if is_folder and not {first, *parts} & {"", ".", ".."}:
        return ""
    return f"no place begins with {prefix}"


def _is_organisation_root(path: Any, inventory: Inventory) -> bool:
    """Return True if a path is the root of the organisation."""
    if not isinstance(path, str) or not path.startswith("/"):
        return False
    return os.path.realpath(path) == os.path.realpath(inventory.org.base)
