"""Differences between the entries of two records."""

from __future__ import annotations

from lemming.evals.rehearsal.org_comparison import diff_entries
from lemming.kernel.messages import OutboxEntry


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
