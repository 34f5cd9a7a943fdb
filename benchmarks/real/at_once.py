"""Common part of the sides: the server's address, and a tick with concurrent turns of all agents."""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from typing import Any

from benchmarks.peers.work import Side, Task

SERVER = "LEMMING_BENCHMARK_SERVER"
"""The variable that holds the address of the server."""


def get_address(path: str = "/v1") -> str:
    """Return the address of the API below a path of the server."""
    return f"{os.environ[SERVER]}{path}"


class ConcurrentSide(Side):
    """A side with concurrent turns as coroutines on a shared event loop."""

    def __init__(self, task: Task) -> None:
        self.folder, self.names, self.variant = task.folder, task.names, task.variant
        self._runner, self._ticks = asyncio.Runner(), 0
        self._runner.run(self.open())

    async def open(self) -> None:
        """Prepare the clients of the turns on the event loop."""

    @abstractmethod
    async def take_turn(self, agent: str, number: int) -> str:
        """Run and store a turn, and return the message."""

    def tick(self) -> None:
        self._runner.run(self._run_tick())

    async def _run_tick(self) -> None:
        self._ticks += 1
        messages = await asyncio.gather(*(self.take_turn(name, self._ticks) for name in self.names))
        assert all(messages), "every agent wrote something"

    def count_ticks(self) -> int:
        return self._ticks

    def load_messages(self) -> list[str]:
        raise NotImplementedError("nobody is killed here")


def make_messages(agent: str, number: int) -> Any:
    """Return the prompt messages of an agent's turn."""
    system = f"You are {agent}, one of many. Answer with a JSON object: text, for the others, and memory."
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": f"This is turn {number}. Say what you have to say."},
    ]
