"""What channels take in and hand out does not depend on how many turns run at once, and replay agrees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into, replay_ticks
from lemming.testing import FrozenClock, make_org, resume, say, tree


def crowd(base: Path, at_once: int) -> dict[str, bytes]:
    """Run three ticks of four agents, two of which are asked by way of folders, and return all files."""
    doors = [resume(f"door-{name}", model={"key": f"door-{name}"}) for name in ("ada", "bob")]
    models = {
        f"door-{name}": {"provider": "folder", "options": {"path": f"shared/{name}", "to": name, "per_tick": 2}}
        for name in ("ada", "bob")
    }
    agents = [resume(name) for name in ("ada", "bob", "eve", "joe")]
    make_org(base, *agents, *doors, models=models, org={"max_parallel": at_once}, script=[{"reply": say("hello")}])
    for name in ("ada", "bob"):
        (base / "shared" / name).mkdir(parents=True)
        for number in range(5):
            (base / "shared" / name / f"{number}.txt").write_text(f"{name} {number}")
    for _ in range(3):
        run_once(base, clock=FrozenClock())
    return {name: text for name, text in tree(base).items() if name != "config/org.json"}


@pytest.mark.parametrize("at_once", [2, 8, 64])
def test_the_files_are_the_same_however_many_turns_run_at_once(base: Path, at_once: int) -> None:
    assert crowd(base / "many", at_once) == crowd(base / "one", 1)


def test_a_replay_makes_no_look_at_a_channel_and_comes_to_the_same_entries(base: Path, tmp_path: Path) -> None:
    crowd(base, 8)
    late = base / "shared/ada/late.txt"
    late.write_text("dropped after the last tick")
    assert [done.tick for done in replay_ticks(base, [1, 2, 3])] == [1, 2, 3]
    again = tmp_path / "again"
    list(replay_into(base, again, list_replayable_ticks(base, None)))
    assert late.exists()
    entries = [{name: text for name, text in tree(each).items() if "/outbox/" in name} for each in (base, again)]
    assert entries[0] == entries[1]


def test_an_organisation_without_channels_imports_nothing_of_them(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("hello")}])
    script = (
        "import sys; from lemming.engine import run_once; run_once(sys.argv[1]);"
        "own = tuple(f'lemming.capabilities.{it}' for it in ('channels', 'serving'));"
        "print([name for name in sys.modules if name.startswith(own)])"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(base)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
