"""The floor `files_tmp`: bare Python, nothing kept safe."""

from __future__ import annotations

from benchmarks.floor import FilesTmp
from benchmarks.peers.work import Side, Task, main


class Floor(Side):
    """It keeps what it writes, and takes nothing up."""

    def __init__(self, task: Task) -> None:
        self._floor = FilesTmp(task.folder / "files", len(task.names), "one")
        self._done = 0

    def tick(self) -> None:
        self._floor.tick()
        self._done += 1

    def ticks_done(self) -> int:
        return self._done

    def kept_messages(self) -> list[str]:
        return []


if __name__ == "__main__":
    main(Floor)
