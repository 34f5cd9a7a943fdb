"""LeMMing side: an organisation under a held lock, as with `run-forever`; `variant` is the durability."""

from __future__ import annotations

import json
import shutil

from benchmarks.orgs import make_benchmark_org
from benchmarks.peers.work import SENTENCE, InstantModel, Side, Task, main
from lemming.engine import ticks
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.testing import say

ANSWER = json.dumps(say(f"{SENTENCE}MARK", memory_updates=[{"key": "state", "value": {"n": "NUMBER"}}]))


class LemmingSide(Side):
    """Agents of an organisation, each reading its predecessor."""

    def __init__(self, task: Task) -> None:
        self._base = task.folder / "org"
        self._done = 0
        task.model.answer = ANSWER
        register_provider("instant", _make_backend(task.model))
        if not self._base.exists():
            staged = task.folder / "new"
            make_benchmark_org(staged, len(task.names), "one", org={"durability": task.variant})
            shutil.move(staged, self._base)
        self._reports = ticks(self._base, interval_s=0)

    def tick(self) -> None:
        report = next(self._reports)
        assert all(turn.status != "failed" for turn in report.turns), report.turns[0].reason
        self._done = report.tick

    def count_ticks(self) -> int:
        return self._done

    def load_messages(self) -> list[str]:
        entries = self._base.glob("agents/*/outbox/*.json")
        return [json.loads(entry.read_bytes())["payload"]["text"] for entry in entries]


def _make_backend(model: InstantModel) -> type[Backend]:
    class Instant(Backend):
        """The engine's backend for the model."""

        keeps_deadline = True
        can_be_down = False

        def complete(self, request: Request) -> Reply:
            """Return an entry and a memory update."""
            return Reply(text=model(request.agent, request.tick, request))

    return Instant


if __name__ == "__main__":
    main(LemmingSide)
