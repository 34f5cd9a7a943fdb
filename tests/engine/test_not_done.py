"""A turn that is not done leaves a line, once for each reason; a half-saved file costs nothing."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from fault_injection import fail_nth_lookup

from lemming.engine import run_once, run_tick, ticks
from lemming.kernel.agents import Survey, survey_agents
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.files.json_documents import retry_while_saving
from lemming.kernel.journal.engine_events import Event, ProblemFound
from lemming.kernel.org.config import load_config
from lemming.operations.unfinished_turns import load_unfinished_turns
from lemming.testing import FrozenClock, make_org, resume, say, write_script

LOG = "logs/turns_not_done.jsonl"


def lines(base: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (base / LOG).read_text().splitlines()]


def changes_in_engine_log(base: Path) -> list[tuple[str, str]]:
    logged = [json.loads(line) for line in (base / "logs/engine.log").read_text().splitlines()]
    return [(line["agent"], line["error"]) for line in logged if line["event"] == "turn_not_done"]


@pytest.fixture
def dead(base: Path) -> Path:
    """An organisation with one agent, whose provider refuses the key."""
    make_org(base, resume("ada"), script=[{"error": "AuthenticationFailed"}])
    return base


def test_a_provider_that_stays_dead_is_one_line(dead: Path) -> None:
    for _ in range(5):
        run_once(dead, clock=FrozenClock())
    [line] = lines(dead)
    assert (line["agent"], line["status"], line["error"]) == ("ada", "failed", "AuthenticationFailed")
    assert (line["tick"], line["since_tick"]) == (1, 1)
    assert changes_in_engine_log(dead) == []  # the log has a line for each turn that was taken


def test_a_reason_that_differs_in_numbers_only_is_one_line(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"tick": 100, "reply": say("never")}])  # no answer for tick N
    reasons = {run_once(base, clock=FrozenClock()).turns[0].reason for _ in range(3)}
    assert len(reasons) == 3
    assert [line["since_tick"] for line in lines(base)] == [1]


def test_another_reason_is_another_line_and_keeps_since_when(dead: Path) -> None:
    run_once(dead, clock=FrozenClock())
    write_script(dead, [{"error": "UnknownModel"}])
    run_once(dead, clock=FrozenClock())
    first, second = lines(dead)
    assert (second["error"], second["tick"], second["since_tick"]) == ("UnknownModel", 2, 1)
    assert first["error"] == "AuthenticationFailed"


def test_an_agent_that_is_well_again_is_forgotten(dead: Path) -> None:
    run_once(dead, clock=FrozenClock())
    write_script(dead, [{"reply": say("back")}])
    run_once(dead, clock=FrozenClock())
    assert lines(dead)[-1] == {"agent": "ada", "status": "done", "tick": 2}
    assert load_unfinished_turns(dead) == {}


def test_an_agent_without_credits_has_a_line_although_its_ticks_have_no_journal(base: Path) -> None:
    make_org(base, resume("ada", credits={"max_credits": 1}))
    reports = [run_once(base, clock=FrozenClock()) for _ in range(3)]
    assert [report.is_quiet for report in reports] == [False, True, True]
    [line] = lines(base)
    assert (line["error"], line["status"], line["since_tick"]) == ("OutOfCredits", "skipped", 2)
    assert changes_in_engine_log(base) == [("ada", "OutOfCredits")]


def test_a_broken_resume_has_a_line_that_names_the_file(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob", schedule="daily"))
    run_once(base, clock=FrozenClock())
    run_once(base, clock=FrozenClock())
    [line] = lines(base)
    assert line["agent"] == "bob"
    assert "agents/bob/resume.json" in line["reason"]
    assert changes_in_engine_log(base) == [("bob", "ConfigError")]


def test_an_agent_with_nothing_to_do_has_none(base: Path) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 1, "wake": "changed"}))
    for _ in range(4):
        run_once(base, clock=FrozenClock())
    assert not (base / LOG).exists()


def test_people_and_agents_that_are_not_due_have_none(base: Path) -> None:
    late = resume("ada", schedule={"run_every_n_ticks": 100})
    make_org(base, late, resume("human", model={"key": "human"}))
    run_once(base, clock=FrozenClock())
    assert not (base / LOG).exists()


def test_a_file_that_has_grown_keeps_what_stands(dead: Path) -> None:
    run_once(dead, clock=FrozenClock())
    with (dead / LOG).open("ab") as file:
        file.write(b'{"agent":"zed","status":"done","tick":1}\n' * 30_000)
    write_script(dead, [{"error": "UnknownModel"}])
    run_once(dead, clock=FrozenClock())
    assert [line["error"] for line in lines(dead)] == ["UnknownModel"]


def test_lines_that_are_none_are_passed_over(dead: Path) -> None:
    run_once(dead, clock=FrozenClock())
    with (dead / LOG).open("ab") as file:
        file.write(b'[]\n{"agent": 3}\n{"agent": "bob", "status": "failed"}\n{"torn": ')
    assert set(load_unfinished_turns(dead)) == {"ada"}


# --- files that somebody is saving ---------------------------------------------------------------


@pytest.mark.parametrize("file", ["config/org.json", "config/models.json", "config/credits.json"])
def test_a_setting_that_breaks_under_a_running_engine_does_not_end_it(base: Path, file: str) -> None:
    make_org(base, resume("ada"), org={"retention_ticks": 7})
    heard: list[Event] = []
    running = ticks(base, interval_s=0, max_ticks=4, clock=FrozenClock(), notify=heard.append)
    assert next(running).by_status("done")
    whole = (base / file).read_text() if (base / file).exists() else "{}"
    (base / file).write_text(whole[:-3] or "{")
    assert [next(running).by_status("done") != [] for _ in range(2)] == [True, True]
    (base / file).write_text(whole)
    assert next(running).by_status("done")
    told, mended = [event.problem for event in heard if isinstance(event, ProblemFound)]
    assert told.file == mended.file == file
    assert "the earlier settings stay in use until the file is fixed" in told.hint
    assert mended.severity == "note"


def test_a_setting_that_is_mended_and_breaks_again_is_told_again(base: Path) -> None:
    make_org(base, resume("ada"), org={})
    heard: list[Event] = []
    running = ticks(base, interval_s=0, max_ticks=4, clock=FrozenClock(), notify=heard.append)
    next(running)
    for text in ("{", "{}", "{"):
        (base / "config/org.json").write_text(text)
        next(running)
    told = [event.problem.severity for event in heard if isinstance(event, ProblemFound)]
    assert told == ["error", "note", "error"]


def test_an_engine_that_never_read_its_settings_does_not_start(base: Path) -> None:
    make_org(base, resume("ada"), org={})
    (base / "config/org.json").write_text('{"retention')
    with pytest.raises(ConfigError, match=r"config/org\.json"):
        run_once(base, clock=FrozenClock())


HALF_SAVED = ["config/org.json", "agents/ada/resume.json"]


def half_save(base: Path, file: str) -> str:
    """Empty a file as an editor does that is about to write it, a moment from now; return what it held."""
    whole = (base / file).read_text()
    (base / file).write_text("")
    os.utime(base / file, (time.time() + 60,) * 2)  # however long this test takes
    return whole


@pytest.mark.parametrize("file", HALF_SAVED)
def test_a_file_that_is_being_saved_is_read_again(base: Path, file: str) -> None:
    make_org(base, resume("ada"), org={"durability": "off"})
    whole = half_save(base, file)

    def look() -> Survey:
        try:
            load_config(base)
            return survey_agents(base)
        finally:
            (base / file).write_text(whole)  # the editor is quicker than the second look

    def problems_of(survey: Survey) -> list[Problem]:
        return [problem for error in survey.broken.values() for problem in error.problems]

    assert list(retry_while_saving(base, look, problems_of).agents) == ["ada"]


@pytest.mark.parametrize("file", HALF_SAVED)
def test_a_tick_looks_more_than_once_at_a_file_that_is_being_saved(base: Path, file: str) -> None:
    make_org(base, resume("ada"), org={"durability": "off"})
    half_save(base, file)
    with fail_nth_lookup(base, 0, errno.EIO) as looks, contextlib.suppress(ConfigError):
        run_tick(base, 1, clock=FrozenClock())
    assert sum(look.endswith(f" {file}") for look in looks) > 4
