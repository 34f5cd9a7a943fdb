"""From a tick of the past: another organisation, this one brought back, the tick that broke something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import load_tick, run_once
from lemming.git_history.history_reader import GitHistory
from lemming.git_history.rewind import RewindResult, archive_journals, copy_journals, rewind
from lemming.journal_tools.fork import SettingOverride, fork
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import Journal, journal_ticks
from lemming.kernel.journal.journal_records import TickCommitted
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.journal_sealing import seal_old_journals
from lemming.operations.open_org import open_org
from lemming.queries.views.agent_view import build_agent_view
from lemming.read_model.tick_queries import load_newest_ticks
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, say, tree, write_script

ON = {"history": "git", "durability": "off"}
WRONG_FROM = 17
CAPITAL = "agents/ada/memory/capital.json"


def run(base: Path, ticks: int = 1) -> None:
    for _ in range(ticks):
        run_once(base, clock=FrozenClock())


def make(base: Path) -> Path:
    """An organisation that remembers a wrong capital from tick 17 on."""

    def learns(tick: int, capital: str) -> dict[str, Any]:
        reply = say("learned", memory_updates=[{"key": "capital", "value": capital}])
        return {"agent": "ada", "tick": tick, "reply": reply}

    script = [learns(1, "Paris"), learns(WRONG_FROM, "Rome"), {"reply": say("hello")}]
    return make_org(base, resume("ada"), script=script, org=ON)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty ticks; tests only look at it."""
    base = make(tmp_path_factory.mktemp("long") / "org")
    run(base, 30)
    return base


def go_back(base: Path, word: str) -> RewindResult:
    with open_org(base, clock=FrozenClock()) as runtime:
        history = GitHistory(base)
        return rewind(runtime, history, history.resolve_state(word))


def test_a_tick_that_was_undone_and_then_idle_has_no_changes(base: Path) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 2}), org=ON)
    run(base, 7)
    go_back(base, "4")
    file = base / "agents/ada/resume.json"
    file.write_text(file.read_text().replace('"run_every_n_ticks": 2', '"run_every_n_ticks": 100'))
    run(base, 3)
    assert GitHistory(base).find_commit(6) is None
    kept = GitHistory(base).find_commit(4)
    assert kept
    assert kept.subject == "tick 4: 1 done"


# --- fork ----------------------------------------------------------------------------------------


def test_a_tick_in_which_nobody_took_a_turn_can_be_forked_from_and_rewound_to(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 4}), org=ON)
    run(base, 9)
    history, folder = GitHistory(base), tmp_path / "fork"
    fork(history, history.resolve_state("6"), folder, [])
    go_back(base, "6")
    for org in (folder, base):
        assert (load_tick(org), journal_ticks(org), verify_org(org).findings) == (7, [4], ())
        run(org, 2)
        assert (journal_ticks(org), verify_org(org).findings) == ([4, 8], ())


def test_a_fork_goes_on_from_its_tick_and_leaves_the_original_alone(long: Path, tmp_path: Path) -> None:
    before = tree(long, without=())
    history, folder = GitHistory(long), tmp_path / "fork"
    fork(history, history.resolve_state("16"), folder, [])
    assert (load_tick(folder), journal_ticks(folder)) == (17, list(range(1, 17)))
    run(folder)
    assert [commit.subject for commit in GitHistory(folder).list_commits()] == [
        "tick 17: 1 done",
        "before tick 17: the history begins",
    ]
    entries = sorted(path.name for path in (folder / "agents/ada/outbox").iterdir())
    assert entries == sorted(path.name for path in (long / "agents/ada/outbox").iterdir())[:17]
    assert tree(long, without=()) == before


def test_a_fork_with_the_same_answers_comes_to_the_same_files(long: Path, tmp_path: Path) -> None:
    history, folder = GitHistory(long), tmp_path / "fork"
    fork(history, history.resolve_state("25"), folder, [])
    run(folder, 5)
    assert tree(folder) == tree(long)


def test_a_fork_after_an_idle_tick_has_the_clock_of_that_tick(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 4}), org=ON)
    run(base, 7)
    history = GitHistory(base)
    fork(history, history.resolve_state("6"), tmp_path / "fork", [])
    assert load_tick(tmp_path / "fork") == 7


def test_a_fork_may_have_other_values(long: Path, tmp_path: Path) -> None:
    history, folder = GitHistory(long), tmp_path / "fork"
    texts = [
        "agents/ada/resume.json:/title=Chief Reporter",
        "agents/ada/resume.json:/schedule/run_every_n_ticks=3",
        "agents/ada/resume.json:/permissions/read_outboxes/0=bob",
        "agents/ada/resume.json:/permissions/tools/-=shell",
    ]
    changed = fork(history, history.resolve_state("3"), folder, [SettingOverride.parse(text) for text in texts])
    plain = json.loads((folder / "agents/ada/resume.json").read_text())
    assert changed == ["agents/ada/resume.json"]
    assert (plain["title"], plain["schedule"]["run_every_n_ticks"]) == ("Chief Reporter", 3)
    assert plain["permissions"] == {"read_outboxes": ["bob"], "tools": ["shell"]}


@pytest.mark.parametrize(
    "text",
    [
        "agents/ada/resume.json",
        "agents/ada/resume.json:title=x",
        "agents/bob/resume.json:/title=x",
        "agents/ada/resume.json:/schedul/phase_offset=1",
        "agents/ada/resume.json:/permissions/tools/7=x",
        "agents/ada/resume.json:/instrucions=Be brief.",
        "agents/ada/resume.json:/schedule/run_every_n_tics=3",
        "config/org.json:/retention=5",
        "config/models.json:/scripted/modle=x",
        "config/answers.jsonl:/a=1",
        "../org.json:/a=1",
        "agents:/a=1",
    ],
)
def test_a_value_that_has_no_place_is_refused_before_anything_is_written(long: Path, tmp_path: Path, text: str) -> None:
    history, folder = GitHistory(long), tmp_path / "fork"
    with pytest.raises(UsageError):
        fork(history, history.resolve_state("3"), folder, [SettingOverride.parse(text)])
    assert not folder.exists()


def test_a_fork_needs_an_empty_folder_outside(long: Path, tmp_path: Path) -> None:
    history = GitHistory(long)
    (tmp_path / "mine").write_text("mine")
    for folder, why in [(tmp_path, "an empty or a new folder"), (long / "inner", "must be outside")]:
        with pytest.raises(UsageError, match=why):
            fork(history, history.resolve_state("3"), folder, [])


# --- rewind --------------------------------------------------------------------------------------


def test_a_rewind_brings_the_files_back_and_loses_nothing(base: Path) -> None:
    make(base)
    run(base, 3)
    then = tree(base)
    run(base, 2)
    fs.write_atomic(base, "shared/plan.md", b"later")
    later = tree(base)
    done = go_back(base, "3")
    journals = f"{done.archive_folder}/logs/ticks"
    assert tree(base, without=(".lemming", "logs", "aside")) == then
    assert journal_ticks(base) == [1, 2, 3]
    assert sorted(path.name for path in (base / journals).iterdir()) == ["00000004.jsonl", "00000005.jsonl"]
    go_back(base, f"@{done.previous_commit}")
    assert tree(base, without=(".lemming", "logs", "aside")) == later
    assert GitHistory(base).state_at_tick(4).commit.subject == "tick 4: 1 done"


def test_the_same_answers_after_a_rewind_give_the_same_ids(base: Path) -> None:
    make(base)
    run(base, 4)
    outbox = base / "agents/ada/outbox"
    before = sorted(path.name for path in outbox.iterdir())
    go_back(base, "2")
    run(base, 2)
    assert sorted(path.name for path in outbox.iterdir()) == before
    history = GitHistory(base)
    assert [commit.subject for commit in history.list_branch_commits()][::-1] == [
        "before tick 1: the history begins",
        "tick 1: 1 done",
        "tick 2: 1 done",
        "rewound to tick 2",
        "tick 3: 1 done",
        "tick 4: 1 done",
    ]


def test_a_screen_that_stays_open_over_a_rewind_shows_the_ticks_taken_since(base: Path) -> None:
    make(base)
    run(base, 3)
    screen = Organisation(base)
    assert load_newest_ticks(screen, 1, before=4)[0].totals["entries"] == 1
    assert build_agent_view(screen, name="ada")["turns"][0]["did"] == "wrote 1 entry"
    go_back(base, "2")
    write_script(base, [{"reply": {**say("hello"), "outbox_entries": []}}])
    run(base)
    assert load_newest_ticks(screen, 1, before=4)[0].totals["entries"] == 0
    assert build_agent_view(screen, name="ada")["turns"][0]["did"] == "wrote nothing"


def test_what_a_rewind_set_aside_is_not_the_past_any_more(base: Path) -> None:
    make(base)
    run(base, 4)
    go_back(base, "2")
    history = GitHistory(base)
    assert history.state_at_tick(2).commit.subject == "tick 2: 1 done"
    with pytest.raises(UsageError, match="tick 3 has not run"):
        history.state_at_tick(3)
    commits = [commit.subject for commit in history.list_commits()]
    assert commits[:3] == ["rewound to tick 2", "tick 4: 1 done", "tick 3: 1 done"]


def test_an_interrupted_rewind_is_finished_by_doing_it_again(base: Path) -> None:
    make(base)
    run(base, 3)
    then = tree(base)
    run(base, 3)
    number = 1
    while True:
        try:
            with crash_at(number):
                go_back(base, "3")
            break
        except Crash:
            number += 3
    assert number > 3
    assert tree(base, without=(".lemming", "logs", "aside")) == then
    assert journal_ticks(base) == [1, 2, 3]
    aside = sorted(path.name for path in (base / "aside").rglob("*.jsonl"))
    assert aside == ["00000004.jsonl", "00000005.jsonl", "00000006.jsonl"]


def test_no_engine_starts_on_files_that_are_half_rewound(base: Path) -> None:
    make(base)
    run(base, 6)
    before = tree(base, without=(".lemming", "aside"))
    number, refusals = 1, 0
    while True:
        try:
            with crash_at(number):
                go_back(base, "3")
            break
        except Crash:
            number += 3
        if tree(base, without=(".lemming", "aside")) != before:
            with pytest.raises(CorruptState, match="a rewind was interrupted") as caught:
                run_once(base, clock=FrozenClock())
            refusals += 1
    assert refusals > 1
    target = caught.value.hint.partition("--to ")[2].partition(" ")[0]
    assert GitHistory(base).resolve_state(target).tick == 3
    run(base, 1)
    assert load_tick(base) == 5


def test_two_rewinds_at_the_same_moment_overwrite_nothing(base: Path) -> None:
    make(base)
    for _ in range(2):
        run(base, 2 if load_tick(base) == 1 else 1)
        go_back(base, "1")
    assert len(list((base / "aside").rglob("00000002.jsonl"))) == 2


def test_sealed_journals_are_parted_at_the_tick(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada"))
    for tick in (98, 99, 100, 101, 199, 250):
        with Journal(base, tick, epoch=1, durability="off") as journal:
            journal.append(TickCommitted(tick=tick, advanced=True, totals={}))
    assert len(seal_old_journals(base, 1000, 500)) == 3
    copy_journals(base, tmp_path, until=100)
    assert journal_ticks(tmp_path) == [98, 99, 100]
    archive_journals(base, last_tick=100, folder="aside/then")
    assert journal_ticks(base) == [98, 99, 100]
    kept = sorted(path.name for path in (base / "aside").rglob("*.xz"))
    assert kept == ["00000100-00000199.jsonl.xz", "00000200-00000299.jsonl.xz"]
