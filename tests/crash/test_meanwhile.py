"""What a person does between a crash and the next run: the tick goes on as it would have, or says why not."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from afterwards import differences
from bill import Bill
from fault_injection import End, restore_image
from peace import folder, ideal, run
from trial import Moment, moments, sample

from lemming.cli import run as lemming
from lemming.engine import load_tick, run_once
from lemming.git_history.history_reader import GitHistory
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import list_outbox
from lemming.testing import FrozenClock, journal_lines, tree

pytestmark = pytest.mark.crash

SETTINGS = "config/org.json"


def killed(name: str, end: End = "kill") -> list[Moment]:
    """Return moments at which the engine was killed, with what each left."""
    return moments(name, "turn", ideal(name, "turn").start, Bill(), end, sample(name, end, "meanwhile"))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["plain", "tools", "crowd", "staff"])
def test_settings_that_are_broken_and_mended_and_changed_in_between_change_no_file(name: str) -> None:
    expected, ticks = ideal(name, "turn"), 2
    for moment in killed(name):
        with folder() as base:
            restore_image(moment.left, base)
            settings, bill = base / SETTINGS, Bill(moment.paid)
            before = settings.read_bytes()
            settings.write_bytes(before[: len(before) // 2])
            os.utime(settings, (0, 0))  # nobody is saving it
            if load_tick(base) <= ticks:
                refuses_to_run(base, bill)
            other = {"durability": "tick", "max_parallel": 8}
            settings.write_bytes(dump_pretty({**json.loads(before), **other}))
            run(base, ticks, bill)
            settings.write_bytes(before)
            assert [*differences(expected, base, ticks)] == [], moment.where
            assert set(bill.calls) == expected.calls, moment.where
            assert len(bill.repeated) <= 3, moment.where


def refuses_to_run(base: Path, bill: Bill) -> None:
    """Run on settings that are no JSON: nobody is asked, nothing is written."""
    files, paid = tree(base), [*bill.calls]
    with pytest.raises(ConfigError, match=SETTINGS):
        run_once(base, clock=FrozenClock(), notify=bill.hear)
    assert tree(base) == files
    assert bill.calls == paid


@pytest.mark.parametrize("end", ["kill", "torn"])
def test_every_tick_is_in_the_history_once_whatever_killed_the_engine(end: End) -> None:
    for moment in killed("kept", end):
        with folder() as base:
            restore_image(moment.left, base)
            bill = Bill(moment.paid)
            run(base, 2, bill)
            assert [*differences(ideal("kept", "turn"), base, 2)] == [], moment.where
            assert set(bill.calls) == ideal("kept", "turn").calls, moment.where
            run_once(base, clock=FrozenClock())
            ticks = [commit for commit in GitHistory(base).list_commits() if not commit.is_by_hand]
            told = [tick for commit in ticks for tick in range(commit.first_tick, commit.tick + 1)]
            assert sorted(told) == [1, 2, 3], moment.where


def test_an_agent_renamed_after_a_crash_keeps_what_it_wrote_and_nobody_is_shown_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for moment in killed("plain"):
        with folder() as base:
            restore_image(moment.left, base)
            bill = Bill(moment.paid)
            if lemming(["-C", str(base), "agents", "rename", "ada", "abe"]):
                assert "lemming run-once" in capsys.readouterr().err, "the tick under way comes first"
                run_once(base, clock=FrozenClock(), notify=bill.hear)
                assert lemming(["-C", str(base), "agents", "rename", "ada", "abe"]) == 0
            run(base, 3, bill)
            assert [entry.tick for entry in list_outbox(base, "abe")] == [1, 2, 3], moment.where
            assert shown_to(base, "bob") == {entry.id: 1 for entry in list_outbox(base, "abe")}, moment.where
            assert read_state(base, "abe").credits == 3
            assert not (base / "agents/ada").exists()
            assert len(bill.repeated) <= 1


def test_an_agent_renamed_by_hand_after_a_crash_leaves_a_tick_that_ends_and_no_folder_of_its_old_name() -> None:
    for moment in killed("plain"):
        with folder() as base:
            restore_image(moment.left, base)
            (base / "agents/ada").rename(base / "agents/abe")
            for name in ("abe", "bob"):
                file = base / f"agents/{name}/resume.json"
                file.write_text(file.read_text().replace('"ada"', '"abe"'))
            run(base, 4, Bill(moment.paid))
            assert {entry.tick for entry in list_outbox(base, "abe")} >= {3, 4}, moment.where
            assert set(shown_to(base, "bob").values()) == {1}
            assert not (base / "agents/ada").exists()


def shown_to(base: Path, reader: str) -> dict[str, int]:
    """Return how often each entry was shown to somebody as new, by its id."""
    records = [record for tick in range(1, load_tick(base)) for record in journal_lines(base, tick)]
    starts = [r for r in records if r["type"] == "turn_started" and r["agent"] == reader]
    return dict(Counter(entry for start in starts for entry in start["entries"]))
