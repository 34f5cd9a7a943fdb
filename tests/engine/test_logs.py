"""The engine's log while ticks run: a person may move it or remove it, and it does not grow for ever."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.kernel.base.redaction import secrets
from lemming.kernel.journal.engine_events import Event, Observer
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.kernel.logging_config import ROTATE_BYTES, EngineLog
from lemming.logging_config import setup_logging
from lemming.testing import journal_lines, make_org, resume, say


@pytest.fixture
def org(base: Path) -> Path:
    """Ada and bob, one after another."""
    return make_org(base, resume("ada"), resume("bob"))


def told_of(file: Path) -> list[str]:
    """Return of whom each line of a log tells."""
    return [json.loads(line)["agent"] for line in file.read_text().splitlines()]


def after_ada(act: Callable[[], Any]) -> Observer:
    """Return an observer that acts once ada's turn is over."""

    def hear(event: Event) -> None:
        if isinstance(event, TurnStarted) and event.agent == "bob":
            act()

    return hear


def test_a_log_that_is_removed_during_a_tick_is_made_again(org: Path) -> None:
    log = org / "logs/engine.log"
    run_once(org, notify=after_ada(log.unlink))
    assert told_of(log) == ["bob"]


def test_a_log_that_is_moved_away_takes_the_rest_of_its_tick_along(org: Path) -> None:
    log, elsewhere = org / "logs/engine.log", org / "logs/mine.log"
    run_once(org, notify=after_ada(lambda: log.rename(elsewhere)))
    assert told_of(elsewhere) == ["ada", "bob"]
    run_once(org)
    assert told_of(log) == ["ada", "bob"]


@pytest.mark.parametrize("place", ["logs/engine.log", "agents/bob/logs/activity.log"])
def test_a_log_past_its_size_becomes_the_earlier_one(org: Path, place: str) -> None:
    log, earlier = org / place, org / f"{place}.1"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * ROTATE_BYTES + b"\n")
    run_once(org)
    assert earlier.read_bytes().startswith(b"x" * ROTATE_BYTES + b'\n{"')
    assert not log.exists()
    run_once(org)
    assert "bob" in told_of(log)


@pytest.mark.parametrize("place", ["logs/engine.log", "logs/engine.log.1"])
def test_a_folder_in_the_place_of_a_log_ends_no_tick(org: Path, place: str) -> None:
    (org / "logs").mkdir()
    (org / "logs/engine.log").write_bytes(b"x" * ROTATE_BYTES + b"\n")
    (org / place).unlink(missing_ok=True)
    (org / place).mkdir()
    assert [turn.status for turn in run_once(org).turns] == ["done", "done"]


def test_a_tick_leaves_no_file_open(org: Path) -> None:
    run_once(org)
    before = os.listdir("/dev/fd")
    run_once(org)
    assert os.listdir("/dev/fd") == before


def test_a_tick_logs_from_the_level_that_was_set(org: Path) -> None:
    setup_logging(org, "ERROR")
    try:
        run_once(org)
    finally:
        setup_logging(org)
    assert not (org / "logs/engine.log").exists()


def test_a_line_of_a_log_names_its_level_and_its_time_last(org: Path) -> None:
    EngineLog(org).warning("warned", agent="ada", path=Path("x"))
    line = json.loads((org / "logs/engine.log").read_text())
    assert list(line) == ["agent", "path", "event", "level", "timestamp"]
    assert (line["path"], line["level"]) == ("x", "warning")


def test_a_logger_of_ones_own_is_structlogs_and_writes_lines_like_the_engines(org: Path) -> None:
    log = setup_logging(org).bind(shop="east")
    try:
        raise ValueError("no stock")
    except ValueError:
        log.exception("order_failed", path=Path("x"))
    log.debug("not from this level on")
    (line,) = map(json.loads, (org / "logs/engine.log").read_text().splitlines())
    assert list(line) == ["shop", "path", "event", "exception", "level", "timestamp"]
    assert (line["event"], line["level"], line["path"]) == ("order_failed", "error", "x")
    assert line["exception"].endswith("ValueError: no stock")


def test_a_secret_that_is_not_ascii_reaches_neither_log_nor_journal(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORG_PASSWORD", "größer-als-8")
    secrets.refresh()
    make_org(base, resume("ada"), script=[{"reply": say("it is größer-als-8", notes="größer-als-8")}])
    try:
        run_once(base)
    finally:
        monkeypatch.undo()
        secrets.refresh()
    (ended,) = [record for record in journal_lines(base, 1) if record["type"] == "turn_committed"]
    assert ended["notes"] == "[redacted ORG_PASSWORD]"
    assert "größer" not in (base / "agents/ada/logs/activity.log").read_text()
