"""What a turn and a look cost where there is much of the past: as much with ten times of it."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asked import org_of

from lemming.capabilities.approvals.read_decisions import find_preapprovals
from lemming.engine import ticks
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.messages import OutboxEntry, entry_id
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.context_builder import build_tick_context
from lemming.obligations.request_deadlines import get_extended_last_tick
from lemming.operations.open_org import open_org
from lemming.testing import FrozenClock, resume, say

FEW, MANY = 300, 3000
A_TICK = 60


def calls_of(work: Callable[[], object]) -> int:
    """Return how many calls some work makes in this thread."""
    count = 0

    def note(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def written(base: Path, count: int, kind: str, **payload: Any) -> Path:
    """Make an organisation whose agent has so many unread entries of a person, and one turn a tick."""
    org_of(base, resume("ada", turn={"take": "one"}), script=[{"reply": say("ok", kind="response")}])
    fs.write_atomic(base, "config/org.json", dump_pretty({"executor": "serial", "durability": "off"}))
    for number in range(count):
        tick, place = divmod(number, A_TICK)
        told = {"text": f"number {number}", "target": "ada", **payload}
        identity = entry_id(tick + 1, "human", place)
        entry = OutboxEntry(identity, tick + 1, "human", kind, told, [], "2026-01-01T00:00:00Z")  # type: ignore[arg-type]
        fs.write_atomic(base, entry.file, entry.content)
    fs.write_atomic(base, "tick.json", dump_pretty({"current_tick": count // A_TICK + 2}))
    return base


def cost_of_a_tick(base: Path) -> int:
    """Return how many calls a tick makes once the engine knows the organisation."""
    run: Iterator[object] = ticks(base, interval_s=0, max_ticks=5, clock=FrozenClock())
    for _ in range(3):
        next(run)
    return calls_of(lambda: next(run))


@pytest.mark.parametrize("kind", ["message", "request"])
def test_a_tick_costs_the_same_however_many_entries_are_unread(tmp_path: Path, kind: str) -> None:
    few, many = (cost_of_a_tick(written(tmp_path / str(it), it, kind)) for it in (FEW, MANY))
    assert many < 1.3 * few


def test_what_was_approved_in_advance_is_found_without_a_walk_over_all_entries(tmp_path: Path) -> None:
    costs = []
    for count in (FEW, MANY):
        org = Organisation.from_path(written(tmp_path / str(count), count, "message"))
        tick_context = build_tick_context(org, load_config(org), count // A_TICK + 2)
        ada = survey_agents(org).agents["ada"]
        find_preapprovals(tick_context.mail, ada, [])
        costs.append(calls_of(partial(find_preapprovals, tick_context.mail, ada, [])))
    assert costs[1] <= costs[0]


ASKED = OutboxEntry("0123456789ab", 1, "ada", "request", {"target": "human", "deadline": 10**6})


def test_a_deadline_of_a_person_costs_the_same_however_long_ago_it_was_asked(base: Path) -> None:
    org = Organisation.from_path(org_of(base))
    costs = []
    for passed in (FEW, MANY):
        get_extended_last_tick(org, ASKED, people={"human"}, current_tick=passed)
        costs.append(calls_of(partial(get_extended_last_tick, org, ASKED, people={"human"}, current_tick=passed + 1)))
    assert costs[1] <= costs[0]


def test_the_first_look_at_a_deadline_looks_at_ticks_that_have_a_journal(base: Path) -> None:
    org_of(base)

    def first_look(now: int) -> object:
        return get_extended_last_tick(Organisation.from_path(base / "."), ASKED, people={"human"}, current_tick=now)

    first_look(FEW)
    costs = [calls_of(partial(first_look, passed)) for passed in (FEW, MANY)]
    assert costs[1] <= costs[0] + 10


def test_a_problem_is_told_once_and_old_ones_do_not_pile_up(base: Path) -> None:
    org_of(base)
    told: list[str] = []
    with open_org(base, notify=lambda event: told.append(event.kind)) as runtime:
        known: list[weakref.ref[Problem]] = []
        for number in range(MANY):
            problem = Problem(f"wrong in tick {number}", "config/org.json")
            runtime.report_problem(problem)
            runtime.report_problem(Problem(f"wrong in tick {number}", "config/org.json"))
            known.append(weakref.ref(problem))
        del problem
        gc.collect()
        assert len(told) == MANY
        assert sum(it() is not None for it in known) <= 1000
