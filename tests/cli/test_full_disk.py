"""A disk without space: a command that creates files leaves none of them, and no folder, and says LMG-105."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lemming.cli import run
from lemming.kernel.files import fs
from lemming.testing import make_org, resume

COMMANDS = {
    "agents new": ("resume.json", ["agents", "new", "critic", "--instructions", "Say what is missing."]),
    "agents copy": ("resume.json", ["agents", "copy", "ada", "twin"]),
    "tools new": ("count_words.py", ["tools", "new", "count_words"]),
    "tools new, its settings": ("org.json", ["tools", "new", "count_words"]),
    "send": (".json", ["send", "--to", "ada", "hello"]),
    "memory set": ("key.json", ["agents", "memory", "set", "ada", "key", "1"]),
}


def names(base: Path) -> list[str]:
    paths = (path.relative_to(base).as_posix() for path in base.rglob("*"))
    return sorted(path for path in paths if not path.startswith((".lemming", "logs")))


@pytest.mark.parametrize(("file", "words"), COMMANDS.values(), ids=[*COMMANDS])
def test_a_command_on_a_full_disk_leaves_nothing(
    file: str, words: list[str], base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_org(base, resume("ada"), resume("human", model={"key": "human"}), models={"human": {"provider": "human"}})
    before = names(base)

    def refuse(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(file):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with fs.observe_changes(refuse):
        assert run(["-C", str(base), *words]) == 8
    assert "LMG-105" in capsys.readouterr().err
    assert [name for name in names(base) if name != "tools"] == before
    assert run(["-C", str(base), *words]) == 0
