"""Answers from a JSONL file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.capabilities.scripted_models.scripted_provider import ScriptedProvider, question_digest
from lemming.kernel.base import errors
from lemming.kernel.base.errors import ConfigError, ProviderError, RequestRejected, TimedOut
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.providers import Reply, Request, make_provider


def script(base: Path, *lines: dict[str, Any]) -> ScriptedProvider:
    """A provider that plays these lines."""
    (base / "script.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    return ScriptedProvider(file="script.jsonl", base=base)


def entry_line(identity: str, text: str, account: str) -> str:
    entry = {"id": identity, "from": "drop", "tick": 1, "payload": {"text": text, "from": account}}
    return f"<<<DATA 12\n{json.dumps(entry)}\n12 DATA>>>"


def test_an_object_is_answered_as_json_and_text_as_it_is(tmp_path: Path, request_: Request) -> None:
    assert call_provider(script(tmp_path, {"reply": {"notes": "é"}}), request_).text == '{"notes":"é"}'
    assert call_provider(script(tmp_path, {"reply": "not json"}), request_).text == "not json"


def test_usage_is_what_the_line_says(tmp_path: Path, request_: Request) -> None:
    reply = call_provider(script(tmp_path, {"reply": "x", "input_tokens": 10, "output_tokens": 2}), request_)
    assert reply == Reply(text="x", input_tokens=10, output_tokens=2, model="m")


def test_the_first_line_whose_conditions_hold_answers(tmp_path: Path, request_: Request) -> None:
    provider = script(
        tmp_path,
        {"agent": "writer", "reply": "other agent"},
        {"agent": "planner", "tick": 4, "reply": "other tick"},
        {"tick": 3, "step": 1, "reply": "second step"},
        {"contains": "goodbye", "reply": "other text"},
        {"agent": "planner", "tick": 3, "step": 0, "contains": "hello", "reply": "this one"},
        {"agent": "*", "reply": "anything else"},
    )
    assert call_provider(provider, request_).text == "this one"
    assert call_provider(provider, request_._replace(step=1)).text == "second step"
    assert call_provider(provider, request_._replace(tick=9)).text == "anything else"
    assert call_provider(provider, request_).text == "this one"


def test_contains_looks_at_the_last_message_to_the_model(tmp_path: Path, request_: Request) -> None:
    provider = script(tmp_path, {"contains": "brief", "reply": "no"}, {"contains": "Say", "reply": "yes"})
    assert call_provider(provider, request_).text == "yes"


def test_no_line_is_an_error_that_names_file_agent_and_tick(tmp_path: Path, request_: Request) -> None:
    with pytest.raises(RequestRejected, match="agent 'planner', tick 3, step 0") as caught:
        call_provider(script(tmp_path, {"agent": "writer", "reply": "x"}), request_)
    assert caught.value.where == "script.jsonl"


@pytest.mark.parametrize(
    "name", ["Unavailable", "RateLimited", "TimedOut", "AuthenticationFailed", "UnknownModel", "RequestRejected"]
)
def test_a_line_can_be_an_error(name: str, tmp_path: Path, request_: Request) -> None:
    with pytest.raises(ProviderError) as caught:
        call_provider(script(tmp_path, {"error": name}), request_)
    assert type(caught.value) is getattr(errors, name)


def test_an_answer_can_take_too_long(tmp_path: Path, request_: Request) -> None:
    slow = script(tmp_path, {"reply": "x", "delay_s": 60})
    with pytest.raises(TimedOut):
        call_provider(slow, request_._replace(deadline_s=0.01))
    assert call_provider(script(tmp_path, {"reply": "x", "delay_s": 0.01}), request_).text == "x"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"reply": "x"', "unexpected end of JSON"),
        ("[1]", "expected an object"),
        ('{"reply": 7}', "/reply"),
        ('{"agent": "planner"}', 'either "reply" or "error"'),
        ('{"reply": "x", "error": "TimedOut"}', 'either "reply" or "error"'),
        ('{"error": "Crash"}', "Crash"),
        ('{"agnet": "planner", "reply": "x"}', 'did you mean "agent"?'),
        ('{"reply": "x", "delay_s": -1}', "at least 0"),
        ('{"reply": "x", "at": "noon"}', "must be a time such as"),
    ],
)
def test_a_wrong_line_is_named_with_its_number(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "script.jsonl").write_text(f'{{"reply": "x"}}\n\n{line}\n')
    with pytest.raises(ConfigError) as caught:
        ScriptedProvider(file="script.jsonl", base=tmp_path)
    assert message in str(caught.value)
    assert "script.jsonl:3:" in str(caught.value)
    assert caught.value.problems[0].severity == "error"


def test_a_missing_script_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.jsonl: the script cannot be read"):
        make_provider("scripted", {"file": "nowhere.jsonl"}, base=tmp_path)


def test_a_recorded_answer_came_when_the_line_says(tmp_path: Path, request_: Request) -> None:
    at = "2026-11-23T09:00:00.000Z"
    assert call_provider(script(tmp_path, {"reply": "x", "at": at}), request_).at == at


def test_a_line_with_its_question_answers_it_in_any_tick_and_nothing_else(tmp_path: Path, request_: Request) -> None:
    question = question_digest(request_.messages)
    provider = script(tmp_path, {"tick": 1, "question": question, "reply": "that one"})
    assert call_provider(provider, request_._replace(tick=77)).text == "that one"
    other = [*request_.messages[:-1], {"role": "user", "content": "something else"}]
    with pytest.raises(RequestRejected, match=r"was not asked then \(question [0-9a-f]{16}\)") as caught:
        call_provider(provider, request_._replace(messages=other))
    assert question_digest(other) in str(caught.value)
    assert "lemming models use" in caught.value.hint


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("# Now\nIt is tick 1.\n# Memory\nx", "# Now\nIt is tick 2, 9 o'clock.\n# Memory\nx", True),
        ("# Memory\nx", "# Memory\ny", False),
        ("# File: a\n<<<DATA 12\nx\n12 DATA>>>", "# File: a\n<<<DATA 34\nx\n34 DATA>>>", True),
        ("<<<DATA 12\n# Now\nmine\n12 DATA>>>", "<<<DATA 12\n# Now\nyours\n12 DATA>>>", False),
        (entry_line("a1", "hi", "root"), entry_line("b2", "hi", "ada"), True),
        (entry_line("a1", "hi", "root"), entry_line("a1", "ho", "root"), False),
    ],
)
def test_a_question_is_the_same_whenever_and_by_whose_account_it_is_asked(one: str, other: str, is_same: bool) -> None:
    asked = [question_digest([{"role": "user", "content": text}]) for text in (one, other)]
    assert (asked[0] == asked[1]) is is_same


def test_the_instructions_are_part_of_a_question_and_what_the_contract_says_is_not() -> None:
    def system(instructions: str, rules: str) -> str:
        return question_digest(
            [{"role": "system", "content": f"You.\n\n# Instructions\n{instructions}\n\n# What you may do\n{rules}"}]
        )

    assert system("Sort.", "Read.") == system("Sort.", "Read and write.")
    assert system("Sort.", "Read.") != system("Answer.", "Read.")
