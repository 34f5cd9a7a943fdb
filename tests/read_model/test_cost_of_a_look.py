"""A look costs what is new, not what was: the same calls of the system beside ten times the past."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.journal_sealing import seal_old_journals
from lemming.obligations import org_requests
from lemming.obligations.org_requests import load_requests
from lemming.queries.views.change_token import compute_change_token
from lemming.queries.views.view_registry import VIEWS, build_view
from lemming.read_model import read_model
from lemming.read_model.read_model import ReadModel
from lemming.read_model.tick_queries import load_ticks
from lemming.testing import make_org, resume

CALLS = ("stat", "lstat", "open", "listdir", "scandir")
PARAMETERS = {"agent": {"name": "ada"}, "tick": {"number": "1"}, "screen": {"screen": "status"}}


class Counted:
    """How many calls of the system a block made."""

    def __init__(self) -> None:
        self.calls = 0


@pytest.fixture(autouse=True)
def _file_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a file for few journals too."""
    monkeypatch.setattr(read_model, "MIN_BYTES_FOR_FILE", 0)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    counted = Counted()
    for name in CALLS:
        real = getattr(os, name)

        def call(*args: object, real: object = real, **options: object) -> object:
            counted.calls += 1
            return real(*args, **options)  # type: ignore[operator]

        monkeypatch.setattr(os, name, call)
    return counted


def org_with(base: Path, entries: int) -> Organisation:
    make_org(base, resume("ada", permissions={"read_outboxes": ["*"]}), resume("bob"))
    run_once(base)
    for number in range(entries):
        entry = OutboxEntry(f"hand{number:05}", 1, "bob", "message", {"text": "hello"}, [], "2026-01-01T00:00:00Z")
        (base / entry.file).write_bytes(entry.content)
    return rested(base)


def rested(base: Path) -> Organisation:
    """Return an organisation once stamps tell of every change that follows."""
    newest = max(file.stat().st_ctime_ns for file in base.rglob("*"))
    while time.time_ns() - newest <= 30_000_000:
        os.stat(base)
    return Organisation(base)


def count_views(org: Organisation, counted: Counted) -> dict[str, int]:
    """Return the calls of each view of a page that has been open for a while, and of its poll."""
    found = {}
    for _ in range(3):
        for name in VIEWS:
            counted.calls = 0
            build_view(org, name, PARAMETERS.get(name, {}))
            found[name] = counted.calls
        counted.calls = 0
        compute_change_token(org)
        found["poll"] = counted.calls
    return found


def test_a_page_costs_the_same_beside_ten_times_the_entries(tmp_path: Path, counted: Counted) -> None:
    few = count_views(org_with(tmp_path / "few", 200), counted)
    many = count_views(org_with(tmp_path / "many", 2000), counted)
    assert sum(few.values()) > 50
    assert many == few


def test_who_looks_at_requests_again_looks_at_folders_alone(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(org_requests, "MIN_ENTRIES_TO_CACHE", 1)
    found = []
    for entries in (200, 2000):
        load_requests(org_with(tmp_path / f"{entries}", entries))
        org = rested(tmp_path / f"{entries}")
        assert org.get_cache(ReadModel).load_outboxes().keys() == {"ada", "bob"}
        load_requests(org)
        counted.calls = 0
        load_requests(org)
        found.append(counted.calls)
    assert found[0] == found[1]
    assert 0 < found[0] < 100


def test_a_look_costs_a_stat_for_each_hundred_ticks(tmp_path: Path, counted: Counted) -> None:
    make_org(tmp_path / "org", resume("ada"), org={"durability": "off"})
    found = []
    for last in (100, 200):
        while journal_ticks(tmp_path / "org")[-1:] < [last]:
            run_once(tmp_path / "org")
        assert seal_old_journals(tmp_path / "org", last + 1, 0)
        org = rested(tmp_path / "org")
        load_ticks(org, 10, 12)
        counted.calls = 0
        load_ticks(org, 10, 12)
        found.append(counted.calls)
    assert found[1] - found[0] == 1
