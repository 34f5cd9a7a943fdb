"""Gates at "out" compare a target as the engine reads it: no spelling of a name gets an entry past them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.validation.agent_validation import validate_survey
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, make_org, resume


def to_bob(field: str = "target", then: str = "block") -> dict[str, Any]:
    return {"at": "out", "when": {"field": field, "op": "is", "value": "bob"}, "then": then}


def written(base: Path, gates: list[dict[str, Any]], target: Any) -> int:
    """Return how many entries a turn writes that writes one with this target."""
    entry = {"kind": "message", "payload": {"text": "hello", "target": target}, "tags": []}
    script = [{"agent": "ada", "reply": {"outbox_entries": [entry]}}, {"reply": {}}]
    make_org(base, *map(resume, ("ada", "bob", "cyd")), script=script, org={"gates": gates})
    run_once(base, clock=FrozenClock())
    return len(read_outbox_entries(base, "ada"))


@pytest.mark.parametrize("field", ["target", "payload.target"])
@pytest.mark.parametrize("target", ["bob", "Bob", " BOB ", ["bob"], ["cyd", "Bob"]])
def test_no_spelling_of_a_name_gets_an_entry_past_a_gate(base: Path, field: str, target: Any) -> None:
    assert written(base, [to_bob(field)], target) == 0


@pytest.mark.parametrize("target", ["cyd", ["cyd"], None, "*"])
def test_an_entry_for_others_passes(base: Path, target: Any) -> None:
    assert written(base, [to_bob()], target) == 1


@pytest.mark.parametrize(("target", "passed"), [("Bob", 1), (["bob"], 1), (["bob", "cyd"], 0), (None, 0)])
def test_what_lets_entries_to_one_pass_lets_none_to_another_pass(base: Path, target: Any, passed: int) -> None:
    assert written(base, [to_bob(then="pass"), {"at": "out", "then": "block"}], target) == passed


def problems_of(base: Path) -> list[Problem]:
    org = Organisation(base)
    try:
        return [*validate_survey(org, load_config(org), survey_agents(org)).settings_problems]
    except ConfigError as error:
        return list(error.problems)


MISTAKES: dict[str, tuple[dict[str, Any], str, str]] = {
    "no such agent": (
        {"when": {"field": "target", "op": "is", "value": "bobb"}},
        '"target" is never "bobb"',
        'did you mean "bob"?',
    ),
    "tags are a list": (
        {"when": {"field": "tags", "op": "is", "value": "secret"}},
        '"tags" is never "secret"',
        'use a list: write "op": "contains"',
    ),
    "an expression that fits everything": (
        {"deny": [""]},
        "expected a regular expression, got an empty text (it matches everything)",
        "write a pattern",
    ),
    "a schema that everything satisfies": (
        {"schema": {}},
        "expected a JSON Schema with keywords, got {} (it matches everything)",
        'add "required": ["text"], for example, or remove it',
    ),
}


@pytest.mark.parametrize(("gate", "message", "hint"), MISTAKES.values(), ids=MISTAKES)
def test_a_gate_that_would_never_speak_is_refused(base: Path, gate: dict[str, Any], message: str, hint: str) -> None:
    make_org(base, resume("ada"), resume("bob"), org={"gates": [{"at": "out", "then": "block", **gate}]})
    [problem] = problems_of(base)
    assert (problem.message, problem.hint) == (message, hint)
    assert problem.line
