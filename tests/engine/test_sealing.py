"""Old journals are packed and stay readable."""

from __future__ import annotations

import contextlib
import json
import lzma
import shutil
import zipfile
from pathlib import Path

import pytest

from lemming.cli import run
from lemming.engine import load_tick, persist_tick, recorded_report, run_once, run_tick
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.errors import CorruptState, TickAlreadyCommitted, UsageError
from lemming.kernel.journal.journal_file import Journal, journal_ticks, read_journal
from lemming.kernel.journal.journal_records import Record
from lemming.kernel.journal.journal_segments import load_sealed_journal, plain_ticks, sealed_ticks
from lemming.libraries.journal_sealing import pack, seal_old_journals
from lemming.read_model.journal_ticks import newest_journals
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, tree

SEGMENT = "logs/ticks/sealed/00000000-00000099.jsonl.xz"
AS_IT_WAS = "logs/ticks/sealed/00000000-00000099.zip"


@pytest.fixture
def org(base: Path) -> Path:
    """An organisation with journals of ticks 1 to 3 and 96 to 99, whose next tick seals."""
    make_org(base, resume("ada"), org={"plain_journals": 0})
    for first, last in ((1, 3), (96, 99)):
        persist_tick(base, first)
        for _ in range(first, last + 1):
            run_once(base, clock=FrozenClock())
    return base


def test_a_journal_that_is_opened_again_is_listed_once(org: Path) -> None:
    listed = list(plain_ticks(org))
    with Journal(org, listed[0], epoch=1, durability="off"):
        assert plain_ticks(org) == listed


def test_a_full_hundred_of_old_ticks_becomes_one_file_and_reads_as_before(org: Path) -> None:
    before = {tick: read_journal(org, tick) for tick in (1, 50, 99)}
    report = recorded_report(org, 2)
    run_once(org)
    assert sealed_ticks(org) == [1, 2, 3, 96, 97, 98, 99]
    assert plain_ticks(org) == [100]
    assert journal_ticks(org) == [1, 2, 3, 96, 97, 98, 99, 100]
    assert {tick: read_journal(org, tick) for tick in before} == before
    assert recorded_report(org, 2) == report
    assert run_tick(org, 99).was_recorded


def test_recent_journals_stay_files_of_their_own(org: Path) -> None:
    (org / "config/org.json").write_text('{"plain_journals": 50}')
    run_once(org)
    assert sealed_ticks(org) == []


def test_the_segment_opens_with_ordinary_tools(org: Path) -> None:
    lines = b"".join((org / f"logs/ticks/{tick:08d}.jsonl").read_bytes() for tick in plain_ticks(org))
    run_once(org)
    with lzma.open(org / SEGMENT) as opened:
        assert json.loads(opened.readline())["type"] == "segment"
        assert opened.read() == lines


def sealed_by_version_0_1(org: Path) -> dict[int, list[Record]]:
    """Pack the first three journals as version 0.1 did; return what they say."""
    said = {tick: read_journal(org, tick) for tick in (1, 2, 3)}
    (org / AS_IT_WAS).parent.mkdir()
    with zipfile.ZipFile(org / AS_IT_WAS, "w", zipfile.ZIP_DEFLATED) as archive:
        for tick in said:
            plain = org / f"logs/ticks/{tick:08d}.jsonl"
            archive.write(plain, plain.name)
            plain.unlink()
    return said


def test_a_segment_of_version_0_1_reads_as_before(org: Path) -> None:
    said = sealed_by_version_0_1(org)
    assert sealed_ticks(org) == [1, 2, 3]
    assert {tick: read_journal(org, tick) for tick in said} == said


def test_a_segment_of_version_0_1_is_taken_along_when_its_hundred_is_packed(org: Path) -> None:
    said = sealed_by_version_0_1(org)
    said |= {tick: read_journal(org, tick) for tick in plain_ticks(org)}
    for number in range(1, 13):
        with contextlib.suppress(Crash), crash_at(number):
            seal_old_journals(org, 100, 0)
        assert {tick: read_journal(org, tick) for tick in said} == said
    assert (sealed_ticks(org), plain_ticks(org)) == ([*said], [])
    assert not (org / AS_IT_WAS).exists()


def test_damage_to_one_part_of_a_segment_leaves_the_others_readable(org: Path) -> None:
    large = {tick: bytes([tick]) * (1 << 20) for tick in (11, 12, 13)}
    (org / SEGMENT).parent.mkdir()
    whole = bytearray(pack(large.items()))
    (org / SEGMENT).write_bytes(whole)
    assert {tick: load_sealed_journal(org, tick) for tick in large} == large
    whole[len(whole) // 2] ^= 1
    (org / SEGMENT).write_bytes(whole)
    assert load_sealed_journal(org, 11) == large[11]
    assert load_sealed_journal(org, 13) == large[13]
    with pytest.raises(CorruptState, match="packed journals are damaged"):
        load_sealed_journal(org, 12)


def test_many_small_journals_take_little_room_together(org: Path) -> None:
    one = (org / "logs/ticks/00000002.jsonl").read_bytes()
    assert len(pack((tick, one) for tick in range(1, 100))) < 2 * len(pack([(1, one)]))


def test_a_sealed_tick_is_still_applied_once_only(org: Path) -> None:
    run_once(org)
    persist_tick(org, 2)
    with pytest.raises(TickAlreadyCommitted, match='"current_tick": 101'):
        run_once(org)


def test_a_crash_while_sealing_loses_no_journal(org: Path) -> None:
    expected = {tick: read_journal(org, tick) for tick in plain_ticks(org)}
    for number in range(1, 13):
        with contextlib.suppress(Crash), crash_at(number):
            seal_old_journals(org, 100, 0)
        assert {tick: read_journal(org, tick) for tick in expected} == expected
    seal_old_journals(org, 100, 0)
    assert {tick: read_journal(org, tick) for tick in expected} == expected
    assert plain_ticks(org) == []


def test_sealing_the_same_journals_gives_the_same_bytes(org: Path, tmp_path: Path) -> None:
    shutil.copytree(org, tmp_path / "copy")
    for base in (org, tmp_path / "copy"):
        seal_old_journals(base, 100, 0)
    assert tree(org, without=()) == tree(tmp_path / "copy", without=())


def test_a_damaged_segment_is_named_and_nothing_is_guessed(org: Path) -> None:
    run_once(org)
    (org / SEGMENT).write_bytes(b"not a segment")
    with pytest.raises(CorruptState, match=r"00000000-00000099\.jsonl\.xz"):
        read_journal(org, 5)
    assert load_tick(org) == 101


def test_damaged_bytes_within_a_segment_are_damage_too(org: Path) -> None:
    run_once(org)
    whole = bytearray((org / SEGMENT).read_bytes())
    whole[60:90] = bytes(30)
    (org / SEGMENT).write_bytes(whole)
    with pytest.raises(CorruptState, match="packed journals are damaged"):
        read_journal(org, 1)


def test_a_link_in_the_place_of_the_sealed_journals_is_refused(org: Path, tmp_path: Path) -> None:
    run_once(org)
    (org / SEGMENT).rename(tmp_path / "elsewhere.xz")
    (org / SEGMENT).symlink_to(tmp_path / "elsewhere.xz")
    with pytest.raises(CorruptState, match="packed journals are damaged"):
        read_journal(org, 1)


def test_the_journal_of_a_tick_that_did_not_end_is_not_sealed(org: Path) -> None:
    journal = org / "logs/ticks/00000002.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    seal_old_journals(org, 100, 0)
    assert plain_ticks(org) == [2]


def test_the_newest_journals_are_found_without_opening_old_segments(org: Path) -> None:
    for first in (100, 199, 200):
        persist_tick(org, first)
        run_once(org, clock=FrozenClock())
    (org / SEGMENT).write_bytes(b"damaged")
    assert newest_journals(org, 1) == [200]
    assert newest_journals(org, 2) == [199, 200]
    with pytest.raises(CorruptState):
        newest_journals(org, 4)


# --- removal -------------------------------------------------------------------------------------


@pytest.fixture
def aged(org: Path) -> Path:
    """The organisation with three segments, of ticks 1 to 299, at tick 300."""
    for first in (100, 199, 200, 299):
        persist_tick(org, first)
        run_once(org, clock=FrozenClock())
    persist_tick(org, 300)
    return org


def test_without_the_setting_all_journals_are_kept(aged: Path) -> None:
    run_once(aged, clock=FrozenClock())
    assert sealed_ticks(aged)[0] == 1


def test_segments_older_than_what_is_kept_are_removed_whole_and_said(aged: Path) -> None:
    (aged / "config/org.json").write_text('{"plain_journals": 0, "kept_journals": 150}')
    run_once(aged, clock=FrozenClock())
    assert journal_ticks(aged) == [100, 199, 200, 299, 300]
    logged = [json.loads(line) for line in (aged / "logs/engine.log").read_text().splitlines()]
    assert [line["file"] for line in logged if line["event"] == "journals_removed"] == [SEGMENT]
    assert verify_org(aged).errors == []
    with pytest.raises(UsageError, match="the journal of tick 96 has been removed"):
        load_tick_record(aged, 96)
    assert run_once(aged, clock=FrozenClock()).tick == 301


def test_a_removal_that_was_cut_off_is_finished_at_the_next_packing(aged: Path) -> None:
    (aged / "config/org.json").write_text('{"plain_journals": 0, "kept_journals": 50}')
    with crash_at(10_000) as changes:
        shutil.copytree(aged, aged.parent / "counted")
        run_once(aged.parent / "counted", clock=FrozenClock())
    removals = [number for number, change in enumerate(changes, 1) if change == f"unlink {SEGMENT}"]
    with contextlib.suppress(Crash), crash_at(removals[0] + 1):
        run_once(aged, clock=FrozenClock())
    assert not (aged / SEGMENT).exists()
    assert sealed_ticks(aged)[0] == 100
    persist_tick(aged, 400)
    for _ in range(2):
        run_once(aged, clock=FrozenClock())
    assert sealed_ticks(aged)[0] >= 300


def missing_journals(org: Path) -> list[tuple[int, str]]:
    return [(it.tick, it.file) for it in verify_org(org).errors if it.kind == "missing"]


def test_the_oldest_segment_that_is_gone_is_missed_where_all_journals_are_kept(org: Path) -> None:
    run_once(org)
    (org / SEGMENT).unlink()
    assert missing_journals(org) == [(99, "logs/ticks/00000099.jsonl")]
    assert run(["-C", str(org), "verify"]) == 7
    assert run(["-C", str(org), "check", "--quiet"]) == 7


def test_the_oldest_segment_is_not_missed_where_old_journals_are_to_go(org: Path) -> None:
    run_once(org)
    (org / SEGMENT).unlink()
    (org / "config/org.json").write_text('{"plain_journals": 0, "kept_journals": 0}')
    assert missing_journals(org) == []


def test_journals_that_prune_removed_are_not_missed_here_or_in_a_fork(org: Path, tmp_path: Path) -> None:
    run_once(org)
    assert run(["-C", str(org), "prune", "--journals", "1", "--yes"]) == 0
    assert not (org / SEGMENT).exists()
    assert missing_journals(org) == []
    assert run(["-C", str(org), "fork", str(tmp_path / "fork"), "--at", "100"]) == 0
    assert missing_journals(tmp_path / "fork") == []
