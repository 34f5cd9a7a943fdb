"""The work that every side does, and a command line that has a side do it.

A side is a module run as a script inside an environment of its own, in which there are its framework and
the standard library, and nothing else. So this module imports no more than that.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

SENTENCE = "a sentence of an ordinary length, as one agent writes it to another"
SHOWN = 20
SWEEP = "sweep\n"


class Model:
    """A model that answers at once: one message, and a memory that is another in every turn.

    With a `log` each call leaves two lines there, "asked" and "given", each with the agent, the number of its
    turn and a mark of that call; the mark is in the answer too.
    """

    answer = json.dumps({"text": f"{SENTENCE}MARK", "memory": {"n": "NUMBER"}})

    def __init__(self, log: Path | None = None) -> None:
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._calls = itertools.count(1)

    def __call__(self, agent: str, number: int, prompt: object) -> str:
        """Return the answer to the prompt of an agent's turn, as JSON."""
        mark = "" if self._log is None else self.note(agent, number)
        return self.answer.replace('"NUMBER"', str(number)).replace("MARK", mark)

    def note(self, agent: str, number: int) -> str:
        """Note a call that is asked and answered; return its mark."""
        assert self._log is not None, "only what is logged is noted"
        mark = f" #{os.getpid()}-{next(self._calls)}#"
        for what in ("asked", "given"):
            os.write(self._log, f"{what} {agent} {number} {mark.strip()}\n".encode())
        return mark


class Kept(NamedTuple):
    """What is found of an agent when its folder is opened: its turns, its newest messages, oldest first."""

    turns: int = 0
    messages: Sequence[str] = ()


class Side(ABC):
    """One of those compared. When a tick has returned, it is kept as the framework keeps it."""

    @abstractmethod
    def tick(self) -> None:
        """Have every agent that did not take it yet take its next turn."""

    @abstractmethod
    def ticks_done(self) -> int:
        """Return how many turns every agent has taken, those before this process too."""

    @abstractmethod
    def kept_messages(self) -> list[str]:
        """Return the messages that are kept, read anew, of all agents; of each at least the newest 20."""


@dataclass(frozen=True)
class Task:
    """What a side is started with. `variant` is a word of its own, for one that is run in several ways."""

    folder: Path
    names: Sequence[str]
    model: Model
    variant: str = ""


class Turns(Side):
    """A side whose turns are taken one after another, by a ring of agents of whom each reads the one before.

    Messages are handed on in memory. What is kept of them is read when the folder is opened, and never again.
    """

    def __init__(self, task: Task) -> None:
        self.folder, self.names, self.model = task.folder, task.names, task.model
        self._turns: dict[str, int] = {}
        self._heard: dict[str, deque[str]] = {}

    def open(self) -> None:
        """Take up what is kept."""
        for name in self.names:
            kept = self.kept(name)
            self._turns[name] = kept.turns
            self._heard[name] = deque(kept.messages, maxlen=SHOWN)

    @abstractmethod
    def kept(self, agent: str) -> Kept:
        """Return what is kept of an agent."""

    def turn(self, agent: str, number: int, inbox: list[str]) -> str:
        """Take a turn and keep it; return the message written."""
        raise NotImplementedError

    def tick(self) -> None:
        for agent, number, inbox in self.due():
            self.done(agent, self.turn(agent, number, inbox))

    def due(self) -> Iterator[tuple[str, int, list[str]]]:
        """Yield the agent, the number and the inbox of each turn of a tick."""
        number = self.ticks_done() + 1
        for at, name in enumerate(self.names):
            if self._turns[name] < number:
                yield name, number, list(self._heard[self.names[at - 1]])

    def done(self, agent: str, message: str) -> None:
        """Note that an agent took its turn."""
        self._turns[agent] += 1
        self._heard[agent].append(message)

    def ticks_done(self) -> int:
        return min(self._turns.values())

    def kept_messages(self) -> list[str]:
        return [message for name in self.names for message in self.kept(name).messages]


class AsyncTurns(Turns):
    """A side whose turns are coroutines; one loop runs them all."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.runner = asyncio.Runner()

    async def take_turn(self, agent: str, number: int, inbox: list[str]) -> str:
        """Take a turn and keep it; return the message written."""
        raise NotImplementedError

    def tick(self) -> None:
        self.runner.run(self._tick())

    async def _tick(self) -> None:
        for agent, number, inbox in self.due():
            self.done(agent, await self.take_turn(agent, number, inbox))


def prompt_of(agent: str, number: int, inbox: Sequence[str]) -> str:
    return "\n".join([f"You are {agent}, and this is your turn {number}. You have read:", *inbox])


def parsed(answer: str) -> tuple[str, dict[str, Any]]:
    """Return the message and the memory of an answer."""
    plain = json.loads(answer)
    return plain["text"], plain["memory"]


def replace_file(path: Path, content: str) -> None:
    """Write beside and rename, so that a file is there whole or not at all."""
    beside = path.with_suffix(".tmp")
    beside.write_text(content)
    beside.replace(path)


def main(make: Callable[[Task], Side], arguments: list[str] | None = None) -> None:
    """Run a side: to a number of ticks, or tick by tick as standard input says."""
    given = _parser().parse_args(arguments)
    names = [f"a{number:05d}" for number in range(given.agents)]
    said = _own_output()
    given.folder.mkdir(parents=True, exist_ok=True)
    side = make(Task(given.folder, names, Model(given.log), given.variant))
    if given.serve:
        _serve(side, given.until, said)
        return
    if side.ticks_done() < given.until:
        side.tick()  # what is imported when it is first used is there now
    print("under way", file=said, flush=True)
    began = time.perf_counter()
    while side.ticks_done() < given.until:
        side.tick()
    ran = {"wall_s": time.perf_counter() - began}
    if given.log:
        ran["messages"] = side.kept_messages()  # type: ignore[assignment]
    print(json.dumps(ran), file=said, flush=True)
    os._exit(0)  # what a framework does when a process ends is no part of the work


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--until", type=int, default=1, metavar="TICKS", help="ticks that will be done")
    parser.add_argument("--variant", default="")
    parser.add_argument("--log", type=Path, help="where the model notes its calls")
    parser.add_argument(
        "--serve", action="store_true", help="then as many ticks as each line of standard input says"
    )
    return parser


def _own_output() -> TextIO:
    """Return standard output, which from now on nobody else writes to."""
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return said


def _serve(side: Side, warm: int, said: TextIO) -> None:
    while side.ticks_done() < warm:
        side.tick()
    print("prepared", file=said, flush=True)
    for line in sys.stdin:
        if line == SWEEP:
            gc.collect()
            print("swept", file=said, flush=True)
            continue
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(int(line)):
            side.tick()
        took = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
        print(json.dumps(took), file=said, flush=True)
    os._exit(0)
