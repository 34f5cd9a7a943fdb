"""The history in git: what is committed when, what it never touches, and what happens when git fails."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run as command_line
from lemming.engine import load_tick, run_once
from lemming.errors import GitFailed, UsageError
from lemming.events import Event, HistoryNotKept
from lemming.files import fs
from lemming.files.jsontext import pretty
from lemming.history.git import BRANCH, FOLDER, Repository, git_version
from lemming.history.read import History
from lemming.journal.records import TurnEnded
from lemming.messages import send
from lemming.testing import FrozenClock, make_org, resume, say, tree

ON = {"history": "git", "durability": "off"}
REPOSITORY = Path(__file__).parents[2]

KILLED_AFTER_TICK_2 = """
import os, signal, sys
from pathlib import Path
from lemming.engine import run_once
from lemming.journal.file import is_committed
from lemming.testing import FrozenClock

base = Path(sys.argv[1])

class Deadly(FrozenClock):
    def now(self):
        if is_committed(base, 2):  # the next thing to ask for the time is the commit
            os.kill(os.getpid(), signal.SIGKILL)
        return super().now()

run_once(base, clock=Deadly())
"""


def make(base: Path, *more: dict[str, Any], **changes: Any) -> Path:
    return make_org(base, resume("ada"), *more, **{"org": ON, **changes})


def run(base: Path, ticks: int = 1) -> list[HistoryNotKept]:
    """Run ticks and return what was said about the history."""
    said: list[Event] = []
    for _ in range(ticks):
        run_once(base, clock=FrozenClock(), notify=said.append)
    return [event for event in said if isinstance(event, HistoryNotKept)]


def subjects(base: Path) -> list[str]:
    return [commit.subject for commit in History(base).commits()][::-1]


def files_of(base: Path, word: str) -> list[str]:
    history = History(base)
    return [file.path for file in history.changes_of(history.state(word).commit).files]


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=me", "-c", "user.email=me@here", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


# --- what is committed when ----------------------------------------------------------------------


def test_no_git_is_started_while_the_history_is_off(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = base.parent / "started"
    _git_that(base.parent / "bin", f"touch {made}", monkeypatch)
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
    commit = History(base).commits()[0]
    assert commit.at == "2026-01-01T00:00:00.000Z"
    assert commit.trailers == {"Tick": "2", "Agents": "ada, bob, cyd", "Calls": "2", "Credits": "2"}


def test_the_cost_is_in_the_commit_when_prices_are_known(base: Path) -> None:
    price = {"usd_per_million_input_tokens": 1, "usd_per_million_output_tokens": 1}
    model = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, **price}
    script = [{"reply": say("hi"), "input_tokens": 1000, "output_tokens": 1000}]
    make(base, models={"scripted": model}, script=script)
    run(base)
    assert History(base).commits()[0].as_json()["cost_usd"] == 0.002


def test_an_idle_tick_makes_no_commit(base: Path) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 3}), org=ON)
    run(base, 7)
    assert subjects(base) == ["before tick 1: the history begins", "tick 3: 1 done", "tick 6: 1 done"]
    history = History(base)
    assert history.commit_of(5) is None
    assert history.state_after(5).commit.tick == 3


def test_what_people_change_between_ticks_has_its_own_commit(base: Path) -> None:
    make(base, resume("human", model={"key": "human"}))
    run(base)
    send(base, "human", tick=2, kind="message", payload={"text": "hi"}, tags=[], created_at="")
    fs.publish(base, "shared/plan.md", b"# plan\n")
    run(base)
    by_hand, tick = History(base).commits()[1::-1]
    assert (by_hand.subject, tick.subject) == ("by hand before tick 2", "tick 2: 1 done")
    changed = files_of(base, f"@{by_hand.id}")
    assert [file.rpartition("/")[0] for file in changed] == ["agents/human/outbox", "shared"]


def test_an_edit_by_hand_after_an_idle_tick_with_a_broken_agent_is_still_by_hand(base: Path) -> None:
    resting = resume("bob", schedule={"run_every_n_ticks": 9})
    make_org(base, resting, resume("ada", schedule="daily"), resume("cyd", model={"key": "gone"}), org=ON)
    run(base, 2)
    fs.publish(base, "shared/plan.md", b"# plan\n")
    run(base)
    assert subjects(base) == ["before tick 1: the history begins", "by hand before tick 3"]


def test_a_history_that_git_has_packed_goes_on(base: Path) -> None:
    make(base)
    run(base, 2)
    Repository(base).run("gc", "--quiet")
    assert run(base) == []
    assert Repository(base).run("fsck", "--strict") == b""
    assert History(base).state_after(1).commit.subject == "tick 1: 1 done"


def test_the_state_after_a_tick_is_without_later_edits_by_hand(base: Path) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 2}), org=ON)
    run(base, 2)
    fs.publish(base, "shared/plan.md", b"# plan\n")
    run(base, 2)
    history = History(base)
    with pytest.raises(UsageError, match="there was no file"):
        history.read_file(history.state_after(2).commit, "shared/plan.md")
    assert history.read_file(history.state_after(3).commit, "shared/plan.md") == b"# plan\n"


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
        fs.publish(base, path, content)
    run(base)
    history = History(base)
    (tmp_path / "out").mkdir()
    history.check_out(history.commits()[0], tmp_path / "out")
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
    kept = [path for path in files_of(base, "@" + History(base).commits()[-1].id) if "project" in path]
    assert kept == ["agents/ada/workspace/project/code.py"]
    (inner / "code.py").write_text("2\n")
    assert run(base) == []
    assert subjects(base)[-2:] == ["by hand before tick 2", "tick 2: 1 done"]


def test_a_link_in_the_place_of_a_folder_keeps_nothing_else_out(base: Path, tmp_path: Path) -> None:
    make(base)
    fs.publish(base, "agents/ada/workspace/notes/a.txt", b"a")
    run(base)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.txt").write_text("not ours")
    (base / "agents/ada/workspace/notes").rename(tmp_path / "gone")
    (base / "agents/ada/workspace/notes").symlink_to(tmp_path / "elsewhere")
    assert run(base) == []
    history = History(base)
    assert subjects(base)[-1] == "tick 2: 1 done"
    with pytest.raises(UsageError):
        history.read_file(history.commits()[0], "agents/ada/workspace/notes/a.txt")


# --- what it never touches -----------------------------------------------------------------------


def test_a_repository_of_the_users_own_stays_byte_for_byte_as_it_was(base: Path) -> None:
    make(base)
    git(base, "init", "-q")
    hook = base / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    fs.publish(base, ".gitignore", b".lemming/\nagents/*/outbox/\n")
    git(base, "add", "--all")
    git(base, "commit", "-qm", "mine", "--no-verify")

    def fingerprint() -> dict[str, tuple[str, int]]:
        return {
            str(path): (sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
            for path in (base / ".git").rglob("*")
            if path.is_file()
        }

    before = fingerprint()
    assert run(base, 3) == []
    History(base).changes_between("1", "now")
    assert fingerprint() == before
    assert any("outbox" in path for path in files_of(base, "3"))


def test_the_users_git_settings_and_variables_are_not_used(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, fired = base.parent / "home", base.parent / "fired"
    (home / "hooks").mkdir(parents=True)
    for name in ("reference-transaction", "post-index-change"):
        (home / "hooks" / name).write_text(f"#!/bin/sh\ntouch {fired}\n")
        (home / "hooks" / name).chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[core]\n\thooksPath = {home}/hooks\n\tautocrlf = true\n[commit]\n\tgpgsign = true\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(base.parent / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(base.parent / "index"))
    make(base)
    assert run(base) == []
    assert subjects(base)[-1] == "tick 1: 1 done"
    assert not fired.exists()
    assert not (base.parent / "elsewhere").exists()


@pytest.mark.parametrize("odd", ["config", "commondir", "info/attributes"])
def test_settings_that_are_not_ours_start_nothing(base: Path, odd: str) -> None:
    make(base)
    run(base)
    fired, other = base.parent / "fired", base.parent / "other.git"
    git(base.parent, "init", "-q", "--bare", str(other))
    settings = f"[core]\n\tbare = true\n\tfsmonitor = touch {fired}; false\n"
    (other / "config").write_text(settings)
    texts = {"config": settings, "commondir": str(other), "info/attributes": "* filter=mine\n"}
    (base / FOLDER / odd).write_text(texts[odd])
    (said,) = run(base)
    assert odd in said.problem.where
    with pytest.raises(GitFailed):
        History(base)
    assert not fired.exists()
    assert load_tick(base) == 3


@pytest.mark.parametrize("folder", ["", ".lemming", FOLDER])
@pytest.mark.parametrize("name", [".gitconfig", "git/config", ".config/git/config", "config.worktree"])
def test_git_believes_no_settings_that_lie_in_the_folder(
    base: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str
) -> None:
    make(base)
    run(base, 2)
    fired = base.parent / "fired"
    settings = f"[trace2]\n\tnormalTarget = {fired}\n\teventTarget = {fired}\n\tperfTarget = {fired}\n"
    fs.publish(base, f"{folder}/{name}".lstrip("/"), settings.encode())
    monkeypatch.chdir(base)
    monkeypatch.setenv("GIT_TRACE2", str(fired))
    for home in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(home, str(base / folder))
    with contextlib.suppress(GitFailed):
        history = History(base)
        history.changes_of(history.commits()[0])
        history.changes_between("1", "now")
        (base.parent / "out").mkdir()
        history.check_out(history.commits()[0], base.parent / "out")
    run(base)
    git_version()
    assert not fired.exists()


def test_a_git_in_the_folder_is_not_started(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(base)
    run(base)
    fs.publish(base, "git", f"#!/bin/sh\ntouch {base.parent}/fired\n".encode())
    (base / "git").chmod(0o755)
    monkeypatch.chdir(base)
    monkeypatch.setenv("PATH", f"{os.pathsep}.{os.pathsep}{os.environ['PATH']}")
    assert len(History(base).commits()) == 2
    assert not (base.parent / "fired").exists()


@pytest.mark.parametrize(
    "place",
    [
        *(f"{FOLDER}/{name}" for name in ("HEAD", "index", "packed-refs", "refs/heads/main")),
        *(
            f"{FOLDER}/{name}"
            for name in ("config", "info/attributes", "objects/00/1234", "objects/pack/a.idx")
        ),
        ".gitattributes",
        "agents/.gitattributes",
        "agents/ada/workspace/.gitattributes",
    ],
)
@pytest.mark.parametrize("kind", ["a pipe", "a link to a pipe"])
def test_a_pipe_in_the_place_of_a_file_of_gits_is_named_and_hangs_nothing(
    base: Path, place: str, kind: str
) -> None:
    make(base)
    run(base)
    (base / place).parent.mkdir(parents=True, exist_ok=True)
    (base / place).unlink(missing_ok=True)
    pipe = base / place if kind == "a pipe" else base.parent / "pipe"
    os.mkfifo(pipe)
    if pipe != base / place:
        (base / place).symlink_to(pipe)
    with pytest.raises(GitFailed) as refused:
        History(base)
    assert refused.value.where == place
    (said,) = run(base)
    assert said.problem.where == place


@pytest.mark.parametrize("name", ["objects/info/alternates", "info/grafts", "shallow", "worktrees/x/gitdir"])
def test_a_file_that_leads_git_elsewhere_is_refused(base: Path, name: str) -> None:
    make(base)
    run(base)
    fs.publish(base, f"{FOLDER}/{name}", b"/elsewhere\n")
    with pytest.raises(GitFailed, match="does not belong to a history"):
        History(base)


def test_an_organisation_may_lie_in_a_folder_with_any_name(tmp_path: Path) -> None:
    base = make(tmp_path / 'a:b "c" d\\e')
    assert run(base) == []
    fs.publish(base, "shared/new.txt", b"new")
    assert [file.path for file in History(base).changes_between("1", "now").files] == ["shared/new.txt"]


def test_looking_changes_no_file(base: Path) -> None:
    make(base)
    run(base, 2)
    fs.publish(base, "shared/new.txt", b"new")
    before = tree(base, without=())
    history = History(base)
    assert [file.path for file in history.changes_between("2", "now").files] == ["shared/new.txt"]
    history.changes_of(history.commits()[0])
    history.state_after(1)
    assert tree(base, without=()) == before


# --- crashes and failures ------------------------------------------------------------------------


def test_a_commit_lost_to_a_kill_is_made_up_for_before_the_next_tick(base: Path) -> None:
    make(base)
    run(base)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER_TICK_2, str(base)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert load_tick(base) == 3
    with pytest.raises(UsageError, match="tick 2 is not in the history yet"):
        History(base).state_after(2)
    assert run(base) == []
    assert subjects(base)[-2:] == ["tick 2: 1 done", "tick 3: 1 done"]
    late = History(base).commits()[1].trailers
    assert (late["Late"], late["Agents"], late["Calls"]) == ("yes", "ada", "1")


def test_locks_of_a_killed_git_are_no_obstacle(base: Path) -> None:
    make(base)
    run(base)
    for name in ("index.lock", "refs/heads/main.lock"):
        (base / FOLDER / name).touch()
    assert run(base) == []
    assert subjects(base)[-1] == "tick 2: 1 done"


def test_a_lost_index_changes_nothing(base: Path) -> None:
    make(base)
    run(base)
    (base / FOLDER / "index").unlink()
    assert run(base) == []
    assert files_of(base, "2") == [
        f"agents/ada/outbox/{sorted(os.listdir(base / 'agents/ada/outbox'))[-1]}",
        "agents/ada/turns.jsonl",
        "tick.json",
    ]


@pytest.mark.parametrize("lost", ["the branch", "the newest objects", "all objects", "the index"])
def test_a_history_whose_bytes_power_loss_took_begins_anew_and_the_old_one_is_kept(
    base: Path, capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    make(base)
    run(base, 2)
    objects = list((base / FOLDER / "objects").glob("??/*"))
    newest = subprocess.run(
        ["git", f"--git-dir={base / FOLDER}", "rev-parse", "main"], capture_output=True, text=True, check=True
    ).stdout.strip()
    taken = {
        "the branch": [base / FOLDER / "refs/heads/main"],
        "the newest objects": [base / FOLDER / f"objects/{newest[:2]}/{newest[2:]}"],
        "all objects": objects,
        "the index": [base / FOLDER / "index"],
    }
    for path in taken[lost]:  # names survive and bytes do not
        path.chmod(0o644)
        path.write_bytes(b"")
    status = command_line(["-C", str(base), "doctor"])
    assert (status, "is damaged" in capsys.readouterr().out) == (1, True)
    said = run(base)
    if lost == "the index":
        assert said == []
        assert subjects(base)[-1] == "tick 3: 1 done"
        return
    assert "begins anew" in said[0].problem.message
    (aside,) = base.glob("aside/*/history.git")
    assert str(aside.relative_to(base)) in said[0].problem.hint
    assert run(base) == []
    assert subjects(base)[-1] == "tick 4: 1 done"
    assert command_line(["-C", str(base), "doctor"]) == 0


@pytest.mark.parametrize(("durability", "flushes"), [("turn", True), ("off", False)])
def test_git_is_told_to_flush_what_survives_power_loss(
    base: Path, monkeypatch: pytest.MonkeyPatch, durability: str, flushes: bool
) -> None:
    make(base, org={"history": "git", "durability": durability})
    real, said = shutil.which("git"), base.parent / "said"
    _git_that(base.parent / "bin", f'echo "$@" >> {said}; exec {real} "$@"', monkeypatch)
    assert run(base) == []
    commits = [line for line in said.read_text().splitlines() if "commit-tree" in line]
    assert commits
    assert all(("core.fsync=all" in line) == flushes for line in commits)


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("exit 127", "the history needs git, and there is none"),
        ("echo git version 2.29.1", "the history needs git 2.30, this is 2.29"),
        ('case "$1" in --version) echo git version 2.40.0;; *) echo broken >&2; exit 1;; esac', "broken"),
    ],
)
def test_a_git_that_cannot_be_used_is_a_warning_and_is_caught_up(
    base: Path, monkeypatch: pytest.MonkeyPatch, does: str, says: str
) -> None:
    make(base)
    run(base)
    with monkeypatch.context() as patch:
        _git_that(base.parent / "bin", does, patch)
        told = run(base, 2)
    assert says in told[0].problem.message
    assert "history_not_kept" in (base / "logs/engine.log").read_text()
    assert load_tick(base) == 4
    assert run(base) == []
    assert subjects(base)[-2:] == ["ticks 2 to 3, kept together", "tick 4: 1 done"]
    with pytest.raises(UsageError, match="ticks 2 to 3 were kept together"):
        History(base).state_after(2)


def test_an_interrupted_tick_is_one_commit(base: Path) -> None:
    make(base, resume("bob"), script=[{"reply": say("hi")}])
    run(base)

    class Cut(BaseException):
        pass

    def cut(event: Event) -> None:
        if isinstance(event, TurnEnded):
            raise Cut

    with pytest.raises(Cut):
        run_once(base, clock=FrozenClock(), notify=cut)
    assert run(base) == []
    assert subjects(base)[-2:] == ["tick 1: 2 done", "tick 2: 2 done"]


# --- reading -------------------------------------------------------------------------------------


def test_ticks_outside_the_history_are_refused_with_where_it_begins(base: Path) -> None:
    make(base, org={"durability": "off"})
    run(base, 2)
    with pytest.raises(UsageError, match="there is no history here"):
        History(base)
    fs.publish(base, "config/org.json", pretty(ON))
    with pytest.raises(UsageError, match="there is no history here") as refused:
        History(base)
    assert refused.value.hint == "it begins with the next tick"
    run(base)
    history = History(base)
    assert history.state_after(2).commit.subject == "before tick 3: the history begins"
    for word, why in [("1", "it begins before tick 3"), ("4", "has not been run"), ("x", "is not a tick")]:
        with pytest.raises(UsageError, match=why):
            history.state(word)


def test_a_repository_made_half_way_is_made_whole(base: Path) -> None:
    make(base)
    fs.publish(base, f"{FOLDER}/HEAD", b"ref: refs/heads/main\n")
    assert not Repository(base).exists()
    assert run(base) == []
    assert len(subjects(base)) == 2


def _git_that(folder: Path, does: str, patch: pytest.MonkeyPatch) -> None:
    """Put another `git` first on the way of programs."""
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n{does}\n")
    (folder / "git").chmod(0o755)
    patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


# --- a history that somebody else wrote ----------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "at"),
    [
        ("x\x1ey", "1"), ("x\n\nTick: abc\n", "1"), ("x\n\nAgents: ada\n", "1"), ("", "1"),
        ("x\n\nTick: 1\nCalls: x\n", "1"), ("x\n\nTick: 1\nCost-USD: much\n", "1"),
        ("x\n\nTick: -9999999999\n", "1"), (f"x\n\nTick: {'9' * 5000}\n", "1"),
        ("x\n\nTick: 1\n", "99999999999999"), ("x\n\nTick: 1\n", "long ago"),
    ],
)  # fmt: skip
def test_a_commit_that_lemming_did_not_make_is_refused_and_ticks_go_on(
    base: Path, message: str, at: str
) -> None:
    make(base)
    run(base)
    repository, who = Repository(base), f"me <me@here> {at} +0000"
    tree_id = repository.run("rev-parse", f"{BRANCH}^{{tree}}").decode().strip()
    commit = f"tree {tree_id}\nauthor {who}\ncommitter {who}\n\n{message}".encode()
    forged = repository.run("hash-object", "-t", "commit", "-w", "--stdin", "--literally", feed=commit)
    (repository.folder / BRANCH).write_bytes(forged)
    for words in (["history"], ["history", "--json"], ["show", "1"], ["rewind", "--to", "1"]):
        assert command_line(["-C", str(base), *words]) == 7
    edit_by_hand = base / "shared/note.txt"
    edit_by_hand.parent.mkdir()
    edit_by_hand.write_text("x")
    run(base)
    assert load_tick(base) == 3


def test_a_record_separator_in_a_subject_ends_no_commit(base: Path) -> None:
    make(base)
    run(base)
    repository = Repository(base)
    repository.commit(repository.stage([]), "tick 2\x1e\x1f\n\nTick: 2\n", at_s=0, author="me")
    assert subjects(base)[-1] == "tick 2\x1e\x1f"


def test_a_counter_far_ahead_is_not_counted_up_to(base: Path) -> None:
    make(base)
    run(base)
    (base / "tick.json").write_text('{"current_tick": 900000000000}')
    assert History(base).state_after(899_999_999_999).tick == 899_999_999_999


def test_a_file_of_more_than_a_gib_is_not_kept_and_all_others_are(base: Path) -> None:
    make(base)
    (base / "shared").mkdir()
    with open(base / "shared/large", "wb") as file:
        file.truncate(1 << 42)  # it takes no room, and git would read it for days
    (base / "shared/small").write_text("x")
    assert run(base) == []
    assert "shared/large" not in [file.path for file in History(base).changes_between("1", "now").files]
    listed = Repository(base).run("ls-tree", "-r", "--name-only", BRANCH, "--", "shared")
    assert listed == b"shared/small\n"
