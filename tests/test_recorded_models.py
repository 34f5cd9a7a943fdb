"""The suite plays without a model: the replies that a real one gave, through the engine, in its default form.

They are matched by turn and number, so that the words of a prompt may change. Where the form of a reply has
changed they are recorded again: `python -m benchmarks.models.replies` says how.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.models.replies import replay_turn
from benchmarks.models.turn import is_right, is_valid
from benchmarks.models.turns import FIRST, TURNS

FILE = Path(__file__).parent / "model_replies.jsonl"
KEPT: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text().splitlines()]


@pytest.mark.sample(5)
@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept["turn"])
def test_a_turn_comes_to_the_same_with_the_replies_of_a_real_model(tmp_path: Path, kept: dict[str, Any]) -> None:
    played = replay_turn(tmp_path, kept)
    assert played.outcome.problem == ""
    assert is_valid(played.outcome)
    assert json.loads(json.dumps(played.outcome.to_json())) == kept["outcome"]
    assert len(played.questions) == len(kept["replies"])
    assert is_right(played.turn, played.outcome) == kept["is_right"]


def test_each_turn_of_the_suite_has_replies() -> None:
    assert [kept["turn"] for kept in KEPT] == [turn.name for turn in TURNS]


def test_nineteen_of_the_first_thirty_turns_are_right_and_eight_tool_questions() -> None:
    right = {kept["turn"] for kept in KEPT if kept["is_right"]}
    assert len([turn for turn in TURNS[:FIRST] if turn.name in right]) >= 19
    assert len([turn for turn in TURNS if turn.name in right and turn.kind == "tool"]) >= 8


def test_a_question_with_one_tool_takes_as_few_tokens_as_promised() -> None:
    kept = next(kept for kept in KEPT if kept["turn"] == "tool-1")
    asked = [reply["usage"][0] for reply in kept["replies"]]
    assert asked[0] <= 130
    assert sum(asked) <= 290
