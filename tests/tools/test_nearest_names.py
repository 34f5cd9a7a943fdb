"""A name that is none in a call: the result names the one that the model surely meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say


def output_of(base: Path, tool: str, **args: Any) -> str:
    """Return what a call gave an agent that may read files and ask another."""
    permissions = {"tools": ["file_read"], "read_outboxes": ["bob"]}
    script = [{"agent": "ada", "step": 0, "reply": {"tool_calls": [{"tool": tool, "args": args}]}}]
    make_org(
        base,
        resume("ada", permissions=permissions, team={"ask": ["bob"]}, turn={"max_steps": 2}),
        resume("bob", permissions={"read_outboxes": ["ada"]}),
        resume("carla"),
        script=[*script, {"reply": say("done")}],
    )
    run_once(base, clock=FrozenClock())
    (found,) = (it for it in journal_lines(base, 1) if it["type"] == "tool_finished" and it["agent"] == "ada")
    return str(found["output"])


@pytest.mark.parametrize(
    ("tool", "meant"),
    [("file_raed", "file_read"), ("ask_bobb", "ask_bob"), ("askBob", "ask_bob"), ("memory-read", "memory_read")],
)
def test_the_nearest_tool_is_named_those_of_a_turn_among_them(base: Path, tool: str, meant: str) -> None:
    assert output_of(base, tool) == f'no tool "{tool}" (did you mean "{meant}"?)'


def test_a_tool_that_the_agent_may_not_call_is_not_named(base: Path) -> None:
    said = output_of(base, "file_wriet")
    assert "file_write" not in said


@pytest.mark.parametrize(
    ("args", "meant"),
    [({"pth": "plan.md"}, "path"), ({"argument": "plan.md"}, "path"), ({"path": "plan.md", "x": 1}, "")],
)
def test_an_argument_that_a_tool_does_not_have_is_told_with_the_one_that_is_meant(
    base: Path, args: dict[str, Any], meant: str
) -> None:
    said = output_of(base, "file_read", **args)
    name = [*args][-1]
    assert f'unknown argument "{name}"' in said
    assert (f'"{name}": did you mean "{meant}"?' in said) == bool(meant)
    assert '"properties":{' in said
