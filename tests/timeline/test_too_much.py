"""Files and folders larger or deeper than anything the engine writes: told, passed over, never read whole."""

from __future__ import annotations

import json
import lzma
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.journal_file import read_journal
from lemming.kernel.journal.journal_segments import SEALED_FOLDER
from lemming.testing import FrozenClock, make_org, resume

TERABYTE = 1 << 40
LOOKS = ["status", "verify", "doctor", "repair", "replay", "run-once"]


@pytest.fixture
def org(base: Path) -> Path:
    make_org(base, resume("ada"), resume("bob"))
    run_once(base, clock=FrozenClock())
    return base


def sparse(file: Path, end: bytes = b"") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.truncate(TERABYTE)
        stream.seek(0, os.SEEK_END)
        stream.write(end)


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", LOOKS)
def test_a_huge_ledger_costs_its_agent_the_turn_and_nobody_else(
    org: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = org / "agents/ada/turns.jsonl"
    sparse(ledger, b"\n" + ledger.read_bytes().splitlines()[-1] + b"\n")
    assert run(["-C", str(org), command]) != 70
    if command == "run-once":
        assert "larger than the limit of 64 MiB for a ledger" in capsys.readouterr().err
        assert len((org / "agents/bob/turns.jsonl").read_text().splitlines()) == 2


@pytest.mark.sample(6)
@pytest.mark.parametrize("command", LOOKS)
def test_a_huge_journal_is_refused_before_it_is_read(org: Path, command: str) -> None:
    sparse(org / "logs/ticks/00000002.jsonl")
    assert run(["-C", str(org), command]) in (0, 1, 7)
    with pytest.raises(CorruptState, match="longer than a record"):
        read_journal(org, 2)


@pytest.mark.parametrize("command", LOOKS)
def test_packed_journals_that_would_fill_the_memory_are_refused_before_they_are_unpacked(
    org: Path, command: str
) -> None:
    (org / SEALED_FOLDER).mkdir()
    line = {"type": "segment", "blocks": [{"bytes": 1000, "journals": {"00000100": 200 << 20}}]}
    segment = lzma.compress(json.dumps(line).encode()) + bytes(1000)
    (org / SEALED_FOLDER / "00000100-00000199.jsonl.xz").write_bytes(segment)
    assert run(["-C", str(org), command]) in (0, 1, 7)
    with pytest.raises(CorruptState, match="more than the engine packs"):
        read_journal(org, 100)


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        ([{"bytes": 1, "journals": {"00000100": 5}}], "by its first line"),
        ([{"bytes": "PACKED", "journals": {"00000100": 5}}], "does not end where the first line states"),
        ([{"bytes": "PACKED", "journals": {"00000100": 99_999_999}}], "shorter than the first line states"),
        ([{"bytes": "PACKED", "journals": {"00000100": -5}}], "must be that of a segment"),
        ([{"bytes": "PACKED"}], "must be that of a segment"),
        ({"0": 1}, "must be that of a segment"),
    ],
)
def test_a_segment_whose_first_line_lies_is_refused(org: Path, blocks: Any, why: str) -> None:
    (org / SEALED_FOLDER).mkdir()
    packed = lzma.compress(bytes(1 << 16))
    line = json.dumps({"type": "segment", "blocks": blocks}).replace('"PACKED"', str(len(packed)))
    (org / SEALED_FOLDER / "00000100-00000199.jsonl.xz").write_bytes(lzma.compress(line.encode()) + packed)
    with pytest.raises(CorruptState, match=why):
        read_journal(org, 100)


@pytest.mark.sample(6)
@pytest.mark.parametrize("command", LOOKS)
def test_a_journal_of_version_0_1_that_would_fill_the_memory_is_refused_before_it_is_unpacked(
    org: Path, command: str
) -> None:
    (org / SEALED_FOLDER).mkdir()
    file = org / SEALED_FOLDER / "00000100-00000199.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("00000100.jsonl", "w") as packed:
        for _ in range(200):
            packed.write(bytes(1 << 20))
    assert run(["-C", str(org), command]) in (0, 1, 7)
    with pytest.raises(CorruptState, match="more than the engine packs"):
        read_journal(org, 100)


def test_a_segment_that_lists_more_than_a_hundred_journals_is_refused(org: Path) -> None:
    (org / SEALED_FOLDER).mkdir()
    with zipfile.ZipFile(org / SEALED_FOLDER / "00000100-00000199.zip", "w") as archive:
        for number in range(101):
            archive.writestr(str(number), "")
    with pytest.raises(CorruptState, match="lists 101 files"):
        read_journal(org, 100)


@pytest.mark.sample(3)
@pytest.mark.parametrize("words", [["verify"], ["doctor"], ["repair"], ["replay", "--into"]])
def test_folders_nested_without_end_end_no_command(org: Path, words: list[str], tmp_path: Path) -> None:
    top = org / "agents/ada/workspace"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    into = [str(tmp_path / "into")] if "--into" in words else []
    assert run(["-C", str(org), *words, *into]) != 70
    os.system(f"rm -rf {top}")
