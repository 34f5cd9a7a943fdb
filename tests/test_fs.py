"""Files: what is written goes where it is meant to go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lemming.kernel.base.errors import DiskError
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import open_regular


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "org"


@pytest.fixture
def outside(base: Path, tmp_path: Path) -> Path:
    (base / "agents/ada/outbox").mkdir(parents=True)
    (tmp_path / "outside/outbox").mkdir(parents=True)
    return tmp_path / "outside"


def test_folders_on_the_way_are_made(base: Path) -> None:
    base.mkdir()
    fs.write_atomic(base, "agents/ada/memory/plan.json", b"1")
    fs.append(base, "agents/ada/logs/activity.log", b"2")
    fs.append(base, "agents/ada/logs/activity.log", b"3")
    assert (base / "agents/ada/memory/plan.json").read_bytes() == b"1"
    assert (base / "agents/ada/logs/activity.log").read_bytes() == b"23"


def test_a_link_in_the_place_of_a_folder_is_refused(base: Path, outside: Path) -> None:
    (base / "agents/ada/outbox").rmdir()
    (base / "agents/ada/outbox").symlink_to(outside / "outbox")
    with pytest.raises(DiskError, match="a folder belongs there") as published:
        fs.write_atomic(base, "agents/ada/outbox/entry.json", b"1")
    with pytest.raises(DiskError):
        fs.append(base, "agents/ada/outbox/log", b"1")
    assert published.value.concerns_one_file
    assert not list((outside / "outbox").iterdir())


def test_a_link_above_a_folder_is_refused(base: Path, outside: Path) -> None:
    (base / "agents/ada").rename(base / "agents/eve")
    (base / "agents/ada").symlink_to(outside)
    with pytest.raises(DiskError):
        fs.write_atomic(base, "agents/ada/outbox/entry.json", b"1")
    with pytest.raises(DiskError):
        fs.append(base, "agents/ada/outbox/log", b"1")
    assert not list((outside / "outbox").iterdir())


def test_a_link_in_the_place_of_a_file_that_grows_is_refused(base: Path, outside: Path) -> None:
    (outside / "log").write_bytes(b"")
    (base / "agents/ada/log").symlink_to(outside / "log")
    with pytest.raises(DiskError, match="replace the symbolic link"):
        fs.append(base, "agents/ada/log", b"1")
    assert (outside / "log").read_bytes() == b""


def test_a_link_to_the_organisation_itself_is_followed(base: Path, outside: Path) -> None:
    (outside / "link").symlink_to(base)
    fs.write_atomic(outside / "link", "agents/ada/outbox/entry.json", b"1")
    fs.append(outside / "link", "agents/ada/turns.jsonl", b"2")
    assert (base / "agents/ada/outbox/entry.json").read_bytes() == b"1"
    assert (base / "agents/ada/turns.jsonl").read_bytes() == b"2"


@pytest.mark.parametrize("path", ["../up", "agents/../../up", "agents/..", "/up", "agents/ada/a\0b"])
def test_a_path_that_leads_out_of_the_root_is_refused(base: Path, outside: Path, path: str) -> None:
    with pytest.raises(DiskError, match="not a path below the root"):
        fs.write_atomic(base, path, b"1")
    with pytest.raises(DiskError, match="not a path below the root"):
        fs.append(base, path, b"1")


def test_what_is_announced_does_not_depend_on_the_way(base: Path) -> None:
    base.mkdir()
    told: list[str] = []
    with fs.observe_changes(lambda operation, path: told.append(f"{operation} {path}")):
        fs.append(base, "logs/engine.log", b"1")
        fs.append(base, "logs/engine.log", b"2")
    appended = ["open logs/engine.log", "append logs/engine.log"]
    assert told == ["mkdir logs", *appended, *appended]


def test_names_come_sorted_and_without_hidden_ones(tmp_path: Path) -> None:
    for name in ("b", ".hidden", "a", "-", "0", ".b.tmp", "~"):
        (tmp_path / name).touch()
    assert fs.list_names(tmp_path) == ["-", "0", "a", "b", "~"]


def test_a_file_is_read_up_to_the_limit_and_one_byte_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert [fs.read_bytes(tmp_path / "file", limit) for limit in (3, 4, 5, 6)] == [
        b"1234", b"12345", b"12345", b"12345"
    ]  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no such file on this system")
def test_a_file_that_says_it_is_empty_is_read_to_its_end() -> None:
    assert fs.read_bytes("/proc/self/status", 1 << 20).startswith(b"Name:")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of open files here")
def test_what_is_no_file_is_refused_and_not_held_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(OSError, match="regular"):
            open_regular(path)
    held = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert [file for file in held if file.startswith(str(tmp_path))] == []


# --- two writers of one file ---------------------------------------------------------------------


def test_two_writers_of_one_file_do_not_meet(base: Path) -> None:
    writers = iter([b"second", b"third"])

    def write_too(operation: str, path: str) -> None:
        if operation == "rename" and (content := next(writers, None)):
            fs.write_atomic(base, "memory/plan.json", content)

    base.mkdir()
    with fs.observe_changes(write_too):
        fs.write_atomic(base, "memory/plan.json", b"first")
    assert (base / "memory/plan.json").read_bytes() == b"first", "whole, and by whoever was last"
    assert [path.name for path in (base / "memory").iterdir()] == ["plan.json"]


def test_two_writers_of_a_new_file_do_not_meet(base: Path) -> None:
    def write_too(operation: str, path: str) -> None:
        if operation == "link" and not (base / "outbox/entry.json").exists():
            (base / "outbox/entry.json").touch()
            assert not fs.create(base, "outbox/entry.json", b"second")

    base.mkdir()
    with fs.observe_changes(write_too):
        assert not fs.create(base, "outbox/entry.json", b"first")
    assert [path.name for path in (base / "outbox").iterdir()] == ["entry.json"]


def test_what_a_crash_left_of_a_write_is_removed_by_the_next(base: Path) -> None:
    (base / "memory").mkdir(parents=True)
    (base / "memory/.plan.json.tmp").write_bytes(b"half of a")
    fs.write_atomic(base, "memory/plan.json", b"whole")
    assert [path.name for path in (base / "memory").iterdir()] == ["plan.json"]


@pytest.mark.parametrize("odd", ["folder", "link", "pipe"])
def test_what_stands_at_the_name_of_a_temporary_file_keeps_nobody_from_writing(base: Path, odd: str) -> None:
    (base / "shared").mkdir(parents=True)
    place = base / "shared/.x.tmp"
    {"folder": place.mkdir, "link": lambda: place.symlink_to("x"), "pipe": lambda: os.mkfifo(place)}[odd]()
    fs.write_atomic(base, "shared/x", b"1")
    assert (base / "shared/x").read_bytes() == b"1"
    assert sorted(path.name for path in (base / "shared").iterdir()) == [".x.tmp", "x"]


def test_a_folder_removed_under_a_writer_is_the_trouble_of_one_file(base: Path) -> None:
    base.mkdir()

    def remove(operation: str, path: str) -> None:
        if operation == "rename":
            (base / "memory/.plan.json.tmp").unlink()

    with fs.observe_changes(remove), pytest.raises(DiskError) as refused:
        fs.write_atomic(base, "memory/plan.json", b"1")
    assert refused.value.concerns_one_file
