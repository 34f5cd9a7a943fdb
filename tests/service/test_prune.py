"""Prune: what is beyond the settings goes, and nothing that anything still needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from terminal import Lemming

from lemming.engine import run_once
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.journal_segments import segments
from lemming.operations.open_org import open_org
from lemming.testing import make_org, resume, tree

LONG_AGO = (1_000_000_000, 1_000_000_000)


@pytest.fixture
def old(base: Path) -> Path:
    """An organisation with three packed hundreds, full logs, and things set aside long ago and now."""
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 50}), org={"durability": "off", "plain_journals": 0})
    for tick in (50, 100, 150, 200, 250, 300, 350):
        fs.write_atomic(base, "tick.json", dump_pretty({"current_tick": tick}))
        run_once(base)
    for log in ("logs/engine.log.1", "agents/ada/logs/activity.log.1"):
        fs.write_atomic(base, log, b"old\n")
        os.utime(base / log, LONG_AGO)
    fs.write_atomic(base, "aside/2020-01-01T000000.000Z/agents/bob/resume.json", b"{}")
    fs.write_atomic(base, "aside/2099-01-01T000000.000Z/agents/eve/resume.json", b"{}")
    fs.write_atomic(base, "aside/mine/notes.txt", b"kept by hand")
    return base


def test_it_shows_and_says_how_to_do_it(old: Path, lemming: Lemming) -> None:
    before = tree(old, without=())
    ran = lemming("prune")
    assert ran.status == 0
    assert [line.split()[2] for line in ran.out.splitlines()] == [
        "logs/engine.log.1",
        "agents/ada/logs/activity.log.1",
        "aside/2020-01-01T000000.000Z",
    ]
    assert "`lemming prune --yes` removes them" in ran.err
    assert tree(old, without=()) == before


def test_journals_go_only_beyond_what_is_kept(old: Path, lemming: Lemming) -> None:
    assert [found.first for found in segments(old)] == [0, 100, 200]
    assert "journals" not in {found["kind"] for found in lemming("prune", "--json").objects}
    fs.write_atomic(old, "config/org.json", dump_pretty({"kept_journals": 100}))
    found = lemming("prune", "--json").objects
    assert [each["path"] for each in found if each["kind"] == "journals"] == [
        "logs/ticks/sealed/00000000-00000099.jsonl.xz",
        "logs/ticks/sealed/00000100-00000199.jsonl.xz",
    ]
    found = lemming("prune", "--journals", "0", "--yes", "--json").objects
    assert all(each["is_removed"] for each in found)
    assert segments(old) == []
    assert journal_ticks(old) == [300, 350]


def test_what_is_young_or_a_persons_own_stays(old: Path, lemming: Lemming) -> None:
    lemming("prune", "--yes")
    assert sorted(os.listdir(old / "aside")) == ["2099-01-01T000000.000Z", "mine"]
    assert not (old / "logs/engine.log.1").exists()
    assert "nothing to remove" in lemming("prune").err
    fs.write_atomic(old, "logs/engine.log.1", b"young\n")
    assert "nothing to remove" in lemming("prune", "--older-than", "1d").err
    assert "logs/engine.log.1" in lemming("prune", "--older-than", "0").out


def test_an_organisation_that_was_pruned_goes_on(old: Path, lemming: Lemming) -> None:
    lemming("prune", "--journals", "0", "--older-than", "0", "--yes")
    assert lemming("verify").status == 0
    assert lemming("doctor", "--json").objects
    fs.write_atomic(old, "tick.json", dump_pretty({"current_tick": 400}))
    assert run_once(old).turns[0].status == "done"


def test_beside_an_engine_journals_are_left_to_it(old: Path, lemming: Lemming) -> None:
    with open_org(old, command="run-forever"):
        ran = lemming("prune", "--journals", "0", "--yes")
    assert "an engine is running" in ran.err
    assert len(segments(old)) == 3
    assert not (old / "logs/engine.log.1").exists()


def test_a_link_in_what_was_set_aside_is_not_followed(old: Path, tmp_path: Path, lemming: Lemming) -> None:
    (tmp_path / "dear").mkdir()
    (tmp_path / "dear/file").write_text("dear")
    (old / "aside/2020-01-01T000000.000Z/link").symlink_to(tmp_path / "dear")
    (old / "aside/2019-01-01T000000.000Z").symlink_to(tmp_path / "dear")
    lemming("prune", "--yes")
    assert (tmp_path / "dear/file").read_text() == "dear"
    assert (old / "aside/2019-01-01T000000.000Z").is_symlink()
