"""LeMMing: an organisation held open, as `run-forever` does; `variant` is its durability."""

from __future__ import annotations

from benchmarks.peers.work import Side, Task, main
from benchmarks.real.at_once import address
from lemming.engine import ticks
from lemming.testing import make_org, resume


class Lemming(Side):
    """Agents of one organisation who read nobody, so that all of them ask at once."""

    def __init__(self, task: Task) -> None:
        base, names = task.folder / "org", task.names
        line = {
            "provider": "openai",
            "model": "m",
            "options": {"base_url": address("/contract/v1")},
            "max_concurrent": len(names),
        }
        permissions: dict[str, list[str]] = {"read_outboxes": [], "tools": []}
        resumes = [resume(name, model={"key": "m"}, permissions=permissions) for name in names]
        make_org(base, *resumes, models={"m": line}, org={"durability": task.variant})
        self._reports, self._done = ticks(base, interval_s=0), 0

    def tick(self) -> None:
        report = next(self._reports)
        assert all(turn.status == "done" for turn in report.turns), report.turns[0].reason
        assert all(turn.entries for turn in report.turns), "every agent wrote something"
        self._done = report.tick

    def ticks_done(self) -> int:
        return self._done

    def kept_messages(self) -> list[str]:
        raise NotImplementedError("nobody is killed here")


if __name__ == "__main__":
    main(Lemming)
