"""What nobody brings, or its class does not understand, is refused with its place; none runs without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from quota_site import lemming, python, writers, written

from lemming.journal_tools.verify.state_root import load_state_root
from lemming.kernel.journal.ledger import read_state
from lemming.testing import journal_lines

UP_TO = """
import shutil, sys
from pathlib import Path
from lemming.engine import run_once
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines

base, kind, number = Path(sys.argv[1]), sys.argv[2], 1
start = shutil.copytree(base, base.parent / "start")
while not any(it["type"] == kind for it in journal_lines(base, 1)):
    number += 1
    shutil.rmtree(base)
    shutil.copytree(start, base)
    try:
        with crash_at(number):
            run_once(base, clock=FrozenClock())
    except Crash:
        pass
"""
BEGUN = 'the turn of ada in tick 1 was begun with quota: capability "quota" is not installed'
WRONG: list[tuple[Any, str, str]] = [
    ({"quotta": {"per_day": 4}}, "/capabilities/quotta", 'did you mean "quota"?'),
    ({"quota": {"per_dya": 4, "per_day": 4}}, "/capabilities/quota/per_dya", 'did you mean "per_day"?'),
    ({"quota": {"per_day": "4"}}, "/capabilities/quota/per_day", "write 4"),
    ({"quota": {"per_day": 0}}, "/capabilities/quota/per_day", "at least 1"),
    ({"quota": {}}, "/capabilities/quota/per_day", "this key is required"),
    ({"quota": 4}, "/capabilities/quota", "expected an object"),
    ({"windows": {"max_tokens": 100}}, "/capabilities/windows", 'use its keys in a resume: "memory"'),
]
"""Blocks, the place of what is wrong with each, and what is said of it."""


@pytest.mark.parametrize(("blocks", "place", "words"), WRONG, ids=lambda it: json.dumps(it)[:40])
def test_in_the_settings_it_stops_the_run(base: Path, site: Path, blocks: Any, place: str, words: str) -> None:
    writers(base, "ada", settings=blocks)
    for command in ("run-once", "validate"):
        found = lemming(base, command, sites=(site,))
        assert found.returncode == 3
        said = found.stdout + found.stderr
        assert f" {place}" in said
        assert "config/org.json:" in said
        assert words in said
    assert written(base) == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize(("blocks", "place", "words"), WRONG, ids=lambda it: json.dumps(it)[:40])
def test_in_a_resume_it_takes_that_agent_out(base: Path, site: Path, blocks: Any, place: str, words: str) -> None:
    writers(base, "ada", "bob", ada=blocks)
    for command in ("run-once", "validate"):
        found = lemming(base, command, sites=(site,))
        said = found.stdout + found.stderr
        assert f" {place}" in said
        assert "agents/ada/resume.json:" in said
        assert words in said
    assert (written(base, "ada"), written(base, "bob")) == (0, 3)


def test_taken_out_it_is_missed_in_words(base: Path, site: Path) -> None:
    writers(base, "ada")
    assert lemming(base, "run-once", sites=(site,)).returncode == 0
    root = load_state_root(base)
    for command in ("run-once", "validate"):
        said = lemming(base, command)
        assert said.returncode == 3
        assert 'config/org.json:3:5 /capabilities/quota: capability "quota" is not installed' in (
            said.stdout + said.stderr
        )
    assert 'quota: no status: capability "quota" is not installed' in lemming(base, "status").stdout
    replayed = lemming(base, "replay")
    assert replayed.returncode == 3
    assert f"{BEGUN}" in replayed.stderr
    assert lemming(base, "verify").returncode == 0  # which takes no turn again
    assert load_state_root(base) == root


@pytest.mark.parametrize("settings", ["as they were", "taken out"])
@pytest.mark.parametrize("kind", ["model_replied", "turn_committed"])
def test_a_tick_in_mid_air_waits_until_it_is_back(base: Path, site: Path, settings: str, kind: str) -> None:
    writers(base, "ada", "bob")
    python(UP_TO, str(base), kind, sites=(site,))
    if settings == "taken out":
        (base / "config/org.json").write_text("{}")
    before, left = journal_lines(base, 1), written(base)
    stopped = lemming(base, "run-once")
    assert stopped.returncode == 3
    words = BEGUN if settings == "taken out" else 'capability "quota" is not installed'
    assert words in stopped.stderr
    assert (journal_lines(base, 1), written(base), written(base, "bob")) == (before, left, 0)
    assert lemming(base, "run-once", sites=(site,)).returncode == 0
    assert (written(base, "ada"), written(base, "bob")) == (3, 3)


def test_taken_out_in_order_it_is_gone(base: Path, site: Path) -> None:
    writers(base, "ada")
    assert lemming(base, "run-once", sites=(site,)).returncode == 0
    (base / "config/org.json").write_text("{}")
    assert lemming(base, "run-once").returncode == 0
    assert written(base) == 6
    assert read_state(base, "ada").kept["quota"]["written"] == 3
