"""What sealed journals spent is kept beside them: right after a hand edit, a kill, a copy; may be deleted."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from test_cost import busy

from lemming.engine import run_once
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import raw_journal
from lemming.obligations.journal_spending import CACHE_FORMAT, cached_idle_ticks
from lemming.queries.cost_report import CostReport, compute_costs
from lemming.testing import Crash, crash_at

KEPT = ".lemming/spent.jsonl"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation with one sealed segment, and journals beside it."""
    base = busy(tmp_path_factory.mktemp("sealed") / "org", plain_journals=0)
    for _ in range(3):
        run_once(base)
    fs.write_atomic(base, "tick.json", dump_pretty({"current_tick": 250}))
    for _ in range(2):
        run_once(base)
    assert len([*(base / "logs/ticks/sealed").iterdir()]) == 1
    return base


@pytest.fixture
def sealed(original: Path, base: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(original, base))


def look(base: Path) -> tuple[list[CostReport], int]:
    """Return what was spent by each of four, and how many old journals were unpacked for the first."""
    unpacked: list[str] = []
    first = compute_costs(base, "agent", progress=unpacked.append)
    return [first, *(compute_costs(base, by) for by in ("model", "tick", "request"))], len(unpacked)


def look_anew(base: Path) -> list[CostReport]:
    (base / KEPT).unlink(missing_ok=True)
    return look(base)[0]


def test_old_journals_are_unpacked_once_and_say_the_same_each_time(sealed: Path) -> None:
    first, unpacked = look(sealed)
    assert unpacked == 3
    assert look(sealed) == (first, 0)
    (sealed / KEPT).unlink()
    assert look(sealed) == (first, 3)


def test_what_was_kept_and_edited_by_hand_is_not_believed(sealed: Path) -> None:
    first, _ = look(sealed)
    raw = (sealed / KEPT).read_bytes()
    for edited in (raw.replace(b"1237", b"9937"), raw[: len(raw) // 2], b"", b"[]\n[[[", raw + b"\n[1]"):
        (sealed / KEPT).write_bytes(edited)
        assert look(sealed) == (first, 3)
    assert (sealed / KEPT).read_bytes() == raw


def test_what_another_version_kept_in_another_form_is_not_believed(sealed: Path) -> None:
    first, _ = look(sealed)
    raw = (sealed / KEPT).read_bytes()
    lines = raw.partition(b"\n")[2]
    (sealed / KEPT).write_bytes(sha256(lines).hexdigest().encode() + b"\n" + lines)
    assert look(sealed) == (first, 3)
    digest = lines.partition(b",")[0]
    nested = b"[" * 100_000 + b"]" * 100_000
    turns = b'[["ada",["x",0,0,0,0],"k","",[]]]', b'[["ada",[0,0,0,0,0],"k","",[["k","x",0,0,0]]]]', b"5"
    for line in (b"5", nested, b"[[]]", *(digest + b',1,"",null,%b]' % turn for turn in turns)):
        (sealed / KEPT).write_bytes(sha256(CACHE_FORMAT + line).hexdigest().encode() + b"\n" + line)
        assert look(sealed) == (first, 3)


def test_a_segment_that_somebody_changed_is_read_again(sealed: Path) -> None:
    look(sealed)
    (segment,) = (sealed / "logs/ticks/sealed").iterdir()
    raw = segment.read_bytes()
    segment.write_bytes(raw[:-200] + bytes([raw[-200] ^ 1]) + raw[-199:])
    costs, unpacked = look(sealed)
    assert (costs[0].damaged, unpacked) == ([1, 2, 3], 3)
    assert costs == look_anew(sealed)
    segment.unlink()
    assert look(sealed)[0] == look_anew(sealed)


def test_a_kill_as_it_is_kept_leaves_it_whole_or_none(sealed: Path) -> None:
    first, _ = look(sealed)
    raw = (sealed / KEPT).read_bytes()
    (sealed / KEPT).unlink()
    for step in (1, 2):
        with pytest.raises(Crash), crash_at(step):
            compute_costs(sealed, "agent")
        assert not (sealed / KEPT).exists()
        assert look(sealed) == (first, 3)
        assert (sealed / KEPT).read_bytes() == raw
        (sealed / KEPT).unlink()


def test_a_copy_that_was_made_while_an_engine_ran_is_right(sealed: Path, tmp_path: Path) -> None:
    first, _ = look(sealed)
    copy = tmp_path / "copy"
    shutil.copytree(sealed, copy)
    assert look(copy) == (first, 0)
    shutil.rmtree(copy / "logs/ticks/sealed")  # as where logs were copied before the tick that sealed
    assert look(copy)[0] == look_anew(copy)


def test_where_nothing_can_be_written_the_costs_are_the_same(sealed: Path) -> None:
    first, _ = look(sealed)
    (sealed / KEPT).unlink()
    (sealed / KEPT).mkdir()
    assert look(sealed) == (first, 3)


def test_which_ticks_were_for_no_request_is_known_of_those_in_segments(sealed: Path) -> None:
    assert cached_idle_ticks(sealed) == frozenset()
    look(sealed)
    assert cached_idle_ticks(sealed) == {1, 2, 3}
    fs.write_atomic(sealed, "logs/ticks/00000002.jsonl", raw_journal(sealed, 2))  # a file of its own is read
    assert cached_idle_ticks(sealed) == {1, 3}
