"""A rename of an agent whose folder the file system will not rename: an overlay, or a mount."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import fault_injection
import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.agent_rename import rename_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.disk import Disk, use_disk
from lemming.operations.pending_rename import begin_rename
from lemming.testing import FrozenClock, make_org, resume, say, tree


class Refusing(Disk):
    """A disk that does not rename the folder of one agent."""

    def __init__(self, number: int) -> None:
        self._number = number

    def rename(self, source: str, target: str, source_folder: int, folder: int) -> None:
        if source == "ada":
            raise OSError(self._number, os.strerror(self._number))
        super().rename(source, target, source_folder, folder)


@pytest.fixture
def org(base: Path) -> Path:
    """Make an organisation in which `ada` has had a turn, and has a link and a program of her own."""
    make_org(base, resume("ada"), resume("bob", permissions={"read_outboxes": ["ada"]}), script=[{"reply": say("hi")}])
    run_once(base, clock=FrozenClock())
    own = base / "agents/ada/workspace"
    own.mkdir(exist_ok=True)
    (own / "run.sh").write_text("echo hi")
    (own / "run.sh").chmod(0o755)
    (own / "link").symlink_to("run.sh")
    return base


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EACCES])
def test_a_rename_that_is_refused_leaves_an_organisation_that_runs(org: Path, number: int) -> None:
    before = tree(org)
    with use_disk(Refusing(number)), pytest.raises(DiskError):
        rename_agent(org, "ada", "eve")
    assert tree(org) == before
    assert not (org / paths.RENAMING_FILE).exists()
    assert run_once(org, clock=FrozenClock()).tick == 2


@pytest.mark.parametrize("words", [("repair", "--yes"), ("agents", "rename", "ada", "eve")])
def test_an_intent_that_an_earlier_version_left_is_taken_back_too(org: Path, words: tuple[str, ...]) -> None:
    begin_rename(org, "ada", "eve")
    with use_disk(Refusing(errno.EBUSY)):
        assert run(["-C", str(org), *words]) == DiskError.exit_status
    assert run_once(org, clock=FrozenClock()).tick == 2


def test_where_an_overlay_refuses_the_folder_is_copied(org: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(org, tmp_path / "other", symlinks=True))
    rename_agent(other, "ada", "eve")
    with use_disk(Refusing(errno.EXDEV)):
        assert "agents/eve/resume.json" in rename_agent(org, "ada", "eve")
    workspace = org / "agents/eve/workspace"
    assert os.access(workspace / "run.sh", os.X_OK)
    assert (workspace / "link").readlink() == Path("run.sh")
    assert tree(org) == tree(other)
    assert not (org / "agents/ada").exists()
    assert run_once(org, clock=FrozenClock()).tick == 2


def test_a_copy_that_is_killed_at_any_moment_is_finished_by_the_same_again(org: Path, tmp_path: Path) -> None:
    (org / "agents/ada/workspace/link").unlink()
    left = list[fault_injection.CrashPoint]()
    start = fault_injection.take_image(org)
    with fault_injection.watch_crash_points(org, "kill", left.append), use_disk(Refusing(errno.EXDEV)):
        rename_agent(org, "ada", "eve")
    whole = tree(org)
    assert [point.change for point in left if point.change.startswith("copytree")]
    for point in [*left, fault_injection.CrashPoint(0, "nothing", start)]:
        folder = fault_injection.restore_image(point.image, tmp_path / f"left {point.number}")
        half = folder / "agents/.eve.copied"
        if point.change.startswith("copytree"):
            half.mkdir()
            (half / "resume.json").write_text("{")
        with use_disk(Refusing(errno.EXDEV)):
            rename_agent(folder, "ada", "eve")
        assert tree(folder) == whole, point.change
