"""`lemming rehearse`, typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from newsroom import asked, newsroom
from terminal import Lemming, typed_at

LOUDER = "agents/bob/resume.json:/model/key=loud"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation with four ticks; its bill lies beside it."""
    folder = tmp_path_factory.mktemp("record")
    base = newsroom(folder / "org", bill=folder / "bill")
    (folder / "bill").unlink()
    return base


@pytest.fixture
def lemming(record: Path, capsys: pytest.CaptureFixture[str]) -> Lemming:
    return typed_at(record, capsys)


def test_it_shows_entry_by_entry_what_would_have_been_different(lemming: Lemming, record: Path) -> None:
    ran = lemming("rehearse", "--trust", "--set", LOUDER, "--ticks", "4..9")
    assert ran.status == 0
    assert "tick 4  bob  message  changed\n  -fine\n  +WHAT?\n" in ran.out
    assert "file  agents/bob/memory/last.json" in ran.out
    assert "2 changed" in ran.err
    assert "1 answer from the record, 2 calls made: $0.0" in ran.err
    assert asked(record.parent / "bill")[-2:] == ["4 bob 0", "4 cyd 0"]


def test_as_json_each_difference_is_an_object(lemming: Lemming) -> None:
    *entries, summary = lemming("rehearse", "--trust", "--set", LOUDER, "--ticks", "4", "--json").objects
    assert [(it["type"], it["agent"], it["change"]) for it in entries] == [
        ("entry_difference", "bob", "changed"),
        ("entry_difference", "cyd", "changed"),
    ]
    assert (summary["type"], summary["calls"], summary["reused"], summary["dry_run"]) == ("rehearsed", 2, 1, False)
    assert 0 < summary["cost_usd"] < summary["cost_at_most_usd"]


def test_a_dry_run_says_at_least_how_many_and_at_most_how_much(lemming: Lemming, record: Path) -> None:
    before = asked(record.parent / "bill")
    ran = lemming("rehearse", "--trust", "--set", LOUDER, "--dry-run")
    assert "at least 4 of 12 questions would differ" in ran.err
    assert "the differing prompts cost at most $0.0" in ran.err
    assert "no model was called" in ran.err
    assert (ran.out, asked(record.parent / "bill")) == ("", before)


def test_where_nothing_differs_it_says_so(lemming: Lemming) -> None:
    ran = lemming("rehearse", "--trust", "--set", "agents/bob/resume.json:/title=Bob", "--ticks", "1..2")
    assert (ran.status, ran.out) == (0, "no differences\n")


def test_a_spent_budget_is_an_error_after_what_there_is(lemming: Lemming, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    ran = lemming("rehearse", "--trust", "--set", LOUDER, "--budget", "0", "--keep", kept)
    assert ran.status != 0
    assert "the next call can cost" in ran.err
    assert "stopped in tick 1" in ran.err
    ran = lemming("rehearse", "--trust", "--set", LOUDER, "--keep", kept)
    assert (ran.status, f"kept in {kept}" in ran.err) == (0, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--ticks", "x"], "expected a tick or a range of ticks"),
        (["--ticks", "9..12"], "no record of ticks 9 to 12"),
        (["--ticks", "3..1"], "a range must end after it begins"),
        (["--set", "x"], "expected FILE:/POINTER=VALUE"),
        (["--dry-run", "--keep", "/tmp/nowhere"], "exclude each other"),
    ],
)
def test_mistakes_are_named(lemming: Lemming, words: list[str], why: str) -> None:
    ran = lemming("rehearse", "--trust", *words)
    assert (ran.status, why in ran.err) == (2, True)


def test_a_resume_that_the_change_would_break_is_an_error_and_not_an_agent_less(lemming: Lemming) -> None:
    ran = lemming("rehearse", "--trust", "--set", "agents/bob/resume.json:/schedule/run_every_n_ticks=often")
    assert (ran.status, ran.out) == (2, "")
    assert 'run_every_n_ticks: expected a whole number, got "often"' in ran.err


def test_ticks_are_named_as_for_the_other_commands(lemming: Lemming) -> None:
    ran = lemming("rehearse", "--trust", "--ticks", "..2", "--json")
    assert (ran.objects[-1]["first"], ran.objects[-1]["last"]) == (1, 2)
    assert "\ntick 2: entries: none differs\n" in lemming("rehearse", "--trust", "--ticks", "2").err


def test_two_folders_are_for_another_program(lemming: Lemming, record: Path, tmp_path: Path) -> None:
    for command in ("diff", "compare"):
        ran = lemming(command, str(record), str(tmp_path))
        assert (ran.status, f"git diff --no-index {record} {tmp_path}" in ran.err) == (2, True)
