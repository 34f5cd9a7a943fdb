"""Validation of gates: references to missing tools, agents, trust labels or fields."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any, NamedTuple, get_args

from lemming.capabilities.gates.gate_format import VISIBLE_FIELDS, Gate
from lemming.capabilities.gates.gate_settings import get_gates
from lemming.ext import CheckSubject, Inventory, Problem
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS, ToolClass
from lemming.kernel.base.errors import Outcome
from lemming.kernel.base.jsontext import correct_typo, did_you_mean, dump_compact
from lemming.kernel.base.name_patterns import is_any_match, is_match
from lemming.kernel.files.canonical_path import canonical_path
from lemming.kernel.journal.turn_report import At
from lemming.kernel.messages import EVERYBODY
from lemming.kernel.plugins.capability_loader import missing_owner
from lemming.kernel.plugins.capability_table import declared_keys
from lemming.kernel.tools import Tool
from lemming.libraries.conditions.predicates import compile_condition, iter_tests
from lemming.libraries.conditions.schema_typos import find_schema_typos

Json = dict[str, Any]


_EQUALITY_OPS = {"is", "is_not"}
_MEMBERSHIP_OPS = {"in", "not_in"}
_ORDER_OPS = {"lt", "le", "gt", "ge"}


class ConditionTest(NamedTuple):
    """One test of a condition, with its location."""

    pointer: str
    field: str
    op: str
    value: Any

    @property
    def expected_values(self) -> Sequence[Any]:
        """Values for equality or membership with the field."""
        return (self.value,) if self.op in _EQUALITY_OPS else self.value if self.op in _MEMBERSHIP_OPS else ()


def _list_tests(condition: Json | None) -> list[ConditionTest]:
    """Return the tests of a gate's condition."""
    tests = iter_tests(condition or {}, "/when")
    return [ConditionTest(pointer, test["field"], test["op"], test.get("value")) for test, pointer in tests]


LITERAL = re.compile(r"\^((?:[A-Za-z0-9_ -]|/|\\?\.)+/)(?![*+?{])")
TOP_FOLDERS = ("shared", "agents")
PATH_OPS = {*_EQUALITY_OPS, *_MEMBERSHIP_OPS, "starts_with"}
ROOT_FAULT = (
    "no place begins so: those in the organisation are relative to it",
    "name its folders, such as shared/ and agents/",
)
INSTALL = "install lemming-engine again, or let it block"
CONTENT_KINDS: dict[At, tuple[str, ...]] = {"in": ("entry", "memory", "file", "result"), "out": ("entry", "memory")}
_TEXT_OPS = {"starts_with", "ends_with", "contains", "matches"}
_INVENTORY_FIELDS = {"agent", "from", "model", "provider", "target", "tool"}
_FIELD_TYPES: dict[str, tuple[set[str], tuple[type, ...]]] = {
    "true or false": ({"channel", "leaves", "own", "success"}, (bool,)),
    "a number": ({"call", "credits", "dollars", "tick", "tokens"}, (int, float, NoneType)),
    'a list: write "op": "contains"': ({"tags"}, (list,)),
}
_SCHEMA_TYPES: dict[Any, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "integer": (int, float), "number": (int, float),
}  # fmt: skip
_SCALAR_FIELDS = {
    "agent", "args_lowest", "call", "channel", "class", "credits", "dollars", "from", "id", "key", "kind",
    "label", "leaves", "model", "outcome", "output", "own", "provider", "success", "text", "tick", "tool",
    "trust", "what",
}  # fmt: skip
"""Fields that are one text, number or truth."""
_TRUST_FIELDS = {"trust", "args_trust", "args_lowest"}
_MAY_BE_NULL = {"target", "payload.target"}


def find_dead_gates(subject: CheckSubject) -> Iterator[Problem]:
    """Yield references to missing things in the gates of an agent, or of the settings."""
    for index, gate in enumerate(get_gates(subject.agent or subject.config.org)):
        for problem in _validate_gate(gate, subject.names, subject.agent):
            yield replace(problem, pointer=f"/gates/{index}{problem.pointer}")


def _validate_gate(gate: Gate, inventory: Inventory, agent: Agent | None) -> Iterator[Problem]:
    """Yield references to missing things in a gate of an agent, or of the settings if `agent` is None.

    Locations are relative to the gate. With `may_be_absent`, names of missing things are allowed.
    """
    if missing := missing_owner(declared_keys("gate.then"), gate.then):
        yield Problem(f'a gate with "then": "{gate.then}" has no effect: {missing}', pointer="/then", hint=INSTALL)
    if not gate.may_be_absent:
        yield from _unknown_tools(gate, inventory)
        yield from _unknown_names(gate, inventory)
        yield from _invalid_approvals(gate, inventory, agent)
        yield from _unknown_arguments(gate, inventory, agent)
    yield from find_schema_typos(gate.schema or {}, "/schema")
    tests = _list_tests(gate.when)
    if gate.at in ("call", "result"):
        yield from validate_paths(gate, tests, inventory, agent)
    for test in tests:
        yield from _unknown_field(test, gate, inventory)
        for expected_type, (names, types) in _FIELD_TYPES.items():
            if test.field in names:
                yield from _mistyped_values(test, types, expected_type)
        if not (gate.may_be_absent and test.field in _INVENTORY_FIELDS):
            yield from _impossible_values(test, gate, inventory, agent)


def _unknown_tools(gate: Gate, inventory: Inventory) -> Iterator[Problem]:
    for index, pattern in enumerate(gate.tool_patterns):
        at = "/tool" if isinstance(gate.tool, str) else f"/tool/{index}"
        if not (reason_and_hint := inventory.missing_tool_reason(pattern)):
            continue
        message, hint = reason_and_hint
        if any(is_match(name, pattern) for name in inventory.turn_tools):
            message = f'"{pattern}" writes an entry and is not a tool call'
            hint = 'write {"at": "out", "when": {"field": "kind", "op": "is", "value": "request"}}'
        yield Problem(message, pointer=at, hint=hint)
    if gate.tool_patterns and gate.tool_classes and not inventory.may_match_server_tools(gate.tool_patterns):
        all_tools = (inventory.tools_for_agent(None) or {}).values()
        classes = {tool.tool_class for tool in all_tools if is_any_match(tool.name, gate.tool_patterns)}
        if classes and classes.isdisjoint(gate.tool_classes):
            message = f'no tool of "tool" has a class of "class": {", ".join(sorted(classes))}'
            yield Problem(message, pointer="/class", hint="remove one of the two keys")


def _unknown_names(gate: Gate, inventory: Inventory) -> Iterator[Problem]:
    people = [name for name in inventory.agent_names if inventory.is_person(name)] if gate.persons else []
    for index, name in enumerate(gate.persons):
        if name not in people:
            hint = did_you_mean(name, people) or f"people: {', '.join(people) or 'none'}"
            yield Problem(f'there is no person "{name}"', pointer=f"/persons/{index}", hint=hint)
    models = inventory.config.models
    for index, key in enumerate(gate.models or ()):
        if key not in models:
            hint = did_you_mean(key, [*models]) or f"keys: {', '.join(sorted(models))}"
            yield Problem(f'there is no model key "{key}"', pointer=f"/models/{index}", hint=hint)
    if gate.by:
        from lemming.capabilities.judges.judges_capability import judge_error

        if reason_and_hint := judge_error(inventory, gate.by):
            yield Problem(reason_and_hint[0], pointer="/by", hint=reason_and_hint[1])


def _invalid_approvals(gate: Gate, inventory: Inventory, agent: Agent | None) -> Iterator[Problem]:
    """Yield typos in the exemptions of a gate. In a gate for all agents, an absent agent is no typo."""
    names = [agent.name] if agent else inventory.agent_names
    for name, tools in gate.approved.items():
        at, other = f"/approved/{name}", names[0] if agent else correct_typo(name, names)
        if name not in names and other:
            message = f'the gate asks about no calls of an agent "{name}"'
            yield Problem(message, pointer=at, hint=f'did you mean "{other}"?')
        for index, tool in enumerate(tools):
            if reason_and_hint := inventory.missing_tool_reason(tool):
                yield Problem(reason_and_hint[0], pointer=f"{at}/{index}", hint=reason_and_hint[1])
            elif gate.tool_patterns and not is_any_match(tool, gate.tool_patterns):
                hint = f"use one of {', '.join(gate.tool_patterns)}"
                yield Problem(f'the gate does not apply to "{tool}"', pointer=f"{at}/{index}", hint=hint)


def _unknown_arguments(gate: Gate, inventory: Inventory, agent: Agent | None) -> Iterator[Problem]:
    """Yield arguments missing from all tools of the gate, if the parameters of these tools are known."""
    tests = [test for test in _list_tests(gate.when) if test.field.startswith(("args.", "args_trust."))]
    argument_names = [(f"/args/{name}", name) for name in gate.args or ()]
    argument_names += [(f"{test.pointer}/field", test.field.partition(".")[2]) for test in tests]
    has_server_tools = inventory.survey.has_server_tools
    if not argument_names or (has_server_tools and inventory.may_match_server_tools(gate.tool_patterns or ("*",))):
        return
    tools = _concerned_tools(gate, inventory, agent)
    property_sets = [tool.parameters.get("properties") for tool in tools]
    takes_any = any(tool.parameters.get("additionalProperties") for tool in tools)
    if not tools or takes_any or not all(isinstance(item, dict) for item in property_sets):
        return
    arguments = {name: None for properties in property_sets for name in properties or ()}
    for at, name in argument_names:
        if name not in arguments and name.partition(".")[0] not in arguments:
            hint = did_you_mean(name, [*arguments]) or f"arguments: {', '.join(arguments) or 'none'}"
            yield Problem(f'no tool of this gate has an argument "{name}"', pointer=at, hint=hint)
    for test in tests:
        name = test.field.removeprefix("args.")  # the labels of arguments have no schema
        schemas = [item for properties in property_sets if (item := (properties or {}).get(name))]
        kinds = sorted({str(item.get("type")) for item in schemas if isinstance(item, dict)})
        if kinds and _SCHEMA_TYPES.keys() >= {*kinds}:
            types = tuple(item for kind in kinds for item in _SCHEMA_TYPES[kind])
            yield from _mistyped_values(test, types, " or ".join(kinds))


def _concerned_tools(gate: Gate, inventory: Inventory, agent: Agent | None) -> list[Tool]:
    tools = (inventory.tools_for_agent(agent) or {}).values()
    return [tool for tool in tools if gate.concerns_tool(tool.name, tool.tool_class)]


def _unknown_field(test: ConditionTest, gate: Gate, inventory: Inventory) -> Iterator[Problem]:
    head, _, subpath = test.field.partition(".")
    visible_fields = VISIBLE_FIELDS[gate.at]
    if head not in visible_fields:
        hint = did_you_mean(head, [*visible_fields]) or f"use one of {', '.join(sorted(visible_fields))}"
        yield Problem(f'a gate at "{gate.at}" does not see "{head}"', pointer=f"{test.pointer}/field", hint=hint)
    elif subpath and head in _SCALAR_FIELDS:
        yield Problem(f'"{head}" has no fields', pointer=f"{test.pointer}/field", hint=f'write "field": "{head}"')
    elif head in _TRUST_FIELDS and "trust" not in inventory.config.org.extensions:
        hint = 'set "trust": {} in config/org.json'
        yield Problem("the condition tests trust, and trust tracking is off", pointer=test.pointer, hint=hint)


def _impossible_values(test: ConditionTest, gate: Gate, inventory: Inventory, agent: Agent | None) -> Iterator[Problem]:
    """Yield values outside the possible values of a field."""
    possible_values = _possible_values(test, gate, inventory, agent)
    if possible_values is None:
        return
    available = f"possible values: {', '.join(sorted(possible_values)) or 'none'}"
    for value in test.expected_values:
        if value is None and test.field in _MAY_BE_NULL:
            continue
        is_server_tool = test.field == "tool" and inventory.missing_tool_reason(str(value)) is None
        if value not in possible_values and not is_server_tool:
            hint = did_you_mean(str(value), [*possible_values]) or available
            yield Problem(f'"{test.field}" is never "{value}"', pointer=f"{test.pointer}/value", hint=hint)
    if test.op in _TEXT_OPS and not (test.field == "tool" and inventory.survey.has_server_tools):
        fits = compile_condition({"field": test.field, "op": test.op, "value": test.value})
        if not any(fits({test.field: candidate}) for candidate in possible_values):
            message = f'no possible value of "{test.field}" {test.op.replace("_", " ")} "{test.value}"'
            hint = did_you_mean(str(test.value), [*possible_values]) or available
            yield Problem(message, pointer=f"{test.pointer}/value", hint=hint)


def _mistyped_values(test: ConditionTest, types: tuple[type, ...], expected_type: str) -> Iterator[Problem]:
    """Yield values of the wrong type for a field, such as a text for a number."""
    for value in (test.value,) if test.op in _ORDER_OPS else test.expected_values:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            message = f'"{test.field}" is never {dump_compact(value).decode()}'
            yield Problem(message, pointer=f"{test.pointer}/value", hint=f"use {expected_type}")


def _possible_values(
    test: ConditionTest, gate: Gate, inventory: Inventory, agent: Agent | None
) -> Collection[str] | None:
    """Return all possible values of a field, or None if unknown."""
    if test.field.startswith("args_trust."):
        test = test._replace(field="trust")
    match test.field:
        case "trust" | "args_lowest":
            trust = inventory.config.org.extensions.get("trust")
            return trust.order if trust else None
        case "agent":
            return [agent.name] if agent else inventory.agent_names
        case "from" if gate.at == "in":
            return inventory.agent_names
        case "target" | "payload.target" if gate.at == "out":
            return [*inventory.agent_names, *sorted(EVERYBODY)]
        case "model":
            return [*inventory.config.models]
        case "provider":
            return [*{entry.provider: None for entry in inventory.config.models.values()}]
        case "tool" if inventory.toolset is not None:
            return [*inventory.tool_names, *inventory.turn_tools]
        case "what":
            return CONTENT_KINDS.get(gate.at)
        case "kind":
            return MESSAGE_KINDS
        case "class":
            return get_args(ToolClass)
        case "outcome":
            return get_args(Outcome)
    return None


def validate_paths(
    gate: Gate, tests: Iterable[ConditionTest], inventory: Inventory, agent: Agent | None
) -> Iterator[Problem]:
    """Yield the paths in a gate without a matching file. `tests`: the tests of the gate's condition."""
    names = _path_arguments(gate, inventory, agent)
    for pointer, field, op, value in tests:
        head, *parts = field.split(".")
        if head != "args" or not parts or parts[0] not in names:
            continue
        if op == "matches" and isinstance(value, str) and (reason := _unmatchable_reason(value, inventory)):
            hint = (
                "start with a folder of the organisation: shared/... or agents/NAME/workspace/...; "
                'or use "op": "starts_with" with the path itself'
            )
            yield Problem(reason, pointer=f"{pointer}/value", hint=hint)
        elif op == "starts_with" and _is_organisation_root(value, inventory):
            yield Problem(ROOT_FAULT[0], pointer=f"{pointer}/value", hint=ROOT_FAULT[1])
        elif op in PATH_OPS:
            for path in value if isinstance(value, list) else [value]:
                yield from _find_mistyped_folder(path, f"{pointer}/value", inventory)
    for name, patterns in (gate.args or {}).items():
        for index, pattern in enumerate([patterns] if isinstance(patterns, str) else patterns):
            at = f"/args/{name}" if isinstance(patterns, str) else f"/args/{name}/{index}"
            if name in names and "*" in pattern and _is_organisation_root(pattern.partition("*")[0], inventory):
                yield Problem(ROOT_FAULT[0], pointer=at, hint=ROOT_FAULT[1])
            elif name in names:
                yield from _find_mistyped_folder(pattern, at, inventory)


def _find_mistyped_folder(path: Any, at: str, inventory: Inventory) -> Iterator[Problem]:
    """Yield a path if its first folder is missing and resembles a folder of the organisation."""
    if not isinstance(path, str) or "/" not in path or path.startswith("/"):
        return
    first = path.removeprefix("./").partition("/")[0]
    if not (other := correct_typo(first, (*TOP_FOLDERS, "workspace"))):
        return
    workspaces = [f"{inventory.org.base}/{paths.workspace_folder(name)}" for name in inventory.agent_names]
    if not any(os.path.lexists(f"{folder}/{first}") for folder in (inventory.org.base, *workspaces)):
        message = f'folder "{first}" does not exist, in a workspace or beside the workspaces'
        yield Problem(message, pointer=at, hint=f'did you mean "{other}"?')


def _path_arguments(gate: Gate, inventory: Inventory, agent: Agent | None) -> set[str]:
    """Return the arguments that are paths for every tool of the gate."""
    tools = _concerned_tools(gate, inventory, agent)
    return {
        name
        for name in {name for tool in tools for name in tool.place_arguments}
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
