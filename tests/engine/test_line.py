"""`lemming/kernel/line.py` and the engine come to the same: journals record by record, files byte for byte.

Both are run over the same plain organisations, in peace and killed at every change of the disk. Two things are not
compared. Measured durations are 0 here, because nothing takes time. The engine's own logs and its lock file tell of
the engine, and not of the organisation.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fault_injection import Image, restore_image, take_image
from optional_parts import uses
from plain_cases import CALLS, MODEL, ORGANISATIONS, agent, in_order, make, seldom_due, write
from sampling import EVERYTHING

from lemming.capabilities.scripted_models.scripted_provider import ScriptedProvider
from lemming.engine import load_tick, run_once
from lemming.kernel import line
from lemming.kernel.base.errors import ConfigError, CorruptState, NotAnOrg, OrgBusy, TickAlreadyCommitted
from lemming.kernel.files.safe_folder import is_temporary
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plain_organisation import LeftToEngine
from lemming.kernel.providers import Reply, Request
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, say, tree

Run = Callable[[Path], object]
TICKS = 4
STRIDE = 1 if EVERYTHING else 41
FIRST_POINTS = min(STRIDE, 4)  # a quiet tick changes little


def by_line(base: Path) -> object:
    return line.run_tick(base, clock=FrozenClock(boot_id="boot"))


def by_engine(base: Path) -> object:
    return run_once(base, clock=FrozenClock(boot_id="boot"))


@pytest.fixture(autouse=True)
def nothing_takes_time() -> Iterator[None]:
    with mock.patch.object(time, "perf_counter", return_value=0.0):
        yield


def journals(base: Path) -> dict[int, list[dict[str, Any]]]:
    return {tick: journal_lines(base, tick) for tick in journal_ticks(base)}


def results(base: Path) -> tuple[dict[int, list[dict[str, Any]]], dict[str, bytes]]:
    return journals(base), tree(base)


def run_ticks(base: Path, run: Run, count: int = TICKS) -> None:
    for _ in range(count):
        run(base)


def make_pair(organisation: Callable[[Path], None], above: Path) -> tuple[Path, Path]:
    for name in ("line", "engine"):
        organisation(above / name)
    return above / "line", above / "engine"


@pytest.mark.sample(3)
@pytest.mark.parametrize("organisation", ORGANISATIONS)
def test_both_write_the_same_journals_and_the_same_files(organisation: Callable[[Path], None], tmp_path: Path) -> None:
    straight, engine = make_pair(organisation, tmp_path)
    for tick in range(1, TICKS + 1):
        by_line(straight)
        by_engine(engine)
        assert journal_lines(straight, tick) == journal_lines(engine, tick)
        assert tree(straight) == tree(engine)
    raw = [{file.name: file.read_bytes() for file in base.glob("logs/ticks/*")} for base in (straight, engine)]
    assert raw[0] == raw[1], "the very same lines"


# --- killed at every change of the disk ---------------------------------------------------------------------------


class Calls:
    """Counts the calls of models, by tick, agent and number, and finds those that were recorded before."""

    def __init__(self, base: Path) -> None:
        self._base, self.recorded, self.repeated = base, set[tuple[int, str, int]](), list[tuple[int, str, int]]()

    def __enter__(self) -> None:
        complete = ScriptedProvider.complete

        def hear(provider: ScriptedProvider, request: Request) -> Reply:
            if (call := (request.tick, request.agent, request.step)) in self.recorded:
                self.repeated.append(call)
            return complete(provider, request)

        self._patch = mock.patch.object(ScriptedProvider, "complete", hear)
        self._patch.start()

    def __exit__(self, *_: object) -> None:
        self._patch.stop()
        for tick in journal_ticks(self._base):
            answers = (record for record in journal_lines(self._base, tick) if record["type"].startswith("model_"))
            self.recorded |= {(tick, record["agent"], record["call"]) for record in answers}


def in_peace(base: Path, run: Run) -> list[Image]:
    """Run until one tick after the last, and return the files before each tick and at the end."""
    images = []
    for _ in range(TICKS + 1):
        images.append(take_image(base))
        run(base)
    return [*images, take_image(base)]


def without_epochs(base: Path) -> tuple[dict[int, list[dict[str, Any]]], dict[str, bytes]]:
    """Return journals and files as one run without a kill would have left them."""
    lines = {
        tick: [{**record, "epoch": 0} for record in found if record["type"] != "turn_resumed"]
        for tick, found in journals(base).items()
    }
    # A kill leaves the file that was being written beside its target; the next write of the target takes it away.
    return lines, {path: content for path, content in tree(base).items() if not is_temporary(Path(path).name)}


KILLED_AND_FINISHED = {
    "line, line": (by_line, by_line), "line, engine": (by_line, by_engine), "engine, line": (by_engine, by_line),
}  # fmt: skip


@pytest.mark.crash
@pytest.mark.sample(11)
@pytest.mark.parametrize("names", KILLED_AND_FINISHED)
@pytest.mark.parametrize("organisation", ORGANISATIONS)
def test_killed_at_every_change_it_comes_to_the_same_and_pays_no_answer_twice(
    organisation: Callable[[Path], None], names: str, tmp_path: Path
) -> None:
    killed, finisher = KILLED_AND_FINISHED[names]
    organisation(peace := tmp_path / "peace")
    images = in_peace(peace, killed)
    expected, points = without_epochs(peace), 0
    for tick in range(1, TICKS + 1):
        for number in itertools.count(1 + zlib.crc32(f"{names} {tick}".encode()) % FIRST_POINTS, STRIDE):
            base = restore_image(images[tick - 1], tmp_path / f"{tick}-{number}")
            calls = Calls(base)
            with calls, contextlib.suppress(Crash), crash_at(number) as changes:
                killed(base)
            if len(changes) + 1 < number:
                break
            points += 1
            with calls:
                while load_tick(base) < TICKS + 2:
                    finisher(base)
            assert calls.repeated == []
            assert without_epochs(base) == expected, f"tick {tick}, killed at {number}: {changes[-1:]}"
            shutil.rmtree(base)
    assert points >= TICKS


# --- what is left to the engine -----------------------------------------------------------------------------------


@uses("gates", "trust")
@pytest.mark.parametrize(
    ("file", "change", "key"),
    [
        ("config/org.json", {"gates": [{"at": "call", "tool": "shell", "then": "block"}]}, "gates"),
        ("config/org.json", {"trust": {}}, "trust"),
        ("config/org.json", {"history": "git"}, "history"),
        ("config/org.json", {"defaults": {"wake": "changed"}}, "defaults.wake"),
        ("agents/ada/resume.json", {"team": {"ask": ["bob"]}}, "team"),
        ("agents/ada/resume.json", {"turn": {"deadline_s": 9}}, "turn.deadline_s"),
        ("agents/ada/resume.json", {"schedule": {"cron": "@daily"}}, "schedule.cron"),
        ("agents/ada/resume.json", {"permissions": {"tools": ["shell"]}}, "permissions.tools: shell"),
        ("agents/ada/resume.json", {"model": {"key": "none"}}, "model.key: none"),
        ("config/models.json", {"scripted": {**MODEL, "prompt": "full"}}, "scripted.prompt"),
        ("config/models.json", {"scripted": {**MODEL, "attempts": 2}}, "scripted.attempts"),
        ("config/models.json", {"scripted": {**MODEL, "usd_per_million_input_tokens": 1}}, "scripted.usd_per_million"),
        ("config/credits.json", {"ada": {"soft_cap": 1}}, "ada.soft_cap"),
    ],
)
def test_what_is_not_plain_is_refused_by_its_key_before_anything_is_written(
    file: str, change: dict[str, Any], key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, [{"reply": say("hello")}], agent("ada"), agent("bob"))
    old = json.loads((tmp_path / file).read_bytes()) if (tmp_path / file).exists() else {}
    write(tmp_path, file, {**old, **change})
    before = tree(tmp_path)
    assert line.main([str(tmp_path)]) == ConfigError.exit_status
    said = capsys.readouterr().err
    assert file in said
    assert key in said
    assert "lemming run-once" in said
    assert tree(tmp_path) == before


LEFT_TO_THE_ENGINE: dict[str, dict[str, Any]] = {
    "a request": {"reply": say("do it", kind="request")},
    "payload.not_before": {"reply": {"outbox_entries": [
        {"kind": "message", "payload": {"text": "later", "not_before": "2027-01-01T00:00:00Z"}},
    ]}},
    "who does not exist": {"reply": {"outbox_entries": [{"kind": "message", "payload": {"target": "nobody"}}]}},
    "again and again": {"reply": {"tool_calls": [CALLS[4]]}},
    "is to be warned": {"reply": "No."},
}  # fmt: skip


@pytest.mark.parametrize("reason", LEFT_TO_THE_ENGINE)
def test_the_engine_finishes_a_tick_that_is_left_to_it_and_pays_no_answer_twice(reason: str, tmp_path: Path) -> None:
    def organisation(base: Path) -> None:
        others = {"agent": "ada", "reply": say("hello")}
        make(base, [others, {"agent": "bob", **LEFT_TO_THE_ENGINE[reason]}], agent("ada"), agent("bob"))

    straight, engine = make_pair(organisation, tmp_path)
    calls = Calls(straight)
    with calls, pytest.raises(LeftToEngine, match=reason) as left:
        run_ticks(straight, by_line)
    assert "lemming run-once" in str(left.value)
    with calls, pytest.raises(LeftToEngine, match=reason):
        by_line(straight)
    with calls:
        by_engine(straight)
    assert calls.repeated == []
    while load_tick(engine) < load_tick(straight):
        by_engine(engine)
    assert without_epochs(straight) == without_epochs(engine)


def test_a_turn_that_ends_the_engine_each_time_is_abandoned_as_by_the_engine(tmp_path: Path) -> None:
    straight, engine = make_pair(in_order, tmp_path)
    for base, run in ((straight, by_line), (engine, by_engine)):
        for _ in range(3):
            with mock.patch.object(ScriptedProvider, "complete", side_effect=Crash), contextlib.suppress(Crash):
                run(base)
        run(base)
    assert journal_lines(straight, 1) == journal_lines(engine, 1)
    assert tree(straight) == tree(engine)


def test_a_tick_is_applied_once_and_a_counter_that_cannot_be_read_is_never_replaced(tmp_path: Path) -> None:
    seldom_due(tmp_path)
    run_ticks(tmp_path, by_line)
    (tmp_path / "tick.json").write_text('{"current_tick": 3}')
    with pytest.raises(TickAlreadyCommitted):
        by_line(tmp_path)
    (tmp_path / "tick.json").write_text("{")
    with pytest.raises(CorruptState):
        by_line(tmp_path)
    assert (tmp_path / "tick.json").read_text() == "{"


def test_a_folder_that_is_no_organisation_stays_as_it_is(tmp_path: Path) -> None:
    assert line.main([str(tmp_path)]) == NotAnOrg.exit_status
    assert [*tmp_path.iterdir()] == []


def test_one_engine_at_a_time(tmp_path: Path) -> None:
    seldom_due(tmp_path)
    with line._lock(Organisation(tmp_path), FrozenClock()), pytest.raises(OrgBusy):
        by_line(tmp_path)


def test_the_command_runs_a_tick_and_a_program_only_with_trust(tmp_path: Path) -> None:
    make(tmp_path, [{"reply": say("hello")}], agent("ada"))
    command = [sys.executable, "-P", "-m", "lemming.kernel.line", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "tick 1  ada  done\n"
    program = [sys.executable, "-c", """print('{"notes": "read"}')"""]
    write(
        tmp_path,
        "config/models.json",
        {"scripted": {**MODEL, "provider": "cli", "options": {"command": program, "effects": "none"}}},
    )
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (refused.returncode, "--trust" in refused.stderr) == (2, True)
    assert subprocess.run([*command, "--trust"], capture_output=True, text=True, check=True).stdout.startswith("tick 2")
