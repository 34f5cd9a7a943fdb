"""The replies of a run, small enough to be kept with the tests: they play the suite without a model.

    python -m benchmarks models --server URL --sides lemming --recording run.jsonl
    python -m benchmarks.models.replies run.jsonl tests/model_replies.jsonl

One line for each turn: its name, the replies in their order with the digest of what was asked, and what the
turn came to. Replies are matched by turn and number, so that the words of a prompt may change. When the form
of a reply changes, they have to be recorded again.
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
from benchmarks.models.measuring import Played
from benchmarks.models.recorder import Question, Recorder, Recording
from benchmarks.models.sides import LEMMING
from benchmarks.models.turn import Turn, is_right
from benchmarks.models.turns import TURNS

Json = dict[str, Any]
MODEL = "qwen2.5-coder-0.5b-instruct"
NO_MORE = {"error": {"message": "the recording has no further reply for this turn", "type": "recording"}}


def keep_replies(recording: Path, model: str) -> Iterator[Json]:
    """Yield the line of each turn, played once more with the replies of a recording, which asks nobody."""
    source = Recording("http://127.0.0.1:9/v1", recording)
    with Recorder(source) as recorder, tempfile.TemporaryDirectory() as place:
        for turn in TURNS:
            played = play(Path(place), turn, recorder, model)
            replies = [shorten(question) for question in played.questions]
            outcome = played.outcome.to_json()
            yield {
                "turn": turn.name,
                "is_right": is_right(turn, played.outcome),
                "outcome": outcome,
                "replies": replies,
            }


def replay(place: Path, kept: Json) -> Played:
    """Play a turn with the replies that were kept of it."""
    turn = next(turn for turn in TURNS if turn.name == kept["turn"])
    with Recorder(Replies(kept["replies"])) as recorder:
        return play(place, turn, recorder, MODEL)


def play(place: Path, turn: Turn, recorder: Recorder, model: str) -> Played:
    """Play a turn of LeMMing in a folder, and return it with its questions."""
    recorder.begin(LEMMING, turn.name)
    line = lemming_side.describe_model(recorder.url, model, "llamacpp")
    base = lemming_side.make_organisation(place / turn.name, turn, line)
    return Played(turn, lemming_side.play(base, turn), recorder.questions)


def shorten(question: Question) -> Json:
    """Return what is kept of a question: a digest of it, the message of the reply, and its tokens."""
    choice = (question.reply or {})["choices"][0]
    message = {key: value for key, value in choice["message"].items() if value and key != "role"}
    digest = hashlib.sha256(question.key.encode()).hexdigest()[:16]
    return {"asked": digest, "message": message, "finish": choice["finish_reason"], "usage": question.usage}


class Replies:
    """Answers the questions of one turn with the replies that were kept, by their numbers."""

    def __init__(self, kept: Sequence[Json]) -> None:
        self._kept = kept

    def __call__(self, question: Question) -> Question:
        """Return the question with its answer; an error where there were no more of them."""
        if question.number >= len(self._kept):
            return replace(question, status=400, reply=NO_MORE)
        kept = self._kept[question.number]
        tokens_in, cached, tokens_out = kept["usage"]
        usage = {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        choice = {
            "index": 0,
            "message": {"role": "assistant", **kept["message"]},
            "finish_reason": kept["finish"],
        }
        return replace(question, status=200, reply={"choices": [choice], "usage": usage, "model": MODEL})


def main(arguments: Iterable[str]) -> None:
    """Write the replies of a recording into a file."""
    recording, file = map(Path, arguments)
    lines = [json.dumps(line, ensure_ascii=False) for line in keep_replies(recording, MODEL)]
    file.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
