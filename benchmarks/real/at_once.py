"""What the sides have in common: where the server is, and a tick in which every agent asks at once."""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from typing import Any

from benchmarks.peers.work import Side, Task

SERVER = "LEMMING_BENCHMARK_SERVER"
"""The variable that holds the address of the server."""


def address(path: str = "/v1") -> str:
    """Return the address of the API below a path of the server."""
    return f"{os.environ[SERVER]}{path}"


class AtOnce(Side):
    """A side whose turns are coroutines of one loop, which all run at once."""

    def __init__(self, task: Task) -> None:
        self.folder, self.names, self.variant = task.folder, task.names, task.variant
        self._runner, self._ticks = asyncio.Runner(), 0
        self._runner.run(self.open())

    async def open(self) -> None:
        """Make what the turns need, on their loop."""

    @abstractmethod
    async def take_turn(self, agent: str, number: int) -> str:
        """Take a turn and keep it; return the message written."""

    def tick(self) -> None:
        self._runner.run(self._tick())

    async def _tick(self) -> None:
        self._ticks += 1
        messages = await asyncio.gather(*(self.take_turn(name, self._ticks) for name in self.names))
        assert all(messages), "every agent wrote something"

    def ticks_done(self) -> int:
        return self._ticks

    def kept_messages(self) -> list[str]:
        raise NotImplementedError("nobody is killed here")


def messages_of(agent: str, number: int) -> Any:
    """Return the question of an agent's turn."""
    system = f"You are {agent}, one of many. Answer with a JSON object: text, for the others, and memory."
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": f"This is turn {number}. Say what you have to say."},
    ]
