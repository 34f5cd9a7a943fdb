"""systemd is told that the engine is ready, gets on and ends; an engine that hangs is not fed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from systemd import listening
from terminal import PROGRAM

from lemming.engine import ticks
from lemming.kernel.journal.engine_events import Event, Sleeping, TickBegins
from lemming.kernel.org.organisation import Organisation
from lemming.operations.systemd_notify import (
    ALIVE,
    MARGIN_S,
    READY,
    STOPPING,
    EngineProgress,
    SystemdNotifier,
    Watchdog,
)
from lemming.testing import make_org, resume

DEADLINE_S = 120.0  # of a model's call, as the settings have it by default
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")


class Watch:
    """A clock that goes on only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def begins(tick: int) -> TickBegins:
    return TickBegins(tick=tick, order=[], not_due=[], skipped={}, broken={})


def ended(base: Path) -> Event:
    """Return the event that ends a tick of this organisation, from a run."""
    heard: list[Event] = []
    for _ in ticks(base, interval_s=0, max_ticks=1, notify=heard.append):
        pass
    return heard[-1]


@pytest.mark.parametrize("address", ["path", "@lemming-test-of-notify"])
def test_a_service_is_ready_with_its_first_tick_and_says_when_it_ends(base: Path, tmp_path: Path, address: str) -> None:
    make_org(base, resume("ada"))
    place = address if address.startswith("@") else str(tmp_path / "notify")
    environment = {**os.environ, "NOTIFY_SOCKET": place, "WATCHDOG_USEC": "60000"}
    with listening(place) as told:
        running = subprocess.Popen(
            [*PROGRAM, "-C", str(base), "run-forever", "--interval", "3600", "-q"], env=environment
        )
        try:
            until_ready = told.until(READY)
            assert until_ready[-1] == f"{READY}\nSTATUS=tick 1"
            assert set(until_ready[:-1]) <= {ALIVE}  # as often as there is time for it
            assert told.until("1 done")[-1] == "STATUS=tick 1: 1 done"
            assert told.until(ALIVE)[-1] == ALIVE  # also in the pause
            running.send_signal(signal.SIGTERM)
            assert told.until(STOPPING)[-1] == STOPPING
            assert running.wait() == 0
        finally:
            running.kill()
            running.wait()


def test_nobody_is_told_where_nobody_asked(base: Path) -> None:
    supervisor = SystemdNotifier({"WATCHDOG_USEC": "60000"})
    supervisor.notify(READY)
    assert supervisor.watchdog_s is None
    assert SystemdNotifier({"NOTIFY_SOCKET": "/nowhere"}).watchdog_s is None


def test_a_socket_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).notify(READY)


def test_the_watchdog_of_another_process_is_not_ours() -> None:
    environment = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}
    assert SystemdNotifier(environment).watchdog_s is None
    assert SystemdNotifier({**environment, "WATCHDOG_PID": str(os.getpid())}).watchdog_s == 1.0
    assert SystemdNotifier({**environment, "WATCHDOG_PID": "", "WATCHDOG_USEC": "soon"}).watchdog_s is None


def test_a_tick_that_hangs_beyond_its_deadlines_is_not_fed_and_its_log_says_so(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada"))
    watch = Watch()
    progress = EngineProgress(Organisation(base), monotonic=watch)
    with listening(tmp_path / "notify") as told:
        dog = Watchdog(SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "notify")}), progress, base)
        progress.on_event(begins(7))
        watch.now += DEADLINE_S + MARGIN_S
        dog.feed()
        assert told.so_far() == [ALIVE]
        watch.now += 1
        dog.feed()
        dog.feed()
        assert told.so_far() == []
        [line] = (base / "logs/engine.log").read_text().splitlines()
        assert {key: json.loads(line)[key] for key in ("event", "tick", "silent_s")} == {
            "event": "no_progress",
            "tick": 7,
            "silent_s": 241,
        }
        progress.on_event(begins(8))  # it was slow, and goes on
        dog.feed()
        assert told.so_far() == [ALIVE]


@pytest.mark.parametrize("interval_s", [None, 7200.0])
def test_a_pause_between_ticks_is_no_hang(base: Path, interval_s: float | None) -> None:
    make_org(base, resume("ada"), org={"tick_interval_s": 3600})
    watch, event = Watch(), ended(base)
    progress = EngineProgress(Organisation(base), interval_s=interval_s, monotonic=watch)
    progress.on_event(begins(1))
    progress.on_event(event)
    watch.now += (interval_s or 3600) + 1
    assert progress.overdue_s == 0.0
    watch.now += DEADLINE_S + MARGIN_S
    assert progress.overdue_s > 0


def test_a_sleep_is_no_hang_however_long(base: Path) -> None:
    make_org(base, resume("ada"))
    watch = Watch()
    progress = EngineProgress(Organisation(base), monotonic=watch)
    progress.on_event(Sleeping(next_tick=2, until_tick=9, until="", seconds=50_000.0, due=[]))
    watch.now += 50_000
    assert progress.overdue_s == 0.0


def test_the_longest_deadline_of_the_settings_counts(base: Path) -> None:
    slow = {"provider": "scripted", "deadline_s": 5000, "batch_deadline_s": 9000}
    make_org(base, resume("ada"), models={"slow": slow})
    watch = Watch()
    for batch, deadline_s in ((False, 5000), (True, 86_400)):
        progress = EngineProgress(Organisation(base), batch=batch, monotonic=watch)
        progress.on_event(begins(1))
        watch.now += deadline_s + MARGIN_S
        assert progress.overdue_s == 0.0
        watch.now += 1
        assert progress.overdue_s > 0


def test_settings_that_break_under_way_leave_those_from_before(base: Path) -> None:
    make_org(base, resume("ada"), org={"tool_timeout_s": 1000})
    watch = Watch()
    progress = EngineProgress(Organisation(base), monotonic=watch)
    progress.on_event(begins(1))
    (base / "config/org.json").write_text("{")
    progress.on_event(begins(2))
    watch.now += 1000 + MARGIN_S
    assert progress.overdue_s == 0.0


def test_what_a_tick_came_to_can_be_read_in_systemctl_status(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"error": "AuthenticationFailed"}])
    with listening(tmp_path / "notify") as told:
        reports = SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        reports.on_event(begins(1))
        reports.on_event(begins(2))
        reports.on_event(ended(base))
        assert told.so_far() == [f"{READY}\nSTATUS=tick 1", "STATUS=tick 1: 2 failed"]
