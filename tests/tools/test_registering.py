"""What may be registered as a tool."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tool_desk import CustomTool, Desk

from lemming.kernel.base.errors import InvalidArguments
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult


def test_registering_a_class_or_a_nameless_tool_is_refused_at_once() -> None:
    class Nameless(Tool):
        """A tool that lacks a name."""

        def execute(self, agent_name: str, base_path: Path, **kwargs: Any) -> ToolResult:
            """Never called."""
            raise NotImplementedError

    with pytest.raises(TypeError, match="an instance of a Tool"):
        ToolRegistry.register(CustomTool)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Nameless must have a name"):
        ToolRegistry.register(Nameless())


def test_a_tool_that_compares_by_value_is_refused_at_registration() -> None:
    @dataclass
    class ByValue(Tool):
        """A tool whose instances are equal, and so have no hash."""

        name = "by_value"
        description = "For tests."

        def execute(self, agent_name: str, base_path: Path, **kwargs: Any) -> ToolResult:
            """Never called."""
            raise NotImplementedError

    with pytest.raises(TypeError, match="eq=False"):
        ToolRegistry.register(ByValue())


def test_an_argument_type_that_json_cannot_give_is_refused_at_registration() -> None:
    class Odd(Tool):
        """A tool that asks for a desk."""

        name = "odd"
        description = "For tests."

        def execute(self, agent_name: str, base_path: Path, desk: Desk) -> ToolResult:
            """Never called."""
            raise NotImplementedError

    with pytest.raises(TypeError, match='tool "odd"'):
        ToolRegistry.register(Odd())


def test_a_tool_of_a_class_that_there_is_not_is_refused_with_those_there_are() -> None:
    class Mailer(CustomTool):
        tool_class = "mail"  # type: ignore[assignment]

    with pytest.raises(TypeError, match=r"'send'.*'mail'"):
        ToolRegistry.register(Mailer())


class Refund(Tool):
    """A tool whose class says by hand what its arguments are."""

    name = "refund"
    description = "Pays back."
    parameters = {  # type: ignore[assignment]  # noqa: RUF012
        "type": "object",
        "properties": {"amount": {"type": "number", "minimum": 1, "maximum": 50}},
        "required": ["amount"],
        "additionalProperties": False,
    }

    def execute(self, agent_name: str, base_path: Path, **kwargs: Any) -> ToolResult:
        return ToolResult(True, f"paid {kwargs['amount']}")


def test_a_class_that_says_its_parameters_is_held_to_them() -> None:
    tool, said = Refund(), []
    assert tool.parse_arguments({"amount": 3}) == {"amount": 3}
    for wrong in ({}, {"amount": 0}, {"amount": "3"}, {"amount": 9, "to": "me"}):
        with pytest.raises(InvalidArguments) as caught:
            tool.parse_arguments(wrong)
        said.append(caught.value.message)
    assert said == [
        "refund: 'amount' is a required property",
        "refund: amount: 0 is less than the minimum of 1",
        "refund: amount: '3' is not of type 'number'",
        "refund: Additional properties are not allowed ('to' was unexpected)",
    ]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"properties": {"amount": {"minimum": "1"}}}, r"refund.*parameters/properties/amount/minimum"),
        ({"properties": {"path": {"pattern": "(?=a)"}}}, "cannot be used"),
        ("amount", "parameters must be a JSON Schema, got str"),
    ],
)
def test_parameters_that_are_no_schema_are_refused_at_registration(parameters: Any, says: str) -> None:
    flawed = type("Flawed", (Refund,), {"parameters": parameters})()
    with pytest.raises(TypeError, match=says):
        ToolRegistry.register(flawed)
    named = type("Named", (Refund,), {"place_arguments": ("file",)})()
    with pytest.raises(TypeError, match=r'must name arguments \(amount\), got "file"'):
        ToolRegistry.register(named)
