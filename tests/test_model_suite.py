"""The suite for real models asks through the engine, counts counted by the server, and asks nothing twice."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.models import lemming_side
from benchmarks.models.measuring import PlayedTurn, count_figures, iter_figures
from benchmarks.models.recorder import Question, Recorder, Recording
from benchmarks.models.script import list_functions, record_answer
from benchmarks.models.sides import play_framework
from benchmarks.models.turn import Outcome, Turn, is_right, is_valid
from benchmarks.models.turns import FIRST, TURNS
from benchmarks.peers.environments import LeftOut
from lemming.testing import say

BY_NAME = {turn.name: turn for turn in TURNS}
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 25}}


class Model:
    """Answers questions one after another with the texts it is given."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.asked = [*texts], 0

    def __call__(self, question: Question) -> Question:
        self.asked += 1
        message = {"role": "assistant", "content": self.texts.pop(0)}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        reply = {"id": "1", "object": "chat.completion", "model": "m", "choices": choices, "usage": USAGE}
        return replace(question, status=200, reply=reply, seconds=2.0)


def reply(*entries: dict[str, Any], **more: Any) -> str:
    """Return a reply of the contract's four keys."""
    empty: dict[str, Any] = {"tool_calls": [], "memory_updates": [], "notes": ""}
    return json.dumps({"outbox_entries": list(entries), **empty, **more})


def entry(kind: str, **payload: Any) -> dict[str, Any]:
    return {"kind": kind, "payload": payload, "tags": []}


def play(place: Path, turn: Turn, *texts: str) -> PlayedTurn:
    """Play a turn through the engine with a model that gives these texts."""
    with Recorder(Model(*texts)) as recorder:
        recorder.begin("lemming", turn.name)
        line = lemming_side.make_model_entry(recorder.url, "m", "llamacpp")
        base = lemming_side.make_organisation(place / turn.name, turn, line)
        return PlayedTurn(turn, lemming_side.play_turn(base, turn), recorder.questions)


@pytest.fixture
def server() -> Iterator[Recorder]:
    with Recorder(Model("one", "two")) as recorder:
        yield recorder


def test_the_suite_has_turns_of_each_kind_and_ten_that_are_held_out() -> None:
    tuned = [turn for turn in TURNS if not turn.is_held_out]
    assert len(TURNS) >= 40
    assert len(TURNS) - len(tuned) == 10
    assert len([turn for turn in tuned if turn.kind == "tool"]) >= 10
    assert len({turn.kind for turn in tuned[:FIRST]}) == 13
    assert len(BY_NAME) == len(TURNS)


def test_an_answer_is_read_from_what_the_turn_wrote(tmp_path: Path) -> None:
    played = play(tmp_path, BY_NAME["answer-1"], json.dumps(say("It is Paris.", kind="response")))
    assert played.outcome.answer == {"text": "It is Paris."}
    assert is_right(played.turn, played.outcome)
    assert is_valid(played.outcome)


def test_the_fields_of_a_form_are_the_answer(tmp_path: Path) -> None:
    fields = {"category": "billing", "is_urgent": True, "summary": "charged twice"}
    played = play(tmp_path, BY_NAME["form-1"], reply(entry("response", **fields)))
    assert played.outcome.answer == fields
    assert is_right(played.turn, played.outcome)


def test_a_tool_runs_and_its_call_is_noted_with_its_arguments(tmp_path: Path) -> None:
    call = reply(tool_calls=[{"tool": "multiply", "args": {"a": 23, "b": 47}}])
    answer = json.dumps(say("It is 1081.", kind="response"))
    played = play(tmp_path, BY_NAME["tool-2"], call, answer)
    assert played.outcome.calls == [["multiply", {"a": 23, "b": 47}]]
    assert is_right(played.turn, played.outcome)
    assert "1081" in json.dumps(played.questions[1].request["messages"])


def test_a_message_counts_by_its_reader(tmp_path: Path) -> None:
    turn = BY_NAME["route-1"]
    right = play(tmp_path / "right", turn, reply(entry("message", text="see to it", target="billing")))
    wrong = play(tmp_path / "wrong", turn, reply(entry("message", text="see to it", target="tech")))
    assert right.outcome.sent == [["billing", "see to it"]]
    assert is_right(turn, right.outcome)
    assert not is_right(turn, wrong.outcome)


def test_a_memory_is_what_the_turn_wrote_and_not_what_was_there(tmp_path: Path) -> None:
    update = {"key": "colour", "value": "green"}
    played = play(tmp_path, BY_NAME["remember-1"], json.dumps(say("Noted.", kind="response", memory_updates=[update])))
    assert played.outcome.memories == ["colour: green"]
    assert is_right(played.turn, played.outcome)


def test_a_turn_whose_reply_was_corrected_is_not_valid(tmp_path: Path) -> None:
    broken = '{"outbox_entries": 1}'
    played = play(tmp_path, BY_NAME["answer-1"], broken, json.dumps(say("Paris.", kind="response")))
    assert len(played.questions) == 2
    assert is_right(played.turn, played.outcome)
    assert not is_valid(played.outcome)


@pytest.mark.long
def test_each_turn_asks_the_same_in_every_run(tmp_path: Path) -> None:
    silence = reply()
    turns = [BY_NAME[name] for name in ("form-1", "tool-1", "inbox-1")]
    first, second = (
        [play(tmp_path / run, turn, *[silence] * 4).questions[0].request for turn in turns] for run in ("1", "2")
    )
    assert first == second


def test_figures_are_means_per_turn_as_the_server_counts() -> None:
    question = Model("x")(Question("lemming", "tool-1", 0, {}))
    calls = [["word_count", {"text": "the quick brown fox jumps"}]]
    right = Outcome(answer={"text": "5 words"}, calls=calls)
    played = [
        PlayedTurn(BY_NAME["tool-1"], right, [question] * 2),
        PlayedTurn(BY_NAME["tool-1"], Outcome(problem="no answer", is_valid=False), [question]),
    ]
    figures = {row.figure: row.value for row in count_figures("case", played)}
    assert figures == {
        "turns": 2, "valid": 1, "right": 1, "right calls": 1, "calls": 1.5, "tokens in": 150, "cached, %": 25,
        "tokens out": 10.5, "s": 3,
    }  # fmt: skip


def test_turns_that_are_held_out_are_counted_apart() -> None:
    played = [PlayedTurn(turn, Outcome(), []) for turn in TURNS]
    turns = {row.case: row.value for row in iter_figures("x", played) if row.figure == "turns"}
    assert turns["**x: all of these**"] == len(TURNS) - 10
    assert turns["**x: held out**"] == 10
    assert turns["x: tool"] == sum(turn.kind == "tool" and not turn.is_held_out for turn in TURNS)


def test_what_was_asked_before_is_answered_from_the_recording(tmp_path: Path, server: Recorder) -> None:
    file = tmp_path / "replies.jsonl"
    question = Question("lemming", "answer-1", 0, {"messages": ["hello"]})
    first = Recording(server.url, file)(question)
    again = Recording(server.url, file)(replace(question, turn="answer-2"))
    assert len(server.questions) == 1
    assert (again.reply, again.seconds) == (first.reply, first.seconds)
    assert again.turn == "answer-2"
    assert Recording(server.url, file)(replace(question, request={})).reply != first.reply


def test_a_server_that_is_down_is_not_recorded(tmp_path: Path) -> None:
    file = tmp_path / "replies.jsonl"
    answered = Recording("http://127.0.0.1:9/v1", file)(Question("lemming", "answer-1", 0, {}))
    assert answered.status == 503
    assert not file.exists()


def test_the_key_of_a_server_is_sent_only_if_a_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[urllib.request.Request] = []
    monkeypatch.setenv("A_KEY", "secret")
    monkeypatch.setattr(
        urllib.request, "urlopen", lambda http, timeout: sent.append(http) or (_ for _ in ()).throw(OSError())
    )
    Recording("http://127.0.0.1:9/v1")(Question("lemming", "answer-1", 0, {}))
    Recording("http://127.0.0.1:9/v1", key_env="A_KEY")(Question("lemming", "answer-1", 0, {}))
    assert [http.get_header("Authorization") for http in sent] == [None, "Bearer secret"]


@pytest.mark.parametrize(
    ("name", "expected"), [("route-1", ["send"]), ("remember-1", ["remember"]), ("tool-3", ["weather", "stock"])]
)
def test_other_frameworks_get_tools_that_note_their_calls(name: str, expected: Sequence[str]) -> None:
    turn, outcome = BY_NAME[name], Outcome()
    functions = {function.__name__: function for function in list_functions(turn, outcome)}
    assert [*functions] == expected
    if "send" in functions:
        functions["send"](to="billing", text="see to it")
        assert is_right(turn, outcome)
    if "weather" in functions:
        assert functions["weather"](city="Oslo") == "snow, -4 C"
        assert outcome.calls == [["weather", {"city": "Oslo"}]]


def test_a_call_that_is_passed_off_as_last_words_is_not_valid_though_nobody_asked() -> None:
    outcome = Outcome()
    record_answer(BY_NAME["route-1"], outcome, '{"name": "send", "arguments": {"to": "billing"}}')
    assert not is_valid(outcome)
    assert outcome.answer == {}


def test_the_command_prints_a_row_for_each_kind_and_keeps_the_replies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["Paris.", "From 10 to 14.", "A-4417", "Shakespeare", "B-203"]
    file, results = tmp_path / "replies.jsonl", tmp_path / "results.json"
    said = []
    with Recorder(Model(*texts)) as server:
        asked = ["--server", server.url, "--model", "m", "--kind", "answer", "--sides", "lemming"]
        for _ in range(2):
            main(["models", *asked, "--recording", str(file), "--dir", str(tmp_path), "--results", str(results)])
            said.append(capsys.readouterr())
    rows = [line for line in said[0].out.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[1:4] for row in rows[2:]] == [["3", "3", "3"], ["3", "3", "3"], ["2", "2", "2"]]
    assert "lemming answer-1: right, 100 tokens in" in said[0].err
    assert len(file.read_text().splitlines()) == len(texts)
    assert rows == [line for line in said[1].out.splitlines() if line.startswith("| ")]
    assert {row["subject"] for row in json.loads(results.read_text())["measurements"]} == {"models"}


def test_the_command_needs_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["models"])
    assert "--server http://localhost:8080/v1" in capsys.readouterr().err


def test_a_framework_whose_process_ends_is_left_out() -> None:
    with (
        pytest.raises(LeftOut, match="ended before answer-1"),
        play_framework("false", "x", "http://127.0.0.1:9/v1", "m") as player,
    ):
        player(BY_NAME["answer-1"])
