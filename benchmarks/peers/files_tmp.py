"""The floor `files_tmp`: bare Python without durability."""

from __future__ import annotations

from benchmarks.floor import FilesTmp
from benchmarks.peers.work import Side, Task, main


class FloorSide(Side):
    """The floor writes files, but cannot resume."""

    def __init__(self, task: Task) -> None:
        self._floor = FilesTmp(task.folder / "files", len(task.names), "one")
        self._done = 0

    def tick(self) -> None:
        self._floor.tick()
        self._done += 1

    def count_ticks(self) -> int:
        return self._done

    def load_messages(self) -> list[str]:
        return []


if __name__ == "__main__":
    main(FloorSide)
