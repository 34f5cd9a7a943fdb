"""Asking for a value of a type, and being held to it; schemas that nobody could hold anything to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from asked import org_of

from lemming.asking import ask
from lemming.base.errors import UsageError
from lemming.base.json_schema import flaw_of, wrong_in
from lemming.testing import resume, say


@dataclass
class Offer:
    """What is asked for."""

    item: str
    price: float


def answering(base: Path, *payloads: dict[str, object]) -> Path:
    entries = [say("", outbox_entries=[{"kind": "response", "payload": it, "tags": []}]) for it in payloads]
    script = [{"step": step, "reply": reply} for step, reply in enumerate(entries)]
    return org_of(base, resume("ada", turn={"take": "one"}, schedule={"wake": "addressed"}), script=script)


def test_an_answer_is_a_value_of_the_type_that_was_asked_for(base: Path) -> None:
    answering(base, {"text": "apples", "price": 3}, {"text": "now whole", "item": "apples", "price": 3})
    outcome = ask(base, "ada", "what do apples cost?", schema=Offer)
    assert outcome.answer == Offer("apples", 3.0)
    assert outcome.request.schema is not None


def test_an_answer_that_never_fits_ends_the_request_as_failed(base: Path) -> None:
    answering(base, {"text": "apples"}, {"text": "apples still"})
    outcome = ask(base, "ada", "what do apples cost?", schema=Offer)
    assert (outcome.end, outcome.answer) == ("failed", None)


@pytest.mark.parametrize("kind", [int, list[int], object])
def test_a_type_without_fields_is_refused_before_anybody_is_asked(base: Path, kind: type) -> None:
    answering(base)
    with pytest.raises(UsageError):
        ask(base, "ada", "what?", schema=kind)
    assert not list(base.glob("agents/human/outbox/*.json"))


def test_a_pattern_takes_no_time_that_grows_without_end() -> None:
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert flaw_of(schema) == ("", "")
    assert wrong_in(schema, "a" * 5000 + "b")[0].why.endswith("does not match '^(a+)+$'")


def test_a_schema_that_nothing_could_be_held_to_says_where() -> None:
    behind = {"properties": {"a": {"type": "string", "pattern": "(?<=a)b"}}}
    why = "look-around, including look-ahead and look-behind, is not supported"
    assert flaw_of(behind) == (f"the pattern '(?<=a)b' cannot be used: {why}", "/properties/a/pattern")
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    flaw, _ = flaw_of({"$ref": "#/$defs/d0", "$defs": {**doubling, "d40": {}}})
    assert "more than 10000 parts" in flaw
    assert flaw_of({"properties": {"again": {"$ref": "#"}}}) == ("", "")
