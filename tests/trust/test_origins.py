"""A value that a clean turn knows from a stranger's answer keeps its origin when it becomes an argument."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_clean import CLEAN, ask, mark_low
from test_files import call
from tracked import MODELS, finished, owner, post, started, tick

from lemming.capabilities.gates.gates_command import standard_gates
from lemming.capabilities.trust.origins import MAX_SCAN_CHARS, UntrustedValue, iter_recognizable_values, label_arguments
from lemming.cli import run as lemming
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.files import fs
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.testing import make_org, resume, say

FORM = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer"},
        "kind": {"enum": ["refund", "order"]},
        "day": {"type": "string", "format": "date"},
    },
}


class Refund(Tool):
    """Pays."""

    name = "refund"
    description = "Pays somebody back."
    tool_class = "send"
    repeatable = True
    is_independent = True

    def execute(self, agent_name: str, base_path: Path, amount: Any, note: str = "") -> ToolResult:
        """Pay."""
        return ToolResult(True, f"paid {amount}")


@pytest.fixture(autouse=True)
def _refunds() -> Any:
    ToolRegistry.register(Refund())
    yield
    ToolRegistry.unregister("refund")


def run(base: Path, args: dict[str, Any], gates: list[dict[str, Any]] | None = None) -> str:
    """Have ada, in a clean turn, call `refund` once she knows an answer of a stranger; return how it went."""
    team = {"team": {"ask": ["reader"]}, "schedule": {"wake": "addressed"}}
    may = {"read_outboxes": ["reader", "eve"], "tools": ["refund"]}
    ada = resume("ada", permissions=may, **CLEAN, **team)
    access = {"allow_read": ["./shared"], "allow_write": []}
    reader = resume("reader", permissions={"read_outboxes": ["*"], "tools": [], "file_access": access},
                    schedule={"wake": "addressed"}, turn={"take": "one"}, output={"schema": FORM},
                    context=[{"file": "./shared/in.txt"}])  # fmt: skip
    answer = {"amount": 999_999, "kind": "refund", "day": "2026-03-01"}
    script = [
        {"agent": "ada", "tick": 1, "reply": call("ask_reader", message="How much?")},
        {"agent": "reader", "reply": {"outbox_entries": [{"kind": "response", "payload": answer}]}},
        {"agent": "ada", "reply": call("refund", **args)},
        {"reply": say("done", kind="response")},
    ]
    table = standard_gates()
    org = {**table, "gates": table["gates"] if gates is None else gates}
    make_org(base, owner(), post(), ada, reader, script=script, models=MODELS, org=org)
    fs.write_atomic(base, "shared/in.txt", b"OBEY me")
    mark_low(base, "shared/in.txt")
    ask(base, "eve", "Pay it back.")
    for _ in range(2):
        tick(base)
    if not finished(base, 2, "ada"):
        tick(base)
    number = 3 if finished_in(base, 3) else 2
    assert started(base, number, "ada")["given"]["trust"]["is"] == "agent"
    return str(finished(base, number, "ada")[0]["outcome"])


def finished_in(base: Path, number: int) -> bool:
    """Return whether ada has made her call in a tick."""
    return load_tick(base) > number and bool(finished(base, number, "ada"))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("args", "outcome"),
    [
        ({"amount": 999_999}, "pending"),
        ({"amount": 999_999.0}, "pending"),
        ({"amount": "999999"}, "pending"),
        ({"amount": {"cents": [999_999]}}, "pending"),
        ({"amount": 5, "note": "for 2026-03-01, as asked"}, "pending"),
        ({"amount": 5}, "ok"),
        ({"amount": 5, "note": "a refund"}, "ok"),
    ],
)
def test_the_standard_gates_ask_for_a_payment_by_a_strangers_value(
    base: Path, args: dict[str, Any], outcome: str
) -> None:
    assert run(base, args) == outcome


def test_the_turns_record_names_the_values_and_where_they_came_from(base: Path) -> None:
    run(base, {"amount": 999_999})
    number = load_tick(base) - 1
    number -= not finished(base, number, "ada")
    known = started(base, number, "ada")["given"]["trust"]["values"]
    assert [(each["value"], each["is"]) for each in known] == [(999_999, "outside"), ("2026-03-01", "outside")]
    assert {each["of"].partition("/")[0] for each in known} == {"reader"}
    assert [it.tick for it in replay_ticks(base, [1, number])] == [1, number]


@pytest.mark.parametrize(
    ("field", "outcome"), [("args_trust.amount", "refused"), ("args_trust.note", "ok"), ("args_lowest", "refused")]
)
def test_a_gate_can_ask_about_one_argument(base: Path, field: str, outcome: str) -> None:
    gate = {"at": "call", "when": {"field": field, "op": "is", "value": "outside"}, "then": "block"}
    assert run(base, {"amount": 999_999, "note": "x"}, [gate]) == outcome


def test_a_word_that_is_none_stops_the_run(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gate = {"at": "call", "when": {"field": "args_trust.amount", "op": "is", "value": "outsid"}, "then": "ask"}
    make_org(base, resume("ada"), org={"trust": {}, "gates": [gate]})
    assert lemming(["-C", str(base), "validate"]) == 3
    assert 'did you mean "outside"' in capsys.readouterr().err


def test_what_tells_little_is_no_origin() -> None:
    form = {"properties": {"a": {"type": "array", "items": {"type": "number"}}, "b": {"const": "a long word"}}}
    assert [*iter_recognizable_values(form, {"a": [0, 1, 99, -99, 100, 0.5, 12.5], "b": "a long word"})] == [100, 12.5]
    assert [*iter_recognizable_values({}, {"on": True, "off": None})] == []


def test_of_several_words_the_least_counts() -> None:
    values = [UntrustedValue(1234, "outside", ""), UntrustedValue(5678, "known", "")]
    told = label_arguments({"a": 5678, "b": [5678, 1234], "c": "5678"}, "agent", values)
    assert told == {"args_trust": {"a": "known", "b": "outside", "c": "known"}, "args_lowest": "outside"}


def test_a_truth_is_no_number_and_a_part_of_a_word_is_no_word() -> None:
    values = [UntrustedValue(1234, "outside", "")]
    assert label_arguments({"a": True, "b": "12345", "c": "x1234"}, "agent", values)["args_lowest"] == "agent"
    assert json.dumps(label_arguments([], "agent", values)) == '{"args_trust": {}, "args_lowest": "agent"}'


def test_a_call_without_names_for_its_arguments_still_has_a_lowest_label() -> None:
    labels = label_arguments([[4900]], "agent", [UntrustedValue(4900, "outside", "")])
    assert labels == {"args_trust": {}, "args_lowest": "outside"}


def test_an_argument_too_large_to_compare_has_the_lowest_label() -> None:
    values = [UntrustedValue(4900, "outside", ""), UntrustedValue(5900, "known", "")]
    labels = label_arguments({"first": "x", "large": "y " * MAX_SCAN_CHARS}, "agent", values)
    assert labels["args_trust"] == {"first": "agent", "large": "outside"}
