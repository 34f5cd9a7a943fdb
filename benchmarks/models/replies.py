"""Short recordings of a run for the tests, to play the suite without a model.

    python -m benchmarks models --server URL --sides lemming --recording run.jsonl
    python -m benchmarks.models.replies run.jsonl tests/model_replies.jsonl

Each line holds a turn: the name, the replies in order with a digest of the request, and the outcome. Replies
are matched by turn and number, so the wording of a prompt may change. After a change of the reply form the
replies must be recorded again.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.models import lemming_side
from benchmarks.models.measuring import PlayedTurn
from benchmarks.models.recorder import Question, Recorder, Recording
from benchmarks.models.sides import LEMMING
from benchmarks.models.turn import Turn, is_right
from benchmarks.models.turns import TURNS

Json = dict[str, Any]
MODEL = "qwen2.5-coder-0.5b-instruct"
EXHAUSTED_ERROR = {"error": {"message": "the recording has no further reply for this turn", "type": "recording"}}


def condense_recording(recording: Path, model: str) -> Iterator[Json]:
    """Yield the line of each turn, replayed from a recording without any model call."""
    source = Recording("http://127.0.0.1:9/v1", recording)
    with Recorder(source) as recorder, tempfile.TemporaryDirectory() as folder:
        for turn in TURNS:
            played = play_turn(Path(folder), turn, recorder, model)
            replies = [condense_question(question) for question in played.questions]
            outcome = played.outcome.to_json()
            yield {
                "turn": turn.name,
                "is_right": is_right(turn, played.outcome),
                "outcome": outcome,
                "replies": replies,
            }


def replay_turn(folder: Path, record: Json) -> PlayedTurn:
    """Play a turn with the recorded replies."""
    turn = next(turn for turn in TURNS if turn.name == record["turn"])
    with Recorder(RecordedReplies(record["replies"])) as recorder:
        return play_turn(folder, turn, recorder, MODEL)


def play_turn(folder: Path, turn: Turn, recorder: Recorder, model: str) -> PlayedTurn:
    """Play a turn of LeMMing in a folder, and return the turn with the model calls."""
    recorder.begin(LEMMING, turn.name)
    entry = lemming_side.make_model_entry(recorder.url, model, "llamacpp")
    base = lemming_side.make_organisation(folder / turn.name, turn, entry)
    return PlayedTurn(turn, lemming_side.play_turn(base, turn), recorder.questions)


def condense_question(question: Question) -> Json:
    """Return the short form of a model call: digest of the request, reply message, and token counts."""
    choice = (question.reply or {})["choices"][0]
    message = {key: value for key, value in choice["message"].items() if value and key != "role"}
    digest = hashlib.sha256(question.key.encode()).hexdigest()[:16]
    return {"asked": digest, "message": message, "finish": choice["finish_reason"], "usage": question.usage}


class RecordedReplies:
    """Answers the calls of a turn with recorded replies, by number."""

    def __init__(self, records: Sequence[Json]) -> None:
        self._records = records

    def __call__(self, question: Question) -> Question:
        """Return the call with its answer, or with an error after the last recorded reply."""
        if question.number >= len(self._records):
            return replace(question, status=400, reply=EXHAUSTED_ERROR)
        record = self._records[question.number]
        tokens_in, cached, tokens_out = record["usage"]
        usage = {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        choice = {"index": 0, "message": {"role": "assistant", **record["message"]}, "finish_reason": record["finish"]}
        return replace(question, status=200, reply={"choices": [choice], "usage": usage, "model": MODEL})


def main(arguments: Iterable[str]) -> None:
    """Write the condensed replies of a recording to a file."""
    recording, file = map(Path, arguments)
    lines = [json.dumps(line, ensure_ascii=False) for line in condense_recording(recording, MODEL)]
    file.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
