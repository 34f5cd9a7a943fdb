"""Schemas and patterns of others at each door but MCP's: refused in words, or held to; others go on."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from asked import ask as ask_by_hand
from asked import org_of

from lemming.cli import run
from lemming.client.ask_client import ask
from lemming.engine import run_once
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.testing import FrozenClock, resume, say

EVIL, BAIT = "^(a+)+$", "a" * 40 + "b"
DEFS = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "doubling": ({"$ref": "#/$defs/d0", "$defs": {**DEFS, "d40": {}}}, "it has more than 10000 parts"),
    "a property that is none": (
        {"patternProperties": {r"\p{Foo}": {}}},
        r"the pattern '\\p{Foo}' cannot be used: Unicode property not found",
    ),
}
HELD_TO: dict[str, Any] = {"patternProperties": {EVIL: {}}, "additionalProperties": False}
MOST_S = 5.0


def ends(base: Path, times: int = 2) -> list[dict[str, str]]:
    """Run ticks, and return how each agent's turn ended in each; nothing takes long."""
    began = time.process_time()
    found = [run_once(base, clock=FrozenClock()) for _ in range(times)]
    assert time.process_time() - began < MOST_S
    return [{it.agent: it.status for it in report.turns if it.agent != "human"} for report in found]


def answering(base: Path, **ada: Any) -> Path:
    said = {"kind": "response", "payload": {BAIT: 1, "text": "x"}, "tags": []}
    lines = [{"agent": "ada", "reply": say("", outbox_entries=[said])}, {"agent": "bob", "reply": say("on")}]
    bob = resume("bob", permissions={"read_outboxes": [], "tools": []})
    return org_of(base, resume("ada", **ada), bob, script=lines)


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_agent_whose_output_cannot_be_held_to_fails_alone(base: Path, name: str) -> None:
    answering(base, output={"schema": UNUSABLE[name][0]})
    assert ends(base) == [{"ada": "failed", "bob": "done"}] * 2


def test_what_can_be_held_to_is(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answering(base, output={"schema": HELD_TO})
    assert ends(base) == [{"ada": "failed", "bob": "done"}] * 2
    assert run(["-C", str(base), "tick", "1"]) == 0
    assert "do not match any of the regexes" in capsys.readouterr().out


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_request_with_a_schema_that_is_none_is_refused_or_told_of(
    base: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    schema, why = UNUSABLE[name]
    answering(base)
    with pytest.raises(UsageError, match="schema"):
        ask(base, "ada", "what?", schema=schema)
    assert not list(base.glob("agents/human/outbox/*.json"))
    ask_by_hand(base, "ada", "what?", schema=schema)
    began = time.process_time()
    run(["-C", str(base), "validate"])
    assert time.process_time() - began < MOST_S
    told = " ".join(capsys.readouterr().err.split())
    assert f"the schema of the request accepts any answer: {why}" in told
    assert ends(base)[0] == {"ada": "done", "bob": "done"}


UNUSABLE_GATES: list[tuple[dict[str, Any], str]] = [
    ({"schema": UNUSABLE["doubling"][0]}, "more than 10000 parts"),
    ({"schema": UNUSABLE["a property that is none"][0]}, "/gates/0/schema/patternProperties: expected a JSON Schema"),
    ({"deny": [r"\p{Foo}"]}, "Unicode property not found"),
    ({"deny": ["(?=a)b"]}, "look-ahead and look-behind"),
    ({"when": {"field": "payload.text", "op": "matches", "value": r"\p{Foo}"}}, "Unicode property not found"),
]


def gated(base: Path, **gate: Any) -> None:
    (base / "config/org.json").write_text(json.dumps({"gates": [{"at": "out", "then": "block", **gate}]}))


def test_a_gate_that_cannot_be_used_ends_the_run_before_anything_is_done(base: Path) -> None:
    answering(base)
    for gate, told in UNUSABLE_GATES:
        gated(base, **gate)
        with pytest.raises(ConfigError, match=re.escape(told)):
            ends(base)


def test_a_gate_that_would_cost_much_looks_in_a_moment(base: Path) -> None:
    answering(base)
    matches = {"field": "payload.text", "op": "matches", "value": EVIL}
    for gate, bob in (({"deny": [EVIL]}, "done"), ({"schema": HELD_TO}, "waiting"), ({"when": matches}, "done")):
        gated(base, **gate)
        assert ends(base, times=1)[0]["bob"] == bob
