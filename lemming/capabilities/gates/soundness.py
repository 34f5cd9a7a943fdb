"""Gates that can concern nothing: about tools, agents, words or fields that are not there."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from types import NoneType
from typing import Any, NamedTuple, get_args

from lemming.capabilities.conditions.slips import slips_in
from lemming.capabilities.conditions.when import predicate
from lemming.capabilities.gates.format import SEEN, Gate
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Outcome
from lemming.kernel.base.jsontext import compact, meant, nearest
from lemming.kernel.base.kinds import MESSAGE_KINDS, ToolClass
from lemming.kernel.base.patterns import is_among, is_named
from lemming.kernel.files.real_place import opened_place
from lemming.kernel.journal.verdicts import At
from lemming.kernel.messages import EVERYBODY
from lemming.kernel.plugins.capabilities import missing_for_gate
from lemming.kernel.tick.soundness.inventory import Fault, Inventory

Json = dict[str, Any]
INSTALL = "install lemming-engine again, or let it block"

WHAT: dict[At, tuple[str, ...]] = {
    "in": ("entry", "memory", "file", "result"),
    "out": ("entry", "memory"),
}
_OF_TEXTS = {"starts_with", "ends_with", "contains", "matches"}
_OF_WHAT_IS_THERE = {"agent", "from", "model", "provider", "target", "tool"}
_KINDS: dict[str, tuple[set[str], tuple[type, ...]]] = {
    "true or false": ({"channel", "leaves", "own", "success"}, (bool,)),
    "a number": ({"call", "credits", "dollars", "tick", "tokens"}, (int, float, NoneType)),
    'a list: write "op": "contains"': ({"tags"}, (list,)),
}
_OF_SCHEMAS: dict[Any, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "integer": (int, float), "number": (int, float),
}  # fmt: skip
_NOTHING_BELOW = {
    "agent", "args_lowest", "call", "channel", "class", "credits", "dollars", "from", "id", "key", "kind",
    "label", "leaves", "model", "outcome", "output", "own", "provider", "success", "text", "tick", "tool",
    "trust", "what",
}  # fmt: skip
"""Fields that are one text, number or truth."""
_OF_TRUST = {"trust", "args_trust", "args_lowest"}
_MAY_BE_NULL = {"target", "payload.target"}
_SAME = {"is", "is_not"}
_AMONG = {"in", "not_in"}
_ORDERS = {"lt", "le", "gt", "ge"}


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

    @property
    def compared(self) -> Sequence[Any]:
        """The values that it compares the field with: those, and what a number is more or less than."""
        return (self.value,) if self.op in _ORDERS else self.values


def wrong_with(gate: Gate, known: Inventory, agent: Agent | None) -> Iterator[Fault]:
    """Yield what can never be in a gate of an agent's resume (None: of all agents); places are below it.

    Where it says that what it is about may be absent, names of what is not there are no mistakes.
    """
    if missing := missing_for_gate(gate.then):
        yield Fault("/then", f'nobody here answers a gate that says "{gate.then}": {missing}', INSTALL)
    if not gate.may_be_absent:
        yield from _unknown_tools(gate, known)
        yield from _unknown_classes(gate, known)
        yield from _unknown_names(gate, known)
        yield from _unsound_approvals(gate, known, agent)
        yield from _unknown_arguments(gate, known, agent)
    yield from slips_in(gate.schema or {}, "/schema")
    tests = [*tests_in(gate.when, "/when")] if gate.when else []
    if gate.at in ("call", "result"):
        yield from _wrong_with_paths(gate, tests, known, agent)
    for test in tests:
        yield from _unsound_field(test, gate, known)
        for what, (names, types) in _KINDS.items():
            if test.field in names:
                yield from _of_other_kinds(test, types, what)
        if not (gate.may_be_absent and test.field in _OF_WHAT_IS_THERE):
            yield from _impossible_values(test, gate, known, agent)


def _unknown_tools(gate: Gate, known: Inventory) -> Iterator[Fault]:
    for index, pattern in enumerate(gate.tools):
        at = "/tool" if isinstance(gate.tool, str) else f"/tool/{index}"
        if not (why := known.why_no_tool(pattern)):
            continue
        if any(is_named(name, pattern) for name in known.turn_tools):
            hint = 'use {"at": "out", "when": {"field": "kind", "op": "is", "value": "request"}}'
            yield Fault(at, f'"{pattern}" asks the team, or hands on: that is an entry, and no call', hint)
        else:
            yield Fault(at, *why)


def _unknown_classes(gate: Gate, known: Inventory) -> Iterator[Fault]:
    if not gate.tools or not gate.classes or known.may_have_more_tools(gate.tools):
        return
    tools = [tool for tool in (known.tools_of(None) or {}).values() if is_among(tool.name, gate.tools)]
    if tools and not any(tool.tool_class in gate.classes for tool in tools):
        classes = ", ".join(sorted({tool.tool_class for tool in tools}))
        message = f"no tool that it names is of this class: {classes}"
        yield Fault("/class", message, "take one of the two keys out")


def _unknown_names(gate: Gate, known: Inventory) -> Iterator[Fault]:
    for index, name in enumerate(gate.persons):
        people = [each for each in known.names if known.is_person(each)]
        if name not in people:
            hint = nearest(name, people) or f"persons here: {', '.join(people) or 'none'}"
            yield Fault(f"/persons/{index}", f'there is no person "{name}"', hint)
    for index, key in enumerate(gate.models or ()):
        if key not in known.config.models:
            hint = nearest(key, [*known.config.models]) or f"keys: {', '.join(sorted(known.config.models))}"
            yield Fault(f"/models/{index}", f'there is no model key "{key}"', hint)
    if gate.by:
        from lemming.capabilities.judges.problems import why_no_judge

        if why := why_no_judge(known, gate.by):
            yield Fault("/by", *why)


def _unsound_approvals(gate: Gate, known: Inventory, agent: Agent | None) -> Iterator[Fault]:
    """Yield the slips in what a gate need not ask about. Of all agents, one that has left is no slip."""
    names = [agent.name] if agent else known.names
    for name, tools in gate.approved.items():
        at, other = f"/approved/{name}", names[0] if agent else meant(name, names)
        if name not in names and other:
            yield Fault(at, f'"{name}" is no agent whose calls it asks about', f'did you mean "{other}"?')
        for index, tool in enumerate(tools):
            if why := known.why_no_tool(tool):
                yield Fault(f"{at}/{index}", *why)
            elif gate.tools and not is_among(tool, gate.tools):
                hint = f"it concerns {', '.join(gate.tools)}"
                yield Fault(f"{at}/{index}", f'it does not concern "{tool}"', hint)


def _unknown_arguments(gate: Gate, known: Inventory, agent: Agent | None) -> Iterator[Fault]:
    """Yield the arguments that no tool has which a gate concerns, where all of these are known."""
    named = [(f"/args/{name}", name) for name in gate.args or ()]
    every = [*tests_in(gate.when or {}, "/when")]
    tests = [it for it in every if it.field.startswith("args.")]
    named += [
        (f"{it.pointer}/field", it.field.partition(".")[2])
        for it in every
        if it.field.startswith(("args.", "args_trust."))
    ]
    if not named or (known.survey.names_servers and known.may_have_more_tools(gate.tools or ("*",))):
        return
    tools = [
        tool
        for tool in (known.tools_of(agent) or {}).values()
        if gate.concerns_tool(tool.name, tool.tool_class)
    ]
    taken = [tool.parameters.get("properties") for tool in tools]
    takes_any = any(tool.parameters.get("additionalProperties") for tool in tools)
    if not tools or takes_any or not all(isinstance(it, dict) for it in taken):
        return
    arguments = {name: None for properties in taken for name in properties or ()}
    for at, name in named:
        if name not in arguments and name.partition(".")[0] not in arguments:
            hint = nearest(name, [*arguments]) or f"arguments: {', '.join(arguments) or 'none'}"
            yield Fault(at, f'no tool that it concerns has an argument "{name}"', hint)
    for test in tests:
        said = [
            it for properties in taken if (it := (properties or {}).get(test.field.removeprefix("args.")))
        ]
        kinds = sorted({str(it.get("type")) for it in said if isinstance(it, dict)})
        if kinds and _OF_SCHEMAS.keys() >= {*kinds}:
            types = tuple(it for kind in kinds for it in _OF_SCHEMAS[kind])
            yield from _of_other_kinds(test, types, " or ".join(kinds))


def _unsound_field(test: Test, gate: Gate, known: Inventory) -> Iterator[Fault]:
    head, _, below = test.field.partition(".")
    seen = SEEN[gate.at]
    if head not in seen:
        hint = nearest(head, [*seen]) or f"it sees {', '.join(sorted(seen))}"
        yield Fault(f"{test.pointer}/field", f'a gate at "{gate.at}" does not see "{head}"', hint)
    elif below and head in _NOTHING_BELOW:
        yield Fault(f"{test.pointer}/field", f'nothing stands below "{head}"', f'"field": "{head}"')
    elif head in _OF_TRUST and "trust" not in known.config.org.further:
        hint = '"trust": {} in config/org.json has the engine track it'
        yield Fault(test.pointer, "it looks at trust, which nobody tracks", hint)


def _impossible_values(test: Test, gate: Gate, known: Inventory, agent: Agent | None) -> Iterator[Fault]:
    """Yield the values that a field never has."""
    wanted = _values_of(test, gate, known, agent)
    if wanted is None:
        return
    there = f"there is {', '.join(sorted(wanted)) or 'none'}"
    for value in test.values:
        if value is None and test.field in _MAY_BE_NULL:
            continue
        if value not in wanted and not (test.field == "tool" and known.why_no_tool(str(value)) is None):
            hint = nearest(str(value), [*wanted]) or there
            yield Fault(f"{test.pointer}/value", f'"{test.field}" is never "{value}"', hint)
    if test.op in _OF_TEXTS and not (test.field == "tool" and known.survey.names_servers):
        fits = predicate({"field": test.field, "op": test.op, "value": test.value})
        if not any(fits({test.field: each}) for each in wanted):
            message = f'nothing that "{test.field}" can be {test.op.replace("_", " ")} "{test.value}"'
            yield Fault(f"{test.pointer}/value", message, nearest(str(test.value), [*wanted]) or there)


def _of_other_kinds(test: Test, types: tuple[type, ...], what: str) -> Iterator[Fault]:
    """Yield the values that are none of what a field is: a text where it is a number."""
    for value in test.compared:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            shown = compact(value).decode()
            yield Fault(f"{test.pointer}/value", f'"{test.field}" is never {shown}', f"it is {what}")


def _values_of(test: Test, gate: Gate, known: Inventory, agent: Agent | None) -> Collection[str] | None:
    """Return all that a field can be; None where that is not known."""
    if test.field.startswith("args_trust."):
        test = test._replace(field="trust")
    match test.field:
        case "trust" | "args_lowest":
            trust = known.config.org.further.get("trust")
            return trust.order if trust else None
        case "agent":
            return [agent.name] if agent else known.names
        case "from" if gate.at == "in":
            return known.names
        case "target" | "payload.target" if gate.at == "out":
            return [*known.names, *sorted(EVERYBODY)]
        case "model":
            return [*known.config.models]
        case "provider":
            return [*{entry.provider: None for entry in known.config.models.values()}]
        case "tool" if known.toolset is not None:
            return [*known.tool_names, *known.turn_tools]
        case "what":
            return WHAT.get(gate.at)
        case "kind":
            return MESSAGE_KINDS
        case "class":
            return get_args(ToolClass)
        case "outcome":
            return get_args(Outcome)
    return None


def tests_in(condition: Json, pointer: str) -> Iterator[Test]:
    """Yield the tests of a sound condition."""
    for word in ("all", "any"):
        for index, each in enumerate(condition.get(word, ())):
            yield from tests_in(each, f"{pointer}/{word}/{index}")
    if "not" in condition:
        yield from tests_in(condition["not"], f"{pointer}/not")
    if "field" in condition:
        yield Test(pointer, condition["field"], condition["op"], condition.get("value"))


# --- paths by which no place is ever named: such a gate would let everything through, or nothing -----

_LITERAL = re.compile(r"\^((?:[A-Za-z0-9_ -]|/|\\?\.)+/)(?![*+?{])")
_TOPS = ("shared", "agents")
_OF_PLACES = {*_SAME, *_AMONG, "starts_with"}
_WHOLE = (
    "no place begins so: those in the organisation are relative to it",
    "name its folders, such as shared/ and agents/",
)


def _wrong_with_paths(
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
        elif op in _OF_PLACES:
            for path in value if isinstance(value, list) else [value]:
                yield from _find_mistyped_folder(path, f"{pointer}/value", known)
    for name, patterns in (gate.args or {}).items():
        for index, pattern in enumerate([patterns] if isinstance(patterns, str) else patterns):
            at = f"/args/{name}" if isinstance(patterns, str) else f"/args/{name}/{index}"
            if name in names and "*" in pattern and _is_the_whole(pattern.partition("*")[0], known):
                yield Fault(at, *_WHOLE)
            elif name in names:
                yield from _find_mistyped_folder(pattern, at, known)


def _find_mistyped_folder(path: Any, at: str, known: Inventory) -> Iterator[Fault]:
    """Yield a path whose first folder is one of the organisation's with a slip, and is in no workspace."""
    if not isinstance(path, str) or "/" not in path or path.startswith("/"):
        return
    first = path.removeprefix("./").partition("/")[0]
    if not (other := meant(first, (*_TOPS, "workspace"))):
        return
    workspaces = [f"{known.org.base}/{paths.workspace_folder(name)}" for name in known.names]
    if not any(os.path.lexists(f"{folder}/{first}") for folder in (known.org.base, *workspaces)):
        yield Fault(
            at, f'there is no folder "{first}", in a workspace or beside them', f'did you mean "{other}"?'
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
