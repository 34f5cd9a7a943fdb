"""Values are built from plain JSON without a validator, and only where the validator would build the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sampling import EVERYTHING

from lemming.capabilities.scripted_models.scripted_provider import ScriptLine
from lemming.kernel.agents import Agent
from lemming.kernel.files.fast_decoder import TypeMismatch, fit_value
from lemming.kernel.files.json_documents import adapter, from_expanded
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.resume import AgentCredits

RESUME = {
    "name": "ada",
    "title": "Editor",
    "model": {"key": "fast", "temperature": 1},
    "permissions": {"read_outboxes": ["*"], "tools": ["shell"], "file_access": {"allow_read": ["./shared"]}},
    "schedule": {"run_every_n_ticks": 3, "phase_offset": -1, "wake": "changed"},
    "instructions": "Edit.",
    "credits": {"max_credits": 10, "soft_cap": 7.5},
    "turn": {"max_steps": 2, "repairs": None, "max_entries": 3, "kinds": ["message", "report"]},
    "context": [{"file": "./shared/facts.txt", "take": "next_line"}],
    "examples": [{"input": "a", "output": "b"}],
}
ORG = {
    "visibility": "tick",
    "tick_interval_s": 5,
    "retention_ticks": 10,
    "plugins": ["mine"],
    "defaults": {"wake": "changed", "turn": {"max_steps": 4}},
    "shell": {"sandbox": "none", "timeout_s": 1.5, "max_output_bytes": 4096},
}
MODELS = {"fast": {"provider": "openai", "options": {"deep": [1, {"a": None}]}, "temperature": 0.5}}
ENTRY = {"id": "3fa9c1d2e0b7", "tick": 4, "agent": "ada", "kind": "report", "payload": {"text": "x"}, "tags": ["a"]}
STATE = {
    "tick": 4,
    "status": "done",
    "credits": 3,
    "cost_usd": None,
    "read": {"through": {"*": 4}, "also": ["3fa9c1d2e0b7"]},
    "results": [{"tool": "shell"}],
}
SOUND: list[tuple[Any, dict[str, Any]]] = [
    (Agent, RESUME),
    (OrgSettings, ORG),
    (dict[str, ModelEntry], MODELS),
    (dict[str, AgentCredits], {"ada": {"max_credits": 3}}),
    (OutboxEntry, ENTRY),
    (AgentState, STATE),
    (ScriptLine, {"agent": "ada", "tick": None, "reply": "hi", "delay_s": 1}),
    (ScriptLine, {"contains": "x", "reply": {"notes": ""}, "output_tokens": 3}),
    (ScriptLine, {"error": "TimedOut"}),
]
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2000), st.floats(-2, 2000), st.sampled_from(["", "a", "message"])
)
odd_values = ODD | st.lists(ODD, max_size=3) | st.dictionaries(st.sampled_from(["a", "file", "key"]), ODD, max_size=2)


@pytest.mark.parametrize(("kind", "plain"), SOUND)
def test_what_is_sound_is_built_as_the_validator_builds_it(kind: Any, plain: dict[str, Any]) -> None:
    assert repr(fit_value(kind, plain)) == repr(validated(kind, plain))


@settings(max_examples=400 if EVERYTHING else 40, deadline=None)
@given(data=st.data())
def test_what_the_validator_refuses_is_never_built(data: st.DataObject) -> None:
    kind, sound = data.draw(st.sampled_from(SOUND))
    plain = copy.deepcopy(sound)
    spoil = data.draw(st.sampled_from(list(places_in(plain))))
    spoil(data.draw(odd_values))
    try:
        built = repr(fit_value(kind, plain))
    except TypeMismatch:
        return
    try:
        assert built == repr(validated(kind, plain))
    except ValidationError as error:
        pytest.fail(f"{built}\n{error}")


@pytest.mark.parametrize("kind", [complex, set[str], dict[int, str], int | str, tuple[int, str], "Agent"])
def test_a_type_that_is_not_known_fits_nothing(kind: Any) -> None:
    with pytest.raises(TypeMismatch):
        fit_value(kind, {})


def test_a_key_that_is_missing_does_not_fit() -> None:
    with pytest.raises(TypeMismatch):
        fit_value(Agent, {"name": "ada"})


def validated(kind: Any, plain: Any) -> Any:
    return from_expanded(kind, adapter(kind).validate_json(json.dumps(plain), strict=True))


def places_in(value: Any) -> Iterator[Callable[[Any], None]]:
    """Yield, for every place in a JSON value, what puts another value there."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield lambda other, key=key: value.__setitem__(key, other)  # type: ignore[misc]
        yield from places_in(item)
