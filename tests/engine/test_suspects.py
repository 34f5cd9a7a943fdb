"""A turn that may have ended the engine is taken while no other is."""

from __future__ import annotations

import shutil
import threading
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest
from optional_parts import uses
from patience import PATIENCE_S

from lemming.engine import run_once
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, say


class Meeting(Backend):
    """A model that answers as soon as two ask it, or after a while; `most`: so many asked it at once."""

    patience_s: ClassVar[float] = 0

    keeps_deadline = True
    under_way = most = 0
    lock, both = threading.Lock(), threading.Event()

    def complete(self, request: Request) -> Reply:
        with Meeting.lock:
            Meeting.under_way += 1
            Meeting.most = max(Meeting.most, Meeting.under_way)
            if Meeting.under_way == 2:
                Meeting.both.set()
        Meeting.both.wait(Meeting.patience_s)
        with Meeting.lock:
            Meeting.under_way -= 1
        return Reply(dump_compact(say("here")).decode())


def killed_as_a_turn_began(base: Path) -> Path:
    """Return a copy of an organisation whose engine was killed between a turn and its first answer."""
    for number in count(1):
        copy = base.parent / str(number)
        shutil.copytree(base, copy)
        with pytest.raises(Crash), crash_at(number):
            run_once(copy, clock=FrozenClock())
        journal = copy / "logs/ticks/00000001.jsonl"
        if journal.exists() and b'"turn_started"' in journal.read_bytes():
            return copy
    raise AssertionError("it ends")


@uses("gates")
@pytest.mark.parametrize(("max_attempts", "most"), [(3, 2), (2, 1)])
def test_a_turn_at_its_last_chance_is_taken_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_attempts: int, most: int
) -> None:
    register_provider("meeting", Meeting)
    agents = (resume(name, model={"key": "meeting"}, permissions={}) for name in ("ada", "bob"))
    # Under a limit a question is on the disk before it is asked, and so is that its turn has begun.
    limit = {"at": "spend", "then": "block", "calls": 99, "per": "agent"}
    settings = {"max_attempts": max_attempts, "max_parallel": 2, "gates": [limit]}
    base = make_org(tmp_path / "org", *agents, org=settings, models={"meeting": {"provider": "meeting"}})
    copy = killed_as_a_turn_began(base)
    Meeting.both.clear()
    Meeting.most = 0
    # Two who are asked at once meet, however long that takes; one who is alone waits a little for nobody.
    monkeypatch.setattr(Meeting, "patience_s", PATIENCE_S if most == 2 else 0.2)
    run_once(copy, clock=FrozenClock())
    assert Meeting.most == most
