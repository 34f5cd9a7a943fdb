"""A person merges a branch of workers into a branch of their own."""

from __future__ import annotations

import pytest
from user_repositories import Bench, commit, git

from lemming.capabilities.workers.repositories.branch_merge import merge_branch
from lemming.capabilities.workers.repositories.git_command import RepositoryError
from lemming.ext import ConfigError


@pytest.fixture(autouse=True)
def identity(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the user a name, and let the workers' branch be one commit ahead of main."""
    monkeypatch.setenv("HOME", str(bench.root))
    git(bench.folder, "config", "user.name", "Ada")
    git(bench.folder, "config", "user.email", "ada@example.invalid")
    git(bench.folder, "config", "core.hooksPath", "/dev/null")
    git(bench.folder, "checkout", "-q", "--", ".")
    git(bench.folder, "checkout", "-q", "-b", "lemming/coder")
    commit(bench.folder, "by the worker", new="x\n")
    git(bench.folder, "checkout", "-q", "main")


def test_a_checked_out_target_gets_the_files_by_a_fast_forward(bench: Bench) -> None:
    merge = merge_branch(bench.collector, bench.repository, "lemming/coder", "main")
    assert (merge.kind, merge.commit) == ("fast-forward", git(bench.folder, "rev-parse", "lemming/coder"))
    assert bench.head == merge.commit
    assert (bench.folder / "new").read_text() == "x\n"
    assert git(bench.folder, "status", "--porcelain") == ""
    assert merge_branch(bench.collector, bench.repository, "lemming/coder", "main").kind == "already"


def test_branches_that_went_apart_get_a_merge_commit_of_the_user(bench: Bench) -> None:
    main = commit(bench.folder, "by a person", other="y\n")
    merge = merge_branch(bench.collector, bench.repository, "lemming/coder", "main")
    assert git(bench.folder, "log", "-1", "--format=%an|%ae|%P|%s") == (
        f"Ada|ada@example.invalid|{main} {git(bench.folder, 'rev-parse', 'lemming/coder')}|Merge branch 'lemming/coder'"
    )
    assert (merge.kind, bench.head) == ("merge", merge.commit)
    assert (bench.folder / "new").exists()
    git(bench.folder, "fsck", "--strict")


def test_a_target_that_is_not_checked_out_moves_alone(bench: Bench) -> None:
    git(bench.folder, "branch", "release", "main")
    merge = merge_branch(bench.collector, bench.repository, "lemming/coder", "release")
    assert git(bench.folder, "rev-parse", "release") == merge.commit
    assert not (bench.folder / "new").exists()


def test_a_target_in_a_linked_work_tree_gets_the_files_there(bench: Bench) -> None:
    merge_branch(bench.collector, bench.repository, "lemming/coder", "other")
    assert (bench.folder.with_name("other") / "new").exists()


def test_a_work_tree_with_changes_is_refused(bench: Bench) -> None:
    (bench.folder / "shared.txt").write_text("unsaved\n")
    before = bench.head
    with pytest.raises(RepositoryError, match="must have no changes"):
        merge_branch(bench.collector, bench.repository, "lemming/coder", "main")
    assert bench.head == before
    assert (bench.folder / "shared.txt").read_text() == "unsaved\n"


def test_an_untracked_file_in_the_way_is_not_overwritten(bench: Bench) -> None:
    (bench.folder / "new").write_text("mine\n")
    before = bench.head
    with pytest.raises(RepositoryError, match="untracked"):
        merge_branch(bench.collector, bench.repository, "lemming/coder", "main")
    assert bench.head == before
    assert (bench.folder / "new").read_text() == "mine\n"


def test_conflicts_are_refused_with_the_files(bench: Bench) -> None:
    before = commit(bench.folder, "by a person", new="y\n")
    with pytest.raises(RepositoryError, match="without conflicts, got 1: new"):
        merge_branch(bench.collector, bench.repository, "lemming/coder", "main")
    assert bench.head == before
    assert git(bench.folder, "status", "--porcelain") == ""


def test_a_missing_branch_is_refused(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="branch must exist, got 'lemming/nobody'"):
        merge_branch(bench.collector, bench.repository, "lemming/nobody", "main")
