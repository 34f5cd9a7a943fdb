"""The page about operations is true: its blocks run in order as they stand; stubs play the services."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lemming.commands.command_table import COMMANDS
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.testing import tree

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/operations.md").read_text()
STUBS = ("systemctl", "loginctl")


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def program(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A home with nothing in it, and programs that note what they were asked."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program(bin_folder / "lemming", f'exec "{sys.executable}" -m lemming "$@"')
    for name in STUBS:
        program(bin_folder / name, f'echo "{name} $*" >> "{tmp_path}/asked"')
    return tmp_path


def paste(machine: Path, text: str) -> subprocess.CompletedProcess[str]:
    names = ("LEMMING_ROOT", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    environment = {
        **kept,
        "HOME": str(machine),
        "PATH": f"{machine / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
    }
    return subprocess.run(
        ["sh", "-e"], input=text, cwd=machine, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.long
def test_every_block_runs_in_order(machine: Path) -> None:
    ran = paste(machine, "\n".join(blocks()))
    assert ran.returncode == 0, ran.stderr
    assert (machine / "asked").read_text().splitlines() == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now lemming-news.service",
        "loginctl enable-linger",
    ]
    assert sorted(os.listdir(machine / ".config/systemd/user")) == ["lemming-news.service", "lemming-weather.service"]
    assert journal_ticks(machine / "news") == [1]
    assert journal_ticks(machine / "tried") == [1]
    assert len(list((machine / "backups").glob("news-20*Z.tar.gz"))) == 1
    assert "paused" not in (machine / "news/config/org.json").read_text()
    assert tree(machine / "tried", without=("logs", ".lemming"))


def test_the_page_names_no_command_and_no_option_that_is_not_there() -> None:
    known = {name for section in COMMANDS.values() for name in section}
    named = re.findall(r"(?:`|^)lemming (?:-C \S+ )?([a-z][a-z-]*)", PAGE, re.MULTILINE)
    assert set(named) - known == set()
    reference = (REPOSITORY / "docs/cli.md").read_text()
    ours = [line for line in PAGE.splitlines() if "lemming" in line and not re.search("ctl|docker", line)]
    options = {option for line in ours for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", line)}
    assert {option for option in options if option not in reference} == set()
