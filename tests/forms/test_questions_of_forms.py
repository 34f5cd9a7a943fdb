"""What a server is asked in each form of a reply: grammars, fields and samples that go together."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.models import lemming_side
from benchmarks.models.measuring import PlayedTurn
from benchmarks.models.recorder import Question, Recorder
from benchmarks.models.turn import Expected, Turn
from benchmarks.models.turns import TURNS
from lemming.kernel.base.json_schema.schema_violations import describe_violations
from lemming.kernel.base.reply_json import find_objects
from lemming.libraries.outbox_files import read_outbox_entries

BY_NAME = {turn.name: turn for turn in TURNS}
OF_EACH_KIND = [turn for turn in TURNS if turn.name.endswith("-1") and not turn.is_held_out]
BROKEN = "I would rather not say."
PROMPTS = ("fit", "brief", "tools")


def ask(base: Path, turn: Turn, *replies: str, prompt: str = "fit", json_mode: str = "") -> PlayedTurn:
    """Play a turn through the engine; the model gives these replies, and the last one for ever."""
    with Recorder(answer_with(replies)) as recorder:
        recorder.begin("lemming", turn.name)
        line = lemming_side.make_model_entry(recorder.url, "m", "llamacpp", prompt)
        line["options"] |= {"json": json_mode} if json_mode else {}
        outcome = lemming_side.play_turn(lemming_side.make_organisation(base, turn, line), turn)
        return PlayedTurn(turn, outcome, recorder.questions)


def answer_with(replies: tuple[str, ...]) -> Callable[[Question], Question]:
    """Return a model that gives replies in their order."""

    def answer(question: Question) -> Question:
        text = replies[min(question.number, len(replies) - 1)]
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return replace(question, status=200, reply={"choices": [choice]})

    return answer


def schema_of(question: Question) -> dict[str, Any] | None:
    """Return the schema that a question holds the reply to."""
    wanted = question.request.get("response_format")
    return wanted["json_schema"]["schema"] if wanted and "json_schema" in wanted else None


def samples_in(question: Question) -> list[dict[str, Any]]:
    """Return the objects that the messages of a question show, without those that are values of others."""
    texts = [message["content"] for message in question.request["messages"]]
    found = [one.value for text in texts for one in find_objects(text, is_strict=True)]
    return [value for value in found if isinstance(value, dict)]


def last_reply(turn: Turn) -> str:
    """Return a reply that ends a turn."""
    return json.dumps({"do": "answer", "text": "It is so."} if turn.request else {"do": "done"})


@pytest.mark.sample(9)
@pytest.mark.parametrize("turn", OF_EACH_KIND, ids=lambda turn: turn.name)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_each_sample_of_a_question_satisfies_its_grammar_and_is_a_valid_reply(
    tmp_path: Path, turn: Turn, prompt: str
) -> None:
    asked = ask(tmp_path / "asked", turn, BROKEN, prompt=prompt).questions
    for number, question in enumerate(asked):
        schema = schema_of(question)
        for place, sample in enumerate(samples_in(question)):
            text = json.dumps(sample)
            assert schema is None or describe_violations(schema, sample) == [], text
            played = ask(tmp_path / f"{number}-{place}", turn, text, last_reply(turn), prompt=prompt)
            assert played.outcome.is_valid, (text, played.outcome.problem)


@pytest.mark.sample(5)
@pytest.mark.parametrize("turn", OF_EACH_KIND, ids=lambda turn: turn.name)
def test_each_sample_is_a_valid_reply_where_no_grammar_holds_it(tmp_path: Path, turn: Turn) -> None:
    asked = ask(tmp_path / "asked", turn, BROKEN, json_mode="text").questions
    samples = [sample for question in asked for sample in samples_in(question)]
    assert samples or turn.kind == "answer"
    for number, sample in enumerate(samples):
        text = json.dumps(sample)
        played = ask(tmp_path / str(number), turn, text, last_reply(turn), json_mode="text")
        assert played.outcome.is_valid, (text, played.outcome.problem)


def test_fields_that_are_words_of_requests_are_asked_for_like_any_other(tmp_path: Path) -> None:
    played = ask(tmp_path, BY_NAME["plan-1"], json.dumps({"step": "write", "why": "it comes next"}))
    schema = schema_of(played.questions[0])
    assert schema is not None
    assert [*schema["properties"]] == ["step", "why"]
    payload = read_outbox_entries(tmp_path, lemming_side.AGENT)[0].payload
    assert payload["answer"] == {"step": "write", "why": "it comes next"}
    assert "step" not in payload
    assert played.outcome.answer == {"step": "write", "why": "it comes next"}


def test_limits_of_a_field_stay_in_its_grammar_and_out_of_the_prompt(tmp_path: Path) -> None:
    fields = {"code": {"type": "string", "minLength": 2, "maxLength": 5}, "note": {"type": "string"}}
    turn = Turn(kind="form", name="form", instructions="Fill it in.", expected=Expected(), request="x", fields=fields)
    question = ask(tmp_path / "fit", turn, json.dumps({"code": "AB", "note": "x"})).questions[0]
    small = ask(tmp_path / "brief", turn, json.dumps({"code": "AB", "note": "x"}), prompt="brief").questions[0]
    told = question.request["messages"][0]["content"]
    assert told.endswith("Reply with one line of JSON: code, note.")
    for asked, longest in ((question, 400), (small, 160)):
        schema = schema_of(asked)
        assert schema is not None
        assert schema["properties"]["code"] == {"type": "string", "minLength": 2, "maxLength": 5}
        assert schema["properties"]["note"]["maxLength"] == longest


def test_one_action_or_a_list_answers_several_entries(tmp_path: Path) -> None:
    turn = BY_NAME["report-1"]
    first, second = ({"do": "send", "text": text} for text in ("BACKUP FAILED", "login ok"))
    one = ask(tmp_path / "one", turn, json.dumps(first))
    several = ask(tmp_path / "several", turn, json.dumps([first, second]))
    assert one.outcome.sent == [["ops", "BACKUP FAILED"]]
    assert several.outcome.sent == [["ops", "BACKUP FAILED"], ["ops", "login ok"]]
    assert one.outcome.is_valid
    assert several.outcome.is_valid
    schema = schema_of(one.questions[0])
    assert schema is not None
    assert describe_violations(schema, first) == []
    assert describe_violations(schema, [first, second]) == []
    assert describe_violations(schema, [first] * 9) != []


def test_a_memory_is_asked_for_before_the_answer_with_a_key_that_is_one(tmp_path: Path) -> None:
    turn = BY_NAME["remember-1"]
    keeps = {"do": "remember", "key": "favourite_colour", "value": "green"}
    played = ask(tmp_path, turn, json.dumps(keeps), json.dumps({"do": "answer", "text": "Noted."}))
    assert played.outcome.memories == ["favourite_colour: green"]
    assert played.outcome.answer == {"text": "Noted."}
    lines = played.questions[0].request["messages"][0]["content"].splitlines()
    assert lines.index("remember(key, value): Keep a fact for later.") < lines.index(
        "answer(text): Answer the question."
    )
    schema = schema_of(played.questions[0])
    assert schema is not None
    assert describe_violations(schema, keeps) == []
    assert describe_violations(schema, {**keeps, "key": "favourite colour"}) != []


def test_a_title_that_is_the_name_is_not_said_twice(tmp_path: Path) -> None:
    question = ask(tmp_path, BY_NAME["report-2"], json.dumps({"do": "done"})).questions[0]
    assert question.request["messages"][0]["content"].startswith("You are clerk.\n")


def test_a_tool_that_is_given_its_own_result_and_gives_it_back_is_no_longer_offered(tmp_path: Path) -> None:
    calls = ["7182", "A51, A64", "unknown: A51, A64"]
    replies = [json.dumps({"do": "list_orders", "customer": customer}) for customer in calls]
    answer = json.dumps({"do": "answer", "text": "A51 and A64"})
    played = ask(tmp_path, BY_NAME["tool-9"], *replies, answer)
    offered = [
        {one["properties"]["do"]["const"] for one in (schema_of(question) or {})["anyOf"]}
        for question in played.questions
    ]
    assert offered == [{"find_customer", "list_orders", "answer"}] * 3 + [{"find_customer", "answer"}]
