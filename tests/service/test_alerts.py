"""`on_failure` and `on_waiting`: a program is run once for each thing that begins; no tick waits for it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import until
from terminal import Lemming

from lemming.engine import run_once, ticks
from lemming.evals.case_copy import copy_org
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.base.redaction.secrets import refresh
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.operations.alerts import run_command
from lemming.queries.org_validation import validate_config
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, say, write_script

NOTES = "told.jsonl"
WRITES = """
import json, os, sys
given = json.load(sys.stdin)
given["env"] = {key: value for key, value in os.environ.items() if key != "LC_CTYPE"}
with open(os.environ["HOME"] + "/told.jsonl", "a") as file:
    file.write(json.dumps(given) + chr(10))
"""
COMMAND = [sys.executable, "-c", WRITES]
REFUSED = {"error": "AuthenticationFailed"}


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / NOTES


def told(notes: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []


def test_a_failure_is_told_once_as_it_begins_and_again_after_it_was_over(base: Path, notes: Path) -> None:
    script = [{"agent": "ada", "tick": 3, "reply": say("well")}, {"agent": "ada", **REFUSED}, {"reply": say("hello")}]
    make_org(base, resume("ada"), resume("bob"), script=script, org={"on_failure": COMMAND})
    for _ in range(5):
        run_once(base, clock=FrozenClock())
    first, second = told(notes)
    assert (first["event"], first["org"], first["tick"]) == ("failure", str(base), 1)
    [thing] = first["things"]
    assert (thing["about"], thing["error"], thing["since_tick"]) == ("ada", "AuthenticationFailed", 1)
    assert thing["since"] == "2026-01-01T00:00:00.000Z"
    assert second["tick"] == 4
    assert first["env"]["LEMMING_ABOUT"] == "ada"
    assert first["env"]["LEMMING_TEXT"].startswith("ada: ")
    assert first["env"]["LEMMING_EVENT"] == "failure"


def test_all_that_begin_to_fail_in_a_tick_are_told_of_together(base: Path, notes: Path) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[REFUSED], org={"on_failure": COMMAND})
    for _ in ticks(base, interval_s=0, max_ticks=3):
        pass
    [only] = told(notes)
    assert only["env"]["LEMMING_COUNT"] == "2"
    assert only["env"]["LEMMING_ABOUT"] == "ada, bob"


def test_what_was_told_can_be_seen_and_goes_when_it_is_over(base: Path, notes: Path) -> None:
    make_org(base, resume("ada"), script=[REFUSED], org={"on_failure": COMMAND})
    run_once(base)
    kept = json.loads((base / "logs/told.json").read_text())
    assert list(kept["failure"]) == ["ada"]
    write_script(base, [{"reply": say("well")}])
    run_once(base)
    assert json.loads((base / "logs/told.json").read_text()) == {"failure": {}}


def test_a_broken_resume_and_an_empty_purse_are_failures_that_can_be_mended(base: Path, notes: Path) -> None:
    poor = resume("ada", credits={"max_credits": 1}, schedule={"wake": "changed"})
    make_org(base, poor, resume("bob"), org={"on_failure": COMMAND})
    whole = (base / "agents/bob/resume.json").read_text()
    run_once(base)
    (base / "agents/bob/resume.json").write_text("[]")
    run_once(base)
    assert [thing["about"] for thing in told(notes)[0]["things"]] == ["ada", "bob"]
    (base / "agents/bob/resume.json").write_text(whole)
    fs.write_atomic(base, "config/credits.json", dump_pretty({"ada": {"max_credits": 100}}))
    run_once(base)
    assert json.loads((base / "logs/told.json").read_text()) == {"failure": {}}


def test_an_agent_that_is_paused_for_its_loop_is_told_of_once(base: Path, notes: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": "not the contract"}], org={"on_failure": COMMAND})
    for _ in range(7):
        run_once(base, clock=FrozenClock())
    first, second = told(notes)
    assert [thing["about"] for thing in first["things"]] == ["ada"]
    [paused] = second["things"]
    assert (paused["about"], paused["since_tick"]) == ("ada", 4)
    assert paused["text"] == "ada is paused: 4 of its turns failed in the same way (ContractError)"


def test_an_organisation_without_commands_writes_and_starts_nothing(base: Path, notes: Path) -> None:
    make_org(base, resume("ada"), script=[REFUSED])
    run_once(base)
    assert not (base / "logs/told.json").exists()


def test_the_command_gets_no_key(base: Path, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame-0123456789")
    refresh()
    script = [{"error": "AuthenticationFailed", "reply": "sesame-0123456789"}]
    make_org(base, resume("ada"), script=script, org={"on_failure": COMMAND})
    run_once(base)
    assert "sesame" not in notes.read_text()
    assert "PATH" in told(notes)[0]["env"]


def test_a_command_that_fails_or_is_not_there_is_a_line_in_the_log_and_no_more(base: Path) -> None:
    for command, reason in (
        (["/nowhere/mail"], "/nowhere/mail cannot be started: No such file or directory"),
        ([sys.executable, "-c", "import sys; sys.exit('no route to host')"], "ended with 1: no route to host"),
    ):
        make_org(base, resume("ada"), script=[REFUSED], org={"on_failure": command})
        assert run_once(base).turns[0].status == "failed"
        lines = [json.loads(line) for line in (base / "logs/engine.log").read_text().splitlines()]
        complaint = next(line for line in lines if line["event"] == "command_failed")
        assert complaint["setting"] == "on_failure"
        assert complaint["reason"].endswith(reason)
        (base / "logs/engine.log").unlink()
        (base / "logs/told.json").unlink()


def test_a_command_that_hangs_is_killed_with_all_it_has_started(base: Path) -> None:
    fs.make_root(base)
    hang = [sys.executable, "-c", "import os; os.fork(); import signal; signal.pause()"]
    started: list[bool] = []
    why = run_command(hang, stdin=b"", variables={}, cwd=base, limit_s=0.2, on_start=lambda: started.append(True))
    assert why == f"{sys.executable} took longer than 0.2 s and was killed"
    assert started == [True]


BEHIND = """
import os, pathlib, sys, time
if os.fork():
    os.write(2, b"no such host")
    os._exit(3)
print(os.getpid(), file=open("child.part", "w"))
os.rename("child.part", "child")
time.sleep(600)
"""


def test_what_a_command_leaves_in_the_background_takes_none_of_its_time_and_goes_on(base: Path) -> None:
    fs.make_root(base)
    why = run_command([sys.executable, "-c", BEHIND], stdin=b"", variables={}, cwd=base, limit_s=600, on_start=bool)
    assert why == f"{sys.executable} ended with 3: no such host"
    until((base / "child").exists)
    child = int((base / "child").read_text())
    os.kill(child, signal.SIGKILL)  # it is there


def test_a_command_that_does_not_read_its_input_ends_in_time(base: Path) -> None:
    fs.make_root(base)
    hang = [sys.executable, "-c", "import signal; signal.pause()"]
    why = run_command(hang, stdin=b"x" * (1 << 20), variables={}, cwd=base, limit_s=0.2, on_start=bool)
    assert why == f"{sys.executable} took longer than 0.2 s and was killed"


def test_a_command_that_talks_without_end_ends(base: Path) -> None:
    fs.make_root(base)
    talk = [sys.executable, "-c", "import sys\nwhile True: sys.stderr.write('no ' * 1000)"]
    why = run_command(talk, stdin=b"", variables={}, cwd=base, limit_s=30, on_start=lambda: None)
    assert "ended with" in why


def test_a_failure_that_was_told_before_a_kill_is_not_told_again(base: Path, notes: Path) -> None:
    make_org(base, resume("ada"), script=[REFUSED], org={"on_failure": COMMAND, "durability": "off"})
    run_once(base)
    for number in (6, 9):
        with crash_at(number), pytest.raises(Crash):
            run_once(base)
    run_once(base)
    assert len(told(notes)) == 1


def test_an_engine_that_ends_with_an_error_tells_so_once(base: Path, notes: Path) -> None:
    make_org(base, resume("ada"), resume("bob"), org={"on_failure": COMMAND})
    engine = ticks(base, interval_s=0)
    next(engine)
    (base / "tick.json").write_text("{")
    with pytest.raises(CorruptState):
        next(engine)
    for _ in range(2):  # started again, in vain
        with pytest.raises(CorruptState):
            run_once(base)
    [only] = told(notes)
    assert only["things"][0]["about"] == "organisation"
    assert "tick.json" in only["things"][0]["text"]
    (base / "tick.json").write_text('{"current_tick": 2}')
    run_once(base)
    assert json.loads((base / "logs/told.json").read_text()) == {"failure": {}}


def test_an_engine_that_cannot_begin_tells_so(base: Path, notes: Path) -> None:
    make_org(base, resume("ada"), org={"on_failure": COMMAND})
    (base / "tick.json").write_text("{")
    with pytest.raises(CorruptState):
        run_once(base)
    assert len(told(notes)) == 1


def test_what_begins_to_wait_for_a_person_is_told_once(base: Path, notes: Path) -> None:
    ask = {"kind": "request", "payload": {"text": "May I?", "target": "human"}, "tags": []}
    make_org(
        base,
        resume("ada"),
        resume("human", model={"key": "human"}),
        script=[{"tick": 1, "reply": say("", outbox_entries=[ask])}, {"reply": say("waiting")}],
        org={"on_waiting": COMMAND},
    )
    for _ in range(3):
        run_once(base)
    [only] = told(notes)
    [thing] = only["things"]
    assert (only["event"], thing["about"]) == ("waiting", "human")
    assert thing["text"].startswith("human owes ada an answer")
    assert next(iter(json.loads((base / "logs/told.json").read_text())["waiting"])).endswith(" human")


def test_a_copy_to_be_crashed_tells_nobody(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada"), org={"on_failure": COMMAND, "on_waiting": COMMAND})
    run_once(base)
    copy = copy_org(base, tmp_path / "copy", kills=1)
    assert "on_failure" not in json.loads((copy / "config/org.json").read_text())


def test_an_organisation_from_elsewhere_says_which_program_it_runs(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), org={"on_failure": ["mail", "ada"]})
    assert "runs the program: mail ada, when something fails" in lemming("trust").out


def test_validate_names_a_program_that_is_not_there(base: Path) -> None:
    make_org(base, resume("ada"), org={"on_failure": ["no-such-program"], "on_waiting": ["./tell.sh"]})
    fs.write_atomic(base, "tell.sh", b"#!/bin/sh\n")
    os.chmod(base / "tell.sh", 0o755)
    [problem] = validate_config(base, load_config(base))
    assert (problem.pointer, problem.severity) == ("/on_failure/0", "warning")
