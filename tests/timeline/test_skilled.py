"""Turns that went by guides and skills: replayed and verified, whatever has become of the files."""

from __future__ import annotations

from pathlib import Path

from recorded import Refusing, refuse_models
from skilled_corpus import skilled

from lemming.cli import run
from lemming.engine import run_once
from lemming.evals.case_copy import copy_org
from lemming.git_history.git_repository import BRANCH, Repository
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into
from lemming.kernel.providers import register_provider
from lemming.testing import FrozenClock, make_org, resume, say, tree

TICKS = 3


def ran(base: Path) -> Path:
    """Run some ticks of the organisation, and return its folder."""
    skilled(base, {})
    for _ in range(TICKS):
        run_once(base, clock=FrozenClock())
    return base


def test_a_replay_into_a_folder_gives_the_same_files(base: Path, again: Path) -> None:
    ran(base)
    assert len(list(replay_into(base, again, list_replayable_ticks(base, None)))) == TICKS
    assert tree(again) == tree(base)


def test_replay_and_verify_agree_when_guides_and_skills_are_others_or_gone(base: Path) -> None:
    register_provider("refusing", Refusing)
    ran(base)
    refuse_models(base)
    (base / "AGENTS.md").write_text("Be long.\n")
    (base / "agents/bob/AGENTS.md").unlink()
    (base / "skills/pdf-forms/SKILL.md").unlink()
    assert run(["-C", str(base), "replay"]) == 0
    assert run(["-C", str(base), "verify"]) == 0


def test_history_keeps_them_and_a_fork_has_them(base: Path, again: Path) -> None:
    skilled(base, {"history": "git"})
    run_once(base, clock=FrozenClock())
    (base / "AGENTS.md").write_text("Be long.\n")
    (base / "skills/pdf-forms/notes/how.txt").unlink()
    run_once(base, clock=FrozenClock())
    assert run(["-C", str(base), "fork", "--at", "1", str(again)]) == 0
    assert (again / "AGENTS.md").read_text() == "Be brief.\n"
    assert (again / "skills/pdf-forms/notes/how.txt").read_text() == "With care.\n"
    assert run(["-C", str(base), "rewind", "--to", "1", "--yes"]) == 0
    assert (base / "AGENTS.md").read_text() == "Be brief.\n"


def test_history_keeps_nothing_outside_that_nobody_goes_by(base: Path) -> None:
    make_org(base, resume("ada"), org={"history": "git"}, script=[{"reply": say("done")}])
    (base / "AGENTS.md").write_text("For others.\n")
    run_once(base, clock=FrozenClock())
    assert "AGENTS.md" not in Repository(base).run("ls-tree", "-r", "--name-only", BRANCH).decode()


def test_a_copy_to_be_killed_has_them(base: Path, tmp_path: Path) -> None:
    ran(base)
    copy = copy_org(base, tmp_path / "copy", kills=1)
    assert (copy / "AGENTS.md").read_text() == "Be brief.\n"
    assert (copy / "skills/pdf-forms/notes/how.txt").exists()
