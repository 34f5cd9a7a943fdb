"""Floor of the measurements: bare Python without validation, journal, locks or durability."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from pydantic_core import from_json, to_json

from benchmarks.orgs import SENTENCE, make_agent_names
from benchmarks.sides import Work

INBOX_SIZE = 20
TIMESTAMP = "2025-12-08T10:30:00.000Z"


def files_tmp(folder: Path, size: int, reading: str, ticks: int) -> Work:
    """Return the work of `ticks` ticks of `size` agents with the minimum cost of a turn in Python.

    A turn encodes a prompt of at most 20 messages in memory as JSON, decodes an answer, and writes a message
    and a memory, each to a temporary file with a rename. JSON is encoded with the engine's library, which is
    twice as fast as Python's own.
    """
    floor = FilesTmp(folder, size, reading)
    for _ in range(INBOX_SIZE + 2):
        floor.tick()

    def work() -> None:
        for _ in range(ticks):
            floor.tick()

    return work


class FilesTmp:
    """State of the floor `files_tmp`. `written_bytes` counts bytes."""

    def __init__(self, folder: Path, size: int, reading: str) -> None:
        self.written_bytes = 0
        self._names = make_agent_names(size)
        for name in self._names:
            for inner in ("outbox", "memory"):
                (folder / name / inner).mkdir(parents=True)
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._tick = 0
        self._rings = _make_rings(self._names, reading)
        self._reply = to_json({"text": SENTENCE, "memory": {"key": "state"}})

    def tick(self) -> None:
        """Run a turn of every agent."""
        self._tick += 1
        for number, name in enumerate(self._names):
            self._run_turn(number, name)

    def _run_turn(self, number: int, name: str) -> None:
        inbox, outbox = self._rings[number]
        question = to_json({"agent": name, "prompt": "\n".join(inbox)})
        reply = from_json(self._call_model(question))
        identity = f"{self._tick:06x}{number:06x}"
        message = {
            "id": identity, "tick": self._tick, "agent": name, "kind": "message",
            "payload": {"text": reply["text"]}, "tags": [], "created_at": TIMESTAMP,
        }  # fmt: skip
        memory = {"key": "state", "value": {"n": self._tick}, "timestamp": TIMESTAMP, "agent": name}
        self._write(f"{name}/memory/state.json", memory)
        self._write(f"{name}/outbox/{self._tick:08d}_{identity}.json", message)
        outbox.append(f"{name} (tick {self._tick}): {reply['text']}")

    def _call_model(self, question: bytes) -> bytes:
        return self._reply

    def _write(self, path: str, plain: Mapping[str, object]) -> None:
        content = to_json(plain)
        temporary = f"{path}.tmp"
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=self._root)
        os.write(file, content)
        os.close(file)
        os.rename(temporary, path, src_dir_fd=self._root, dst_dir_fd=self._root)
        self.written_bytes += len(content)


def scan_resumes(base: Path, times: int) -> Work:
    """Return work that stats every resume `times` times without reading the file."""
    agents = os.open(base / "agents", os.O_RDONLY | os.O_DIRECTORY)

    def work() -> None:
        for _ in range(times):
            with os.scandir(agents) as entries:
                for agent in entries:
                    os.stat(f"{agent.name}/resume.json", dir_fd=agents)

    return work


def _make_rings(names: list[str], reading: str) -> list[tuple[deque[str], deque[str]]]:
    """Return the read and the written ring of messages for each agent; with "all" a single shared ring."""
    if reading == "all":
        ring: deque[str] = deque(maxlen=INBOX_SIZE)
        return [(ring, ring) for _ in names]
    rings: list[deque[str]] = [deque(maxlen=INBOX_SIZE) for _ in names]
    return [(rings[number - 1], rings[number]) for number in range(len(names))]
