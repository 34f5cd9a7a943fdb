"""Bare Python: what the engine is measured against. No checks, no journal, no locks, nothing kept safe."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from pydantic_core import from_json, to_json

from benchmarks.orgs import SENTENCE, agent_names
from benchmarks.sides import Work

SHOWN = 20
AT = "2025-12-08T10:30:00.000Z"


def files_tmp(folder: Path, size: int, reading: str, ticks: int) -> Work:
    """Return the work of `ticks` ticks of `size` agents, the least that their turns can be in Python.

    A turn: a prompt of at most 20 messages that are in memory already as text, encoded as JSON; an answer
    decoded; a message and a memory, each written beside its place and renamed into it. JSON is encoded by
    the library the engine uses, which is twice as quick as Python's own.
    """
    floor = FilesTmp(folder, size, reading)
    for _ in range(SHOWN + 2):
        floor.tick()

    def work() -> None:
        for _ in range(ticks):
            floor.tick()

    return work


class FilesTmp:
    """The floor `files_tmp`. `written` counts bytes."""

    def __init__(self, folder: Path, size: int, reading: str) -> None:
        self.written = 0
        self._names = agent_names(size)
        for name in self._names:
            for inner in ("outbox", "memory"):
                (folder / name / inner).mkdir(parents=True)
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._tick = 0
        self._heard = _rings(self._names, reading)
        self._reply = to_json({"text": SENTENCE, "memory": {"key": "state"}})

    def tick(self) -> None:
        """One turn of every agent."""
        self._tick += 1
        for number, name in enumerate(self._names):
            self._turn(number, name)

    def _turn(self, number: int, name: str) -> None:
        inbox, outbox = self._heard[number]
        question = to_json({"agent": name, "prompt": "\n".join(inbox)})
        reply = from_json(self._answer(question))
        identity = f"{self._tick:06x}{number:06x}"
        message = {
            "id": identity, "tick": self._tick, "agent": name, "kind": "message",
            "payload": {"text": reply["text"]}, "tags": [], "created_at": AT,
        }  # fmt: skip
        memory = {"key": "state", "value": {"n": self._tick}, "timestamp": AT, "agent": name}
        self._write(f"{name}/memory/state.json", memory)
        self._write(f"{name}/outbox/{self._tick:08d}_{identity}.json", message)
        outbox.append(f"{name} (tick {self._tick}): {reply['text']}")

    def _answer(self, question: bytes) -> bytes:
        return self._reply

    def _write(self, path: str, plain: Mapping[str, object]) -> None:
        content = to_json(plain)
        temporary = f"{path}.tmp"
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=self._root)
        os.write(file, content)
        os.close(file)
        os.rename(temporary, path, src_dir_fd=self._root, dst_dir_fd=self._root)
        self.written += len(content)


def scan_resumes(base: Path, times: int) -> Work:
    """Return the work of looking at every resume, so many times, without reading it."""
    agents = os.open(base / "agents", os.O_RDONLY | os.O_DIRECTORY)

    def work() -> None:
        for _ in range(times):
            with os.scandir(agents) as found:
                for agent in found:
                    os.stat(f"{agent.name}/resume.json", dir_fd=agents)

    return work


def _rings(names: list[str], reading: str) -> list[tuple[deque[str], deque[str]]]:
    """Return for each agent the messages it reads and those it writes to; "all" is one ring for everybody."""
    if reading == "all":
        ring: deque[str] = deque(maxlen=SHOWN)
        return [(ring, ring) for _ in names]
    rings: list[deque[str]] = [deque(maxlen=SHOWN) for _ in names]
    return [(rings[number - 1], rings[number]) for number in range(len(names))]
