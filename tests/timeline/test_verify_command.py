"""`lemming verify`: what it prints, which ticks it is asked about, and the state root."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from recorded import LAST_ENTRY, TICKS, cut, edit

from lemming.cli import run
from lemming.journal_tools.tick_ranges import select_ticks
from lemming.journal_tools.verify.state_root import list_counted_files, load_state_root
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs


def test_a_shell_computes_the_same_root(org: Path) -> None:
    fs.write_atomic(org, "agents/ada/workspace/with space/ä.txt", b"x")
    fs.write_atomic(org, "agents/ada/workspace/logs/left-out.txt", b"x")
    fs.write_atomic(org, "agents/ada/workspace/.a.txt.tmp", b"x")
    fs.write_atomic(org, "agents/ada/workspace/.hidden", b"x")
    os.symlink("/etc/hostname", org / "shared/link")
    with open(org / "shared/more than a GiB", "wb") as large:
        large.truncate((1 << 30) + 1)
    shell = (
        "find agents config shared tick.json -type f -not -path '*/logs/*' -not -name '.*.tmp'"
        " -size -1048577k | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum"
    )
    ran = subprocess.run(shell, shell=True, cwd=org, capture_output=True, text=True, check=True)
    assert ran.stdout.split()[0] == load_state_root(org)
    assert {file for file in list_counted_files(org) if "workspace" in file} == {
        "agents/ada/workspace/.hidden",
        "agents/ada/workspace/a.txt",
        "agents/ada/workspace/with space/ä.txt",
    }


def test_the_root_changes_with_a_file_a_name_and_nothing_else(org: Path) -> None:
    before = load_state_root(org)
    fs.append(org, "logs/engine.log", b"a line\n")
    os.utime(org / LAST_ENTRY)
    assert load_state_root(org) == before
    fs.move(org, "shared/facts.txt", "shared/other.txt")
    assert load_state_root(org) != before


@pytest.mark.parametrize("text", ["", "x", "3-", "-3", "1-2-3", "99", "9-3", "9..3", "..", "1...3"])
def test_a_span_that_names_no_tick_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        select_ticks(text, [1, 2, 3])


def test_the_command_prints_the_root_and_says_that_all_is_well(org: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-C", str(org), "verify"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{load_state_root(org)}\n"
    assert "all files match the journals" in printed.err


def test_the_command_names_the_first_tick_and_file_and_ends_with_7(
    org: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(org, "agents/ada/memory/k.json", "1", "2")
    cut(org, LAST_ENTRY, 40)
    assert run(["-C", str(org), "verify"]) == 7
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("note: tick 1: edited: agents/ada/memory/k.json: ")
    assert second.startswith(f"error: tick {TICKS}: damage: {LAST_ENTRY}: ")
    assert run(["-C", str(org), "verify", "1-3"]) == 0


def test_the_command_tells_programs(org: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fs.write_atomic(org, "agents/ada/memory/last.json", dump_pretty({"no": "memory"}))
    assert run(["-C", str(org), "verify", "--json"]) == 7
    finding, end = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (finding["v"], finding["type"], finding["kind"]) == (1, "finding", "damage")
    assert (end["type"], end["errors"], end["notes"], end["root"]) == ("verified", 1, 0, load_state_root(org))
