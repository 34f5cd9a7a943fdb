"""`lemming validate` tells of gates that do nothing: what they are about is not there, or behind another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.capabilities.gates.gates_command import standard_gates
from lemming.capabilities.gates.gates_validation import validate_gates
from lemming.kernel.agents import survey_agents
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.validation.agent_validation import validate_survey
from lemming.kernel.tick.validation.checks import CheckSubject
from lemming.testing import make_org, resume

FILES = {"tools": ["file_*", "shell"], "read_outboxes": ["*"]}


def found(
    base: Path, *gates: dict[str, Any], own: Any = (), trust: bool = True, **settings: Any
) -> list[tuple[str, str]]:
    """Return the place and the message with its hint of all that is wrong with these gates."""
    human = resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]})
    team = {"ask": ["bob"], "hand_to": ["bob"]}
    ada = resume("ada", permissions=FILES, gates=[*own], team=team)
    tracked: dict[str, Any] = {"trust": {}} if trust else {}
    make_org(base, ada, resume("bob"), human, org={"gates": [*gates], **tracked, **settings})
    config = load_config(base)
    now = validate_survey(base, config, survey_agents(base))
    of_agents = (it for error in now.survey.broken.values() for it in error.problems)
    problems = [
        *validate_gates(CheckSubject(org=Organisation.from_path(base), config=config)),
        *now.settings_problems,
        *of_agents,
    ]
    assert {it.code for it in problems} <= {"LMG-308"}
    return [(it.pointer, f"{it.message} ({it.hint})") for it in problems]


def of_field(name: str, value: Any, op: str = "is") -> dict[str, Any]:
    return {"field": name, "op": op, "value": value}


FINE: list[dict[str, Any]] = [
    *standard_gates()["gates"],
    {"at": "call", "tool": ["file_*", "shell"], "then": "warn"},
    {"at": "call", "class": "send", "then": "block"},
    {"at": "call", "tool": "file_write", "args": {"path": ["shared/*"]}, "then": "block"},
    {"at": "call", "when": of_field("args.path", "x", "starts_with"), "then": "block"},
    {"at": "in", "when": of_field("from", ["bob", "human"], "in"), "then": "warn"},
    {"at": "in", "when": of_field("payload.anything.at_all", 1), "then": "warn"},
    {"at": "out", "when": of_field("target", "bob"), "then": "warn"},
    {"at": "out", "when": of_field("target", "somebody"), "then": "warn", "may_be_absent": True},
    {"at": "out", "when": {"not": of_field("trust", "outside", "is_not")}, "then": "ask", "persons": ["human"]},
    {"at": "spend", "calls": 3, "per": "turn", "then": "block"},
]


def test_gates_that_can_speak_are_not_told_of(base: Path) -> None:
    assert found(base, *FINE) == []


# ruff: noqa: E501 - a line for each mistake
@pytest.mark.parametrize(
    ("gate", "where", "what"),
    [
        ({"tool": "shel"}, "/tool", 'tool "shel" does not exist (did you mean "shell"'),
        ({"tool": ["shell", "web_*"]}, "/tool/1", 'tool "web_*" does not exist'),
        ({"tool": "http_post"}, "/tool", 'no agent may call "http_post"'),
        ({"tool": "ask_bob"}, "/tool", "writes an entry"),
        ({"tool": "file_*", "class": "execute"}, "/class", 'a class of "class": read, write'),
        ({"tool": "shell", "args": {"comand": "git *"}}, "/args/comand", 'has an argument "comand" (did you mean "command"'),
        ({"tool": "shell", "when": of_field("args.comand", "x")}, "/when/field", 'did you mean "command"'),
        ({"when": of_field("arg.path", "x")}, "/when/field", 'at "call" does not see "arg" (did you mean "args"'),
        ({"when": {"all": [of_field("class", "read"), of_field("trust", "outsid")]}}, "/when/all/1/value", '"trust" is never "outsid" (did you mean "outside"'),
        ({"when": of_field("class", ["read", "excute"], "in")}, "/when/value", 'did you mean "execute"'),
        ({"when": of_field("agent", "adda")}, "/when/value", '"agent" is never "adda" (did you mean "ada"'),
        ({"at": "in", "when": of_field("from", "bbo")}, "/when/value", 'did you mean "bob"'),
        ({"at": "in", "when": of_field("what", "entries")}, "/when/value", '"what" is never "entries"'),
        ({"at": "out", "when": of_field("own", True)}, "/when/field", 'a gate at "out" does not see "own"'),
        ({"at": "out", "when": of_field("kind", "mesage")}, "/when/value", 'did you mean "message"'),
        ({"at": "spend", "when": of_field("tick", 3)}, "/when/field", 'at "spend" does not see "tick"'),
        ({"check": "nothing"}, "/check", 'function "nothing" is not registered by a plugin: the gate blocks'),
    ],
)  # fmt: skip
def test_a_gate_that_does_nothing_is_told_of_with_the_nearest_name(
    base: Path, gate: dict[str, Any], where: str, what: str
) -> None:
    ((place, message),) = found(base, {"at": "call", "then": "block", **gate})
    assert place == f"/gates/0{where}"
    assert what in message


def test_a_gate_of_a_resume_is_about_its_agent(base: Path) -> None:
    wrong = found(base, own=[{"at": "call", "when": of_field("agent", "bob"), "then": "block"}])
    assert [(place, message.partition(" (")[0]) for place, message in wrong] == [
        ("/gates/0/when/value", '"agent" is never "bob"')
    ]
    untracked = {"at": "call", "when": of_field("trust", "outside"), "then": "block"}
    ((_, message),) = found(base / "2", own=[untracked], trust=False)
    assert "trust tracking is off" in message


def test_what_a_plugin_brings_is_not_told_of_where_it_is_not_imported(base: Path) -> None:
    gates = [{"at": "call", "tool": "of_plugin", "then": "warn"}, {"at": "call", "check": "f", "then": "warn"}]
    assert found(base, *gates, plugins=["not_imported_here"]) == []


OUTSIDE = of_field("trust", "outside")
BLOCKS_ALL = {"at": "call", "then": "block"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BLOCKS_ALL, {"at": "call", "tool": "shell", "then": "ask"}),
        ({"at": "call", "then": "pass"}, {"at": "call", "deny": ["x"], "then": "block"}),
        ({"at": "call", "tool": "file_*", "then": "block"}, {"at": "call", "tool": "file_write", "then": "ask"}),
        ({"at": "call", "tool": "file_*", "then": "block"}, {"at": "call", "tool": "file_*", "then": "ask"}),
        ({"at": "call", "class": ["read", "write"], "then": "stop"}, {"at": "call", "class": "read", "then": "ask"}),
        (
            {"at": "call", "when": OUTSIDE, "then": "block"},
            {"at": "call", "when": {"all": [of_field("class", "read"), OUTSIDE]}, "then": "ask"},
        ),
    ],
)
def test_a_gate_behind_one_that_settles_all_that_it_concerns(
    base: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    ((place, message),) = found(base, before, after)
    assert place == "/gates/1"
    assert "config/org.json#/gates/0 decides all its calls" in message
    ((place, message),) = found(base / "2", before, own=[after])
    assert place == "/gates/0"
    assert "config/org.json#/gates/0" in message


@pytest.mark.parametrize(
    "gates",
    [
        [{"at": "call", "then": "warn"}, BLOCKS_ALL],
        [{"at": "call", "then": "ask"}, BLOCKS_ALL],  # once it is approved, the next one is asked
        [{"at": "out", "then": "block"}, BLOCKS_ALL],
        [{"at": "call", "deny": ["x"], "then": "block"}, BLOCKS_ALL],
        [{"at": "call", "tool": "shell", "then": "block"}, {"at": "call", "tool": "*", "then": "warn"}],
        [{"at": "call", "tool": "shell", "then": "block"}, {"at": "call", "tool": "file_read", "then": "warn"}],
        [{"at": "call", "class": "read", "then": "block"}, {"at": "call", "tool": "file_*", "then": "warn"}],
        [{"at": "call", "when": OUTSIDE, "then": "block"}, BLOCKS_ALL],
        [
            {"at": "call", "when": {"any": [OUTSIDE, of_field("class", "read")]}, "then": "block"},
            {"at": "call", "when": of_field("trust", "known"), "then": "block"},
        ],
        [
            {"at": "call", "when": of_field("args.path", "a"), "then": "block"},
            {"at": "call", "redact": ["b"], "then": "rewrite"},
            {"at": "call", "when": of_field("args.path", "a"), "then": "ask"},
        ],
        [
            {"at": "spend", "calls": 1, "per": "turn", "then": "block"},
            {"at": "spend", "calls": 9, "per": "agent", "then": "block"},
        ],
    ],
)
def test_a_gate_that_may_yet_be_reached_is_not_told_of(base: Path, gates: list[dict[str, Any]]) -> None:
    assert found(base, *gates) == []
