"""Outboxes, memories, ledgers and places of the engine that hold what does not belong there."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from badly import GOOD, RESUME, Content, a_link_to, put, run_with
from fault_injection import fail_nth_lookup

from lemming.engine import run_once
from lemming.journal_tools.outbox_validation import validate_outbox
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.errors import ConfigError, CorruptState, DiskError, LemmingError
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TickReport
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, make_org, resume, say


@pytest.fixture
def org(base: Path) -> Path:
    return make_org(base, resume("ada"), resume("zed"), org={"durability": "off"})


# --- outboxes, memories, ledgers ---------------------------------------------------------------


FORGED = {"id": "abc", "tick": 0, "agent": "ada", "kind": "message", "payload": {}, "tags": [], "created_at": ""}
NAMES = "use the folder and the file's name"
COPIED = (
    f"({NAMES}; if the whole folder was copied, remove its outbox and turns.jsonl; "
    "if it was moved, move it back and use `lemming agents rename`)"
)
IDENTITY = f"({NAMES})"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agent": "human"}, f" /agent: entry ignored: agent must be 'ada' as in the path, got 'human' {COPIED}"),
        ({"tick": 7}, f" /tick: entry ignored: tick must be 0 as in the path, got '7' {IDENTITY}"),
        ({"id": "def"}, f" /id: entry ignored: id must be 'abc' as in the path, got 'def' {IDENTITY}"),
        ({"tick": "0"}, ':3:3 /tick: expected a whole number, got "0" (write 0)'),
        ({"payload": []}, ":6:3 /payload: expected an object, got a list"),
        (
            {"kind": "shout"},
            ":5:3 /kind: expected 'message', 'report', 'request', 'response' or 'status', got \"shout\"",
        ),
        ({"extra": 1}, ' /extra: entry ignored: unknown key "extra" (an entry must have exactly seven keys)'),
    ],
)
def test_a_forged_or_wrong_entry_is_ignored_with_the_reason(org: Path, change: dict[str, Any], message: str) -> None:
    place = "agents/ada/outbox/00000000_abc.json"
    assert run_with(org, place, json.dumps({**FORGED, **change}, indent=2)) == {}
    assert [entry.tick for entry in read_outbox_entries(org, "ada")] == [1]
    assert [str(problem) for problem in validate_outbox(org, "ada")] == [place + message]
    logged = [json.loads(line) for line in (org / "logs/engine.log").read_text().splitlines()]
    assert [line["problem"] for line in logged if line["event"] == "problem"] == [place + message]


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, a_link_to("/etc/passwd")], ids=["pipe", "folder", "link"])
def test_something_else_in_an_entrys_place_is_ignored(org: Path, make: Callable[[Path], object]) -> None:
    assert run_with(org, "agents/ada/outbox/00000000_abc.json", make) == {}
    assert len(validate_outbox(org, "ada")) == 1


@pytest.mark.parametrize(
    "name",
    [
        "%2e%2e%2fx.json",
        "00000001_..%2f.json",
        "00000001_" + "a" * 200 + ".json",
        "a\nb.json",
        "-rf.json",
        "\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0661_abc.json",
    ],
)
def test_a_file_that_is_not_named_like_an_entry_is_left_alone(org: Path, name: str) -> None:
    assert run_with(org, f"agents/ada/outbox/{name}", json.dumps(FORGED)) == {}
    (problem,) = validate_outbox(org, "ada")
    assert problem.message == "the file name must be TICK_ID.json; the file is ignored"
    assert (org / "agents/ada/outbox" / name).exists()


@pytest.mark.parametrize("folder", ["outbox", "memory", "workspace", "logs"])
def test_a_folder_that_is_a_link_to_elsewhere_fails_its_agent_and_nothing_is_written_there(
    org: Path, tmp_path: Path, folder: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    put(org / RESUME, GOOD)
    reasons = run_with(org, f"agents/beta/{folder}", a_link_to(str(tmp_path / "elsewhere")))
    what = f"the agent's {folder} must be a real folder, got a symbolic link (move it away)"
    assert reasons == {"beta": f"agents/beta/{folder}: {what}"}
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[]", "the last line must be a turn: expected an object, got a list"),
        ('{"credits": "many"}', "the last line must be a turn: credits: "),
        ('{"turns": null}', "the last line must be a turn: turns: "),
        ('{"results": ["x"]}', "the last line must be a turn: results/0: "),
        ('{"read": {"through": "ab"}}', "the last line must be a turn: read/through: "),
        ('{"credits": NaN}', "the last line must be a turn: NaN is not JSON"),
        (os.mkfifo, "not a regular file"),
        (Path.mkdir, "not a regular file"),
        (a_link_to("/etc/passwd"), "expected a regular file, got a symbolic link"),
    ],
)
def test_a_ledger_that_cannot_be_read_fails_its_agent_and_is_left_as_it_is(
    org: Path, content: Content, why: str
) -> None:
    put(org / RESUME, GOOD)
    ledger = org / "agents/beta/turns.jsonl"
    reasons = run_with(org, "agents/beta/turns.jsonl", f"{content}\n" if isinstance(content, str) else content)
    assert reasons["beta"].startswith(f"agents/beta/turns.jsonl: {why}")
    if isinstance(content, str):
        assert ledger.read_text() == f"{content}\n"


@pytest.mark.parametrize(
    "content", ['{"key": "plan", "value": [1, 2', os.mkfifo, Path.mkdir], ids=["torn", "pipe", "folder"]
)
def test_a_memory_that_a_person_broke_is_not_written_over_and_the_agent_is_told(base: Path, content: Content) -> None:
    reply = say("hi", memory_updates=[{"key": "plan", "value": 1}, {"key": "other", "value": 2}])
    make_org(
        base,
        resume("ada"),
        resume("beta"),
        resume("zed"),
        script=[{"agent": "beta", "reply": reply}, {"reply": say("hi")}],
    )
    place = base / "agents/beta/memory/plan.json"
    assert run_with(base, "agents/beta/memory/plan.json", content) == {}
    if isinstance(content, str):
        assert place.read_text() == content
    assert json.loads((base / "agents/beta/memory/other.json").read_text())["value"] == 2
    (result,) = read_state(base, "beta").results
    assert result["output"] == 'memory "plan": its file is damaged; a person must repair or remove it'


def test_a_memory_file_whose_name_is_not_text_is_reported_and_stops_nobody(org: Path) -> None:
    folder = org / "agents/ada/memory"
    folder.mkdir()
    (folder / os.fsdecode(b"\xff.json")).write_text("{}")
    assert len(run_once(org).by_status("done")) == 2
    assert "problem" in (org / "logs/engine.log").read_text()


# --- the engine's own places -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "content", "error", "message"),
    [
        ("agents", a_link_to("people"), ConfigError, "agents: cannot be listed: Not a directory"),
        ("logs/ticks", a_link_to("/tmp"), LemmingError, "Not a directory"),
        ("logs/ticks/00000001.jsonl", Path.mkdir, LemmingError, "00000001.jsonl: "),
        ("logs/ticks", "a file", CorruptState, "cannot be read: Not a directory"),
        (".lemming/lock", os.mkfifo, DiskError, ".lemming/lock: cannot write: not a regular file"),
        (".lemming/lock", a_link_to("/etc/passwd"), DiskError, ".lemming/lock: cannot write: "),
        (".lemming", "a file", DiskError, ".lemming/lock: cannot write: Not a directory"),
    ],
)
def test_something_else_in_one_of_the_engines_places_is_said_and_not_followed(
    org: Path, place: str, content: Content, error: type[LemmingError], message: str
) -> None:
    (org / "tick.json").write_text('{"current_tick": 1}')
    if place == "agents":
        (org / "agents").rename(org / "people")
    put(org / place, content)
    with pytest.raises(error) as caught:
        run_once(org)
    assert message in str(caught.value)


def make_larger(journal: Path) -> None:
    """Give a journal a tail of holes, larger than any line."""
    os.truncate(journal, 1 << 30)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "content",
    [make_larger, bytes(9000), "", a_link_to("gone"), os.mkfifo, Path.mkdir],
    ids=["larger", "zeroes", "empty", "a dangling link", "a pipe", "a folder"],
)
def test_whatever_stands_in_the_place_of_an_old_ticks_journal_stops_no_later_one(org: Path, content: Content) -> None:
    for _ in range(2):
        run_once(org, clock=FrozenClock())
    journal = org / "logs/ticks/00000002.jsonl"
    if content is make_larger:
        make_larger(journal)
    else:
        put(journal, content)
    assert [turn.status for turn in run_once(org, clock=FrozenClock()).turns] == ["done"] * 2
    assert any(it.is_error and it.file.startswith(f"{journal.relative_to(org)}") for it in verify_org(org).findings)


def test_a_lock_file_full_of_nonsense_is_no_obstacle(org: Path) -> None:
    put(org / ".lemming/lock", b"\xff\xfe{{{{")
    assert isinstance(run_once(org), TickReport)


def test_names_that_only_look_like_journals_are_left_alone(org: Path) -> None:
    put(org / "logs/ticks/\u00b2\u00b2\u00b2\u00b2\u00b2\u00b2\u00b2\u00b2.jsonl", "")
    put(org / "logs/ticks/notes.txt", "")
    assert run_once(org).tick == 1


def test_a_ledger_whose_mode_is_wrong_is_not_to_be_moved_away(base: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    with fail_nth_lookup(base, 1, errno.EACCES), pytest.raises(CorruptState) as caught:
        read_state(base, "ada")
    assert (caught.value.message, caught.value.hint) == (
        "cannot be read: Permission denied",
        "check the owner and the mode of this path",
    )
