"""Run a suite of turns with a real model: valid and right replies, and their costs.

Each side plays the same turns on the same server in sequence, through a recorder with the server's token
counts. Valid: no reply needed a correction. Right: by the turn's own check.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.measurement import Measurement
from benchmarks.models.lemming_side import make_model_entry
from benchmarks.models.recorder import Question, Recorder, Recording, find_model
from benchmarks.models.sides import FRAMEWORKS, LEMMING, Player, play_framework, play_lemming
from benchmarks.models.turn import Outcome, Turn, has_right_call, is_right, is_valid
from benchmarks.models.turns import TURNS
from benchmarks.options import Options
from benchmarks.peers.environments import LeftOut, quiet_environment
from lemming import __version__


@dataclass(frozen=True)
class PlayedTurn:
    """A played turn with the calls of the model."""

    turn: Turn
    outcome: Outcome
    questions: Sequence[Question]


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the figures of each side: for each kind of turn, for all together, and for held-out turns."""
    recording = Recording(options.server, options.recording, options.key_env)
    model = options.model or find_model(options.server, options.key_env)
    turns = [turn for turn in TURNS if not options.kinds or turn.kind in options.kinds]
    with quiet_environment(), Recorder(recording, recording.path) as recorder:
        for side in options.sides:
            try:
                title, player_context = _open_side(side, recorder.url, model, options)
                yield from iter_figures(title, play_turns(side, player_context, turns, recorder))
            except LeftOut as error:
                print(f"Left out: {side}: {error}\n")


def play_turns(
    side: str, player_context: AbstractContextManager[Player], turns: Iterable[Turn], recorder: Recorder
) -> list[PlayedTurn]:
    """Play turns in sequence, and print each outcome to standard error."""
    played = []
    with player_context as player:
        for turn in turns:
            recorder.begin(side, turn.name)
            outcome = player(turn)
            played.append(PlayedTurn(turn, outcome, recorder.questions))
            print(describe_outcome(side, played[-1]), file=sys.stderr, flush=True)
    return played


def describe_outcome(side: str, played: PlayedTurn) -> str:
    """Describe the outcome of a turn in a line."""
    verdict = "right" if is_right(played.turn, played.outcome) else "WRONG"
    validity = "" if is_valid(played.outcome) else " INVALID"
    tokens = "+".join(str(question.usage[0]) for question in played.questions)
    effects = {key: value for key, value in played.outcome.to_json().items() if value and key != "is_valid"}
    return f"{side} {played.turn.name}: {verdict}{validity}, {tokens} tokens in: {effects}"


def iter_figures(title: str, played: Sequence[PlayedTurn]) -> Iterator[Measurement]:
    """Yield the figures of a side."""
    tuned = [item for item in played if not item.turn.is_held_out]
    for kind in dict.fromkeys(item.turn.kind for item in tuned):
        yield from count_figures(f"{title}: {kind}", [item for item in tuned if item.turn.kind == kind])
    if tuned:
        yield from count_figures(f"**{title}: all of these**", tuned)
    if held_out := [item for item in played if item.turn.is_held_out]:
        yield from count_figures(f"**{title}: held out**", held_out)


def count_figures(case: str, played: Sequence[PlayedTurn]) -> Iterator[Measurement]:
    """Yield the figures of some turns. Calls, tokens and seconds are means per turn."""
    questions = [question for item in played for question in item.questions]
    tokens = [question.usage for question in questions]
    tokens_in, cached, tokens_out = (sum(usage[part] for usage in tokens) for part in range(3))
    calling = [item for item in played if item.turn.expected.calls]
    figures = {
        "turns": len(played),
        "valid": sum(is_valid(item.outcome) for item in played),
        "right": sum(is_right(item.turn, item.outcome) for item in played),
        "right calls": sum(has_right_call(item.turn, item.outcome) for item in calling) if calling else None,
        "calls": len(questions) / len(played),
        "tokens in": tokens_in / len(played),
        "cached, %": 100 * cached / tokens_in if tokens_in else 0,
        "tokens out": tokens_out / len(played),
        "s": sum(question.seconds for question in questions) / len(played),
    }
    for figure, value in figures.items():
        if value is not None:
            yield Measurement.from_count(value, case=case, figure=figure)


def _open_side(side: str, url: str, model: str, options: Options) -> tuple[str, AbstractContextManager[Player]]:
    """Return the title of a side and its player.

    Raises: LeftOut if the framework cannot be installed.
    """
    if side == LEMMING:
        entry = make_model_entry(url, model, options.provider, options.prompt)
        return f"LeMMing {__version__}", play_lemming(options.folder, entry)
    peer = FRAMEWORKS[side]
    python = peer.find_python(options.environments.absolute() / "models")  # others than those of `peers`
    return f"{peer.title} {peer.find_version(python)}", play_framework(python, peer.module, url, model)
