"""Private clones, the engine's repository, and the user's repository as it is opened."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from user_repositories import Bench, commit, git, make_user_repository, take_snapshot

from lemming.capabilities.workers.repositories.engine_repository import (
    load_bundle,
    make_bundle,
    make_clone,
    open_engine_repository,
)
from lemming.capabilities.workers.repositories.git_command import GitError, RepositoryError, require_git
from lemming.capabilities.workers.repositories.merging import merge_tree
from lemming.capabilities.workers.repositories.patches import rebuild_tree
from lemming.capabilities.workers.repositories.user_repository import open_repository
from lemming.capabilities.workers.repositories.work_tree import take_tree
from lemming.ext import ConfigError
from lemming.kernel.base.errors import GitFailed


def test_a_clone_has_the_files_of_the_base_and_nothing_else_of_the_user(bench: Bench) -> None:
    before = take_snapshot(bench.folder)
    clone = bench.clone()
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "for-each-ref", "--format=%(refname)") == "refs/heads/work"
    assert git(clone, "remote") == ""
    assert git(clone, "stash", "list") == ""
    assert git(clone, "config", "user.email") == "coder@lemming.invalid"
    assert not (clone / ".git/hooks").exists()
    assert (clone / "crlf.txt").read_bytes() == b"one\r\ntwo\r\n"
    assert not (clone / ".git/objects/info/packs").exists()
    assert take_snapshot(bench.folder) == before


def test_a_worker_commits_in_its_clone_alone(bench: Bench) -> None:
    clone = bench.clone()
    before = take_snapshot(bench.folder)
    commit(clone, "by the worker", new="x\n")
    git(clone, "tag", "v1")
    assert take_snapshot(bench.folder) == before
    assert bench.take(clone).files[0].path == "new"


def test_a_full_copy_does_not_reach_the_users_stash(bench: Bench) -> None:
    stash, clones = git(bench.folder, "rev-parse", "stash"), {}
    for name, is_full_copy in (("shared", False), ("full", True)):
        clones[name] = bench.root / name
        make_clone(clones[name], bench.head, agent="a", repository=bench.repository, is_full_copy=is_full_copy)
    assert git(clones["shared"], "cat-file", "-t", stash) == "commit"
    with pytest.raises(Exception, match="non-zero exit status"):
        git(clones["full"], "cat-file", "-t", stash)
    assert git(clones["full"], "status", "--porcelain") == ""
    assert git(clones["full"], "log", "--format=%s") == "first"
    git(clones["full"], "fsck")


def test_a_bundle_makes_the_same_patch_on_a_machine_without_the_repository(bench: Bench, tmp_path: Path) -> None:
    base = commit(bench.folder, "second", second="x\n")
    bundle = make_bundle(bench.repository, base)
    remote = open_engine_repository(tmp_path / "far/collector", None)
    load_bundle(remote, bundle, base)
    remote = open_engine_repository(tmp_path / "far/collector", None)
    make_clone(tmp_path / "far/clone", base, agent="coder", repository=None, bundle=bundle)
    near = bench.clone("near", base)
    for clone in (near, tmp_path / "far/clone"):
        assert git(clone, "status", "--porcelain") == ""
        (clone / "second").write_text("y\n")
        (clone / "third").write_text("z\n")
    far_tree = take_tree(remote, tmp_path / "far/clone", base)
    assert git(tmp_path / "far/clone", "log", "--format=%s") == "second"
    rebuild_tree(bench.engine_repository, base, far_tree.patch, far_tree.tree)
    assert bench.take(near, base) == far_tree


def test_a_clone_that_was_cut_short_is_refused(bench: Bench) -> None:
    clone = bench.clone()
    with pytest.raises(RepositoryError, match="must not exist"):
        make_clone(clone, bench.head, agent="coder", repository=bench.repository)


@pytest.mark.parametrize("form", ["sha256", "shallow", "bare", 'quoted "name"\n'])
def test_other_repositories_work(bench: Bench, tmp_path: Path, form: str) -> None:
    folder = tmp_path / "user" / form
    if form == "sha256":
        git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", str(folder))
    elif form == "shallow":
        commit(bench.folder, "second", second="x\n")
        git(tmp_path, "clone", "-q", "--depth=1", f"file://{bench.folder}", str(folder))
    else:
        git(tmp_path, "clone", "-q", *(["--bare"] if form == "bare" else []), str(bench.folder), str(folder))
    if form == "sha256":
        commit(folder, "first", shared__txt="x\n")
    repository = open_repository(folder)
    base = repository.find_base("lemming/a", "", agent="a", tick=1, tick_key="o")
    engine_repository = open_engine_repository(tmp_path / "c", repository)
    make_clone(tmp_path / "clone", base, agent="a", repository=repository)
    assert git(tmp_path / "clone", "status", "--porcelain") == ""
    (tmp_path / "clone/new").write_text("n\n")
    taken = take_tree(engine_repository, tmp_path / "clone", base)
    order = bench.order(taken, base)
    assert merge_tree(engine_repository, repository, order)["merged"]
    assert git(folder, "show", "lemming/team:new") == "n"


def test_a_history_that_is_completed_later_is_whole_for_the_engine(bench: Bench, tmp_path: Path) -> None:
    first, _ = bench.head, commit(bench.folder, "second", second="x\n")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{bench.folder}", "shallow")
    open_engine_repository(tmp_path / "c", open_repository(tmp_path / "shallow"))
    git(tmp_path / "shallow", "fetch", "-q", "--unshallow")
    engine_repository = open_engine_repository(tmp_path / "c", open_repository(tmp_path / "shallow"))
    assert first in engine_repository.read("rev-list", bench.head)


def test_the_engines_repository_is_made_by_many_at_once(bench: Bench) -> None:
    folder, repository = bench.root / "many", bench.repository
    with ThreadPoolExecutor(8) as pool:
        engine_repositories = list(pool.map(lambda _: open_engine_repository(folder, repository), range(16)))
    assert {engine_repository.read("cat-file", "-t", bench.head) for engine_repository in engine_repositories} == {
        "commit"
    }


def test_the_engines_repository_is_completed_after_a_kill(bench: Bench) -> None:
    expected = {
        path.relative_to(bench.engine_repository.git_dir) for path in bench.engine_repository.git_dir.rglob("*")
    }
    for path in sorted(expected):
        folder = bench.root / "cut" / str(path).replace("/", "-")
        shutil.copytree(bench.engine_repository.git_dir, folder)
        shutil.rmtree(folder / path) if (folder / path).is_dir() else (folder / path).unlink()
        open_engine_repository(folder, bench.repository)
        assert {path.relative_to(folder) for path in folder.rglob("*")} == expected
    assert open_engine_repository(folder, bench.repository).read("cat-file", "-t", bench.head) == "commit"


def test_a_work_tree_cannot_be_taken_without_the_base(bench: Bench) -> None:
    with pytest.raises(GitError, match="read-tree"):
        bench.take(bench.clone(), "1" * 40)


def test_what_is_no_whole_repository_is_refused(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{bench.folder}", "partial")
    refused = {
        tmp_path / "missing": "must be a folder",
        tmp_path / "plain": "must be the top folder of a git repository",
        bench.folder / "src": "must be a top folder, got a folder inside",
        bench.folder.with_name("other"): "must be the main work tree, got a linked one",
        tmp_path / "partial": "got a partial clone",
    }
    for path, message in refused.items():
        with pytest.raises(ConfigError, match=message) as caught:
            open_repository(path)
        assert str(path) in str(caught.value)


def test_branches_that_cannot_be_used_are_refused(bench: Bench) -> None:
    git(bench.folder, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    repository = bench.repository
    for name in ("main~1", "-x", "a..b", "", "main@{1}", "x\ny"):
        with pytest.raises(ConfigError, match="must be a valid name"):
            repository.read_head(name)
    with pytest.raises(ConfigError, match="stands for refs/heads/main"):
        repository.read_head("alias")
    with pytest.raises(ConfigError, match="base must be a branch"):
        repository.find_base("lemming/a", "nowhere", agent="a", tick=1, tick_key="o")
    assert repository.read_head("mai") == ""


def test_a_repository_without_commits_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "empty")
    with pytest.raises(ConfigError, match="must have a commit"):
        open_repository(tmp_path / "empty").find_base("lemming/a", "", agent="a", tick=1, tick_key="o")


def test_the_folders_of_borrowed_objects_are_listed(bench: Bench, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--shared", str(bench.folder), "borrowing")
    folders = open_repository(tmp_path / "borrowing").list_object_folders()
    assert folders == [tmp_path / "borrowing/.git/objects", bench.folder / ".git/objects"]


def test_an_old_git_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\necho git version 2.30.2\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitFailed, match=r"git must be 2\.38 or newer, got 2\.30"):
        require_git()


def test_a_missing_git_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:.")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "git").mkdir()
    with pytest.raises(GitFailed, match="git must be installed"):
        require_git()


def test_variables_of_a_git_that_runs_the_engine_lead_nowhere(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_user_repository(tmp_path / "second/repo")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(bench.folder / ".git"))
    repository = open_repository(tmp_path / "second/repo")
    assert repository.git_dir == tmp_path / "second/repo/.git"
    assert repository.read_head("main")
