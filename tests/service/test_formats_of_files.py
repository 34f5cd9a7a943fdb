"""The version of the files: organisations of earlier ones are run, or upgraded, newer ones refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from terminal import Lemming

from lemming.cli import run
from lemming.engine import run_once, run_tick, ticks
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.errors import ConfigError, LemmingError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.journal_segments import segments
from lemming.kernel.org.organisation import NEWEST_FORMAT, Organisation
from lemming.operations.backup_archive import restore_backup, tarfile
from lemming.operations.backup_writer import create_backup
from lemming.operations.format_upgrade import plan_upgrade
from lemming.testing import Crash, crash_at, make_org, resume, tree

TICKS = [50, 100, 150, 200, 250]


@pytest.fixture
def old(base: Path) -> Path:
    """An organisation that 0.1.0 made and ran: five ticks, of which three are packed."""
    fs.make_root(base)
    with tarfile.open(Path(__file__).parent / "org_of_0_1_0.tar.gz") as archive:
        archive.extractall(base, filter="data")
    return base


def test_an_organisation_of_0_1_0_goes_on_as_it_is(old: Path, lemming: Lemming) -> None:
    settings = (old / "config/org.json").read_bytes()
    assert journal_ticks(old) == TICKS
    assert not [finding for finding in verify_org(old).findings if finding.level == "error"]
    assert [replayed.tick for replayed in replay_ticks(old, TICKS)] == TICKS
    assert lemming("status").status == 0
    fs.write_atomic(old, "tick.json", dump_pretty({"current_tick": 300}))
    assert {turn.agent: turn.status for turn in run_once(old).turns if turn.calls} == {"ada": "done", "bob": "done"}
    assert (old / "config/org.json").read_bytes() == settings


@pytest.mark.parametrize("name", ["research", "review"])
def test_an_organisation_of_0_2_0_goes_on_as_it_is(base: Path, lemming: Lemming, name: str) -> None:
    """In one a question to a colleague waited between two turns, in the other a call still waits for a person."""
    with tarfile.open(Path(__file__).parent / "org_of_0_2_0.tar.gz") as archive:
        archive.extractall(base.parent / "both", filter="data")
    (base.parent / "both" / name).rename(base)
    ticks_of_then = journal_ticks(base)
    assert not [finding for finding in verify_org(base).findings if finding.level == "error"]
    assert [replayed.tick for replayed in replay_ticks(base, ticks_of_then)] == ticks_of_then
    if name == "review":
        assert lemming("approve", "95599cb01054").status == 0
        assert [turn.agent for turn in run_once(base).turns if turn.tools] == ["publisher"]
        assert "also on Saturday" in (base / "shared/site/hours.md").read_text()
    else:
        assert not [turn for turn in run_once(base).turns if turn.error]
    assert [replayed.tick for replayed in replay_ticks(base, journal_ticks(base))] == journal_ticks(base)


def test_an_upgrade_is_shown_first_and_once_done_the_organisation_goes_on(old: Path, lemming: Lemming) -> None:
    before = tree(old, without=())
    ran = lemming("upgrade")
    assert [line.split(":")[0] for line in ran.out.splitlines()] == [
        "logs/ticks/sealed/00000000-00000099.zip",
        "logs/ticks/sealed/00000100-00000199.zip",
        "config/org.json",
    ]
    assert "`lemming upgrade --yes` writes the files" in ran.err
    assert tree(old, without=()) == before
    assert lemming("upgrade", "--yes").status == 0
    assert json.loads((old / "config/org.json").read_text()) == {
        "plain_journals": 0,
        "durability": "off",
        "format": NEWEST_FORMAT,
    }
    assert [found.name.partition(".")[2] for found in segments(old)] == ["jsonl.xz", "jsonl.xz"]
    assert "nothing to upgrade" in lemming("upgrade").err
    assert journal_ticks(old) == TICKS
    assert [replayed.tick for replayed in replay_ticks(old, TICKS)] == TICKS
    fs.write_atomic(old, "tick.json", dump_pretty({"current_tick": 300}))
    assert run_once(old).totals["done"] == 2
    assert lemming("validate").status == 0


def test_an_upgrade_that_was_cut_off_anywhere_is_done_again(old: Path, lemming: Lemming) -> None:
    number = 0
    while plan_upgrade(old):
        number += 2
        try:
            with crash_at(number):
                run(["-C", str(old), "upgrade", "--yes"])
        except Crash:
            assert journal_ticks(old) == TICKS
    assert number > 4
    assert [replayed.tick for replayed in replay_ticks(old, TICKS)] == TICKS


@pytest.mark.parametrize("words", [["--template", "desk"], ["--template", "empty"], ["--template", "review"]])
def test_a_new_organisation_has_the_newest_format(words: list[str], tmp_path: Path) -> None:
    assert run(["init", str(tmp_path / "new"), *words]) == 0
    assert plan_upgrade(tmp_path / "new") == {}


def test_an_organisation_without_settings_can_be_upgraded(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    [facts] = lemming("upgrade", "--yes", "--json").objects
    assert (facts["from"], facts["to"], facts["is_done"]) == (1, NEWEST_FORMAT, True)
    assert run_once(base).totals["done"] == 1


NEWER = {"format": NEWEST_FORMAT + 1, "visibility": {"a_key": "of tomorrow"}}
ENGINES: dict[str, Callable[[Path], object]] = {
    "run_once": run_once,
    "run_tick": lambda base: run_tick(base, 1),
    "ticks": lambda base: next(iter(ticks(base))),
}


@pytest.mark.parametrize("name", ENGINES)
def test_a_newer_format_is_refused_before_anything_is_written(base: Path, name: str) -> None:
    make_org(base, resume("ada"), org=NEWER)
    before = tree(base, without=())
    with pytest.raises(ConfigError, match=f"got {NEWEST_FORMAT + 1}") as caught:
        ENGINES[name](base)
    assert "pip install -U lemming-engine" in str(caught.value.problems[0].hint)
    assert tree(base, without=()) == before


@pytest.mark.parametrize(
    "words", [["run-once"], ["send", "hello"], ["pause"], ["upgrade", "--yes"], ["status"], ["repair"]]
)
def test_every_command_refuses_it_and_says_what_to_do(base: Path, lemming: Lemming, words: list[str]) -> None:
    make_org(base, resume("ada"), resume("human", model={"key": "human"}), org=NEWER)
    before = tree(base, without=())
    ran = lemming(*words)
    assert (ran.status, "pip install -U lemming-engine" in ran.err) == (3, True)
    assert tree(base, without=()) == before


def test_a_backup_of_a_newer_format_is_not_put_in_place(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada"))
    create_backup(Organisation(base), tmp_path / "kept.tar.gz", wait_s=1)
    fs.write_atomic(base, "config/org.json", dump_pretty(NEWER))
    with pytest.raises(LemmingError):
        create_backup(Organisation(base), tmp_path / "newer.tar.gz", wait_s=1)
    assert restore_backup(tmp_path / "kept.tar.gz", tmp_path / "back").tick == 1


def test_a_format_that_is_none_is_named_by_validate(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), org={"format": "new"})
    ran = lemming("validate")
    assert (ran.status, "/format" in ran.out + ran.err) == (3, True)
