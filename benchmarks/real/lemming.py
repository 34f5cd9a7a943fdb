"""LeMMing side: an organisation under a held lock, as with `run-forever`; `variant` is the durability."""

from __future__ import annotations

from benchmarks.peers.work import Side, Task, main
from benchmarks.real.at_once import get_address
from lemming.engine import ticks
from lemming.testing import make_org, resume


class LemmingSide(Side):
    """Agents of an organisation without readers, so all agents call the model concurrently."""

    def __init__(self, task: Task) -> None:
        base, names = task.folder / "org", task.names
        entry = {
            "provider": "openai",
            "model": "m",
            "options": {"base_url": get_address("/contract/v1")},
            "max_concurrent": len(names),
        }
        permissions: dict[str, list[str]] = {"read_outboxes": [], "tools": []}
        resumes = [resume(name, model={"key": "m"}, permissions=permissions) for name in names]
        make_org(base, *resumes, models={"m": entry}, org={"durability": task.variant})
        self._reports, self._done = ticks(base, interval_s=0), 0

    def tick(self) -> None:
        report = next(self._reports)
        assert all(turn.status == "done" for turn in report.turns), report.turns[0].reason
        assert all(turn.entries for turn in report.turns), "every agent wrote something"
        self._done = report.tick

    def count_ticks(self) -> int:
        return self._done

    def load_messages(self) -> list[str]:
        raise NotImplementedError("nobody is killed here")


if __name__ == "__main__":
    main(LemmingSide)
