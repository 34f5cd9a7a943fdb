"""What an agent's entries must be, by its own resume and by the requests that it answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.capabilities.output_schemas.payload_validation import (
    build_payload_schemas,
    collect_answer_schemas,
    repair_answer,
)
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.agents import load_agent
from lemming.kernel.org.config import load_config
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.queries.org_validation import validate_agents
from lemming.testing import journal_lines, make_org, resume, say, write_script

PRICED = {
    "type": "object",
    "properties": {"price": {"type": "number", "minimum": 0}, "item": {"type": "string"}},
    "required": ["price"],
}
SAYS_PRICE = {"kind": "report", "payload": {"text": "apples", "price": 3}, "tags": []}
SAYS_NONE = {"kind": "report", "payload": {"text": "apples", "price": "three"}, "tags": []}
GREETS = {"kind": "message", "payload": {"text": "hello"}, "tags": []}


def reply(*entries: dict[str, Any], **more: Any) -> str:
    return json.dumps({"outbox_entries": [*entries], **more})


def payloads(base: Path) -> list[dict[str, Any]]:
    return [entry.payload for entry in read_outbox_entries(base, "ada")]


def test_an_entry_that_is_not_what_the_output_must_be_is_corrected_by_its_field(base: Path) -> None:
    script = [
        {"contains": "/outbox_entries/0/payload/price: 'three' is not of type 'number'", "reply": reply(SAYS_PRICE)},
        {"reply": reply(SAYS_NONE, GREETS)},
    ]
    make_org(base, resume("ada", output={"schema": PRICED}), script=script)
    (turn,) = run_once(base).turns
    assert (turn.status, turn.calls) == ("done", 2)
    assert payloads(base) == [SAYS_PRICE["payload"]]
    assert [replayed.turns for replayed in replay_ticks(base, [1])] == [1]


def test_what_stays_wrong_is_left_out_and_the_rest_is_kept(base: Path) -> None:
    wrong = {**SAYS_NONE, "payload": {"text": "apples"}}
    make_org(base, resume("ada", output={"schema": PRICED}), script=[{"reply": reply(wrong, SAYS_PRICE, GREETS)}])
    (turn,) = run_once(base).turns
    assert [payload["text"] for payload in payloads(base)] == ["apples", "hello"]
    assert "left out: outbox_entries: payload.price: this key is required; it was not kept" in turn.remarks


def test_conditions_say_which_entries_it_is_about(base: Path) -> None:
    priced = {"field": "tags", "op": "contains", "value": "priced"}
    tagged = {**GREETS, "tags": ["priced"]}
    script = [{"reply": reply(SAYS_NONE, tagged)}]
    make_org(base, resume("ada", turn={"repairs": 0}, output={"schema": PRICED, "when": [priced]}), script=script)
    (turn,) = run_once(base).turns
    assert payloads(base) == [SAYS_NONE["payload"]]
    assert "left out: outbox_entries 2: payload.price: this key is required; it was not kept" in turn.remarks


@pytest.mark.parametrize(
    "payload",
    [
        {"text": '{"price": 3, "item": "apple"}'},
        {"text": "x", "target": None, "data_json": '{"price": 3}'},
        {"text": "x", "price": 3, "item": None, "target": None, "data_json": None},
    ],
)
def test_the_right_answer_in_another_form_is_put_right(base: Path, payload: dict[str, Any]) -> None:
    script = [{"reply": reply({**SAYS_PRICE, "payload": payload})}]
    make_org(base, resume("ada", output={"schema": PRICED}), script=script)
    (turn,) = run_once(base).turns
    assert (turn.calls, payloads(base)[0]["price"]) == (1, 3)
    assert payloads(base)[0].get("item", "") is not None


@pytest.mark.parametrize("beside", [{}, {"text": "yes"}])
def test_a_listed_word_in_another_case_is_put_right(beside: dict[str, str]) -> None:
    verdict = {"enum": ["good", "bad"]}
    schema = {"properties": {"verdict": verdict}, "required": ["verdict"], "additionalProperties": False}
    assert repair_answer({"verdict": "GOOD", **beside}, schema).answer == {"verdict": "good", **beside}
    assert repair_answer({"verdict": "fair", **beside}, schema).answer is None


def test_a_backend_that_takes_schemas_is_given_the_fields_and_others_are_told(base: Path) -> None:
    make_org(base, resume("ada", output={"schema": PRICED}), resume("bob"), script=[{"reply": say("on")}])
    run_once(base)
    started = {it["agent"]: it for it in journal_lines(base, 1) if it["type"] == "turn_started"}
    told = started["ada"]["prompt"][-1]["content"]
    assert "must also satisfy this JSON Schema" in told
    assert '"minimum":' in told
    assert "JSON Schema" not in started["bob"]["prompt"][-1]["content"]
    assert {"output", "memory"}.isdisjoint(started["bob"]["resume"])
    assert "wanted" not in started["bob"]


def test_what_was_asked_for_goes_before_what_the_agents_answers_must_be(base: Path) -> None:
    make_org(base, resume("ada", output={"schema": PRICED}, turn={"kinds": ["report", "response"]}))
    ada, wanted = load_agent(base, "ada"), {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert [form.kinds for form in build_payload_schemas(ada, None)] == [("report", "response")]
    asked, own = build_payload_schemas(ada, wanted)
    assert (asked.kinds, own.kinds) == (("response",), ("report",))


def test_a_condition_that_is_none_takes_the_agent_out_and_says_where(base: Path) -> None:
    when = [{"field": "kind", "op": "iss", "value": "report"}]
    make_org(base, resume("ada", output={"schema": PRICED, "when": when}))
    (turn,) = run_once(base).turns
    assert turn.status == "failed"
    assert 'output.when.0.op: there is no operation "iss"' in turn.reason


def test_an_answer_to_a_request_with_a_schema_is_corrected_and_then_failed_with_words(base: Path) -> None:
    asks = {"kind": "request", "payload": {"text": "how much?", "target": "ada", "schema": PRICED}}
    wrong = {"kind": "response", "payload": {"text": "not much"}}
    script = [{"agent": "bob", "tick": 1, "reply": reply(asks)}, {"agent": "ada", "reply": reply(wrong)}]
    quiet = {"schedule": {"wake": "addressed"}}
    make_org(
        base,
        resume("bob", turn={"kinds": ["request"]}),
        resume("ada", turn={"take": "one"}, **quiet),
        script=[*script, {"reply": reply()}],
    )
    run_once(base)
    (turn,) = (it for it in run_once(base).turns if it.agent == "ada")
    assert (turn.status, turn.calls) == ("done", 2)
    (answer,) = payloads(base)
    assert answer["status"] == "failed"
    assert answer["text"] == "the answer is not what was asked for: /price: this key is required"
    begun = [it for it in journal_lines(base, 2) if it["type"] == "turn_started"]
    schemas = [it["given"]["answers"]["schemas"] for it in begun if "given" in it]
    assert [[*it.values()] for it in schemas] == [[PRICED]]
    assert [replayed.turns for replayed in replay_ticks(base, [2])] == [2]


@pytest.mark.parametrize("more", [{"asked": {"schema": {}}}, {"hands_on": "x", "asked": "y"}])
def test_only_who_hands_a_request_on_says_what_was_asked(base: Path, more: dict[str, Any]) -> None:
    make_org(base, resume("ada"))
    payload = {"text": "how much?", "target": "ada", "schema": PRICED, **more}
    asks = write_person_entry(base, "ada", tick=1, kind="request", payload=payload, tags=[], created_at="")
    assert collect_answer_schemas([asks]) == {asks.identity: PRICED}


def test_a_refusal_is_held_to_no_schema(base: Path) -> None:
    refusal = {"kind": "response", "payload": {"text": "I may not say", "status": "refused"}}
    make_org(base, resume("ada", output={"schema": PRICED}), script=[{"reply": reply(refusal)}])
    (turn,) = run_once(base).turns
    assert (turn.calls, len(payloads(base))) == (1, 1)


def test_validate_names_what_is_wrong_with_an_output(base: Path) -> None:
    output = {"schema": {"properties": {"a": {"type": "numbr"}, "b": {"$ref": "https://example.org/b"}}}}
    make_org(
        base,
        resume("ada", output=output, turn={"kinds": ["message"]}),
        resume("bob", output={"schema": {"properties": {"b": {"$ref": "https://example.org/b"}}}}),
        resume("cyd", output={"schema": {"$defs": {"c": {}}, "properties": {"c": {"$ref": "#/$defs/c"}}}}),
    )
    found = [str(problem) for problem in validate_agents(base, load_config(base), None)]
    assert any("/output/schema/properties/a/type: expected a JSON Schema: 'numbr'" in it for it in found), found
    assert any("the schema applies to no entry" in it for it in found)
    (outside,) = (it for it in found if "the schema does not contain" in it)
    assert "b/$ref: the schema does not contain https://example.org/b" in outside
    assert any("the schema cannot constrain the model's output" in it for it in found)
    ada, *_ = run_once(base).turns
    assert (ada.status, "expected a JSON Schema" in ada.reason) == ("failed", True)


def test_of_several_requests_in_one_inbox_each_answer_is_held_to_its_own_schema(base: Path) -> None:
    asks = [
        {"kind": "request", "payload": {"text": "how much?", "target": "ada", "schema": PRICED}},
        {"kind": "request", "payload": {"text": "how?", "target": "ada"}},
    ]
    make_org(
        base,
        resume("bob", turn={"kinds": ["request"]}),
        resume("ada", turn={"take": "all", "repairs": 0}),
        script=[{"agent": "bob", "tick": 1, "reply": reply(*asks)}, {"reply": reply()}],
    )
    run_once(base)
    ids = [entry.id for entry in read_outbox_entries(base, "bob")]
    both = [{"kind": "response", "payload": {"text": "so", "reply_to": it}} for it in ids]
    write_script(base, [{"agent": "ada", "reply": reply(*both)}, {"reply": reply()}])
    (turn,) = (it for it in run_once(base).turns if it.agent == "ada")
    assert [payload["reply_to"] for payload in payloads(base)] == [ids[1]]
    assert "left out: outbox_entries: payload.price: this key is required; it was not kept" in turn.remarks
