"""Patches: a recorded patch gives its tree again, and screens get its files, hunks and lines."""

from __future__ import annotations

import pytest
from user_repositories import Bench, git

from lemming.capabilities.workers.repositories.git_command import RepositoryError
from lemming.capabilities.workers.repositories.patches import FileDiff, Hunk, apply_patch, parse_patch, rebuild_tree
from lemming.capabilities.workers.repositories.work_tree import TakenTree


@pytest.fixture
def taken(bench: Bench) -> TakenTree:
    clone = bench.clone()
    (clone / "src/a.py").write_text("a = 2\n-- a/x\n++ b/y\n")
    (clone / "latin.txt").unlink()
    (clone / "image.bin").write_bytes(bytes(range(256)))
    (clone / "empty").touch()
    (clone / "run.sh").write_text("#!/bin/sh\n")
    (clone / "run.sh").chmod(0o755)
    (clone / "crlf.txt").chmod(0o755)
    (clone / "näme\twith\nall").write_text("no newline")
    return bench.take(clone)


def test_a_recorded_patch_gives_its_tree_again_without_any_clone(bench: Bench, taken: TakenTree) -> None:
    rebuild_tree(bench.engine_repository, bench.head, taken.patch, taken.tree)
    assert apply_patch(bench.engine_repository, bench.head, taken.patch) == taken.tree


def test_a_recorded_patch_gives_its_tree_when_the_engines_repository_is_new(bench: Bench, taken: TakenTree) -> None:
    (bench.root / "engine").rename(bench.root / "old")
    rebuild_tree(bench.engine_repository, bench.head, taken.patch, taken.tree)
    assert bench.engine_repository.read("cat-file", "-t", taken.tree) == "tree"


def test_a_patch_that_gives_another_tree_is_refused(bench: Bench, taken: TakenTree) -> None:
    with pytest.raises(RepositoryError, match=f"must give the tree {taken.tree}, got"):
        rebuild_tree(bench.engine_repository, bench.head, b"", taken.tree)


def test_a_patch_is_parsed_into_files_hunks_and_lines(taken: TakenTree) -> None:
    files = {file.path: file for file in parse_patch(taken.patch)}
    assert files["src/a.py"] == FileDiff(
        "src/a.py", "M", 3, 1, False,
        [Hunk("@@ -1 +1,3 @@", [("-", "a = 1"), ("+", "a = 2"), ("+", "-- a/x"), ("+", "++ b/y")])],
    )  # fmt: skip
    assert files["latin.txt"].hunks[0].lines == [("-", "caf\\xe9")]
    no_newline = [("+", "no newline"), ("\\", " No newline at end of file")]
    assert files["näme\twith\nall"].hunks == [Hunk("@@ -0,0 +1 @@", no_newline)]
    statuses = {path: (file.status, file.is_binary, len(file.hunks)) for path, file in files.items()}
    assert statuses == {
        "src/a.py": ("M", False, 1),
        "latin.txt": ("D", False, 1),
        "image.bin": ("A", True, 0),
        "empty": ("A", False, 0),
        "run.sh": ("A", False, 1),
        "crlf.txt": ("M", False, 0),
        "näme\twith\nall": ("A", False, 1),
    }


def test_the_counts_of_a_parsed_patch_are_those_of_the_tree(taken: TakenTree) -> None:
    counts = {(file.path, file.insertions, file.deletions) for file in taken.files}
    assert {(file.path, file.insertions, file.deletions) for file in parse_patch(taken.patch)} == counts


def test_a_patch_that_a_person_edited_applies(bench: Bench, taken: TakenTree) -> None:
    edited = taken.patch.replace(b"+a = 2\n", b"+a = 3\n+# by hand\n").replace(b"+-- a/x\n", b"")
    tree = apply_patch(bench.engine_repository, bench.head, edited.replace(b"+++ b/y\n", b""))
    assert bench.engine_repository.read("cat-file", "blob", f"{tree}:src/a.py") == "a = 3\n# by hand"


def test_a_patch_that_does_not_apply_is_refused_with_the_reason(bench: Bench, taken: TakenTree) -> None:
    with pytest.raises(RepositoryError, match=r"patch failed: src/a\.py"):
        apply_patch(bench.engine_repository, bench.head, taken.patch.replace(b"-a = 1", b"-a = 9"))


@pytest.mark.parametrize("path", ["../outside", ".git/config", "/etc/evil", ".GIT/hooks/x"])
def test_a_patch_that_leads_out_of_the_tree_is_refused(bench: Bench, path: str) -> None:
    patch = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(RepositoryError):
        apply_patch(bench.engine_repository, bench.head, patch.encode())
    assert git(bench.folder, "status", "--porcelain") == "M shared.txt"


@pytest.mark.parametrize(
    "patch", [b"", b"garbage", b"@@ -1 +1 @@\n+x", b"diff --git \n@@ -1,999999999999 +1 @@", b'diff --git "']
)
def test_garbage_is_parsed_into_something(patch: bytes) -> None:
    assert len(parse_patch(patch)) == patch.count(b"diff --git ")
