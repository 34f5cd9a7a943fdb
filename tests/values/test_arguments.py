"""Arguments of plain types are checked without a validator, and only as the validator would check them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import EVERYTHING

from lemming.kernel.files.fast_decoder import describe_field
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import EngineTool, Tool, get_toolset
from lemming.kernel.tools.argument_models import ArgumentModel
from lemming.kernel.tools.arguments import Arguments

SHIPPED = get_toolset(OrgSettings())
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.floats(-2, 2),
    st.sampled_from(["", "a", "1", "\u00e9"]),
    st.lists(st.sampled_from(["a", "", 1, None]), max_size=2),
    st.dictionaries(st.just("a"), st.integers(0, 1)),
)


def all_plain(
    text: str,
    number: Annotated[int, describe_field("A number.", ge=0)],
    anything: Any,
    real: Annotated[float, describe_field("Real.", ge=-1)] = 0.5,
    is_on: bool = False,
    names: Annotated[list[str], describe_field("Names.")] = [],  # noqa: B006
) -> None:
    """Take an argument of every plain type."""


def not_plain(
    names: Annotated[list[str], describe_field("Names.", min_length=1)],
    size: Annotated[int, describe_field("Size.", gt=0)] = 1,
) -> None:
    """Take what is said in words that only the validator knows."""


def with_a_path(text: str, where: Path = Path("x")) -> None:
    """Take what JSON does not have."""


def planned(tool: Tool) -> Arguments:
    """Return the arguments of a tool that ships."""
    is_planned = isinstance(tool, EngineTool)
    return Arguments(type(tool).plan, 2) if is_planned else Arguments(type(tool).execute, 3)  # type: ignore[attr-defined]


def model_of(arguments: Arguments) -> ArgumentModel:
    """Return what pydantic makes of the same signature."""
    return ArgumentModel(arguments._parameters, is_open=False)


KNOWN = [*map(planned, SHIPPED.values()), Arguments(all_plain, 0), Arguments(not_plain, 0)]


@pytest.mark.parametrize("arguments", KNOWN)
def test_the_schema_of_a_plain_signature_is_the_validators(arguments: Arguments) -> None:
    assert json.dumps(arguments.schema) == json.dumps(model_of(arguments).schema())


@settings(max_examples=400 if EVERYTHING else 40, deadline=None)
@given(data=st.data())
def test_arguments_are_taken_and_refused_as_the_validator_does(data: st.DataObject) -> None:
    arguments = data.draw(st.sampled_from(KNOWN))
    names = [*arguments.schema.get("properties", {}), "another"]
    call = data.draw(st.dictionaries(st.sampled_from(names), VALUES))
    model = model_of(arguments)
    assert outcome(lambda: arguments.parse_arguments(call)) == outcome(
        lambda: model.parse_json(json.dumps(call).encode())
    )


def outcome(check: Callable[[], dict[str, Any]]) -> str:
    """Return what a check gives, or why it refuses."""
    try:
        return repr(sorted(check().items()))
    except ValueError as error:
        return str(error)


def test_what_json_does_not_have_is_the_validators_to_read() -> None:
    assert Arguments(with_a_path, 0).parse_arguments({"text": "a", "where": "b/c"}) == {
        "text": "a",
        "where": Path("b/c"),
    }


def test_tools_that_ship_are_shown_and_called_without_the_validator() -> None:
    code = """
import sys
from lemming.kernel.org.config import OrgSettings
from lemming.tools import get_toolset
tools = get_toolset(OrgSettings())
shown = [tool.parameters for tool in tools.values()]
tools["memory_write"].check({"key": "a", "value": {"b": [1]}})
print(sorted({"pydantic.main", "pydantic.fields", "pydantic.types"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout == "[]\n"
