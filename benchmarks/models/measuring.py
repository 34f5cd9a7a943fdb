"""A suite of turns asked of a real model: how many replies are valid and right, and what they cost.

Each side plays the same turns on the same server, one after another, through a recorder that counts tokens as
the server counts them. Valid: no reply had to be corrected. Right: by the turn's own check.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.measurement import Measurement
from benchmarks.models.lemming_side import describe_model
from benchmarks.models.recorder import Question, Recorder, Recording, find_model
from benchmarks.models.sides import FRAMEWORKS, LEMMING, Player, play_framework, play_lemming
from benchmarks.models.turn import Outcome, Turn, has_right_call, is_right, is_valid
from benchmarks.models.turns import TURNS
from benchmarks.options import Options
from benchmarks.peers.environments import LeftOut, silent
from lemming import __version__


@dataclass(frozen=True)
class Played:
    """A turn that was played, with its questions to the model."""

    turn: Turn
    outcome: Outcome
    questions: Sequence[Question]


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the figures of each side: of each kind of turn, of all together, of those held out."""
    recording = Recording(options.server, options.recording, options.key_env)
    model = options.model or find_model(options.server, options.key_env)
    turns = [turn for turn in TURNS if not options.kinds or turn.kind in options.kinds]
    with silent(), Recorder(recording, recording.path) as recorder:
        for side in options.sides:
            try:
                title, playing = _open(side, recorder.url, model, options)
                yield from tabulate(title, play(side, playing, turns, recorder))
            except LeftOut as error:
                print(f"Left out: {side}: {error}\n")


def play(
    side: str, playing: AbstractContextManager[Player], turns: Iterable[Turn], recorder: Recorder
) -> list[Played]:
    """Play turns one after another, saying on standard error what each came to."""
    played = []
    with playing as player:
        for turn in turns:
            recorder.begin(side, turn.name)
            outcome = player(turn)
            played.append(Played(turn, outcome, recorder.questions))
            print(describe(side, played[-1]), file=sys.stderr, flush=True)
    return played


def describe(side: str, played: Played) -> str:
    """Return what a turn came to as a line."""
    verdict = "right" if is_right(played.turn, played.outcome) else "WRONG"
    validity = "" if is_valid(played.outcome) else " INVALID"
    tokens = "+".join(str(question.usage[0]) for question in played.questions)
    did = {key: value for key, value in played.outcome.to_json().items() if value and key != "is_valid"}
    return f"{side} {played.turn.name}: {verdict}{validity}, {tokens} tokens in: {did}"


def tabulate(title: str, played: Sequence[Played]) -> Iterator[Measurement]:
    """Yield the figures of one side."""
    tuned = [one for one in played if not one.turn.is_held_out]
    for kind in dict.fromkeys(one.turn.kind for one in tuned):
        yield from count(f"{title}: {kind}", [one for one in tuned if one.turn.kind == kind])
    if tuned:
        yield from count(f"**{title}: all of these**", tuned)
    if held_out := [one for one in played if one.turn.is_held_out]:
        yield from count(f"**{title}: held out**", held_out)


def count(case: str, played: Sequence[Played]) -> Iterator[Measurement]:
    """Yield the figures of some turns. Calls, tokens and seconds are means per turn."""
    questions = [question for one in played for question in one.questions]
    tokens = [question.usage for question in questions]
    tokens_in, cached, tokens_out = (sum(usage[part] for usage in tokens) for part in range(3))
    calling = [one for one in played if one.turn.expected.calls]
    figures = {
        "turns": len(played),
        "valid": sum(is_valid(one.outcome) for one in played),
        "right": sum(is_right(one.turn, one.outcome) for one in played),
        "right calls": sum(has_right_call(one.turn, one.outcome) for one in calling) if calling else None,
        "calls": len(questions) / len(played),
        "tokens in": tokens_in / len(played),
        "cached, %": 100 * cached / tokens_in if tokens_in else 0,
        "tokens out": tokens_out / len(played),
        "s": sum(question.seconds for question in questions) / len(played),
    }
    for figure, value in figures.items():
        if value is not None:
            yield Measurement.counted(value, case=case, figure=figure)


def _open(side: str, url: str, model: str, options: Options) -> tuple[str, AbstractContextManager[Player]]:
    """Return the title of a side and its player; raise `LeftOut` where its framework cannot be installed."""
    if side == LEMMING:
        line = describe_model(url, model, options.provider, options.prompt)
        return f"LeMMing {__version__}", play_lemming(options.place, line)
    peer = FRAMEWORKS[side]
    python = peer.python(options.environments.absolute() / "models")  # others than those of `peers`
    return f"{peer.title} {peer.version(python)}", play_framework(python, peer.module, url, model)
