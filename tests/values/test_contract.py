"""The contract between engine and model."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from lemming.kernel.base.contract import MAX_ENTRY_BYTES, MAX_GROWTH, brief_reply, parse_reply
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.base.errors import ContractError
from lemming.kernel.base.jsontext import parse, to_line
from lemming.kernel.turn.reply_schemas import reply_schema
from lemming.testing import say


def read(text: str, **limits: Any) -> Any:
    return parse_reply(text, kinds=MESSAGE_KINDS, **limits)


def test_the_guides_example_is_read_as_it_is_printed() -> None:
    reply = read(
        '{"outbox_entries": [{"kind": "report", "payload": {"a": 1}, "tags": ["x"]}],'
        ' "tool_calls": [{"tool": "file_read", "args": {"path": "data.txt"}}],'
        ' "memory_updates": [{"key": "context", "value": {"b": 2}}],'
        ' "notes": "Optional free-form notes for logs"}'
    )
    assert reply.outbox_entries[0].payload == {"a": 1}
    assert reply.tool_calls[0].args == {"path": "data.txt"}
    assert reply.memory_updates[0].value == {"b": 2}
    assert reply.notes.startswith("Optional")
    assert reply.remarks == ()


@pytest.mark.parametrize("written", ["1e15", "-9e15", "1E5", "1e-5", "0", "[]", '"\\u00e9"', '"\\/"', "null"])
def test_no_json_grows_more_when_it_is_written_than_the_check_of_sizes_allows_for(written: str) -> None:
    text = f"[{','.join([written] * 100)}]"
    assert len(to_line(parse(text)).encode()) <= MAX_GROWTH * len(text)


def test_a_payload_is_measured_as_it_will_be_written() -> None:
    numbers = ",".join(["1e15"] * 4000)
    with pytest.raises(ContractError, match=f"larger than {MAX_ENTRY_BYTES} bytes"):
        read(f'{{"outbox_entries": [{{"kind": "message", "payload": {{"a": [{numbers}]}}}}]}}')


@pytest.mark.parametrize(
    "wrapped", ["```json\n{}\n```", "```\n{}\n```", "Here you are:\n{}\nHope it helps!", "I use {{braces}} too. {}"]
)
def test_json_in_a_fence_or_in_prose_is_accepted_and_remarked_upon(wrapped: str) -> None:
    text = (
        wrapped.replace("{}", json.dumps(say("hi")), 1)
        if "{{" not in wrapped
        else f"I use {{braces}}. {json.dumps(say('hi'))}"
    )
    reply = read(text)
    assert reply.outbox_entries[0].payload == {"text": "hi"}
    assert len(reply.remarks) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("null", "must be a JSON object"),
        ("[]", "must be a JSON object"),
        ("{}", "none of the keys"),
        ('{"entries": []}', "none of the keys"),
        ('{"outbox_entry": [], "notes": ""}', 'did you mean "outbox_entries"?'),
        ('{"notes": 3}', "/notes: expected text"),
        ('{"outbox_entries": {}}', "/outbox_entries: expected a list"),
        ('{"outbox_entries": ["x"]}', "/outbox_entries/0: expected an object"),
        ('{"outbox_entries": [{"kind": "report"}]}', "/outbox_entries/0/payload: expected an object"),
        ('{"outbox_entries": [{"kind": "report", "payload": "x"}]}', "/outbox_entries/0/payload"),
        ('{"outbox_entries": [{"kind": ["report"], "payload": {}}]}', "/outbox_entries/0/kind"),
        ('{"outbox_entries": [{"kind": "../../x", "payload": {}}]}', "/outbox_entries/0/kind"),
        ('{"tool_calls": ["ls"]}', "/tool_calls/0: expected an object"),
        ('{"tool_calls": [{"args": {}}]}', "/tool_calls/0/tool"),
        ('{"tool_calls": [{"tool": "x", "args": []}]}', "/tool_calls/0/args"),
        ('{"memory_updates": [{"value": 1}]}', "/memory_updates/0/key"),
        ('{"memory_updates": [{"key": 7, "value": 1}]}', "/memory_updates/0/key"),
        ('{"memory_updates": [{"key": "../../../x", "value": 1}]}', "/memory_updates/0/key"),
        ('{"memory_updates": [{"key": "x"}]}', "/memory_updates/0/value"),
        ('{"notes": NaN}', "NaN"),
        ('{"notes": "a", "notes": "b"}', "duplicate key"),
        ('{"notes": "cut', "unterminated string"),
        ('{"notes": ""} {"notes": ""}', "2 JSON objects"),
        ('{"a":' * 100_000, "nesting"),
        ("{" * 500_000, "not one JSON object"),
        ("x" * (2 << 20), "larger than"),
        ("plain prose", "not one JSON object"),
    ],
)
def test_what_is_not_the_contract_is_refused_in_words_for_the_model(text: str, problem: str) -> None:
    with pytest.raises(ContractError) as caught:
        read(text)
    assert problem in str(caught.value)


UNSOUND = {
    '{"outbox_entries": [{"kind": "report", "payload": {}, "tags": [["x"]]}]}': "expected a list of words",
    '{"outbox_entries": [{"kind": "report", "payload": {}, "tags": "x"}]}': "tags: expected a list of words",
    '{"outbox_entries": [{"kind": "report", "payload": {}, "colour": 1}]}': 'unknown key "colour"',
}


@pytest.mark.parametrize(("text", "problem"), UNSOUND.items())
def test_an_entry_stands_without_its_unsound_tags_and_keys(text: str, problem: str) -> None:
    reply = read(text)
    assert reply.outbox_entries[0] == ("report", {}, [])
    assert problem in reply.left_out[0]
    with pytest.raises(ContractError, match=re.escape(problem)):
        read(text, keep="all")


FAULTY = {
    "single quotes": ("{'notes': 'x'}", "the JSON was not strict"),
    "a comma too many": ('{"notes": "x",}', "the JSON was not strict"),
    "a bracket too few": ('{"notes": "x"', "the JSON was not strict"),
    "faults in a fence": ("```json\n{'notes': 'x',}\n```", "the JSON stood in a code fence"),
    "thinking before it": ('<think>{"notes": "y"}?</think>\n{"notes": "x"}', None),
}


@pytest.mark.parametrize(("text", "remark"), FAULTY.values(), ids=FAULTY)
def test_small_faults_of_json_are_read(text: str, remark: str | None) -> None:
    reply = read(text)
    assert (reply.notes, reply.remarks) == ("x", (remark,) if remark else ())
    with pytest.raises(ContractError):
        read(text, keep="all")


CALLS = {
    "OpenAI's": {"type": "function", "function": {"name": "file_read", "arguments": '{"path": "x"}'}},
    "name and arguments": {"name": "file_read", "arguments": {"path": "x"}},
    "tool and arguments": {"tool": "file_read", "arguments": {"path": "x"}},
    "a reason beside": {"tool": "file_read", "args": {"path": "x"}, "reason": "to know"},
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_in_the_list_may_have_the_shape_of_others(call: dict[str, Any]) -> None:
    assert read(json.dumps({"tool_calls": [call]})).tool_calls == (("file_read", {"path": "x"}, "", None, None),)


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(ContractError) as caught:
        read('{"outbox_entries": [{"kind": "shout", "payload": 1}], "tool_calls": 3}')
    assert str(caught.value).count(";") == 2


def test_more_than_the_limit_is_left_out_with_a_count() -> None:
    many = json.dumps({"outbox_entries": [{"kind": "report", "payload": {}}] * 5000})
    reply = read(many)
    assert len(reply.outbox_entries) == 64
    assert "4936 of 5000" in reply.remarks[0]


def test_kinds_outside_the_resume_are_refused() -> None:
    with pytest.raises(ContractError, match="expected one of report"):
        parse_reply(json.dumps(say("x", kind="request")), kinds=["report"])


TOOLS = {
    "file_read": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "free": {"type": "object", "additionalProperties": True},
}


def test_the_wire_form_is_closed_and_required_everywhere() -> None:
    def check(schema: Any) -> None:
        if isinstance(schema, dict):
            if schema.get("type") == "object":
                assert schema["additionalProperties"] is False
                assert schema["required"] == list(schema["properties"])
            for value in schema.values():
                check(value)
        elif isinstance(schema, list):
            for value in schema:
                check(value)

    schema = reply_schema(kinds=["report"], tools=TOOLS)
    Draft202012Validator.check_schema(schema)
    check(schema)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1000, 1000)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    more=st.dictionaries(st.sampled_from(["a", "b"]), JSON),
    value=JSON,
)
def test_the_wire_form_means_the_same_as_the_guides_form(text: str, more: dict[str, Any], value: Any) -> None:
    wire = {
        "outbox_entries": [
            {"kind": "report", "payload": {"text": text, "target": None, "data_json": json.dumps(more)}, "tags": []}
        ],
        "tool_calls": [{"tool": "free", "args_json": json.dumps(more)}, {"tool": "file_read", "args": {"path": "p"}}],
        "memory_updates": [{"key": "k", "value_json": json.dumps(value)}],
        "notes": "",
    }
    Draft202012Validator(reply_schema(kinds=["report"], tools=TOOLS)).validate(wire)
    literal = {
        "outbox_entries": [{"kind": "report", "payload": {**more, "text": text}, "tags": []}],
        "tool_calls": [{"tool": "free", "args": more}, {"tool": "file_read", "args": {"path": "p"}}],
        "memory_updates": [{"key": "k", "value": value}],
        "notes": "",
    }
    assert read(json.dumps(wire)) == read(json.dumps(literal))


def test_the_reply_that_examples_teach_is_the_contract() -> None:
    text = brief_reply("report", 'a "quoted" fact')
    assert read(text).outbox_entries[0].payload == {"text": 'a "quoted" fact'}


@given(st.text())
def test_no_text_whatever_escapes_as_another_error(text: str) -> None:
    with contextlib.suppress(ContractError):
        read(text)
