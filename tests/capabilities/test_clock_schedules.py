"""A capability of a plugin says by which clock its agents take turns; the engine and screens follow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import get_capability, missing_reason
from lemming.kernel.plugins.capability_table import LISTED, provided
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.turn.descriptions import ClockSchedule, ExpiredMemory, OptionalReadPath, ReadPath
from lemming.queries.forecast import list_upcoming
from lemming.testing import FrozenClock, make_org, resume

HOURLY = """
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from lemming.ext import Capability, ClockSchedule, register_capability

def is_due(at, since):
    return bool(since) and since[:13] != at[:13]

def iter_times(start):
    first = start.replace(minute=0, second=0, microsecond=0)
    return (first + timedelta(hours=number) for number in count(1))

@register_capability
class Hourly(Capability):
    name = "hourly"
    describes = (ClockSchedule,)

    def describe(self, query):
        for agent in query.tick.agents:
            yield ClockSchedule(agent, agent, "hourly", "the full hour", partial(is_due, query.tick.at), iter_times)
"""


@pytest.fixture(autouse=True)
def _for_one_test() -> Iterator[None]:
    yield
    unregister("capability", "hourly")


def test_its_agents_take_turns_by_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "hourly_turns.py").write_text(HOURLY)
    monkeypatch.syspath_prepend(str(code))
    settings = {"plugins": ["hourly_turns"]}
    base = make_org(tmp_path / "org", resume("ada", capabilities={"hourly": {}}), resume("bob"), org=settings)
    start = datetime(2026, 3, 1, 9, 20, tzinfo=UTC)
    clocks = [FrozenClock(start + timedelta(minutes=30 * number)) for number in range(4)]
    turns = [[turn.agent for turn in run_once(base, clock=clock).turns if turn.status == "done"] for clock in clocks]
    assert turns == [["bob"], ["bob"], ["ada", "bob"], ["bob"]]
    org = Organisation.from_path(base)
    events = list_upcoming(org, load_config(base), datetime.now(UTC) + timedelta(hours=3))
    assert [(event.agent, event.description) for event in events][:2] == [("ada", "the full hour")] * 2


def test_only_capabilities_of_ticks_have_schedules_and_files_for_them() -> None:
    kinds = {ClockSchedule, ReadPath, OptionalReadPath, ExpiredMemory}
    installed = [name for name in LISTED if not missing_reason(name)]
    found = {name for name in installed if not kinds.isdisjoint(get_capability(name).describes)}
    assert found == provided("in_ticks").keys()
