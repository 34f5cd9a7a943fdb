"""Which entries are about requests is kept: right after a hand edit, a kill, a hot copy; may be deleted."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from asked import ask, org_of

from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.organisation import Organisation
from lemming.obligations.org_requests import load_requests
from lemming.read_model.read_model import MODEL_FILE, ReadModel
from lemming.testing import Crash, crash_at, resume

MANY = 1000
LONG_AGO = time.time() - 3600


def asked_in(org: Path | Organisation) -> set[str]:
    return {request.text for request in load_requests(org).requests}


def write(org: Path, number: int, kind: str, text: str) -> Path:
    entry = OutboxEntry(f"hand{number}", 0, "ada", kind, {"text": text, "target": "bob"}, [], "2026-01-01T00:00:00Z")
    (org / entry.file).parent.mkdir(parents=True, exist_ok=True)
    (org / entry.file).write_bytes(entry.content)
    return org / entry.file


@pytest.fixture
def org(tmp_path: Path) -> Path:
    """An organisation in which one of a thousand entries is a request, and which of them is kept."""
    org = org_of(tmp_path, resume("ada"), resume("bob"))
    for number in range(MANY):
        write(org, number, "message", "hello")
    write(org, MANY, "request", "first?")
    rested(org)
    assert asked_in(org) == {"first?"}
    assert kept(org) == 1
    return org


def kept(org: Path) -> int:
    """Return how many files of ada's outbox are known to be about requests."""
    return len(Organisation(org).get_cache(ReadModel).load_outboxes()["ada"][1])


def rested(org: Path) -> None:
    """Wait until stamps tell of every change that follows."""
    newest = max(file.stat().st_ctime_ns for file in org.glob("agents/*/outbox/*"))
    while time.time_ns() - newest <= 30_000_000:
        os.stat(org)


def test_what_is_new_beside_what_is_kept_is_read(org: Path) -> None:
    ask(org, "bob", text="second?")
    write(org, MANY + 1, "request", "third?")
    assert asked_in(org) == {"first?", "second?", "third?"}
    shutil.rmtree(org / ".lemming/read-model")
    assert asked_in(org) == {"first?", "second?", "third?"}


def test_who_looks_again_sees_what_has_come_since_and_what_is_gone(org: Path) -> None:
    known = Organisation(org)
    assert asked_in(known) == {"first?"}
    assert asked_in(known) == {"first?"}
    ask(org, "bob", text="second?")
    write(org, MANY + 1, "request", "third?")
    assert asked_in(known) == {"first?", "second?", "third?"}
    next(org.glob(f"agents/ada/outbox/*_hand{MANY}.json")).unlink()
    assert asked_in(known) == {"second?", "third?"}


def test_an_entry_that_somebody_edits_in_its_place_is_read_again(org: Path) -> None:
    file = next(org.glob("agents/ada/outbox/*_hand7.json"))
    text = file.read_text().replace('"message"', '"request"').replace("hello", "so?")
    file.write_text(text)
    assert asked_in(org) == {"first?", "so?"}


def test_a_forged_model_hides_no_request(org: Path) -> None:
    with sqlite3.connect(org / MODEL_FILE) as connection:
        connection.execute("UPDATE outbox SET files = ''")
    assert asked_in(org) == {"first?"}
    assert kept(org) == 1


def test_a_kill_as_it_is_kept_leaves_it_whole_or_none(org: Path) -> None:
    for step in range(1, 9):
        shutil.rmtree(org / ".lemming/read-model")
        with contextlib.suppress(Crash), crash_at(step):
            load_requests(org)
        assert asked_in(org) == {"first?"}
        assert kept(org) == 1


def test_in_a_copy_that_was_made_meanwhile_nothing_is_believed(org: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(org, copy)
    file = next(copy.glob("agents/ada/outbox/*_hand7.json"))
    file.write_text(file.read_text().replace('"message"', '"request"').replace("hello", "so?"))
    shutil.copystat(org / file.relative_to(copy), file)
    assert asked_in(copy) == {"first?", "so?"}


def test_who_goes_on_looking_sees_what_changes_after_the_first_look(org: Path) -> None:
    looks = Organisation.from_path(org)
    assert asked_in(looks) == {"first?"}
    file = next(org.glob("agents/ada/outbox/*_hand7.json"))
    beside = file.with_name("draft")
    beside.write_text(file.read_text().replace('"message"', '"request"').replace("hello", "so?"))
    beside.rename(file)
    assert asked_in(looks) == {"first?", "so?"}
    write(org, MANY + 1, "request", "third?")
    assert asked_in(looks) == {"first?", "so?", "third?"}
