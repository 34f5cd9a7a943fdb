"""Asking for a value of a type, and being held to it; schemas that nobody could hold anything to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from asked import org_of
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from lemming.capabilities.output_schemas.payload_validation import find_violations
from lemming.client.ask_client import NotAnswered, ask
from lemming.kernel.base.errors import ContractError, UsageError
from lemming.kernel.base.json_schema.schema_violations import find_schema_flaw
from lemming.testing import resume, say


@dataclass
class Offer:
    """What is asked for."""

    item: str
    price: float


class Line(BaseModel):
    """A part of what is asked for."""

    item: str
    price: float = Field(ge=0)


class Bill(BaseModel):
    """What is asked for, with a rule that no schema says."""

    lines: list[Line]
    note: str | None = None

    @field_validator("lines")
    @classmethod
    def _has_some(cls, lines: list[Line]) -> list[Line]:
        if not lines:
            raise ValueError("a bill has lines")
        return lines


class Sum(TypedDict):
    """The same as a TypedDict."""

    total: float


def answering(base: Path, *payloads: dict[str, object]) -> Path:
    entries = [say("", outbox_entries=[{"kind": "response", "payload": it, "tags": []}]) for it in payloads]
    script = [{"step": step, "reply": reply} for step, reply in enumerate(entries)]
    return org_of(base, resume("ada", turn={"take": "one"}, schedule={"wake": "addressed"}), script=script)


def test_an_answer_is_a_value_of_the_type_that_was_asked_for(base: Path) -> None:
    answering(base, {"text": "apples", "price": 3}, {"text": "now whole", "item": "apples", "price": 3})
    outcome = ask(base, "ada", "what do apples cost?", returns=Offer)
    assert outcome.answer == Offer("apples", 3.0)
    assert outcome.request.schema is not None


def test_an_answer_that_never_fits_ends_the_request_as_failed(base: Path) -> None:
    answering(base, {"text": "apples"}, {"text": "apples still"})
    outcome = ask(base, "ada", "what do apples cost?", returns=Offer)
    assert (outcome.end, outcome.answer) == ("failed", None)
    with pytest.raises(NotAnswered, match="ada has failed: the answer is not what was asked for: /item: "):
        _ = outcome.value


def test_models_within_models_and_typed_dicts_are_values_too(base: Path) -> None:
    answering(base / "a", {"lines": [{"item": "apples", "price": 3}]})
    bill = ask(base / "a", "ada", "what do I owe?", returns=Bill).value
    assert (bill.lines, bill.note) == ([Line(item="apples", price=3.0)], None)
    answering(base / "b", {"text": "in all", "total": 3})
    assert ask(base / "b", "ada", "how much?", returns=Sum).value == {"total": 3.0}


def test_what_only_the_type_refuses_says_what_did_not_fit(base: Path) -> None:
    answering(base, {"lines": []})
    told = r"the answer is no Bill: /lines: a bill has lines, got \[\]"
    with pytest.raises(ContractError, match=told):
        ask(base, "ada", "what do I owe?", returns=Bill)


def test_a_type_and_a_schema_are_one_too_many(base: Path) -> None:
    answering(base)
    with pytest.raises(UsageError, match="expected a type or a schema"):
        ask(base, "ada", "what?", returns=Offer, schema={"properties": {"item": {}}})


def test_a_type_to_which_nobody_can_be_held_is_refused(base: Path) -> None:
    class Odd(BaseModel):
        name: str = Field(json_schema_extra={"pattern": "(?<=a)b"})

    answering(base)
    with pytest.raises(UsageError, match="Odd has no usable JSON Schema: /properties/name/pattern"):
        ask(base, "ada", "what?", returns=Odd)
    assert not list(base.glob("agents/human/outbox/*.json"))


@pytest.mark.parametrize("kind", [int, list[int], object])
def test_a_type_without_fields_is_refused_before_anybody_is_asked(base: Path, kind: type) -> None:
    answering(base)
    with pytest.raises(UsageError):
        ask(base, "ada", "what?", returns=kind)
    assert not list(base.glob("agents/human/outbox/*.json"))


def test_a_pattern_takes_no_time_that_grows_without_end() -> None:
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert find_schema_flaw(schema) == ("", "")
    assert find_violations(schema, "a" * 5000 + "b")[0].reason.endswith("does not match '^(a+)+$'")


def test_a_schema_that_nothing_could_be_held_to_says_where() -> None:
    behind = {"properties": {"a": {"type": "string", "pattern": "(?<=a)b"}}}
    why = "look-around, including look-ahead and look-behind, is not supported"
    assert find_schema_flaw(behind) == (f"the pattern '(?<=a)b' cannot be used: {why}", "/properties/a/pattern")
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    flaw, _ = find_schema_flaw({"$ref": "#/$defs/d0", "$defs": {**doubling, "d40": {}}})
    assert "more than 10000 parts" in flaw
    assert find_schema_flaw({"properties": {"again": {"$ref": "#"}}}) == ("", "")
