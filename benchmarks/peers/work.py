"""The common work of all sides, and a command line to run a side.

A side is a module run as a script in a separate environment with only the framework and the standard library.
This module therefore imports the standard library only.
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


class InstantModel:
    """A model with an immediate answer: a message, and a different memory in every turn.

    With a `log` each call writes two lines, "asked" and "given", each with the agent, the turn's number and a
    mark of the call. The mark is in the answer, too.
    """

    answer = json.dumps({"text": f"{SENTENCE}MARK", "memory": {"n": "NUMBER"}})

    def __init__(self, log: Path | None = None) -> None:
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._calls = itertools.count(1)

    def __call__(self, agent: str, number: int, prompt: object) -> str:
        """Return the answer to the prompt of an agent's turn, as JSON."""
        mark = "" if self._log is None else self.log_call(agent, number)
        return self.answer.replace('"NUMBER"', str(number)).replace("MARK", mark)

    def log_call(self, agent: str, number: int) -> str:
        """Log a call and its answer, and return the mark."""
        assert self._log is not None, "only what is logged is noted"
        mark = f" #{os.getpid()}-{next(self._calls)}#"
        for event in ("asked", "given"):
            os.write(self._log, f"{event} {agent} {number} {mark.strip()}\n".encode())
        return mark


class Progress(NamedTuple):
    """Stored progress of an agent: number of turns, and the newest messages, oldest first."""

    turns: int = 0
    messages: Sequence[str] = ()


class Side(ABC):
    """A compared side. After a tick returns, its results are stored by the framework's means."""

    @abstractmethod
    def tick(self) -> None:
        """Run the next turn of every agent without a turn in this tick."""

    @abstractmethod
    def count_ticks(self) -> int:
        """Return the number of turns of every agent, including earlier processes."""

    @abstractmethod
    def load_messages(self) -> list[str]:
        """Load the stored messages of all agents: at least the newest 20 of each."""


@dataclass(frozen=True)
class Task:
    """The start parameters of a side. `variant` selects a mode of the framework."""

    folder: Path
    names: Sequence[str]
    model: InstantModel
    variant: str = ""


class SequentialSide(Side):
    """A side with sequential turns in a ring of agents, each reading its predecessor.

    Messages are passed in memory. The stored progress is loaded at startup only.
    """

    def __init__(self, task: Task) -> None:
        self.folder, self.names, self.model = task.folder, task.names, task.model
        self._turns: dict[str, int] = {}
        self._messages: dict[str, deque[str]] = {}

    def load_all_progress(self) -> None:
        """Load the stored progress of all agents."""
        for name in self.names:
            progress = self.load_progress(name)
            self._turns[name] = progress.turns
            self._messages[name] = deque(progress.messages, maxlen=SHOWN)

    @abstractmethod
    def load_progress(self, agent: str) -> Progress:
        """Load the stored progress of an agent."""

    def run_turn(self, agent: str, number: int, inbox: list[str]) -> str:
        """Run and store a turn, and return the message."""
        raise NotImplementedError

    def tick(self) -> None:
        for agent, number, inbox in self.iter_due_turns():
            self.record_turn(agent, self.run_turn(agent, number, inbox))

    def iter_due_turns(self) -> Iterator[tuple[str, int, list[str]]]:
        """Yield agent, number and inbox of each turn of a tick."""
        number = self.count_ticks() + 1
        for index, name in enumerate(self.names):
            if self._turns[name] < number:
                yield name, number, list(self._messages[self.names[index - 1]])

    def record_turn(self, agent: str, message: str) -> None:
        """Record a finished turn of an agent."""
        self._turns[agent] += 1
        self._messages[agent].append(message)

    def count_ticks(self) -> int:
        return min(self._turns.values())

    def load_messages(self) -> list[str]:
        return [message for name in self.names for message in self.load_progress(name).messages]


class AsyncSide(SequentialSide):
    """A side with turns as coroutines on a shared event loop."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.runner = asyncio.Runner()

    async def take_turn(self, agent: str, number: int, inbox: list[str]) -> str:
        """Run and store a turn, and return the message."""
        raise NotImplementedError

    def tick(self) -> None:
        self.runner.run(self._run_tick())

    async def _run_tick(self) -> None:
        for agent, number, inbox in self.iter_due_turns():
            self.record_turn(agent, await self.take_turn(agent, number, inbox))


def make_prompt(agent: str, number: int, inbox: Sequence[str]) -> str:
    return "\n".join([f"You are {agent}, and this is your turn {number}. You have read:", *inbox])


def parse_answer(answer: str) -> tuple[str, dict[str, Any]]:
    """Return the message and the memory of an answer."""
    value = json.loads(answer)
    return value["text"], value["memory"]


def replace_file(path: Path, content: str) -> None:
    """Replace a file atomically with new content."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(content)
    temporary.replace(path)


def main(make: Callable[[Task], Side], arguments: list[str] | None = None) -> None:
    """Run a side up to a number of ticks, or tick by tick on requests from standard input."""
    options = _make_parser().parse_args(arguments)
    names = [f"a{number:05d}" for number in range(options.agents)]
    output = _redirect_stdout()
    options.folder.mkdir(parents=True, exist_ok=True)
    side = make(Task(options.folder, names, InstantModel(options.log), options.variant))
    if options.serve:
        _serve_ticks(side, options.until, output)
        return
    if side.count_ticks() < options.until:
        side.tick()  # what is imported when it is first used is there now
    print("under way", file=output, flush=True)
    start_time = time.perf_counter()
    while side.count_ticks() < options.until:
        side.tick()
    result = {"wall_s": time.perf_counter() - start_time}
    if options.log:
        result["messages"] = side.load_messages()  # type: ignore[assignment]
    print(json.dumps(result), file=output, flush=True)
    os._exit(0)  # what a framework does when a process ends is no part of the work


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--until", type=int, default=1, metavar="TICKS", help="ticks that will be done")
    parser.add_argument("--variant", default="")
    parser.add_argument("--log", type=Path, help="where the model notes its calls")
    parser.add_argument("--serve", action="store_true", help="then as many ticks as each line of standard input says")
    return parser


def _redirect_stdout() -> TextIO:
    """Return a private copy of standard output; all other output goes to standard error."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return output


def _serve_ticks(side: Side, warm: int, output: TextIO) -> None:
    while side.count_ticks() < warm:
        side.tick()
    print("prepared", file=output, flush=True)
    for line in sys.stdin:
        if line == SWEEP:
            gc.collect()
            print("swept", file=output, flush=True)
            continue
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(int(line)):
            side.tick()
        timing = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
        print(json.dumps(timing), file=output, flush=True)
    os._exit(0)
