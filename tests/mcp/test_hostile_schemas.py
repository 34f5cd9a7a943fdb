"""What a server says in schemas holds nobody up: of arguments, of results, of what it asks back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from connected import call, known, org_with
from mischief import AWAKE, GIVEN, by_http

from lemming.capabilities.mcp import server_sessions
from lemming.engine import run_once
from lemming.kernel.journal.engine_events import Event, ProblemFound
from lemming.testing import FrozenClock, journal_lines

EVIL, BAIT = "^(a+)+$", "a" * 40 + "b"
DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
MOST_S = 5.0  # of the process's own time: without a bound each of these takes for ever


@pytest.fixture
def given() -> Iterator[dict[str, tuple[dict[str, Any], Any]]]:
    """What the server has beside its own tools, each with what a call gives."""
    GIVEN.clear()
    yield GIVEN
    GIVEN.clear()


def taking(**schema: Any) -> dict[str, Any]:
    return {"inputSchema": {"type": "object", **schema}}


def giving(**schema: Any) -> dict[str, Any]:
    return {"inputSchema": {"type": "object"}, "outputSchema": {"type": "object", **schema}}


def tick(base: Path) -> tuple[list[str], list[tuple[str, str]]]:
    """Run a tick; return the problems that were told, and how the calls ended."""
    told: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, ProblemFound):
            told.append(event.problem.message)

    began = time.process_time()
    number = run_once(base, clock=FrozenClock(), notify=hear).tick
    assert time.process_time() - began < MOST_S
    lines = journal_lines(base, number)
    return told, [(it["outcome"], it["output"]) for it in lines if it["type"] == "tool_finished"]


@pytest.mark.long
def test_schemas_of_arguments_and_of_results_are_held_to_in_a_moment_or_refused(
    tmp_path: Path, given: dict[str, tuple[dict[str, Any], Any]]
) -> None:
    given |= {
        "keys": (taking(patternProperties={EVIL: {"type": "null"}}), {}),
        "nothing": (taking(patternProperties={r"\p{Foo}": {}}), {}),
        "doubling": (taking(**DOUBLING["d0"], **{"$defs": {**DOUBLING, "d40": {}}}), {}),
        "any": (taking(properties={"a": True}, additionalProperties=False), {}),
        "gives": (giving(patternProperties={EVIL: {}}, additionalProperties=False), {BAIT: 1}),
        "odd": (giving(patternProperties={r"\p{Foo}": {}}), {"x": 1}),
        "well": (giving(required=["sum"]), {"sum": 3}),
    }
    bait = {BAIT: 1}
    calls = [call(f"mcp.mis.{it}") for it in ("nothing", "doubling", "any", "gives", "odd", "well")]
    url = by_http("given")
    base = org_with(tmp_path, {"mis": {"url": url}}, call("mcp.mis.keys", **bait), *calls)
    for _ in range(2):
        told, ended = tick(base)
        left_out = [it for it in told if "is left out: the schema of its arguments" in it]
        assert len(left_out) == 2, told
        assert "more than 10000 parts" in left_out[0]
        assert "cannot be used: Unicode property not found" in left_out[1]
        assert [it for it, _ in ended] == ["ok", "not_found", "not_found", "ok", "failed", "failed", "ok"]
        assert "does not match any of the regexes" in ended[4][1]
        assert "Unicode property not found" in ended[5][1]
    assert "doubling" not in known(base)["mis"]


def test_a_server_that_is_slow_to_list_known_tools_costs_only_its_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    AWAKE.set()
    base = org_with(tmp_path, {"mis": {"url": by_http("slow"), "tools": ["add"]}})
    assert tick(base) == ([], [])
    AWAKE.clear()
    monkeypatch.setattr(server_sessions, "PATIENCE_S", 0.05)
    told, _ = tick(base)
    assert told == ["MCP server mis: it has not listed its tools after 0.05 s; those that were accepted are offered"]
    assert list(journal_lines(base, 2)[0]["mcp"]["mis"]["tools"]) == ["add"]
    AWAKE.set()
    monkeypatch.undo()
    assert tick(base) == ([], [])
