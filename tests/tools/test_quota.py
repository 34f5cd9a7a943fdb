"""How much a workspace and `shared/` may hold: bytes and files, those of this turn among them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tool_desk import Desk

from lemming.kernel.files import quota
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.settings_blocks import Quota


def full_desk(tmp_path: Path, max_bytes: int = 1 << 20, **grants: list[str]) -> Desk:
    """Return a desk whose workspace and `shared/` may hold so many bytes and 100 files each."""
    quota = Quota(max_bytes=max_bytes, max_files=100)
    return Desk(tmp_path, org=OrgSettings(create_agent_allowed=["alpha"], quota=quota), **grants)


@pytest.mark.parametrize("folder", ["workspace", "shared"])
def test_files_of_a_turn_and_of_turns_before_fill_a_folder_up(tmp_path: Path, folder: str) -> None:
    desk = full_desk(tmp_path)
    desk.write("shared/before", "x" * 400_000)
    desk.write("agents/alpha/workspace/before", "x" * 400_000)
    for name in ("a", "b"):
        assert desk.call("file_write", path=f"{folder}/{name}", content="x" * 250_000).success
    assert "bytes, at most 1048576 are allowed" in desk.refusal("file_write", path=f"{folder}/c", content="x" * 250_000)
    assert desk.call("file_write", path=f"{folder}/before", content="less").success
    assert desk.call("file_write", path=f"{folder}/c", content="x" * 250_000).success


def test_the_number_of_files_has_a_limit(tmp_path: Path) -> None:
    desk = full_desk(tmp_path)
    for number in range(100):
        assert desk.call("file_write", path=f"{number}", content="").success
    assert "101 files and folders, at most 100" in desk.refusal("file_write", path="one more", content="")
    assert desk.call("file_write", path="0", content="again").success


def test_a_folder_that_holds_too_much_already_may_hold_as_much(tmp_path: Path) -> None:
    desk = full_desk(tmp_path)
    desk.write("shared/big", "x" * 2_000_000)
    desk.write("shared/a", "one")
    assert "at most 1048576 are allowed" in desk.refusal("file_write", path="shared/a", content="more")
    assert "at most 1048576 are allowed" in desk.refusal("file_write", path="shared/b", content="")
    for content in ("two", "2", "22"):
        assert desk.call("file_write", path="shared/a", content=content).success


def test_one_folder_that_is_full_leaves_the_others_alone(tmp_path: Path) -> None:
    """What another agent does at the same time, where this one may not write, changes nothing here."""
    desk = full_desk(tmp_path, allow_write=["./workspace", "./shared/alpha"])
    desk.write("shared/beta/big", "x" * 2_000_000)
    assert desk.call("file_write", path="shared/alpha/a", content="fine").success
    assert desk.call("file_write", path="a", content="fine").success
    for name in "bcde":
        assert desk.call("file_write", path=name, content="x" * 250_000).success
    assert desk.call("file_write", path="shared/alpha/b", content="x" * 100_000).success


def test_a_folder_thousands_deep_can_still_be_measured(tmp_path: Path) -> None:
    desk = full_desk(tmp_path, max_bytes=1 << 30)  # on some file systems each folder takes a block
    here = os.open(desk.workspace, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    try:
        assert quota.measure(str(desk.workspace)).depth == 3000
        assert "3001 files and folders" in desk.refusal("file_write", path="a", content="x")
    finally:
        subprocess.run(["rm", "-rf", desk.workspace], check=True)  # rmtree does not get that deep
