"""LeMMing: an organisation held open, as `run-forever` does; `variant` is its durability."""

from __future__ import annotations

import json
import shutil

from benchmarks.orgs import make
from benchmarks.peers.work import SENTENCE, Model, Side, Task, main
from lemming.engine import ticks
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.testing import say

ANSWER = json.dumps(say(f"{SENTENCE}MARK", memory_updates=[{"key": "state", "value": {"n": "NUMBER"}}]))


class Lemming(Side):
    """Agents of one organisation, each reading the one before."""

    def __init__(self, task: Task) -> None:
        self._base = task.folder / "org"
        self._done = 0
        task.model.answer = ANSWER
        register_provider("instant", _backend(task.model))
        if not self._base.exists():
            beside = task.folder / "new"
            make(beside, len(task.names), "one", org={"durability": task.variant})
            shutil.move(beside, self._base)
        self._reports = ticks(self._base, interval_s=0)

    def tick(self) -> None:
        report = next(self._reports)
        assert all(turn.status != "failed" for turn in report.turns), report.turns[0].reason
        self._done = report.tick

    def ticks_done(self) -> int:
        return self._done

    def kept_messages(self) -> list[str]:
        entries = self._base.glob("agents/*/outbox/*.json")
        return [json.loads(entry.read_bytes())["payload"]["text"] for entry in entries]


def _backend(model: Model) -> type[Backend]:
    class Instant(Backend):
        """The model as the engine asks one."""

        keeps_deadline = True
        can_be_down = False

        def complete(self, request: Request) -> Reply:
            """Return one entry and one memory."""
            return Reply(text=model(request.agent, request.tick, request))

    return Instant


if __name__ == "__main__":
    main(Lemming)
