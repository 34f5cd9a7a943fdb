"""A capability that somebody else wrote, installed as its users would, does what ours do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from quota_site import EXAMPLE, lemming, python, writers, written

from lemming.journal_tools.verify.state_root import load_state_root
from lemming.testing import journal_lines, tree

RUN = """
import sys
from lemming.engine import run_once
from lemming.testing import FrozenClock
for base in sys.argv[1:]:
    for _ in range(2):
        run_once(base, clock=FrozenClock())
"""
KILLED = """
import shutil, sys
from pathlib import Path
from lemming.engine import load_tick, run_once
from lemming.testing import Crash, FrozenClock, crash_at
from lemming.journal_tools.verify.state_root import load_state_root

start, tried = Path(sys.argv[1]), Path(sys.argv[2])
number, is_over, roots = 0, False, set()
while not is_over:
    number += 1
    shutil.rmtree(tried, ignore_errors=True)
    shutil.copytree(start, tried)
    try:
        with crash_at(number):
            run_once(tried, clock=FrozenClock())
        is_over = True
    except Crash:
        pass
    while load_tick(tried) < 3:  # it begins with 1
        run_once(tried, clock=FrozenClock())
    roots.add(load_state_root(tried))
print(number, *roots)
"""


def ran(base: Path, site: Path) -> Path:
    """Run two ticks of an organisation, by a clock that stands still."""
    found = python(RUN, str(base), sites=(site,))
    assert found.returncode == 0, found.stderr
    return base


@pytest.mark.long
def test_its_own_tests_pass(site: Path) -> None:
    path = os.pathsep.join(map(str, [site, EXAMPLE.parent.parent]))
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", EXAMPLE / "pyproject.toml", EXAMPLE / "tests"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout


def test_it_stays_short() -> None:
    (module,) = (EXAMPLE / "src").rglob("*.py")
    assert len(module.read_text().splitlines()) <= 150


def test_what_is_beyond_the_quota_is_refused_and_the_model_is_told(base: Path, site: Path) -> None:
    ran(writers(base, "ada", "bob", bob={"quota": {"per_day": 1}}), site)
    assert (written(base, "ada"), written(base, "bob")) == (4, 1)
    started = {it["agent"]: it for it in journal_lines(base, 2) if it["type"] == "turn_started"}
    assert started["ada"]["given"] == {"quota": {"day": "2026-01-01", "written": 3, "per_day": 4}}
    assert started["bob"]["state"]["kept"] == {"quota": {"day": "2026-01-01", "written": 1}}
    assert "the quota of 1 entries a day is used up" in started["bob"]["prompt"][-1]["content"]


def test_screens_say_how_it_stands(base: Path, site: Path) -> None:
    writers(base, "ada")
    assert lemming(base, "run-once", sites=(site,)).returncode == 0
    assert "quota: ada wrote 3 of 4 entries today\n" in lemming(base, "status", sites=(site,)).stdout
    facts = [{"about": "ada", "text": "wrote 3 of 4 entries today"}]
    told = json.loads(lemming(base, "status", "--json", sites=(site,)).stdout)
    assert told["capabilities"] == {"quota": facts}
    card = (
        "import sys, json; from lemming.queries.views.view_registry import build_view;"
        "print(json.dumps(build_view(sys.argv[1], 'agents')))"
    )
    shown = json.loads(python(card, str(base), sites=(site,)).stdout)
    assert shown["capabilities"] == [{"name": "quota", "facts": facts, "left_out": 0}]


def test_validate_asks_it_what_is_wrong(base: Path, site: Path) -> None:
    writers(base, "ada", ada={"quota": {"per_day": 9}})
    found = lemming(base, "validate", sites=(site,))
    assert found.returncode == 0
    assert "9 entries a day are more than the 4 of all others" in found.stdout + found.stderr


@pytest.mark.long
def test_killed_at_any_moment_it_comes_to_the_same(base: Path, site: Path, tmp_path: Path) -> None:
    found = python(KILLED, str(writers(base, "ada", "bob")), str(tmp_path / "tried"), sites=(site,))
    assert found.returncode == 0, found.stderr
    points, *roots = found.stdout.split()
    assert int(points) > 10
    assert roots == [load_state_root(ran(base, site))]


def test_turns_at_once_write_the_same_bytes(tmp_path: Path, site: Path) -> None:
    names = ("ada", "bob", "cid", "dan")
    at_once, in_turn = (writers(tmp_path / it, *names) for it in ("at_once", "in_turn"))
    for base, more in ((at_once, {"max_parallel": 8}), (in_turn, {"executor": "serial"})):
        settings = json.loads((base / "config/org.json").read_text())
        (base / "config/org.json").write_text(json.dumps({**settings, "visibility": "tick", **more}))
        ran(base, site)
    assert tree(at_once, without=("config", ".lemming", "logs")) == tree(
        in_turn, without=("config", ".lemming", "logs")
    )
    assert [written(at_once, name) for name in names] == [4, 4, 4, 4]


def test_what_was_recorded_comes_out_again(base: Path, site: Path, tmp_path: Path) -> None:
    ran(writers(base, "ada"), site)
    assert lemming(base, "replay", sites=(site,)).returncode == 0
    assert lemming(base, "verify", sites=(site,)).returncode == 0
    again = lemming(base, "replay", "--into", str(tmp_path / "again"), sites=(site,))
    assert again.returncode == 0, again.stderr
    assert load_state_root(tmp_path / "again") == load_state_root(base)
