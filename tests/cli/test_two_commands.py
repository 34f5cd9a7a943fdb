"""Of two commands that change one file, none is lost; what a kill cut off, the same again finishes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fault_injection
import pytest
from sampling import KILL_STRIDE
from terminal import Lemming

from lemming.cli import run
from lemming.engine import run_once
from lemming.import_export.apply_document import apply_writes, plan_writes
from lemming.import_export.org_document import OrgDocument
from lemming.kernel.agents import load_agent
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.files.folder_lock import lock_folder
from lemming.kernel.org.config import load_config
from lemming.libraries.settings_edits import edit_file
from lemming.operations.agent_pause import pause_agent
from lemming.testing import FrozenClock, make_org, resume, tree

ORG, CALENDAR = "config/org.json", "config/calendar.json"


def pieces(**settings: Any) -> OrgDocument:
    """Return what a document says that is only about settings."""
    return OrgDocument(resumes={}, settings={ORG: settings}, files={}, read_by=[])


def test_apply_does_not_write_over_what_another_command_wrote_meanwhile(base: Path) -> None:
    make_org(base, resume("ada"), org={"inbox_limit": 5})
    changes = plan_writes(base, pieces(inbox_limit=6), {})
    pause_agent(base, None, "by hand")
    with pytest.raises(UsageError, match="the file changed during the command; nothing was written"):
        apply_writes(base, changes)
    assert load_config(base).org.paused == "by hand"
    apply_writes(base, plan_writes(base, pieces(inbox_limit=6), {}))
    assert (load_config(base).org.paused, load_config(base).org.inbox_limit) == ("by hand", 6)


def test_two_jobs_that_are_written_at_once_are_both_there(base: Path) -> None:
    clock = resume("clock", model={"key": "clock"})
    models = {"clock": {"provider": "clock"}}
    human = resume("human", model={"key": "human"})
    make_org(base, resume("ada"), clock, human, models=models, org={"timezone": "UTC"})
    words = ["-C", str(base), "send", "--to", "ada", "--every", "0 9 * * *", "water the plants"]
    typed = threading.Thread(target=run, args=(words,))
    with lock_folder(base, "config"):
        typed.start()
        other = {"agent": "ada", "text": "feed the cat", "cron": "0 8 * * *"}
        (base / CALENDAR).write_text(json.dumps({"jobs": {"cat": other}}))
    typed.join()
    assert sorted(json.loads((base / CALENDAR).read_text())["jobs"]) == ["cat", "water-the-plants"]


CHANGES: list[Callable[[Path], object]] = [
    lambda base: run(["-C", str(base), "pause"]),
    lambda base: run(["-C", str(base), "credits", "grant", "ada", "5"]),
    lambda base: run(["-C", str(base), "history", "on"]),
    lambda base: run(["-C", str(base), "gates", "standard", "--write"]),
    lambda base: run(["-C", str(base), "models", "use", "scripted"]),
]


@pytest.mark.parametrize("change", CHANGES)
def test_no_command_takes_a_file_that_is_gone_for_an_empty_one(base: Path, change: Callable[[Path], object]) -> None:
    make_org(base, resume("ada", credits={"max_credits": 5.0}), org={"inbox_limit": 5})
    (base / "config/credits.json").write_text('{"ada": {"max_credits": 7}}')
    run_once(base, clock=FrozenClock())
    for file in (ORG, "config/models.json", "config/credits.json"):
        (base / file).unlink()
    assert change(base) == 3
    assert not (base / ORG).exists()
    assert not (base / "config/models.json").exists()
    assert not (base / "config/credits.json").exists()


def test_a_file_that_goes_between_two_looks_is_not_begun_anew(base: Path) -> None:
    make_org(base, resume("ada"), org={"inbox_limit": 5})
    run_once(base, clock=FrozenClock())
    (base / ORG).unlink()
    with pytest.raises(ConfigError, match="the file does not exist"), edit_file(base, ORG):
        pass


def test_a_team_that_was_cut_off_is_finished_by_the_same_command(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("lead"), resume("human", model={"key": "human"}), models={"human": {"provider": "human"}})
    words = ("agents", "new", "scout", "--asked-by", "lead", "--model", "scripted")
    left = list[fault_injection.CrashPoint]()
    with fault_injection.watch_crash_points(base, "kill", left.append):
        assert lemming(*words).status == 0
    whole = {agent: load_agent(base, agent) for agent in ("lead", "scout")}
    for point in left:
        base_left = fault_injection.restore_image(point.image, base.parent / f"left {point.number}")
        if (base_left / "agents/scout/resume.json").exists():
            assert run(["-C", str(base_left), *words]) == 0
            assert {agent: load_agent(base_left, agent) for agent in ("lead", "scout")} == whole


# --- a new organisation ---------------------------------------------------------------------------


def begin(folder: Path) -> None:
    assert run(["init", str(folder), "--template", "desk", "--quiet"]) == 0


def apply(folder: Path) -> None:
    file = folder.parent / "idea.json"
    file.write_text(json.dumps({"agents": {"ada": {"does": "Sum up."}}, "settings": {"inbox_limit": 7}}))
    assert run(["apply", str(file), str(folder)]) == 0


@pytest.mark.sample(3)  # the first and the last: each command, and each kind of folder
@pytest.mark.parametrize("put", [begin, apply])
@pytest.mark.parametrize("is_free", [True, False])
def test_a_beginning_that_is_killed_is_whole_or_none_and_the_same_again_finishes_it(
    tmp_path: Path, put: Callable[[Path], None], is_free: bool
) -> None:
    target = tmp_path / "watched" / "org"
    target.mkdir(parents=True)
    if not is_free:
        (target / "shared").mkdir()
        (target / "shared/mine.txt").write_text("mine")
    left = list[fault_injection.CrashPoint]()
    with fault_injection.watch_crash_points(target, "kill", left.append):
        put(target)
    whole = tree(target)
    assert len(left) >= 10
    for point in left[::KILL_STRIDE]:
        folder = fault_injection.restore_image(point.image, tmp_path / f"left-{point.number}" / "org")
        if not (folder / "agents").exists():
            put(folder)
        assert tree(folder) == whole, point.change
