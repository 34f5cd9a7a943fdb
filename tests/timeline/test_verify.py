"""Verify: nothing is found where nothing was touched, and each kind of tampering is found and named."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from recorded import LAST_ENTRY, TICKS, cut, edit, rewrite_journal, speak

from lemming.engine import persist_tick, run_once, run_tick
from lemming.journal_tools.verify import journal_facts, state_root
from lemming.journal_tools.verify.file_verification import CHECKS, Verification, VerificationInputs
from lemming.journal_tools.verify.file_verification import verify_org as verify_whole
from lemming.journal_tools.verify.journal_facts import skim_journal
from lemming.journal_tools.verify.state_root import load_state_root
from lemming.kernel.base.errors import Problem
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks, raw_journal
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import entry_id
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.concurrency.process_chunks import map_chunks
from lemming.libraries.memory_files import delete_memory
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, say

AT_TICK_2 = "logs/ticks/00000002.jsonl"


def verify(base: Path, ticks: list[int] | None = None) -> Verification:
    """Verify with every journal taken apart, and see that reading only what names files finds the same."""
    whole = verify_whole(base, ticks)
    skimmed = verify_whole(base, ticks, newest=0)
    assert (skimmed.findings, skimmed.files, skimmed.turns) == (whole.findings, whole.files, whole.turns)
    return whole


def found(base: Path) -> list[tuple[int, str, str, bool]]:
    return [(f.tick, f.file, f.kind, f.is_error) for f in verify(base).findings]


def only(base: Path) -> Problem:
    (finding,) = verify(base).findings
    return finding


# --- nothing is wrong --------------------------------------------------------------------------


def test_an_organisation_that_nobody_touched_is_as_the_journals_tell(org: Path) -> None:
    result = verify(org)
    assert result.findings == ()
    assert (result.ticks, result.root) == (TICKS, load_state_root(org))
    assert result.turns > TICKS
    assert result.files > TICKS


def test_several_processes_find_what_one_finds(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (org / AT_TICK_2).write_bytes(b"no journal\n")
    serial = verify(org)
    for module, name in ((journal_facts, "MIN_JOURNALS_FOR_PROCESSES"), (state_root, "MIN_FILES_FOR_PROCESSES")):
        monkeypatch.setattr(module, name, 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    inputs = VerificationInputs(Organisation(org), None, uses_all_cores=True)
    assert inputs.build_report(problem for check in CHECKS for problem in check.find(inputs)) == serial
    assert "damage" in {problem.kind for problem in serial.errors}


def die_elsewhere(home: int, fatal: int, items: Sequence[int]) -> Iterator[int]:
    """Double items, and end any process but the first one at a fatal item."""
    for item in items:
        if item == fatal and os.getpid() != home:
            os.kill(os.getpid(), signal.SIGKILL)
        yield 2 * item


@pytest.mark.parametrize("fatal", [0, 13])
def test_what_a_killed_process_did_not_read_is_read_by_the_first(fatal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    double = partial(die_elsewhere, os.getpid(), fatal)
    assert [*map_chunks(double, range(20), in_processes=True, size=2)] == [*range(0, 40, 2)]


def test_verify_writes_nothing(org: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in org.rglob("*")}
    verify(org)
    assert {path: path.stat().st_mtime_ns for path in org.rglob("*")} == before


def test_an_organisation_that_never_ran_has_a_root_too(base: Path) -> None:
    make_org(base, resume("ada"))
    assert verify(base).findings == ()
    assert len(verify(base).root) == 64


def test_what_a_person_sends_is_accounted_for(org: Path) -> None:
    speak(org, TICKS + 1, FrozenClock())
    assert found(org) == []


@pytest.mark.parametrize("number", range(1, 40, 4))
def test_an_interrupted_tick_is_a_note_wherever_it_was_interrupted(base: Path, number: int) -> None:
    make_org(base, resume("ada"), resume("bob"))
    run_once(base, clock=FrozenClock())
    with contextlib.suppress(Crash), crash_at(number):
        run_once(base, clock=FrozenClock())
    assert [finding for finding in verify(base).findings if finding.is_error] == []
    run_once(base, clock=FrozenClock())
    assert verify(base).findings == ()


def test_a_tick_run_without_moving_the_counter_is_no_error(base: Path) -> None:
    make_org(base, resume("ada"))
    run_tick(base, 1)
    assert found(base) == []


# --- journals ----------------------------------------------------------------------------------


def test_a_changed_letter_in_a_journal_is_damage_and_names_the_line(org: Path) -> None:
    edit(org, AT_TICK_2, '"agent":"ada"', '"agent":"adb"')
    first = verify(org).findings[0]
    assert (first.tick, first.kind, first.is_error) == (2, "damage", True)
    assert first.file == f"{AT_TICK_2}:2"
    assert "checksum" in first.message


def test_a_line_taken_out_of_a_journal_is_damage(org: Path) -> None:
    lines = (org / AT_TICK_2).read_bytes().splitlines(keepends=True)
    fs.write_atomic(org, AT_TICK_2, b"".join(lines[:3] + lines[4:]))
    assert [finding.file for finding in verify(org).errors] == [f"{AT_TICK_2}:4"]


def test_a_journal_that_has_lost_its_end_is_damage(org: Path) -> None:
    lines = (org / AT_TICK_2).read_bytes().splitlines(keepends=True)
    fs.write_atomic(org, AT_TICK_2, b"".join(lines[:-1]))
    assert found(org) == [(2, AT_TICK_2, "damage", True)]
    assert "no end" in only(org).message


def test_a_journal_of_which_only_the_plan_is_left_is_damage(org: Path) -> None:
    fs.write_atomic(org, AT_TICK_2, (org / AT_TICK_2).read_bytes().splitlines(keepends=True)[0])
    assert (2, AT_TICK_2, "damage", True) in found(org)


@pytest.mark.parametrize("name", ["plain.txt", "a]b.txt", 'a"b.txt', "a,b}.txt", "ä.txt", "a..b.txt"])
def test_files_of_any_name_are_held_against_the_turn_that_wrote_them(base: Path, name: str) -> None:
    calls = [{"tool": "file_write", "args": {"path": name, "content": "x"}}]
    make_org(base, resume("ada", permissions={"tools": ["file_write"]}), script=[{"reply": say("", tool_calls=calls)}])
    run_once(base)
    assert found(base) == []
    fs.write_atomic(base, f"agents/ada/workspace/{name}", b"y")
    assert [file for _, file, *_ in found(base)] == [f"agents/ada/workspace/{name}"]


def test_what_was_added_to_a_finished_journal_is_damage(org: Path) -> None:
    fs.append(org, AT_TICK_2, b'{"type":"turn_committed","agent":"eve"}\n')
    assert found(org) == [(2, AT_TICK_2, "damage", True)]


def test_a_journal_under_another_name_is_damage(org: Path) -> None:
    fs.write_atomic(org, AT_TICK_2, (org / "logs/ticks/00000003.jsonl").read_bytes())
    assert (2, f"{AT_TICK_2}:1", "damage", True) in found(org)
    assert "got 3; rename the file" in verify(org).findings[0].message


def test_of_older_journals_what_names_no_file_is_not_taken_apart(org: Path) -> None:
    def forge(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "agent": "nobody"} if record["type"] == "model_replied" else record

    rewrite_journal(org, 2, forge)
    newest_two, whole = verify_whole(org, newest=2), verify_whole(org)
    assert (newest_two.findings, newest_two.skimmed) == ((), TICKS - 2)
    assert [(finding.tick, finding.kind) for finding in whole.findings] == [(2, "damage")]


def test_what_the_engine_writes_need_not_be_taken_apart(org: Path) -> None:
    starts = [tick for tick in journal_ticks(org) if b'"read":{' in raw_journal(org, tick)]
    assert starts
    assert all(skim_journal(tick, raw_journal(org, tick)) for tick in journal_ticks(org))


def test_a_journal_whose_checksums_were_made_again_disagrees_with_the_files(org: Path) -> None:
    def forge(record: dict[str, object]) -> dict[str, object]:
        if record["type"] == "turn_committed" and record["agent"] == "ada":
            record["credits"] = 0.0
        return record

    rewrite_journal(org, 5, forge)
    assert found(org) == [(5, "agents/ada/turns.jsonl", "edited", True)]


# --- entries -----------------------------------------------------------------------------------


def test_an_entry_that_says_something_else_is_an_error(org: Path) -> None:
    edit(org, LAST_ENTRY, "hello", "goodbye")
    assert found(org) == [(TICKS, LAST_ENTRY, "edited", True)]


def test_an_entry_that_is_cut_short_is_damage(org: Path) -> None:
    cut(org, LAST_ENTRY, 40)
    assert found(org) == [(TICKS, LAST_ENTRY, "damage", True)]
    assert "unexpected end of JSON" in only(org).message


def test_an_entry_that_is_gone_is_missing(org: Path) -> None:
    fs.remove(org, LAST_ENTRY)
    assert found(org) == [(TICKS, LAST_ENTRY, "missing", True)]


def test_an_entry_that_no_turn_wrote_is_not_accounted_for(org: Path) -> None:
    forged = f"agents/ada/outbox/{TICKS:08d}_{entry_id(TICKS, 'ada', 7)}.json"
    fs.write_atomic(org, forged, (org / LAST_ENTRY).read_bytes())
    assert found(org) == [(TICKS, forged, "unaccounted", True)]


def test_an_entry_that_retention_removed_and_that_is_back_is_not_accounted_for(org: Path) -> None:
    expired = f"agents/ada/outbox/00000001_{entry_id(1, 'ada', 0)}.json"
    fs.write_atomic(org, expired, (org / LAST_ENTRY).read_bytes())
    assert found(org) == [(1, expired, "unaccounted", True)]


def test_an_entry_dropped_by_hand_is_a_note(org: Path) -> None:
    dropped = "agents/ada/outbox/00000008_byhand.json"
    fs.write_atomic(org, dropped, (org / LAST_ENTRY).read_bytes())
    assert found(org) == [(TICKS, dropped, "unaccounted", False)]


# --- what people may change --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("agents/ada/memory/k.json", "1", "2"),
        ("agents/ada/workspace/a.txt", "hello", "goodbye"),
        ("agents/zoe/resume.json", "You are new.", "You are old."),
    ],
)
def test_a_human_edit_is_a_note(org: Path, file: str, old: str, new: str) -> None:
    edit(org, file, old, new)
    finding = only(org)
    assert (finding.file, finding.kind, finding.is_error) == (file, "edited", False)


@pytest.mark.parametrize(
    ("file", "size", "why"),
    [
        ("agents/ada/memory/k.json", 12, "cut off after 12 of"),
        ("agents/ada/memory/k.json", 0, "it is empty"),
        ("agents/ada/workspace/a.txt", 3, "cut off after 3 of 5 bytes"),
        ("agents/zoe/resume.json", 30, "cut off after 30 of"),
    ],
)
def test_a_file_that_is_cut_short_is_damage(org: Path, file: str, size: int, why: str) -> None:
    cut(org, file, size)
    finding = only(org)
    assert (finding.file, finding.kind, finding.is_error) == (file, "damage", True)
    assert why in finding.message


def test_a_file_of_zeros_is_damage(org: Path) -> None:
    fs.write_atomic(org, "agents/ada/workspace/a.txt", bytes(5))
    assert "only zeros" in only(org).message


def test_a_memory_of_a_reply_that_does_not_parse_is_damage(org: Path) -> None:
    edit(org, "agents/ada/memory/last.json", "{", "[")
    assert found(org) == [(TICKS, "agents/ada/memory/last.json", "damage", True)]


def test_a_memory_that_a_person_removed_is_a_note(org: Path) -> None:
    delete_memory(org, "ada", "last")
    assert found(org) == [(TICKS, "agents/ada/memory/last.json", "missing", False)]


def test_an_agent_that_a_person_removed_is_notes_only(org: Path) -> None:
    for path in sorted((org / "agents/zoe").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (org / "agents/zoe").rmdir()
    result = verify(org)
    assert result.errors == []
    assert {finding.kind for finding in result.findings} == {"missing"}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/hostname", path)])
def test_something_odd_in_the_place_of_a_file_is_damage(org: Path, make: Callable[[Path], None]) -> None:
    file = org / "agents/ada/workspace/a.txt"
    file.unlink()
    make(file)
    assert [(f.file, f.kind) for f in verify(org).findings] == [("agents/ada/workspace/a.txt", "damage")]


# --- ledgers and the tick counter --------------------------------------------------------------


def test_a_ledger_that_claims_other_credits_is_an_error_and_names_the_first_tick(org: Path) -> None:
    edit(org, "agents/ada/turns.jsonl", '"credits":4.0', '"credits":0.5')
    finding = only(org)
    assert (finding.tick, finding.kind, finding.is_error) == (2, "edited", True)
    assert "credits must be 4.0 after tick 2 by the journals, got 0.5" in finding.message


def test_a_ledger_that_has_lost_its_last_line_is_an_error(org: Path) -> None:
    lines = (org / "agents/ada/turns.jsonl").read_bytes().splitlines(keepends=True)
    fs.write_atomic(org, "agents/ada/turns.jsonl", b"".join(lines[:-1]))
    assert found(org) == [(TICKS, "agents/ada/turns.jsonl", "missing", True)]


def test_a_ledger_whose_line_is_torn_is_damage(org: Path) -> None:
    edit(org, "agents/ada/turns.jsonl", '"status":"done"', '"status":"don')
    assert {(f.file, f.kind) for f in verify(org).errors} >= {("agents/ada/turns.jsonl", "damage")}


def test_a_ledger_with_a_turn_that_never_was_is_an_error(org: Path) -> None:
    state = {**read_state(org, "hr").as_json(), "tick": 7}
    fs.append(org, "agents/hr/turns.jsonl", json.dumps(state).encode() + b"\n")
    assert found(org) == [(7, "agents/hr/turns.jsonl", "unaccounted", True)]


def test_a_ledger_that_is_gone_is_missing(org: Path) -> None:
    fs.remove(org, "agents/ada/turns.jsonl")
    assert found(org) == [(TICKS, "agents/ada/turns.jsonl", "missing", True)]


def test_a_tick_counter_moved_back_is_an_error_and_moved_on_like_quiet_ticks(org: Path) -> None:
    persist_tick(org, 3)
    assert found(org) == [(TICKS, "tick.json", "edited", True)]
    persist_tick(org, 30)
    assert found(org) == []


def test_a_last_journal_that_is_gone_shows_in_the_ledgers(org: Path) -> None:
    (org / f"logs/ticks/{TICKS:08d}.jsonl").unlink()
    gone = (TICKS, f"logs/ticks/{TICKS:08d}.jsonl", "missing", True)
    assert [finding for finding in found(org) if finding[3]] == [gone]


def test_what_retention_may_have_removed_in_a_lost_tick_is_a_note(base: Path) -> None:
    make_org(base, resume("ada"), org={"retention_ticks": 2})
    for _ in range(5):
        run_once(base)
    (base / "logs/ticks/00000004.jsonl").unlink()
    missing = {f.file: f for f in verify(base).findings if f.kind == "missing"}
    entry = missing.pop(f"agents/ada/outbox/00000001_{entry_id(1, 'ada', 0)}.json")
    assert not entry.is_error
    assert "retention may have removed it in tick 4" in entry.message
    assert [f.file for f in missing.values() if f.is_error] == ["logs/ticks/00000004.jsonl"]


def test_a_tick_counter_that_cannot_be_read_is_damage(org: Path) -> None:
    fs.write_atomic(org, "tick.json", b'{"current_')
    assert found(org) == [(TICKS, "tick.json", "damage", True)]


def test_findings_of_other_ticks_are_left_out(org: Path) -> None:
    edit(org, LAST_ENTRY, "hello", "goodbye")
    edit(org, "agents/ada/memory/k.json", "1", "2")
    assert [finding.tick for finding in verify(org, [1, 2]).findings] == [1]
    assert [finding.tick for finding in verify(org, [TICKS]).findings] == [TICKS]
