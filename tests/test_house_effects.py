"""The kernel's hooks stay few, capabilities change no turn behind its back, and a plain turn pays for no effect."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from package import PACKAGE, TREES, imports, nodes

from lemming.engine import run_once
from lemming.kernel.plugins import shipped_capabilities
from lemming.kernel.plugins.capability_loader import sort_capabilities
from lemming.kernel.plugins.capability_spec import CapabilitySpec
from lemming.kernel.plugins.capability_table import DECISION_RULES, LISTED, REQUEST_RULES
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.turn.effect_chain import NO_CHAIN, EffectChain
from lemming.kernel.turn.turn_effects import Effect
from lemming.kernel.turn.turn_hooks import Capability
from lemming.kernel.turn.turn_state import TurnState
from lemming.testing import FrozenClock, make_org, resume, say

MOST_HOOKS = 7
MOST_COLUMNS = 8
CAPABILITIES = [name for name in TREES if name.startswith("capabilities/")]
STATE = "lemming.kernel.turn.turn_state"
VIEWS = {"TurnView", "Preparation"}
MUTATORS = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault",
    "sort", "update",
}  # fmt: skip
GONE = {
    "TurnPart", "TurnInterceptor", "TickPart", "TickInterceptor", "ContextProvider", "CallGuard", "ToolCallGuard",
    "ApprovalBroker", "TaintTracker", "TickLimits", "Draft",
}  # fmt: skip
"""Classes of hooks before there were effects."""


OWN_PARTS = {"strategy_turn"}
"""Parts of a turn that belong to the capability which runs it: the conversation of a strategy."""


def root_of(node: ast.expr) -> tuple[str, int]:
    """Return the text of what a chain of attributes and items begins with, and how many attributes follow.

    `self` and the first attribute are one: `self._turn.entries` begins with `_turn`.
    """
    names: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return "", 0
    if node.id == "self" and names:
        return names[-1], len(names) - 1
    return node.id, len(names)


def views_of(tree: ast.Module) -> set[str]:
    """Return the names under which a module has turns: annotated as a view, or called a turn."""
    typed = {
        node.arg if isinstance(node, ast.arg) else root_of(node.target)[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation and VIEWS & names_in(node.annotation)
    }
    views = {"turn", "_turn", "view", "_view", *typed}
    parts = {
        node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Attribute)
        and root_of(node.value)[0] in views
    }
    return views | (parts - OWN_PARTS)


def names_in(annotation: ast.expr) -> set[str]:
    return {*re.findall(r"\w+", ast.unparse(annotation))}


def changes_of_turns(tree: ast.Module) -> Iterator[str]:
    """Yield the places where a module changes a turn that it was given: attributes, items, and what they hold."""
    views = views_of(tree)
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        match node:
            case ast.Assign():
                targets = node.targets
            case ast.AugAssign() | ast.AnnAssign():
                targets = [node.target]
            case ast.Delete():
                targets = node.targets
            case ast.Call(func=ast.Attribute(attr=verb, value=held)) if verb in MUTATORS:
                name, depth = root_of(held)
                if name in views and depth:
                    yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.Attribute(attr="_state") if root_of(node)[0] in views:
                yield f"{node.lineno}: {ast.unparse(node)}"
        for target in targets:
            for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                name, depth = root_of(part)
                is_part = isinstance(part, ast.Subscript) or depth
                if name in views and is_part:
                    yield f"{node.lineno}: {ast.unparse(part)} = ..."


@pytest.mark.parametrize(
    "line",
    [
        "turn.entries = []",
        "turn.count += 1",
        "turn.entries[0] = 1",
        "del turn.entries[0]",
        "turn.entries.append(1)",
        "turn.inputs.state.kept.update(a=1)",
        "turn._state.fail()",
        "self._turn.report_fields['a'] = 1",
        "a, turn.b = 1, 2",
        "def f(subject: TurnView | None) -> None: subject.x = 1",
        "class A:\n    def f(self): self.turn.entries.clear()",
        "entries = turn.inputs.entries\nentries[0] = 1",
    ],
)
def test_a_change_of_a_turn_is_found(line: str) -> None:
    assert len([*changes_of_turns(ast.parse(line))]) == 1


@pytest.mark.parametrize("line", ["self._turn = turn", "turn = next(turns)", "turns.append(turn)", "turn.remark('x')"])
def test_what_changes_no_turn_is_not_found(line: str) -> None:
    assert [*changes_of_turns(ast.parse(line))] == []


def test_no_capability_changes_a_turn_but_by_effects_and_the_verbs_of_its_view() -> None:
    assert [f"{name}:{place}" for name in CAPABILITIES for place in changes_of_turns(TREES[name])] == []


OWNERS = {f"kernel/turn/{name}.py" for name in ("turn_state", "turn_state_values", "turn_writes", "turn_view")}
"""The state of a turn, and the verbs by which capabilities add to its records."""
MOST_FIELDS = 33


def changes_of_states(tree: ast.Module) -> Iterator[str]:
    """Yield the places where a module changes the state of a turn, which is called `turn_state` or `_state`."""
    text = ast.unparse(tree).replace("turn_state.", "turn.").replace("self._state.", "turn.")
    text = re.sub(r"\bstate = self\._state\b", "state: TurnView = turn", text)
    return changes_of_turns(ast.parse(text))


def test_no_other_module_of_the_kernel_assigns_to_the_state_of_a_turn() -> None:
    states = {STATE, f"{STATE}_values"}
    modules = [name for name in TREES if states & (imports(name) | imports(name, types_only=True))]
    modules = [name for name in modules if name.startswith("kernel/") and name not in OWNERS]
    assert len(modules) > 5
    assert [f"{name}:{place}" for name in modules for place in changes_of_states(TREES[name])] == []
    assert [*changes_of_states(ast.parse("turn_state.entries = []\nself._state.remarks.append('x')"))] != []
    assert len(fields(TurnState)) <= MOST_FIELDS


def test_no_capability_knows_the_state_of_a_turn() -> None:
    assert [name for name in CAPABILITIES if STATE in imports(name) | imports(name, types_only=True)] == []
    assert [name for name in CAPABILITIES if "TurnState" in {getattr(node, "id", "") for node in nodes(name)}] == []


NAMES_THEM = {"kernel/plugins/shipped_capabilities.py", "kernel/plugins/capability_table.py", "kernel/base/paths.py"}
"""The table of capabilities, and the names of files and folders."""


def names_of_capabilities(name: str) -> Iterator[str]:
    """Yield the places where a module has a name of a capability: as a constant, from the table, or to look it up."""
    constants = {key for key, value in vars(shipped_capabilities).items() if isinstance(value, str) and value in LISTED}
    for node in nodes(name):
        match node:
            case ast.Assign(value=ast.Constant(value=str(text)), targets=[ast.Name()]) if text in LISTED:
                yield f"{name}:{node.lineno}"
            case ast.ImportFrom() if constants & {alias.name for alias in node.names}:
                yield f"{name}:{node.lineno}"
            case ast.Call(func=ast.Name(id="get_capability"), args=[ast.Constant(), *_]):
                yield f"{name}:{node.lineno}"


def test_the_kernel_knows_no_capability_by_its_name() -> None:
    kernel = [name for name in TREES if name.startswith("kernel/") and name not in NAMES_THEM]
    assert [place for name in kernel for place in names_of_capabilities(name)] == []
    assert len([*names_of_capabilities("kernel/plugins/shipped_capabilities.py")]) > 0
    assert {*sort_capabilities([REQUEST_RULES, DECISION_RULES])} == {"requests", "approvals"}


def test_the_classes_of_hooks_that_were_replaced_are_gone() -> None:
    classes = {node.name: name for name in TREES for node in nodes(name) if isinstance(node, ast.ClassDef)}
    assert "Capability" in classes
    assert {kind: classes[kind] for kind in GONE & classes.keys()} == {}


def test_hooks_and_columns_of_the_table_stay_few() -> None:
    hooks = [name for name, value in vars(Capability).items() if inspect.isfunction(value) and not name.startswith("_")]
    assert "intercept" in hooks
    assert len(hooks) <= MOST_HOOKS, hooks
    assert len(CapabilitySpec._fields) <= MOST_COLUMNS


# --- a plain turn -----------------------------------------------------------------------------------


def constructions(base: Path) -> Counter[str]:
    """Return how many effects and chains a tick of an organisation makes, by class."""
    made: Counter[str] = Counter()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "__init__":
            made_object = frame.f_locals.get("self")
            if isinstance(made_object, (Effect, EffectChain)):
                made[type(made_object).__name__] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        (report,) = run_once(base, clock=FrozenClock()).turns
    finally:
        sys.setprofile(before)
    assert (report.status, report.calls) == ("done", 2)
    return made


WATCHES = """
from lemming.ext import CallTool, Capability, WriteEntry, register_capability

@register_capability
class Watching(Capability):
    name, handles = "watching", (CallTool, WriteEntry)

    def prepare(self, turn):
        return {"is": "here"}

    def intercept(self, effect, turn):
        return None
"""


def org_of(base: Path, **org: Any) -> Path:
    """Return an organisation of an agent that calls a tool, writes an entry and a memory, and answers again."""
    calls = [{"tool": "file_write", "args": {"path": "a.txt", "content": "x"}}]
    first = say("hello", tool_calls=calls, memory_updates=[{"key": "k", "value": 1}], notes="n")
    may = {"tools": ["file_write"], "read_outboxes": ["*"]}
    script = [{"step": 0, "reply": first}, {"reply": say("done")}]
    return make_org(
        base, resume("ada", permissions=may, turn={"max_steps": 3}), script=script, org={"executor": "serial", **org}
    )


def test_a_plain_turn_makes_no_effect_and_no_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Effect not in NO_CHAIN.handled, "the one chain of all plain turns is made as its module is loaded"
    assert constructions(org_of(tmp_path / "plain")) == {}
    (tmp_path / "code").mkdir()
    (tmp_path / "code/watching_plugin.py").write_text(WATCHES)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    try:
        watched = constructions(
            org_of(tmp_path / "watched", plugins=["watching_plugin"], capabilities={"watching": {}})
        )
    finally:
        unregister("capability", "watching")
    # The types that a capability handles, and no others but those that a turn with any chain makes.
    # The effect, and a copy each for the plugin, the world and the outcome.
    assert watched["CallTool"] == 4
    assert watched["WriteEntry"] == 8
    assert watched["TurnChain"] >= 1


def test_the_rules_are_about_what_is_there() -> None:
    assert len(CAPABILITIES) > 100
    assert (PACKAGE / "kernel/turn/turn_state.py").exists()
    assert sum("turn" in views_of(TREES[name]) for name in CAPABILITIES) == len(CAPABILITIES)
    typed = [name for name in CAPABILITIES if VIEWS & {getattr(node, "id", "") for node in nodes(name)}]
    assert len(typed) > 10, "views are found by their types"
