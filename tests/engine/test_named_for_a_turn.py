"""`run-once --agent`: agents that somebody names have a turn now, and nobody else is due."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sampling import KILL_STRIDE

from lemming.engine import load_tick, run_once, ticks
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into, replay_ticks
from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.turn_report import TickReport
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say, tree

MONDAY = datetime(2026, 11, 23, 7, tzinfo=UTC)
DAILY = {"cron": "0 9 * * *", "timezone": "UTC"}
SCRIPT = [{"reply": say("done")}]


def clock(**later: float) -> FrozenClock:
    return FrozenClock(MONDAY + timedelta(**later))


def statuses(report: TickReport) -> dict[str, str]:
    return {turn.agent: turn.status for turn in report.turns}


def office(base: Path, **settings: Any) -> Path:
    """Make an organisation of agents that are seldom due, each for another reason."""
    return make_org(
        base,
        resume("ada"),
        resume("keeper", schedule=DAILY),
        resume("porter", schedule=DAILY),
        resume("rare", schedule={"run_every_n_ticks": 100}),
        resume("asked", schedule={"wake": "addressed"}),
        script=SCRIPT,
        **settings,
    )


@pytest.mark.parametrize("name", ["keeper", "rare", "asked", "ada"])
def test_whoever_is_named_has_a_turn_whatever_its_schedule_says(base: Path, name: str) -> None:
    office(base)
    assert statuses(run_once(base, agents=[name], clock=clock())) == {name: "done"}
    assert load_tick(base) == 2


def test_several_take_their_turns_in_the_order_of_a_tick(base: Path) -> None:
    office(base)
    report = run_once(base, agents=["rare", "keeper", "ada"], clock=clock())
    assert [turn.agent for turn in report.turns] == ["ada", "keeper", "rare"]
    assert report.not_due == 2


def test_an_agent_that_wakes_for_what_changed_has_a_turn_though_nothing_has(base: Path) -> None:
    make_org(base, resume("ada", schedule={"wake": "changed"}), script=SCRIPT)
    for _ in range(3):
        run_once(base)  # the last ones are quiet, and the engine remembers that nothing is new
    assert statuses(run_once(base, agents=["ada"])) == {"ada": "done"}
    assert run_once(base).is_quiet


def test_a_name_that_no_agent_has_is_refused_with_the_nearest_and_no_tick_runs(base: Path) -> None:
    office(base)
    with pytest.raises(UsageError, match='agent "keper" does not exist') as refused:
        run_once(base, agents=["keper"])
    assert "keeper" in refused.value.hint
    assert load_tick(base) == 1


def test_an_agent_that_is_paused_or_has_spent_its_credits_takes_no_turn(base: Path) -> None:
    make_org(base, resume("ada", paused="too dear"), resume("bob", credits={"max_credits": 0}), script=SCRIPT)
    report = run_once(base, agents=["ada", "bob"])
    assert statuses(report) == {"ada": "skipped", "bob": "skipped"}


def test_a_moment_of_an_agent_that_was_left_out_is_still_due_in_the_next_tick(base: Path) -> None:
    office(base)
    run_once(base, clock=clock())
    assert statuses(run_once(base, agents=["ada"], clock=clock(hours=3))) == {"ada": "done"}
    assert set(statuses(run_once(base, clock=clock(hours=4)))) == {"ada", "keeper", "porter", "asked"}
    assert set(statuses(run_once(base, clock=clock(hours=5)))) == {"ada", "asked"}


def test_the_moment_of_an_agent_that_was_named_is_over_with_its_turn(base: Path) -> None:
    make_org(base, resume("keeper", schedule=DAILY), script=SCRIPT)
    run_once(base, clock=clock())
    assert statuses(run_once(base, agents=["keeper"], clock=clock(hours=3))) == {"keeper": "done"}
    assert run_once(base, clock=clock(hours=4)).is_quiet


def test_the_plan_on_record_says_who_was_named_and_who_was_left_out(base: Path) -> None:
    office(base)
    run_once(base, clock=clock())
    run_once(base, agents=["keeper"], clock=clock(hours=3))
    plan = journal_lines(base, 2)[0]
    assert (plan["chosen"], plan["order"], plan["left_out"]) == (["keeper"], ["keeper"], ["porter"])


def test_the_plan_of_any_other_tick_has_none_of_these_keys(base: Path) -> None:
    office(base)
    run_once(base, clock=clock())
    assert not {"chosen", "left_out"} & journal_lines(base, 1)[0].keys()


def test_a_tick_that_was_interrupted_is_finished_first(base: Path) -> None:
    office(base)
    with pytest.raises(Crash), crash_at(18):
        run_once(base, clock=clock())
    assert journal_lines(base, 1)[-1]["type"] != "tick_committed"
    assert statuses(run_once(base, agents=["rare"], clock=clock())) == {"rare": "done"}
    assert journal_lines(base, 1)[-1]["type"] == "tick_committed"
    assert load_tick(base) == 3


def test_ticks_after_the_one_for_those_named_are_as_ever(base: Path) -> None:
    office(base)
    ran = [statuses(report) for report in ticks(base, agents=["rare"], max_ticks=2, interval_s=0, clock=clock())]
    assert ran[0] == {"rare": "done"}
    assert ran[1]["ada"] == "done"


def test_a_kill_at_any_write_of_such_a_tick_leaves_the_same_files(base: Path, tmp_path: Path) -> None:
    office(base)
    run_once(base, clock=clock())
    start, number = shutil.copytree(base, tmp_path / "start"), 0
    run_once(base, agents=["keeper", "asked"], clock=clock(hours=3))
    whole = tree(base, without=(".lemming", "logs", "journals"))
    while True:
        number += KILL_STRIDE
        again = shutil.copytree(start, tmp_path / f"killed{number}")
        try:
            with crash_at(number):
                run_once(again, agents=["keeper", "asked"], clock=clock(hours=3))
        except Crash:
            if load_tick(again) == 2:
                run_once(again, agents=["keeper", "asked"], clock=clock(hours=3))
            assert tree(again, without=(".lemming", "logs", "journals")) == whole
            continue
        break
    assert number > 10


def test_a_replay_gives_the_same_files_and_the_same_plan(base: Path, tmp_path: Path) -> None:
    office(base)
    run_once(base, clock=clock())
    run_once(base, agents=["keeper", "asked"], clock=clock(hours=3))
    run_once(base, clock=clock(hours=4))
    again = tmp_path / "again"
    list(replay_into(base, again, list_replayable_ticks(base, None)))
    assert tree(again) == tree(base)
    assert [each.tick for each in replay_ticks(base, [1, 2, 3])] == [1, 2, 3]
