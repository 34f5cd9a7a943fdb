"""Players of the suite's turns: LeMMing in this process, other frameworks in separate processes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.models import lemming_side
from benchmarks.models.turn import Outcome, Turn
from benchmarks.peers.environments import LeftOut, Peer

LEMMING = "lemming"
FRAMEWORKS = {
    "openai-agents": Peer("OpenAI Agents SDK", "openai_agents", packages=("openai-agents",)),
    "langgraph": Peer("LangGraph", "langgraph", packages=("langgraph", "langchain", "langchain-openai")),
}
SIDES = (LEMMING, *FRAMEWORKS)


Player = Callable[[Turn], Outcome]
"""Plays one turn and returns what it came to."""


@contextmanager
def play_lemming(folder: Path, model: dict[str, Any]) -> Iterator[Player]:
    """Play turns in temporary organisations below a folder."""

    def play(turn: Turn) -> Outcome:
        base = lemming_side.make_organisation(folder / turn.name, turn, model)
        outcome = lemming_side.play_turn(base, turn)
        shutil.rmtree(base)
        return outcome

    yield play


@contextmanager
def play_framework(python: str, module: str, server: str, model: str) -> Iterator[Player]:
    """Play turns in the process of a framework.

    Raises: LeftOut if the process ends.
    """
    command = [python, "-m", f"benchmarks.models.{module}", server, model]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin, "a pipe"
        assert stdout, "a pipe"

        def play(turn: Turn) -> Outcome:
            with suppress(BrokenPipeError):
                stdin.write(f"{turn.name}\n")
                stdin.flush()
            line = stdout.readline()
            if not line:
                raise LeftOut(f"its process ended before {turn.name} did")
            return Outcome(**json.loads(line))

        try:
            yield play
        finally:
            with suppress(BrokenPipeError):
                stdin.close()
