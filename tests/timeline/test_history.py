"""The history in git: what is committed when, and what is read back."""

from __future__ import annotations

from pathlib import Path

import pytest
from kept import ON, files_of, git, git_that, make, run, subjects

from lemming.git_history.git_repository import FOLDER, Repository
from lemming.git_history.history_reader import GitHistory
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import make_org, resume, say, tree


def test_no_git_is_started_while_the_history_is_off(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = base.parent / "started"
    git_that(base.parent / "bin", f"touch {made}", monkeypatch)
    make(base, org={})
    assert run(base) == []
    assert not made.exists()
    assert not (base / FOLDER).exists()


def test_each_tick_that_changed_something_is_a_commit(base: Path) -> None:
    make(base, resume("bob", schedule={"run_every_n_ticks": 2}), resume("cyd", model={"key": "gone"}))
    run(base, 2)
    assert subjects(base) == [
        "before tick 1: the history begins",
        "tick 1: 1 done, 1 failed",
        "tick 2: 2 done, 1 failed",
    ]
    commit = GitHistory(base).list_commits()[0]
    assert commit.at == "2026-01-01T00:00:00.000Z"
    assert commit.trailers == {"Tick": "2", "Agents": "ada, bob, cyd", "Calls": "2", "Credits": "2"}


def test_the_cost_is_in_the_commit_when_prices_are_known(base: Path) -> None:
    price = {"usd_per_million_input_tokens": 1, "usd_per_million_output_tokens": 1}
    model = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, **price}
    script = [{"reply": say("hi"), "input_tokens": 1000, "output_tokens": 1000}]
    make(base, models={"scripted": model}, script=script)
    run(base)
    assert GitHistory(base).list_commits()[0].cost_usd == 0.002


def test_an_idle_tick_makes_no_commit(base: Path) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 3}), org=ON)
    run(base, 7)
    assert subjects(base) == ["before tick 1: the history begins", "tick 3: 1 done", "tick 6: 1 done"]
    history = GitHistory(base)
    assert history.find_commit(5) is None
    assert history.state_at_tick(5).commit.tick == 3


def test_what_people_change_between_ticks_has_its_own_commit(base: Path) -> None:
    make(base, resume("human", model={"key": "human"}))
    run(base)
    write_person_entry(base, "human", tick=2, kind="message", payload={"text": "hi"}, tags=[], created_at="")
    fs.write_atomic(base, "shared/plan.md", b"# plan\n")
    run(base)
    by_hand, tick = GitHistory(base).list_commits()[1::-1]
    assert (by_hand.subject, tick.subject) == ("by hand before tick 2", "tick 2: 1 done")
    changed = files_of(base, f"@{by_hand.id}")
    assert [file.rpartition("/")[0] for file in changed] == ["agents/human/outbox", "shared"]


def test_an_edit_by_hand_after_an_idle_tick_with_a_broken_agent_is_still_by_hand(base: Path) -> None:
    resting = resume("bob", schedule={"run_every_n_ticks": 9})
    make_org(base, resting, resume("ada", schedule="daily"), resume("cyd", model={"key": "gone"}), org=ON)
    run(base, 2)
    fs.write_atomic(base, "shared/plan.md", b"# plan\n")
    run(base)
    assert subjects(base) == ["before tick 1: the history begins", "by hand before tick 3"]


def test_a_history_that_git_has_packed_goes_on(base: Path) -> None:
    make(base)
    run(base, 2)
    Repository(base).run("gc", "--quiet")
    assert run(base) == []
    assert Repository(base).run("fsck", "--strict") == b""
    assert GitHistory(base).state_at_tick(1).commit.subject == "tick 1: 1 done"


def test_the_state_after_a_tick_is_without_later_edits_by_hand(base: Path) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 2}), org=ON)
    run(base, 2)
    fs.write_atomic(base, "shared/plan.md", b"# plan\n")
    run(base, 2)
    history = GitHistory(base)
    with pytest.raises(UsageError, match="did not exist then"):
        history.read_file(history.state_at_tick(2).commit, "shared/plan.md")
    assert history.read_file(history.state_at_tick(3).commit, "shared/plan.md") == b"# plan\n"


def test_every_kept_file_is_there_byte_for_byte_and_nothing_else(base: Path, tmp_path: Path) -> None:
    make(base)
    odd = {
        "agents/ada/workspace/crlf.txt": b"a\r\nb\r\n",
        "agents/ada/workspace/.gitignore": b"*\n",
        "agents/ada/workspace/.gitattributes": b"* text=auto eol=lf\n",
        "agents/ada/workspace/bytes": bytes(range(256)),
        "shared/ünï \n'\".txt": b"$Id$",
    }
    left_out = {
        "README.md": b"mine",
        ".venv/lib": b"big",
        "agents/ada/workspace/.half.tmp": b"x",
        "agents/ada/logs/extra.log": b"x",
    }
    for path, content in {**odd, **left_out, ".gitignore": b"agents\n"}.items():
        fs.write_atomic(base, path, content)
    run(base)
    history = GitHistory(base)
    (tmp_path / "out").mkdir()
    history.checkout(history.list_commits()[0], tmp_path / "out")
    there = tree(base)
    for path in [*left_out, ".gitignore"]:
        there.pop(path, None)
    assert tree(tmp_path / "out") == there
    assert odd.keys() <= there.keys()


def test_files_of_a_repository_in_a_workspace_are_kept_without_its_git_folder(base: Path) -> None:
    make(base)
    inner = base / "agents/ada/workspace/project"
    inner.mkdir(parents=True)
    git(inner, "init", "-q")
    (inner / "code.py").write_text("1\n")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "mine")
    assert run(base) == []
    kept = [path for path in files_of(base, "@" + GitHistory(base).list_commits()[-1].id) if "project" in path]
    assert kept == ["agents/ada/workspace/project/code.py"]
    (inner / "code.py").write_text("2\n")
    assert run(base) == []
    assert subjects(base)[-2:] == ["by hand before tick 2", "tick 2: 1 done"]


def test_a_link_in_the_place_of_a_folder_keeps_nothing_else_out(base: Path, tmp_path: Path) -> None:
    make(base)
    fs.write_atomic(base, "agents/ada/workspace/notes/a.txt", b"a")
    run(base)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.txt").write_text("not ours")
    (base / "agents/ada/workspace/notes").rename(tmp_path / "gone")
    (base / "agents/ada/workspace/notes").symlink_to(tmp_path / "elsewhere")
    assert run(base) == []
    history = GitHistory(base)
    assert subjects(base)[-1] == "tick 2: 1 done"
    with pytest.raises(UsageError):
        history.read_file(history.list_commits()[0], "agents/ada/workspace/notes/a.txt")


def test_ticks_outside_the_history_are_refused_with_where_it_begins(base: Path) -> None:
    make(base, org={"durability": "off"})
    run(base, 2)
    with pytest.raises(UsageError, match="no history is recorded here"):
        GitHistory(base)
    fs.write_atomic(base, "config/org.json", dump_pretty(ON))
    with pytest.raises(UsageError, match="no history is recorded here") as refused:
        GitHistory(base)
    assert refused.value.hint == "run a tick: the history begins with it"
    run(base)
    history = GitHistory(base)
    assert history.state_at_tick(2).commit.subject == "before tick 3: the history begins"
    for word, why in [("1", "it begins before tick 3"), ("4", "has not run"), ("x", "expected a tick")]:
        with pytest.raises(UsageError, match=why):
            history.resolve_state(word)


def test_a_repository_made_half_way_is_made_whole(base: Path) -> None:
    make(base)
    fs.write_atomic(base, f"{FOLDER}/HEAD", b"ref: refs/heads/main\n")
    assert not Repository(base).exists()
    assert run(base) == []
    assert len(subjects(base)) == 2
