"""The edge of a tool call: who may call what, with which arguments, and what becomes of a failure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field
from tool_desk import CustomTool, Desk

from lemming.kernel.base.errors import RecoverableError
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import SHIPPED, Tool, ToolRegistry, ToolResult, get_toolset
from lemming.kernel.tools.tool_call import call_tool
from lemming.kernel.tools.toolset import FOR_EVERYBODY


class Probe(Tool):
    """A tool whose behaviour is in its argument."""

    name = "probe"
    description = "For tests."
    seen: ClassVar[list[Any]] = []

    def execute(self, agent_name: str, base_path: Path, do: Any = None) -> ToolResult:
        """Do what the argument says."""
        self.seen.append(do)
        if do == "exit":
            sys.exit(3)
        if do == "crash":
            raise KeyError("pocket")
        if do == "recover":
            raise RecoverableError("Give a date, as in 2026-12-01.")
        if do == "crash oddly":
            raise ValueError("\ud800" + "x" * 100_000)
        if do == "long":
            return ToolResult(True, "é" * 40_000)
        if do == "surrogate":
            return ToolResult(True, "a\ud800b")
        other: dict[Any, Any] = {"none": None, "number": ToolResult(True, 5)}  # type: ignore[arg-type]
        return other[do]  # type: ignore[no-any-return]


class Dated(Tool):
    """A tool that names its arguments, some of them of types that JSON does not have."""

    name = "dated"
    description = "For tests."

    def execute(
        self,
        agent_name: str,
        base_path: Path,
        when: date,
        json: Annotated[int, Field(ge=1, description="How many.")] = 1,
    ) -> ToolResult:
        """Return the types that arrived."""
        return ToolResult(True, f"{agent_name} {type(when).__name__} {json}")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Register the tools of this file while a test runs."""
    for tool in (CustomTool(), Probe(), Dated()):
        ToolRegistry.register(tool)
    yield
    for name in ("custom_tool", "probe", "dated"):
        ToolRegistry.unregister(name)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a desk whose agent may call the tools of this file."""
    return Desk(tmp_path, tools=["custom_tool", "probe", "dated", "file_read"])


def test_the_custom_tool_of_the_guide_works_as_printed(desk: Desk) -> None:
    assert desk.call("custom_tool", anything="goes") == ToolResult(True, "Success")


def test_a_tool_with_open_arguments_takes_any(desk: Desk) -> None:
    assert ToolRegistry.get("custom_tool").parameters == {"type": "object", "additionalProperties": True}


def test_the_result_of_the_guide_is_positional() -> None:
    assert (ToolResult(True, "Success").success, ToolResult(True, "Success").output) == (True, "Success")


def test_named_arguments_arrive_as_the_types_of_the_signature(desk: Desk) -> None:
    assert desk.call("dated", when="2026-01-01").output == "alpha date 1"


def test_the_schema_of_named_arguments_is_plain_enough_for_a_prompt() -> None:
    assert ToolRegistry.get("dated").parameters == {
        "type": "object",
        "properties": {
            "when": {"type": "string", "format": "date"},
            "json": {"type": "integer", "minimum": 1, "description": "How many.", "default": 1},
        },
        "required": ["when"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_tool_describes_itself_and_its_arguments(name: str) -> None:
    tool = ToolRegistry.get(name)
    assert tool.name == name
    assert tool.description.endswith(".")
    for argument in tool.parameters.get("properties", {}).values():
        assert argument["description"].endswith(".")
        assert "title" not in argument


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, '"path" is required'),
        ({"path": 7}, '"path": input should be a valid string'),
        ({"path": ["a"]}, '"path": input should be a valid string'),
        ({"path": None}, '"path": input should be a valid string'),
        ({"path": "a", "mode": "r"}, 'unknown argument "mode"'),
        ({"path": "a", "base_path": "/"}, 'unknown argument "base_path"'),
        ({"path": "a", "context": {}}, '"context" is filled in by the engine'),
    ],
)
def test_a_wrong_argument_is_named_and_the_right_ones_are_shown(
    desk: Desk, arguments: dict[str, Any], why: str
) -> None:
    refusal = desk.refusal("file_read", **arguments)
    assert refusal.startswith(f"file_read: {why}")
    assert '"required":["path"]' in refusal


@pytest.mark.parametrize("name", ["agent_name", "base_path", "self"])
def test_a_call_cannot_set_what_the_engine_fills_in(desk: Desk, name: str) -> None:
    result = call_tool("custom_tool", {name: "/"}, desk.context())
    assert not result.success
    assert result.output.startswith(f'custom_tool: "{name}" is filled in by the engine')


@pytest.mark.parametrize("arguments", ["path=a", ["a"], None, 7])
def test_arguments_that_are_no_object_are_refused(desk: Desk, arguments: Any) -> None:
    assert call_tool("file_read", arguments, desk.context()).output == "file_read: args must be an object"


def test_an_unknown_tool_is_answered_with_the_nearest_name(desk: Desk) -> None:
    assert desk.refusal("file_raed") == 'no tool "file_raed" (did you mean "file_read"?)'


def test_a_tool_that_is_not_granted_is_refused_by_name_of_the_rule(desk: Desk) -> None:
    assert desk.refusal("shell", command="id") == (
        "shell: refused by permissions.tools (granted: custom_tool, probe, dated, file_read)"
    )


def test_the_free_tools_need_no_grant(tmp_path: Path) -> None:
    desk = Desk(tmp_path, tools=[])
    assert list(get_toolset(desk.org).allowed_tools(desk.context().agent, desk.org)) == [
        "list_agents",
        "memory_read",
        "memory_write",
    ]


def test_create_agent_needs_the_organisations_word_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path, name="beta")
    refusal = desk.refusal("create_agent", name="x", title="X", instructions="x")
    assert refusal == "create_agent: refused by config/org.json create_agent_allowed ['alpha']"


@pytest.mark.parametrize(
    ("do", "output"),
    [
        ("crash", "probe failed: KeyError: 'pocket'"),
        ("exit", "probe failed: SystemExit: 3"),
        ("none", "probe returned NoneType, not a ToolResult"),
        ("number", "probe returned output of type int, not text"),
    ],
)
def test_a_tool_that_misbehaves_becomes_a_failed_result(desk: Desk, do: str, output: str) -> None:
    assert desk.call("probe", do=do) == ToolResult(False, output)


@pytest.mark.parametrize(
    ("name", "arguments", "outcome"),
    [
        ("memory_read", {}, "ok"),
        ("memory_raed", {}, "not_found"),
        ("shell", {"command": "id"}, "denied"),
        ("memory_read", {"kee": "a"}, "invalid_args"),
        ("memory_read", ["key"], "invalid_args"),
        ("memory_read", {"key": "none such"}, "failed"),
        ("file_read", {"path": "/etc/passwd"}, "refused"),
        ("probe", {"do": "crash"}, "failed"),
    ],
)
def test_how_a_call_ends_is_one_of_a_closed_list(desk: Desk, name: str, arguments: Any, outcome: str) -> None:
    result = call_tool(name, arguments, desk.context())
    assert (result.outcome, result.success) == (outcome, outcome == "ok")


def test_a_tool_says_itself_how_its_call_ended(desk: Desk) -> None:
    result = desk.call("probe", do="recover")
    assert (result.outcome, result.output) == ("failed", "Give a date, as in 2026-12-01.")


def test_an_errors_text_is_cut_and_cleaned_too(desk: Desk) -> None:
    output = desk.refusal("probe", do="crash oddly")
    assert output.startswith("probe failed: ValueError: ?xxx")
    assert output.endswith("x\n[cut: the first 32768 of 100027 bytes are shown]")


def test_long_output_is_cut_and_the_cut_is_marked(desk: Desk) -> None:
    output = desk.call("probe", do="long").output
    assert output.endswith("é\n[cut: the first 32768 of 80000 bytes are shown]")
    assert len(output.encode()) < 33_000


def test_output_that_is_not_text_can_still_be_recorded(desk: Desk) -> None:
    assert desk.call("probe", do="surrogate").output == "a?b"


@pytest.mark.parametrize("taken", ["shell", "file_read", "create_agent"])
def test_no_tool_takes_the_place_of_one_that_ships(desk: Desk, taken: str) -> None:
    class Replacement(CustomTool):
        """Poses as a shipped tool."""

        name = taken

    ships = r"lemming\.capabilities\.toolbox\."
    with pytest.raises(ValueError, match=rf"Replacement cannot be the tool .{taken}.*{ships}"):
        ToolRegistry.register(Replacement())
    ToolRegistry.unregister("file_read")
    assert desk.refusal("file_read").startswith('file_read: "path" is required')


def test_a_tool_of_ones_own_may_be_registered_again(desk: Desk) -> None:
    class Newer(CustomTool):
        """A newer version, as a module that is imported anew registers it."""

        def execute(self, agent_name: str, base_path: Path, **kwargs: Any) -> ToolResult:
            """Return another result."""
            return ToolResult(True, "Newer")

    ToolRegistry.register(CustomTool())
    ToolRegistry.register(Newer())
    assert desk.call("custom_tool").output == "Newer"


def test_an_unknown_tool_is_not_answered_with_names_the_agent_may_not_use(desk: Desk) -> None:
    refusal = desk.refusal("xyz")
    assert refusal == (
        'no tool "xyz" (your tools: custom_tool, dated, file_read, list_agents, memory_read, memory_write, probe)'
    )
    assert desk.refusal("shel") == refusal.replace("xyz", "shel")


@pytest.mark.parametrize("tool", ["file_read", "file_write", "shell", "create_agent"])
def test_a_tool_called_without_an_engine_checks_the_grant_itself(tmp_path: Path, tool: str) -> None:
    Desk(tmp_path, tools=[])
    arguments = {
        "file_read": {"path": "a"},
        "file_write": {"path": "a", "content": "b"},
        "shell": {"command": "id"},
        "create_agent": {"name": "x", "title": "X", "instructions": "x"},
    }
    result = ToolRegistry.get(tool).execute("alpha", tmp_path, **arguments[tool])
    assert (result.success, result.output) == (False, f"{tool}: refused by permissions.tools (granted: none)")


def test_importing_the_tools_loads_no_tool() -> None:
    code = "import lemming.tools, sys; print([name for name in sys.modules if 'toolbox' in name])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_the_tools_that_every_agent_has_are_those_that_say_so() -> None:
    shipped = get_toolset(OrgSettings())
    assert {name for name in SHIPPED if shipped[name].always_allowed} == FOR_EVERYBODY
