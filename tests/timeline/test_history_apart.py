"""What the history in git never touches, believes or starts."""

from __future__ import annotations

import contextlib
import os
from hashlib import sha256
from pathlib import Path

import pytest
from kept import files_of, git, make, run, subjects

from lemming.cli import run as command_line
from lemming.engine import load_tick
from lemming.git_history.git_repository import BRANCH, FOLDER, Repository
from lemming.git_history.history_reader import GitHistory
from lemming.kernel.base.errors import GitFailed
from lemming.kernel.files import fs
from lemming.libraries.git_program import find_git_version
from lemming.testing import tree


def test_a_repository_of_the_users_own_stays_byte_for_byte_as_it_was(base: Path) -> None:
    make(base)
    git(base, "init", "-q")
    hook = base / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    fs.write_atomic(base, ".gitignore", b".lemming/\nagents/*/outbox/\n")
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
    GitHistory(base).changes_between("1", "now")
    assert fingerprint() == before
    assert any("outbox" in path for path in files_of(base, "3"))


def test_the_users_git_settings_and_variables_are_not_used(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        GitHistory(base)
    assert not fired.exists()
    assert load_tick(base) == 3


@pytest.mark.sample(4)
@pytest.mark.parametrize("folder", ["", ".lemming", FOLDER])
@pytest.mark.parametrize("name", [".gitconfig", "git/config", ".config/git/config", "config.worktree"])
def test_git_believes_no_settings_that_lie_in_the_folder(
    base: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str
) -> None:
    make(base)
    run(base, 2)
    fired = base.parent / "fired"
    settings = f"[trace2]\n\tnormalTarget = {fired}\n\teventTarget = {fired}\n\tperfTarget = {fired}\n"
    fs.write_atomic(base, f"{folder}/{name}".lstrip("/"), settings.encode())
    monkeypatch.chdir(base)
    monkeypatch.setenv("GIT_TRACE2", str(fired))
    for home in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(home, str(base / folder))
    with contextlib.suppress(GitFailed):
        history = GitHistory(base)
        history.diff_commit(history.list_commits()[0])
        history.changes_between("1", "now")
        (base.parent / "out").mkdir()
        history.checkout(history.list_commits()[0], base.parent / "out")
    run(base)
    find_git_version()
    assert not fired.exists()


def test_a_git_in_the_folder_is_not_started(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(base)
    run(base)
    fs.write_atomic(base, "git", f"#!/bin/sh\ntouch {base.parent}/fired\n".encode())
    (base / "git").chmod(0o755)
    monkeypatch.chdir(base)
    monkeypatch.setenv("PATH", f"{os.pathsep}.{os.pathsep}{os.environ['PATH']}")
    assert len(GitHistory(base).list_commits()) == 2
    assert not (base.parent / "fired").exists()


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "place",
    [
        *(f"{FOLDER}/{name}" for name in ("HEAD", "index", "packed-refs", "refs/heads/main")),
        *(f"{FOLDER}/{name}" for name in ("config", "info/attributes", "objects/00/1234", "objects/pack/a.idx")),
        ".gitattributes",
        "agents/.gitattributes",
        "agents/ada/workspace/.gitattributes",
    ],
)
@pytest.mark.parametrize("kind", ["a pipe", "a link to a pipe"])
def test_a_pipe_in_the_place_of_a_file_of_gits_is_named_and_hangs_nothing(base: Path, place: str, kind: str) -> None:
    make(base)
    run(base)
    (base / place).parent.mkdir(parents=True, exist_ok=True)
    (base / place).unlink(missing_ok=True)
    pipe = base / place if kind == "a pipe" else base.parent / "pipe"
    os.mkfifo(pipe)
    if pipe != base / place:
        (base / place).symlink_to(pipe)
    with pytest.raises(GitFailed) as refused:
        GitHistory(base)
    assert refused.value.where == place
    (said,) = run(base)
    assert said.problem.where == place


@pytest.mark.parametrize("name", ["objects/info/alternates", "info/grafts", "shallow", "worktrees/x/gitdir"])
def test_a_file_that_leads_git_elsewhere_is_refused(base: Path, name: str) -> None:
    make(base)
    run(base)
    fs.write_atomic(base, f"{FOLDER}/{name}", b"/elsewhere\n")
    with pytest.raises(GitFailed, match="not part of a history"):
        GitHistory(base)


def test_an_organisation_may_lie_in_a_folder_with_any_name(tmp_path: Path) -> None:
    base = make(tmp_path / 'a:b "c" d\\e')
    assert run(base) == []
    fs.write_atomic(base, "shared/new.txt", b"new")
    assert [file.path for file in GitHistory(base).changes_between("1", "now").files] == ["shared/new.txt"]


def test_looking_changes_no_file(base: Path) -> None:
    make(base)
    run(base, 2)
    fs.write_atomic(base, "shared/new.txt", b"new")
    before = tree(base, without=())
    history = GitHistory(base)
    assert [file.path for file in history.changes_between("2", "now").files] == ["shared/new.txt"]
    history.diff_commit(history.list_commits()[0])
    history.state_at_tick(1)
    assert tree(base, without=()) == before


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("message", "at"),
    [
        ("x\x1ey", "1"), ("x\n\nTick: abc\n", "1"), ("x\n\nAgents: ada\n", "1"), ("", "1"),
        ("x\n\nTick: 1\nCalls: x\n", "1"), ("x\n\nTick: 1\nCost-USD: much\n", "1"),
        ("x\n\nTick: -9999999999\n", "1"), (f"x\n\nTick: {'9' * 5000}\n", "1"),
        ("x\n\nTick: 1\n", "99999999999999"), ("x\n\nTick: 1\n", "long ago"),
    ],
)  # fmt: skip
def test_a_commit_that_lemming_did_not_make_is_refused_and_ticks_go_on(base: Path, message: str, at: str) -> None:
    make(base)
    run(base)
    repository, who = Repository(base), f"me <me@here> {at} +0000"
    tree_id = repository.run("rev-parse", f"{BRANCH}^{{tree}}").decode().strip()
    commit = f"tree {tree_id}\nauthor {who}\ncommitter {who}\n\n{message}".encode()
    forged = repository.run("hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=commit)
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
    assert GitHistory(base).state_at_tick(899_999_999_999).tick == 899_999_999_999


def test_a_file_of_more_than_a_gib_is_not_kept_and_all_others_are(base: Path) -> None:
    make(base)
    (base / "shared").mkdir()
    with open(base / "shared/large", "wb") as file:
        file.truncate(1 << 42)  # it takes no room, and git would read it for days
    (base / "shared/small").write_text("x")
    assert run(base) == []
    assert "shared/large" not in [file.path for file in GitHistory(base).changes_between("1", "now").files]
    listed = Repository(base).run("ls-tree", "-r", "--name-only", BRANCH, "--", "shared")
    assert listed == b"shared/small\n"
