"""A rehearsal: recorded ticks again, in a fork, with a change; only what differs is asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from newsroom import LOUDER, TICKS, again, asked, newsroom

from lemming.evals.rehearsal.rehearsal import MARK, find_recorded_span
from lemming.journal_tools.fork import SettingOverride
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.org.organisation import Organisation
from lemming.testing import Crash, crash_at, journal_lines, make_org, resume, tree

TITLE = SettingOverride.parse("agents/bob/resume.json:/title=Bobby")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An organisation with four ticks and the bill of their calls; tests only look at it."""
    folder = tmp_path_factory.mktemp("record")
    return newsroom(folder / "org", bill=folder / "bill"), folder / "bill"


@pytest.fixture
def org(record: tuple[Path, Path]) -> Path:
    """The organisation, with an empty bill."""
    base, bill = record
    bill.unlink(missing_ok=True)
    return base


@pytest.fixture
def bill(record: tuple[Path, Path]) -> Path:
    return record[1]


def test_where_nothing_is_changed_nobody_is_asked_and_nothing_differs(org: Path, bill: Path, tmp_path: Path) -> None:
    before = tree(org, without=())
    found = again(org, tmp_path / "fork")
    assert asked(bill) == []
    assert (found.reused, found.unrecorded_prompts, found.entries, found.ends, found.files) == (
        3 * TICKS,
        [],
        [],
        [],
        [],
    )
    assert tree(tmp_path / "fork") == tree(org)
    assert tree(org, without=()) == before


def test_only_questions_that_differ_are_asked_counted_at_the_provider(org: Path, bill: Path, tmp_path: Path) -> None:
    before = tree(org, without=())
    found = again(org, tmp_path / "fork", LOUDER, ticks=range(2, 4))
    assert sorted(asked(bill)) == ["2 bob 0", "2 cyd 0", "3 bob 0", "3 cyd 0"]
    assert [(it.tick, it.agent, it.call) for it in found.unrecorded_prompts] == [
        (2, "bob", 0), (2, "cyd", 0), (3, "bob", 0), (3, "cyd", 0),
    ]  # fmt: skip
    assert (found.reused, found.spending.calls) == (2, 4)
    assert [(it.tick, it.agent, it.change, it.diff) for it in found.entries] == [
        (2, "bob", "changed", "-fine\n+WHAT?"),
        (2, "cyd", "changed", "-fine\n+He shouts."),
        (3, "bob", "changed", "-fine\n+WHAT?"),
        (3, "cyd", "changed", "-fine\n+He shouts."),
    ]
    assert [(file.path, file.change) for file in found.files] == [
        ("agents/bob/memory/last.json", "deleted"),
        ("agents/cyd/memory/last.json", "deleted"),
    ]
    assert tree(org, without=()) == before


def test_what_a_person_wrote_comes_in_the_same_tick(org: Path, bill: Path, tmp_path: Path) -> None:
    again(org, tmp_path / "fork", ticks=range(2, 4))
    again(org, tmp_path / "earlier", ticks=range(1, 3))
    assert (asked(bill), journal_ticks(tmp_path / "fork")) == ([], [1, 2, 3])
    assert list((tmp_path / "fork/agents/human/outbox").iterdir())
    assert not (tmp_path / "earlier/agents/human/outbox").exists()


def test_the_clock_says_what_it_said(org: Path, tmp_path: Path) -> None:
    again(org, tmp_path / "fork", LOUDER)
    readings = [[journal_lines(base, tick)[0]["at"] for tick in (1, 4)] for base in (org, tmp_path / "fork")]
    assert readings[0] == readings[1]
    made = [line["at"] for line in journal_lines(tmp_path / "fork", 4) if line["type"] == "model_replied"]
    assert made == [line["at"] for line in journal_lines(org, 4) if line["type"] == "model_replied"]


def test_a_fork_that_was_rehearsed_is_in_order(org: Path, tmp_path: Path) -> None:
    again(org, tmp_path / "fork", LOUDER)
    assert verify_org(tmp_path / "fork").findings == ()


def test_without_a_change_an_edit_since_then_is_what_is_tried(org: Path, bill: Path, tmp_path: Path) -> None:
    shutil.copytree(org, tmp_path / "org")
    resume_file = tmp_path / "org/agents/cyd/resume.json"
    resume_file.write_text(resume_file.read_text().replace("You are cyd.", "You are Cyd, the quiet one."))
    again(tmp_path / "org", tmp_path / "fork", ticks=range(4, 5))
    assert asked(bill) == ["4 cyd 0"]


def test_a_dry_run_asks_nobody_and_says_how_many_would_differ_at_what_cost(
    org: Path, bill: Path, tmp_path: Path
) -> None:
    found = again(org, tmp_path / "fork", LOUDER, is_dry=True)
    assert asked(bill) == []
    assert [it.agent for it in found.unrecorded_prompts] == ["bob"] * TICKS
    assert found.spending.calls == TICKS
    assert found.full_estimate.calls == 3 * TICKS
    assert 0 < found.spending.max_dollars < found.full_estimate.max_dollars


@pytest.mark.parametrize("share", [0.0, 0.9, 1.2, 1.5])
def test_a_budget_holds_before_each_call(org: Path, bill: Path, tmp_path: Path, share: float) -> None:
    worst = again(org, tmp_path / "dry", LOUDER, is_dry=True, ticks=range(1, 2)).spending.max_dollars
    budget = float(worst) * share
    found = again(org, tmp_path / "fork", LOUDER, budget=budget)
    assert "are spent" in str(found.stopped_by)
    # The prompt of a later tick shows an entry more: of short prompts that is more than a hundredth.
    assert float(found.spending.dollars) <= budget < float(found.spending.dollars + worst) * 1.05
    assert len(asked(bill)) == found.spending.calls < 2 * TICKS
    assert bool(asked(bill)) == (share > 1)


def test_a_budget_needs_prices(org: Path, bill: Path, tmp_path: Path) -> None:
    unpriced = SettingOverride("config/models.json", "/loud/usd_per_million_output_tokens", None)
    found = again(org, tmp_path / "fork", LOUDER, unpriced, budget=1.0)
    assert "loud has no known price" in str(found.stopped_by).replace("stand-in", "loud")
    assert asked(bill) == []


def test_a_rehearsal_that_was_stopped_goes_on_and_nothing_is_paid_twice(org: Path, bill: Path, tmp_path: Path) -> None:
    worst = again(org, tmp_path / "dry", LOUDER, is_dry=True, ticks=range(1, 2)).spending.max_dollars
    again(org, tmp_path / "fork", LOUDER, budget=float(worst) * 1.5)
    assert 0 < len(asked(bill)) < 2 * TICKS
    found = again(org, tmp_path / "fork", LOUDER)
    assert (found.last, found.stopped_by) == (TICKS, None)
    assert len(asked(bill)) == len(set(asked(bill))) == 2 * TICKS
    assert len(found.entries) == 2 * TICKS


@pytest.mark.sample(3)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_one_that_was_killed_leaves_the_organisation_alone_and_goes_on(
    org: Path, bill: Path, tmp_path: Path, share: float
) -> None:
    before = tree(org, without=())
    with crash_at(1 << 30) as changes:
        again(org, tmp_path / "whole", LOUDER)
    marked = max(number for number, change in enumerate(changes) if change.endswith(MARK)) + 1
    bill.unlink()
    with pytest.raises(Crash), crash_at(marked + 1 + int((len(changes) - marked - 1) * share)):
        again(org, tmp_path / "fork", LOUDER)
    assert tree(org, without=()) == before
    found = again(org, tmp_path / "fork", LOUDER)
    repeated = len(asked(bill)) - len({*asked(bill)})
    assert repeated <= 1  # the answer that was on its way
    assert (found.last, len(found.entries)) == (TICKS, 2 * TICKS)
    assert tree(tmp_path / "fork") == tree(tmp_path / "whole")


def test_a_kept_fork_is_of_one_rehearsal_only(org: Path, tmp_path: Path) -> None:
    again(org, tmp_path / "fork", LOUDER)
    with pytest.raises(UsageError, match="the folder holds another rehearsal"):
        again(org, tmp_path / "fork", TITLE)


def test_as_many_turns_at_once_as_you_like_come_to_the_same(org: Path, tmp_path: Path) -> None:
    again(org, tmp_path / "one", LOUDER, SettingOverride("config/org.json", "/max_parallel", 1))
    again(org, tmp_path / "many", LOUDER, SettingOverride("config/org.json", "/max_parallel", 8))
    files = [tree(tmp_path / name) for name in ("one", "many")]
    for found in files:
        del found["config/org.json"]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("text", "why", "hint"),
    [
        ("agents/bob/resume.json:/instrutions=x", "instrutions", "instructions"),
        ("agents/bob/resume.json:/modle/key=x", 'key "modle" does not exist', '"model"'),
        ("agents/bob/resume.json:/schedule/run_every_n_tick=2", "run_every_n_tick", "run_every_n_ticks"),
        ("agents/bop/resume.json:/title=x", "file agents/bop/resume.json does not exist", "agents/bob/resume.json"),
        ("agents/bob:/title=x", "file agents/bob does not exist", "agents/bob/resume.json"),
        ("config/org.jsn:/inbox_limit=1", "file config/org.jsn does not exist", "config/org.json"),
        ("agents/bob/memory/last.json:/valeu=1", 'key "valeu" does not exist', '"value"'),
    ],
)
def test_a_pointer_that_matches_nothing_is_an_error_with_the_nearest_name(
    org: Path, bill: Path, tmp_path: Path, text: str, why: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        again(org, tmp_path / "fork", SettingOverride.parse(text))
    assert hint in caught.value.hint
    assert not (tmp_path / "fork").exists()
    assert asked(bill) == []


def test_what_was_not_there_yet_cannot_be_set(org: Path, tmp_path: Path) -> None:
    change = SettingOverride.parse("agents/bob/memory/last.json:/value=1")
    with pytest.raises(UsageError, match="did not exist before tick 1"):
        again(org, tmp_path / "fork", change)


def test_a_changed_schedule_makes_turns_where_there_were_none(base: Path, bill: Path, tmp_path: Path) -> None:
    newsroom(base, bill=bill)
    seldom = SettingOverride.parse("agents/bob/resume.json:/schedule/run_every_n_ticks=2")
    found = again(base, tmp_path / "fork", seldom, ticks=range(1, 3))
    first_end, first_entry = found.ends[0], found.entries[0]
    assert (first_end.agent, first_end.before, first_end.after) == ("bob", "done", "")
    assert (first_entry.tick, first_entry.agent, first_entry.change) == (1, "bob", "gone")


def test_the_past_of_a_history_is_rehearsed_with_resumes_as_they_are_now(
    base: Path, bill: Path, tmp_path: Path
) -> None:
    newsroom(base, bill=bill, history="git")
    fs.write_atomic(base, "shared/later.txt", b"put there after the last tick")
    bill.unlink(missing_ok=True)
    found = again(base, tmp_path / "fork", ticks=range(3, 5))
    assert (asked(bill), found.reused, found.entries, found.remark) == ([], 6, [], "")
    assert not (tmp_path / "fork/shared/later.txt").exists()


def test_where_nothing_has_run_there_is_nothing_to_rehearse(base: Path) -> None:
    make_org(base, resume("ada"))
    with pytest.raises(UsageError, match="no tick has run yet"):
        find_recorded_span(Organisation.from_path(base))


def test_ticks_that_were_not_run_are_refused(org: Path) -> None:
    with pytest.raises(UsageError, match="no record of tick 9"):
        find_recorded_span(Organisation.from_path(org), range(9, 10))
