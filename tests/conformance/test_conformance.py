"""The conformance suite holds what docs/specification.md says, this engine passes it, and wrong ones do not.

`make test` takes a sample with this engine, which starts a process for each tick; `make crash` takes all.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from wrong_engines import WRONG

from conformance.__main__ import find_problem, main, parse_engine_command
from conformance.check import CHECKS, Check
from conformance.parts import PARTS, get_part, make_refusal_check

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs/specification.md").read_text()
EVERYTHING = os.environ.get("LEMMING_CRASH_POINTS") == "all"
OURS = [sys.executable, "-P", "-m", "lemming", "run-once", "--quiet", "--trust"]
LINE = [sys.executable, "-P", "-m", "lemming.kernel.line", "--trust", "."]
TINY = [sys.executable, str(HERE / "tiny_engine.py")]
SAMPLE = {"killed_as_the_journal_grows", "a_request_ends_once"}
OF_TINY = [*(check for check in CHECKS if not get_part(check)), *map(make_refusal_check, PARTS.values())]
BY_NAME = {check.name: check for check in CHECKS}
ALL = BY_NAME | {check.name: check for check in OF_TINY}
MISTAKES = [(name, check) for name, (_, checks) in WRONG.items() for check in checks]
STRIDE = 1 if EVERYTHING else 30


def required() -> dict[str, str]:
    """Return the requirements of the page, by number."""
    found = re.findall(r"^- \*\*([A-Z]{3}-\d+)\*\* (.*?)(?=^- \*\*|^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return dict(found)


def not_checked() -> set[str]:
    """Return what the page lists as not checked from outside."""
    rows = PAGE.partition("| not checked from outside |")[2].splitlines()
    cells = [row.split("|")[1] for row in rows if row.startswith("| ")]
    return {number for cell in cells for number in re.findall(r"[A-Z]{3}-\d+", cell)}


def test_every_must_is_held_by_a_check_or_listed_as_not_checked() -> None:
    must = {number for number, words in required().items() if "MUST" in words}
    held = {number for check in ALL.values() for number in check.requirements}
    assert must - held == not_checked(), "what no check holds stands in the table, and nothing else does"


def test_checks_hold_requirements_that_there_are() -> None:
    assert {number for check in CHECKS for number in check.requirements} <= required().keys()


def test_a_requirement_has_a_number_of_its_own() -> None:
    numbers = re.findall(r"^- \*\*([A-Z]{3}-\d+)\*\*", PAGE, re.MULTILINE)
    assert len(numbers) == len(set(numbers)) > 50


@pytest.mark.crash
@pytest.mark.parametrize("check", OF_TINY[::STRIDE], ids=lambda check: check.name)
def test_a_second_engine_written_by_the_page_passes(check: Check) -> None:
    assert find_problem(check, TINY, points=1000 if EVERYTHING else 1) == ""


@pytest.mark.crash
@pytest.mark.parametrize("name", sorted(BY_NAME if EVERYTHING else SAMPLE))
def test_this_engine_passes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE.parents[1]))
    assert find_problem(BY_NAME[name], OURS, points=10 if EVERYTHING else 1) == ""


@pytest.mark.crash
@pytest.mark.parametrize("check", OF_TINY[STRIDE // 2 :: STRIDE], ids=lambda check: check.name)
def test_the_engine_in_one_file_passes(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE.parents[1]))
    assert find_problem(check, LINE, points=10 if EVERYTHING else 1) == ""


@pytest.mark.crash
@pytest.mark.parametrize(("engine", "check"), MISTAKES[::STRIDE])
def test_an_engine_that_is_wrong_in_one_thing_fails(engine: str, check: str) -> None:
    assert find_problem(ALL[check], [sys.executable, str(HERE / "wrong_engines.py"), engine], points=3) != ""


def test_a_program_is_found_on_the_path_though_a_folder_here_is_called_like_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/lemming").write_text("#!/bin/sh\n")
    (tmp_path / "bin/lemming").chmod(0o755)
    (tmp_path / "clone/lemming").mkdir(parents=True)
    (tmp_path / "clone/config.json").write_text("{}")
    monkeypatch.chdir(tmp_path / "clone")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert parse_engine_command("lemming run-once config.json") == [
        "lemming",
        "run-once",
        f"{tmp_path}/clone/config.json",
    ]


def test_a_program_that_is_a_file_here_is_started_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engine").write_text("#!/bin/sh\n")
    (tmp_path / "engine").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert parse_engine_command("./engine tick")[0] == parse_engine_command("engine tick")[0] == f"{tmp_path}/engine"
    with pytest.raises(ValueError, match="there is no program"):
        parse_engine_command("nothing tick")


def test_the_command_says_what_holds_and_ends_with_one_when_a_check_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = f"{sys.executable} {HERE / 'wrong_engines.py'} DrawsOtherIds"
    assert main(["--engine", wrong, "--only", "MSG-2"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("FAIL  an_entry_is_a_file_with_seven_keys  MSG-1 MSG-2")
    assert said.endswith("0 of 1 checks hold\n")


@pytest.mark.parametrize(
    "words", [[], ["--engine", "x", "--without", "plns"], ["--engine", "no-such-engine"], ["--engine", "'open"]]
)
def test_a_command_that_is_none_is_said(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert ("--without" if "--without" in words else "--engine") in capsys.readouterr().err.splitlines()[-1]


def test_a_program_that_does_nothing_is_no_engine() -> None:
    nothing = [sys.executable, "-c", ""]
    assert [check.name for check in CHECKS[::8] if not find_problem(check, nothing, points=1)] == []
