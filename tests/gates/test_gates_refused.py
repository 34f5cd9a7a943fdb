"""Gates that are refused as they are read, with what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.kernel.base.errors import ConfigError
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import make_org, resume, say


@pytest.mark.parametrize(
    ("gate", "why"),
    [
        ({"at": "call", "then": "rewrite"}, '"rewrite" requires one of'),
        ({"at": "call", "then": "block", "deny": ["a"], "redact": ["b"]}, "a gate must have one test"),
        ({"at": "in", "then": "block", "tool": "shell"}, 'require "at": "call" or "result"'),
        ({"at": "call", "then": "block", "deny": ["("]}, "expected a regular expression"),
        ({"at": "result", "then": "block", "dedupe": True}, 'requires "at": "in" or "out"'),
        ({"at": "call", "then": "block", "when": {"field": "a", "op": "si", "value": 1}}, "when"),
        ({"at": "cal", "then": "block"}, "at"),
        (
            {"at": "in", "then": "ask", "when": {"field": "trust", "op": "is", "value": "outside"}},
            "trust tracking is off",
        ),
        ({"at": "call", "then": "block", "max_length": 0}, "max_length"),
        ({"at": "out", "then": "block", "dedupe": False}, '"dedupe" must be true, got false'),
        ({"at": "out", "then": "block", "dedupe": None}, "expected true or false, got null"),
        ({"at": "out", "then": "block", "deny": []}, '"deny" must be a list with a regular expression, got []'),
        ({"at": "out", "then": "pass", "redact": []}, '"redact" must be a list with a regular expression'),
        ({"at": "call", "then": "ask", "args": {}}, '"args" must be an object with an argument'),
        ({"at": "out", "then": "block", "check": ""}, '"check" must be the name of a function, got ""'),
        ({"at": "out", "then": "block", "policy": "x"}, '"policy" requires "by"'),
        ({"at": "out", "then": "block", "by": ""}, '"by" must be an agent, a model key or a command'),
        ({"at": "spend", "then": "block", "models": []}, '"models" must be a list with a model key'),
    ],
)
def test_a_gate_that_is_wrong_is_refused_with_what_is_wrong(base: Path, gate: dict[str, Any], why: str) -> None:
    make_org(base, resume("ada"), org={"gates": [gate]})
    with pytest.raises(ConfigError, match="gates") as refused:
        run_once(base)
    assert why in str(refused.value.problems[0])


def test_a_gate_that_looks_for_something_may_say_what_it_does_not_look_for(base: Path) -> None:
    gate = {"at": "out", "deny": ["secret"], "dedupe": False, "then": "block"}
    script = [{"tick": 1, "reply": say("secret")}, {"reply": say("open")}]
    make_org(base, resume("ada", gates=[gate]), script=script)
    for _ in range(3):
        run_once(base)
    assert [entry.payload["text"] for entry in read_outbox_entries(base, "ada")] == ["open", "open"]
