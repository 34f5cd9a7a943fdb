"""A backup is the organisation between two ticks, whole or not there; what comes back goes on from there."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import tarfile
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from recorded import busy_org
from terminal import Lemming

from lemming.engine import load_tick, run_once, ticks
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.errors import CorruptState, DiskError, OrgBusy, UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.atomic_folder import STAGING_FOLDERS
from lemming.operations.backup_archive import MANIFEST, restore_backup
from lemming.operations.backup_writer import Backup, create_backup
from lemming.operations.open_org import open_org
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, say, tree

WITHOUT = (".lemming", ".git")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept.tar.gz"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "back"


def made(base: Path, file: Path, wait_s: float = 30.0) -> Backup:
    return create_backup(Organisation(base), file, wait_s=wait_s)


def packed(file: Path, *members: tarfile.TarInfo | tuple[str, bytes]) -> Path:
    """Write an archive of somebody else's making."""
    with tarfile.open(file, "w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return file


def odd(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


# --- there and back ----------------------------------------------------------------------------


def test_what_comes_back_is_what_there_was_and_it_goes_on(base: Path, file: Path, place: Path) -> None:
    make_org(base, resume("ada"), resume("bob"))
    for _ in range(3):
        run_once(base)
    fs.write_atomic(base, "shared/ümlaut \n name", b"x" * 3_000_000)
    (base / "agents/ada/workspace/empty").mkdir(parents=True)
    kept = tree(base, without=WITHOUT)
    backup = made(base, file)
    done = restore_backup(file, place)
    assert tree(place, without=WITHOUT) == kept
    assert (place / "agents/ada/workspace/empty").is_dir()
    assert (done.tick, done.manifest.agents, done.broken) == (4, ["ada", "bob"], {})
    assert backup.manifest.content_bytes == sum(map(len, kept.values()))
    assert not verify_org(place).findings
    assert [replayed.tick for replayed in replay_ticks(place, [1, 2, 3])] == [1, 2, 3]
    there, here = run_once(place, clock=FrozenClock()), run_once(base, clock=FrozenClock())
    assert there.turns[0].entries == here.turns[0].entries
    assert tree(base) == tree(place)


def test_a_tick_that_was_interrupted_goes_on_from_the_backup_without_paying_twice(
    base: Path, file: Path, place: Path
) -> None:
    make_org(base, resume("ada"), resume("bob"))
    run_once(base)
    with crash_at(14), pytest.raises(Crash):
        run_once(base)
    made(base, file)
    restore_backup(file, place)
    assert tree(place) == tree(base)
    assert run_once(place, clock=FrozenClock()).totals == run_once(base, clock=FrozenClock()).totals
    assert tree(place) == tree(base)


def test_everybody_who_takes_part_in_the_recorded_organisation_comes_back(base: Path, file: Path, place: Path) -> None:
    busy_org(base)
    made(base, file)
    restore_backup(file, place)
    assert tree(place, without=WITHOUT) == tree(base, without=WITHOUT)
    assert not verify_org(place).findings


def test_modes_stay_private(base: Path, file: Path, place: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    made(base, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    restore_backup(file, place)
    for name in ("logs", "agents/ada/outbox", "agents/ada/turns.jsonl", "agents/ada/resume.json", "agents"):
        assert (place / name).stat().st_mode == (base / name).stat().st_mode, name


def test_links_inside_stay_links_and_what_is_no_file_is_left_out_and_named(base: Path, file: Path, place: Path) -> None:
    make_org(base, resume("ada"))
    fs.write_atomic(base, "shared/facts.txt", b"facts")
    (base / "shared/same").symlink_to("facts.txt")
    (base / "shared/passwd").symlink_to("/etc/passwd")
    (base / "shared/above").symlink_to("../../elsewhere")
    os.mkfifo(base / "shared/pipe")
    for name in (".git/config", ".lemming/history.git/HEAD", "shared/__pycache__/x.pyc", "shared/.a.tmp"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("x")
    left_out = made(base, file).left_out
    assert [text.split(":")[0] for text in left_out] == ["shared/above", "shared/passwd", "shared/pipe"]
    restore_backup(file, place)
    assert sorted(os.listdir(place / "shared")) == ["facts.txt", "same"]
    assert os.readlink(place / "shared/same") == "facts.txt"
    assert not (place / ".git").exists()


# --- beside an engine --------------------------------------------------------------------------


@pytest.mark.long
def test_backups_made_while_an_engine_runs_are_each_of_one_moment(base: Path, tmp_path: Path) -> None:
    make_org(base, *(resume(f"a{number}") for number in range(4)), org={"durability": "off"})
    engine = ticks(base, interval_s=0)
    next(engine)
    for number in range(4):
        writing = threading.Thread(target=made, args=(base, tmp_path / f"{number}.tar.gz", 300.0))
        writing.start()
        for _ in range(15):  # without a pause, and then it waits
            next(engine)
        writing.join()
    engine.close()
    for number in range(4):
        restore_backup(tmp_path / f"{number}.tar.gz", tmp_path / str(number))
        there = tmp_path / str(number)
        assert not verify_org(there).findings
        assert [len(list(there.glob(f"agents/a{agent}/outbox/*"))) for agent in range(4)] == [load_tick(there) - 1] * 4
        run_once(there)


def test_a_tick_under_way_is_waited_for_and_then_it_is_said(base: Path, file: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    with open_org(base, command="run-forever"):
        journal = base / "logs/ticks/00000002.jsonl"
        journal.write_bytes((base / "logs/ticks/00000001.jsonl").read_bytes().splitlines(keepends=True)[0])
        with pytest.raises(OrgBusy) as caught:
            made(base, file, wait_s=0.3)
        assert "lemming pause" in caught.value.hint
        assert os.listdir(tmp_path) == ["org"]
        journal.unlink()
        made(base, file)
    assert file.exists()


def test_a_repair_under_way_is_waited_for(base: Path, file: Path) -> None:
    make_org(base, resume("ada"))
    with open_org(base, command="repair"), pytest.raises(OrgBusy):
        made(base, file, wait_s=0.2)


# --- whole or not at all -----------------------------------------------------------------------


def test_what_is_there_is_replaced_only_by_a_whole_one_and_only_when_asked(base: Path, file: Path) -> None:
    make_org(base, resume("ada"))
    made(base, file)
    before = file.read_bytes()
    with pytest.raises(UsageError, match="already exists"):
        made(base, file)
    fs.write_atomic(base, "shared/more", b"more")
    with crash_at(5), pytest.raises(Crash):
        create_backup(Organisation(base), file, wait_s=1, replace=True)
    assert file.read_bytes() == before
    create_backup(Organisation(base), file, wait_s=1, replace=True)
    assert file.read_bytes() != before
    assert sorted(os.listdir(file.parent)) == ["kept.tar.gz", "org"]


def test_a_place_that_will_not_do_is_said_before_anything_is_read(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada"))
    for name, words in (
        ("org/inside.tar.gz", "must be outside"),
        ("kept.zip", "the name of a backup must end in"),
        ("nowhere/kept.tar.gz", "the folder does not exist"),
    ):
        with pytest.raises(UsageError, match=words):
            made(base, tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_no_backup(base: Path, file: Path) -> None:
    make_org(base, resume("ada"))
    (base / "agents/ada/resume.json").chmod(0)
    with pytest.raises(DiskError):
        made(base, file)
    assert not file.exists()


# --- archives of strangers ---------------------------------------------------------------------

HOSTILE = {
    "above": ("../evil", b"x"),
    "absolute": odd("/tmp/evil-link", tarfile.SYMTYPE, "/etc"),
    "link outside": odd("shared/out", tarfile.SYMTYPE, "../../.."),
    "hard link": odd("agents/hard", tarfile.LNKTYPE, "agents/ada/resume.json"),
    "device": odd("agents/null", tarfile.CHRTYPE),
    "pipe": odd("agents/pipe", tarfile.FIFOTYPE),
    "three thousand levels deep": odd("shared/" + "a/" * 3000 + "f", tarfile.REGTYPE),
    "the lock": (".lemming/made-here", b"x"),
    "git": (".git/hooks/post-checkout", b"x"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_archive_that_leads_elsewhere_is_refused_and_leaves_nothing(
    name: str, file: Path, place: Path, tmp_path: Path
) -> None:
    packed(file, ("agents/ada/resume.json", b"{}"), HOSTILE[name])
    with pytest.raises(CorruptState, match="the backup is damaged"):
        restore_backup(file, place)
    assert sorted(os.listdir(tmp_path)) == ["kept.tar.gz"]


def test_a_file_cannot_be_put_through_a_link_of_the_archive(file: Path, place: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    packed(file, odd("agents", tarfile.SYMTYPE, "shared"), odd("shared", tarfile.SYMTYPE, "agents"), ("agents/x", b"x"))
    with pytest.raises((CorruptState, DiskError)):
        restore_backup(file, place)
    assert not place.exists()


def test_a_backup_that_was_cut_short_or_changed_is_refused(base: Path, file: Path, place: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    made(base, file)
    whole = file.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) * 9 // 10):
        file.write_bytes(whole[:length])
        with pytest.raises(CorruptState):
            restore_backup(file, place)
    plain = gzip.decompress(whole)
    for forged in (plain.replace(b'"name": "ada"', b'"name": "eve"'), plain.replace(b"hello", b"hullo")):
        assert forged != plain
        file.write_bytes(gzip.compress(forged))
        with pytest.raises(CorruptState, match="its files differ from its manifest"):
            restore_backup(file, place)
    assert not place.exists()


def test_something_that_is_no_backup_is_refused(file: Path, place: Path) -> None:
    for raw in (b"", b"no gzip", gzip.compress(b"no tar" * 200)):
        file.write_bytes(raw)
        with pytest.raises(CorruptState):
            restore_backup(file, place)
    packed(file, ("agents/ada/resume.json", b"{}"))
    with pytest.raises(CorruptState, match="no manifest"):
        restore_backup(file, place)
    packed(file, ("a", b"1"), ("a", b"2"))
    with pytest.raises(CorruptState, match="twice"):
        restore_backup(file, place)
    for manifest in (b"{", b"[]", b"{}", b'{"version": 1}'):
        packed(file, (MANIFEST, manifest))
        with pytest.raises(CorruptState, match="manifest"):
            restore_backup(file, place)


def test_a_backup_of_a_newer_version_says_what_to_do(base: Path, file: Path, place: Path) -> None:
    make_org(base, resume("ada"))
    plain = asdict(made(base, file).manifest)
    packed(file, (MANIFEST, json.dumps({**plain, "version": 99, "lemming": "9.9"}).encode()))
    with pytest.raises(CorruptState, match=r"newer LeMMing \(9\.9\)"):
        restore_backup(file, place)


def test_a_folder_that_is_not_empty_stays_as_it_is(base: Path, file: Path, place: Path) -> None:
    make_org(base, resume("ada"))
    made(base, file)
    place.mkdir()
    (place / "mine").write_text("mine")
    with pytest.raises(UsageError, match="expected an empty or a new folder"):
        restore_backup(file, place)
    assert os.listdir(place) == ["mine"]


def test_an_empty_folder_stays_empty_when_it_fails_and_half_an_organisation_is_none(
    base: Path, file: Path, place: Path, lemming: Lemming
) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("x")}])
    run_once(base)
    made(base, file)
    place.mkdir()
    changes: list[str] = []
    with fs.observe_changes(lambda operation, path: changes.append(f"{operation} {path}")):
        restore_backup(file, place)
    moves = [change for change in changes if change.startswith("rename ")]
    assert moves[-1] == "rename agents"
    assert not (place / STAGING_FOLDERS["restore"]).exists()
    packed(file, ("../evil", b"x"))
    (base / "empty").mkdir()
    with pytest.raises(CorruptState):
        restore_backup(file, base / "empty")
    assert os.listdir(base / "empty") == []


# --- the commands ------------------------------------------------------------------------------


def test_the_commands_say_what_they_did(base: Path, tmp_path: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob"))
    run_once(base)
    (tmp_path / "kept").mkdir()
    ran = lemming("backup", str(tmp_path / "kept"))
    assert ran.status == 0
    file = Path(ran.out.strip())
    assert file.name.startswith("org-20")
    assert file.name.endswith("Z.tar.gz")
    assert "tick 2 is next, 2 agents" in ran.err
    place = tmp_path / "news"
    ran = lemming("restore", str(file), str(place))
    assert (ran.status, ran.out) == (0, f"{place}\n")
    assert "tick 2 is next; 2 agents: ada, bob" in ran.err
    assert lemming("restore", str(file), str(place)).status == 2
    assert lemming("restore", str(tmp_path / "none.tar.gz"), str(tmp_path / "x")).status == 2
    assert lemming("backup", str(base / "x.tar.gz")).status == 2
    [facts] = lemming("backup", str(file), "--force", "--json").objects
    assert (facts["tick"], facts["agents"]) == (2, ["ada", "bob"])
    [facts] = lemming("restore", str(file), str(tmp_path / "more"), "--json").objects
    assert facts["tick"] == 2
    file.write_bytes(file.read_bytes()[:2000])
    ran = lemming("restore", str(file), str(tmp_path / "broken"))
    assert (ran.status, "the backup is damaged" in ran.err) == (7, True)


@pytest.mark.long
def test_what_becomes_a_thousand_times_longer_is_not_unpacked(
    base: Path, file: Path, place: Path, lemming: Lemming
) -> None:
    make_org(base, resume("ada"))
    (base / "shared").mkdir(exist_ok=True)
    with (base / "shared/zeros").open("wb") as zeros:
        zeros.truncate(300 << 20)  # a hole: it takes no room
    made(base, file)
    with pytest.raises(UsageError, match="the backup must unpack to at most") as refused:
        restore_backup(file, place, max_bytes=299 << 20)
    assert "'shared/zeros', which has 314572800" in refused.value.message
    assert not place.exists()
    assert file.stat().st_size * 100 + (256 << 20) < 300 << 20
    ran = lemming("restore", str(file), str(place))
    assert (ran.status, "--max-bytes" in ran.err) == (2, True)
    assert not place.exists()
    enough = ran.err.partition("--max-bytes ")[2].partition("`")[0]
    assert lemming("restore", str(file), str(place), "--max-bytes", enough).status == 0
    assert (place / "shared/zeros").stat().st_size == 300 << 20
