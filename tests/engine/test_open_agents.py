"""Folders and files of agents stay open from tick to tick, and what a person does to them is noticed."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from lemming.engine import ticks
from lemming.kernel.journal.turn_report import TickReport
from lemming.testing import make_org, resume, say

Running = Iterator[TickReport]


@pytest.fixture
def org(base: Path) -> Path:
    """One agent that writes an entry in each tick."""
    return make_org(base, resume("ada"))


@pytest.fixture
def running(org: Path) -> Iterator[Running]:
    """Its engine, after two ticks: what stays open is open."""
    reports = ticks(org, interval_s=0)
    for _ in range(2):
        next(reports)
    yield reports
    reports.close()  # type: ignore[attr-defined]


def lines(file: Path) -> list[int]:
    return [json.loads(line)["tick"] for line in file.read_text().splitlines()]


def opened() -> set[str]:
    """Return the files and folders that this process has open, as `number path`."""
    found = set()
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.add(f"{number} {os.readlink(f'/dev/fd/{number}')}")
    return found


def test_what_is_kept_open_is_not_opened_again(org: Path, running: Running) -> None:
    before = opened()
    assert any(it.endswith("agents/ada/turns.jsonl") for it in before)
    next(running)
    assert opened() == before


@pytest.mark.parametrize("folder", ["agents/ada/outbox", "agents/ada/logs", "agents/ada"])
def test_a_folder_that_is_renamed_is_left_alone(org: Path, running: Running, folder: str) -> None:
    mine = org / "mine"
    shutil.copytree(org / folder, org / "copy")
    (org / folder).rename(mine)
    (org / "copy").rename(org / folder)
    before = {file: file.read_bytes() for file in mine.rglob("*.*")}
    next(running)
    assert {file: file.read_bytes() for file in mine.rglob("*.*")} == before
    assert lines(org / "agents/ada/turns.jsonl") == lines(org / "agents/ada/logs/activity.log") == [1, 2, 3]
    assert len([*(org / "agents/ada/outbox").iterdir()]) == 3


@pytest.mark.parametrize("file", ["turns.jsonl", "logs/activity.log"])
def test_a_file_that_is_replaced_is_opened_again(org: Path, running: Running, file: str) -> None:
    place = org / "agents/ada" / file
    shutil.copy(place, org / "copy")
    os.replace(org / "copy", place)
    next(running)
    assert lines(place) == [1, 2, 3]


def test_a_log_that_is_moved_away_gets_no_line_of_a_later_tick(org: Path, running: Running) -> None:
    for log in (org / "agents/ada/logs/activity.log", org / "logs/engine.log"):
        log.rename(org / "mine")
        next(running)
        assert len(lines(log)) == 1


def test_a_torn_line_that_somebody_added_is_cut_off(org: Path, running: Running) -> None:
    ledger = org / "agents/ada/turns.jsonl"
    with ledger.open("a") as file:
        file.write('{"tick":9')
    next(running)
    assert lines(ledger) == [1, 2, 3]


def open_files_of_ticks(org: Path) -> int:
    """Return how many more files a process has open that may open 256, after three ticks."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    before, reports = len(os.listdir("/dev/fd")), ticks(org, interval_s=0)
    for _ in range(3):
        assert {turn.status for turn in next(reports).turns} == {"done"}
    return len(os.listdir("/dev/fd")) - before


@pytest.mark.long
def test_of_many_agents_only_some_have_theirs_open(base: Path) -> None:
    org = make_org(base, *(resume(f"a{number}") for number in range(40)))
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # what other tests leave open counts
        assert fresh.submit(open_files_of_ticks, org).result() < 16 * 4 + 10


def test_a_memory_that_comes_or_goes_beside_those_that_turns_write_is_noticed(base: Path) -> None:
    reply = say("x", memory_updates=[{"key": "mine", "value": 1}])
    reports = ticks(make_org(base, resume("ada"), script=[{"reply": reply}]), interval_s=0)
    theirs, told = base / "agents/ada/memory/theirs.json", []
    for tick in range(1, 6):
        if tick == 3:
            theirs.write_text('{"value": 2}')
        if tick == 5:
            theirs.unlink()
        next(reports)
        told.append("theirs" in (base / f"logs/ticks/{tick:08}.jsonl").read_text())
    reports.close()  # type: ignore[attr-defined]
    assert told == [False, False, True, True, False]
