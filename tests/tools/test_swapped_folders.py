"""A folder that becomes a link between a look and the next never lets a read or a write escape.

The swap is made before each single call to the system in turn, so that no moment between two is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tool_desk import Desk

from lemming.kernel.agents import load_agent
from lemming.kernel.base.errors import DiskError, ToolError
from lemming.kernel.files.file_effects import FileEffect, apply_effect
from lemming.kernel.tools import ToolRegistry
from lemming.libraries.agent_folders import read_allowed_text

SECRET = "not yours"
CALLS = ("open", "stat", "lstat", "fstat", "mkdir", "rename", "link", "unlink", "listdir", "scandir", "write")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """An agent with a file in a folder, and a folder outside with one of the same name."""
    desk = Desk(tmp_path / "org")
    desk.write("agents/alpha/workspace/d/secret.txt", "own")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text(SECRET)
    return desk


def swapped_at(number: int, folder: Path, outside: Path, attempt: Callable[[], None]) -> tuple[int, bool]:
    """Try something, and before its call to the system with this number swap a folder for a link.

    Returns how many calls it made, and whether it was refused.
    """
    calls, is_refused = 0, False

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def swap_and_call(*args: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                with mock.patch.multiple(os, **genuine):
                    folder.rename(folder.with_name("aside"))
                    folder.symlink_to(outside)
            return call(*args, **named)

        return swap_and_call

    genuine: Any = {name: getattr(os, name) for name in CALLS}
    with mock.patch.multiple(os, **{name: counted(call) for name, call in genuine.items()}):  # type: ignore[arg-type]
        try:
            attempt()
        except (ToolError, DiskError):
            is_refused = True
    return calls, is_refused


def put_back(folder: Path) -> None:
    """Undo the swap, if it was made."""
    if folder.is_symlink():
        folder.unlink()
        folder.with_name("aside").rename(folder)


def at_every_moment(folder: Path, outside: Path, attempt: Callable[[], None]) -> list[bool]:
    """Return, for the swap before each call, whether the attempt was refused."""
    refused: list[bool] = []
    while True:
        calls, is_refused = swapped_at(len(refused) + 1, folder, outside, attempt)
        put_back(folder)
        if calls <= len(refused):
            return refused
        refused.append(is_refused)


def test_a_folder_swapped_for_a_link_never_lets_a_read_escape(desk: Desk, tmp_path: Path) -> None:
    agent, seen = load_agent(desk.base, "alpha"), set[str]()
    refused = at_every_moment(
        desk.workspace / "d",
        tmp_path / "outside",
        lambda: seen.add(read_allowed_text(agent, desk.base, "d/secret.txt")),
    )
    assert seen == {"own"}
    assert {True, False} == set(refused), "before it is opened it is refused, after that it does not matter"


def test_a_folder_swapped_for_a_link_never_lets_a_write_escape(desk: Desk, tmp_path: Path) -> None:
    write, context = ToolRegistry.get("file_write"), desk.context()

    def attempt() -> None:
        result = write.invoke(context, {"path": "d/secret.txt", "content": "written"})
        for effect in result.effects:
            apply_effect(desk.base, effect)

    refused = at_every_moment(desk.workspace / "d", tmp_path / "outside", attempt)
    assert [(file.name, file.read_text()) for file in (tmp_path / "outside").iterdir()] == [("secret.txt", SECRET)]
    assert True in refused


def test_a_link_planted_between_plan_and_write_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    (effect,) = desk.call("file_write", path="e/secret.txt", content="written").effects
    assert isinstance(effect, FileEffect)
    (desk.workspace / "e").symlink_to(tmp_path / "outside")
    with pytest.raises(DiskError, match=r"symbolic link|a folder belongs there"):
        apply_effect(desk.base, effect)
    assert (tmp_path / "outside/secret.txt").read_text() == SECRET
