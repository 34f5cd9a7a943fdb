"""Two organisations side by side."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from newsroom import newsroom

from lemming.engine import run_once
from lemming.evals.rehearsal.org_comparison import Comparison, compare_orgs, diff_entries
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.organisation import Organisation
from lemming.testing import FrozenClock, resume, tree


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation; tests only look at it."""
    folder = tmp_path_factory.mktemp("original")
    return newsroom(folder / "org", bill=folder / "bill")


@pytest.fixture
def other(original: Path, tmp_path: Path) -> Path:
    """A copy of it, to change."""
    return Path(shutil.copytree(original, tmp_path / "other"))


def compared(one: Path, two: Path, span: range | None = None) -> Comparison:
    return compare_orgs(Organisation.from_path(one), Organisation.from_path(two), span)


def test_a_copy_is_the_same_and_looking_writes_nothing(original: Path, other: Path) -> None:
    before = tree(original, without=()), tree(other, without=())
    assert compared(original, other).is_same
    assert (tree(original, without=()), tree(other, without=())) == before


def test_settings_and_resumes_differ_value_by_value(original: Path, other: Path) -> None:
    fs.write_atomic(other, "agents/bob/resume.json", dump_pretty(resume("bob", title="Robert", turn={"max_steps": 2})))
    found = compared(original, other)
    assert [(it.file, it.pointer, it.before, it.after) for it in found.values] == [
        ("agents/bob/resume.json", "/permissions/read_outboxes", ["ada"], ["*"]),
        ("agents/bob/resume.json", "/title", "Bob", "Robert"),
        ("agents/bob/resume.json", "/turn", None, {"max_steps": 2}),
    ]
    assert (found.entries, found.files, found.spent, found.is_same) == ([], [], [], False)


def test_agents_of_one_side_are_named(original: Path, other: Path) -> None:
    fs.write_atomic(other, "agents/zoe/resume.json", dump_pretty(resume("zoe")))
    fs.remove_tree(other, "agents/cyd")
    assert compared(original, other).agents == {"cyd": "before", "zoe": "after"}


def test_entries_files_and_what_was_spent_differ_after_one_more_tick(original: Path, other: Path) -> None:
    fs.write_atomic(other, "shared/new.txt", b"one\ntwo\n")
    run_once(other, clock=FrozenClock())
    found = compared(original, other)
    assert {(it.tick, it.agent, it.change) for it in found.entries} == {
        (5, "ada", "new"), (5, "bob", "new"), (5, "cyd", "new"),
    }  # fmt: skip
    assert [(it.path, it.change, it.added) for it in found.files if it.path.startswith("shared/")] == [
        ("shared/new.txt", "added", 2)
    ]
    ada = next(it for it in found.spent if it.agent == "ada")
    assert (ada.before["turns"], ada.after["turns"]) == (4, 5)
    assert compared(original, other, range(1, 5)).entries == []


def entry(number: int, text: str, tick: int = 1) -> OutboxEntry:
    return OutboxEntry(f"{number}", tick, "ada", "message", {"text": text})


def test_entries_that_are_the_same_are_paired_before_those_that_differ() -> None:
    before = [entry(0, "one"), entry(1, "two")]
    after = [entry(0, "new"), entry(1, "two"), entry(2, "one"), entry(3, "two")]
    found = list(diff_entries(before, after))
    assert [(it.change, it.diff) for it in found] == [("new", "+new"), ("new", "+two")]


def test_an_entry_that_changed_shows_the_lines_that_did() -> None:
    (found,) = diff_entries([entry(0, "a\nb\nc")], [entry(0, "a\nB\nc")])
    assert (found.change, found.diff) == ("changed", "-b\n+B")


def test_what_is_more_than_text_is_shown_as_json() -> None:
    asked = OutboxEntry("1", 1, "ada", "message", {"text": "a", "target": "bob"})
    (found,) = diff_entries([entry(0, "a")], [asked])
    assert '+    "target": "bob"' in found.diff
