"""Work trees are taken as bytes: nothing of a hostile worker runs as the engine, and what is left out is named."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostile_tree import make_hostile_tree, point_git_to
from user_repositories import Bench, git, take_snapshot

from lemming.capabilities.workers.repositories import tree_walk, work_tree
from lemming.capabilities.workers.repositories.git_command import RepositoryError
from lemming.capabilities.workers.repositories.merging import merge_tree
from lemming.capabilities.workers.repositories.patches import parse_patch, rebuild_tree
from lemming.capabilities.workers.repositories.work_tree import ChangedFile, TakenTree


@dataclass
class HostileTurn:
    """A hostile worker's turn up to its merge."""

    bench: Bench
    taken: TakenTree
    merged: str
    programs: list[str]
    before: dict[str, str]

    @property
    def paths(self) -> list[bytes]:
        """Paths of the merged tree."""
        command = ("ls-tree", "-r", "-z", "--name-only", self.merged)
        return self.bench.engine_repository.run(*command).split(b"\0")[:-1]


@pytest.fixture(scope="module", params=["own .git", ".git file"])
def turn(request: pytest.FixtureRequest, template: Path, tmp_path_factory: pytest.TempPathFactory) -> HostileTurn:
    root = tmp_path_factory.mktemp("hostile")
    shutil.copytree(template / "user", root / "user", symlinks=True)
    bench = Bench(root)
    before = take_snapshot(bench.folder)
    (root / "marks").mkdir()
    clone = bench.clone()
    make_hostile_tree(clone, root / "marks/ran", bench.folder / ".git")
    if request.param == ".git file":
        point_git_to(clone, bench.folder / ".git")
    for mark in (root / "marks").iterdir():
        mark.unlink()  # by the worker's own git
    taken = bench.take(clone)
    shutil.rmtree(clone)
    rebuild_tree(bench.engine_repository, bench.head, taken.patch, taken.tree)
    order = bench.order(taken)
    commit = merge_tree(bench.engine_repository, bench.repository, order)["merged"]
    programs = sorted(path.name for path in (root / "marks").iterdir())
    return HostileTurn(bench, taken, commit, programs, before)


def test_no_program_of_the_worker_runs(turn: HostileTurn) -> None:
    assert turn.programs == []
    assert not (turn.bench.root / "user/hooks-ran").exists()


def test_the_users_repository_has_one_branch_more_and_no_other_change(turn: HostileTurn) -> None:
    assert take_snapshot(turn.bench.folder) == turn.before
    git(turn.bench.folder, "fsck")


def test_what_is_left_out_is_named(turn: HostileTurn) -> None:
    left_out = dict(turn.taken.left_out)
    long_path = next(path for path in left_out if path.startswith("long/"))
    assert "4000 bytes" in left_out.pop(long_path)
    assert left_out == {
        ".GIT/config": "git refuses the path",
        "a/.git /config": "git refuses the path",
        "git~1": "git refuses the path",
        "big.bin": "file must have at most 5000000 bytes, got 6000000",
        "huge.bin": f"file must have at most 5000000 bytes, got {200 << 30}",
        "nested/": "nested repository",
        "empty-nested/": "nested repository",
        "gitfile/": "nested repository",
        "pipe": "neither a file, a link nor a folder",
        "rules/.gitignore": "neither a file, a link nor a folder",
        "a.secret": "ignored by rules that the worker wrote",
        "node_modules/": "ignored by rules that the worker wrote",
    }


def test_what_deserves_attention_is_flagged(turn: HostileTurn) -> None:
    flags = dict(turn.taken.flags)
    assert {path: flags.pop(path) for path in ("Case.txt", "DEEP/y")} == {
        "Case.txt": "differs only by case from case.txt",
        "DEEP/y": "differs only by case from Deep/x",
    }
    assert flags == {
        ".gitattributes": "changes how git reads the repository",
        ".gitmodules": "changes how git reads the repository",
        "bare/HEAD": "may turn its folder into a git repository",
        ".claude/settings.json": "settings of a harness",
        ".codex/config.toml": "settings of a harness",
        "AGENTS.md": "settings of a harness",
        "out-link": "link out of the tree: /etc/passwd",
        "up-link": "link out of the tree: ../../..",
        "git-link": "link into .git: .git/config",
        "shared.txt": "link out of the tree: /etc",
        "src": "link out of the tree: /etc",
    }


def test_the_bytes_of_files_are_not_converted(turn: HostileTurn) -> None:
    names = ("mixed.txt", "bad.u16", "latin.txt", "crlf.txt")
    contents = turn.bench.engine_repository.read_blobs(
        [turn.bench.engine_repository.read("rev-parse", f"{turn.merged}:{name}") for name in names]
    )
    assert contents == [b"a\r\nb $Id$\n", b"not-utf16\n", b"caf\xe9 changed\n", b"one\r\ntwo\r\n"]


def test_odd_names_arrive(turn: HostileTurn) -> None:
    assert {b"new\nline", b"bad\xffname", b"-rf", b":(top)x", b'"q"', b"empty.txt"} <= set(turn.paths)


def test_odd_names_are_text_that_can_be_recorded(turn: HostileTurn) -> None:
    paths = {file.path for file in turn.taken.files}
    assert {"new\nline", "bad\\xffname", ":(top)x", '"q"'} <= paths
    assert all(path.encode() for path in paths)


def test_by_products_are_left_out_without_a_word(turn: HostileTurn) -> None:
    assert not any(path.startswith((b"build/", b"node_modules/")) or path.endswith(b".secret") for path in turn.paths)
    assert "build/" not in turn.taken.left_out


def test_a_patch_is_shown_as_the_files_that_it_changes(turn: HostileTurn) -> None:
    shown: dict[str, list[str]] = {}
    for file in parse_patch(turn.taken.patch):
        shown.setdefault(file.path, []).append(file.status)
    listed = {file.path: ["D", "A"] if file.status == "T" else [file.status] for file in turn.taken.files}
    assert shown == listed


def test_a_clean_clone_gives_an_empty_patch(bench: Bench) -> None:
    taken = bench.take(bench.clone())
    assert (taken.patch, taken.files, taken.left_out, taken.flags) == (b"", (), {}, {})
    assert taken.tree == git(bench.folder, "rev-parse", "main^{tree}")


def test_a_taken_tree_counts_lines(bench: Bench) -> None:
    clone = bench.clone()
    (clone / "src/a.py").write_text("a = 2\nb = 3\n")
    (clone / "bin").write_bytes(b"\0\1")
    (clone / "crlf.txt").unlink()
    assert bench.take(clone).files == (
        ChangedFile("bin", "A", 0, 0, True),
        ChangedFile("crlf.txt", "D", 0, 2, False),
        ChangedFile("src/a.py", "M", 2, 1, False),
    )


def test_times_of_files_hide_no_change(bench: Bench) -> None:
    clone = bench.clone()
    status = (clone / "latin.txt").stat()
    (clone / "latin.txt").write_bytes(b"tea2\n")
    os.utime(clone / "latin.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [file.path for file in bench.take(clone).files] == ["latin.txt"]


def test_a_folder_in_the_place_of_a_file_and_a_file_in_the_place_of_a_folder(bench: Bench) -> None:
    clone = bench.clone()
    (clone / "latin.txt").unlink()
    (clone / "latin.txt").mkdir()
    (clone / "latin.txt/inner").write_text("x\n")
    shutil.rmtree(clone / "src")
    (clone / "src").write_text("x\n")
    taken = bench.take(clone)
    statuses = {file.path: file.status for file in taken.files}
    assert statuses == {"latin.txt": "D", "latin.txt/inner": "A", "src": "A", "src/a.py": "D"}
    rebuild_tree(bench.engine_repository, bench.head, taken.patch, taken.tree)


def test_the_files_of_the_base_stay_where_the_worker_put_a_repository(bench: Bench) -> None:
    clone = bench.clone()
    git(clone / "src", "init", "-q")
    (clone / "src/a.py").write_text("lost\n")
    taken = bench.take(clone)
    assert taken.left_out == {"src/": "nested repository"}
    assert taken.files == ()


def test_a_file_of_the_base_that_grew_too_large_stays_as_it_was(bench: Bench) -> None:
    clone = bench.clone()
    (clone / "latin.txt").write_bytes(b"x" * 2_000)
    taken = bench.take(clone, max_file_bytes=1_000)
    assert taken.left_out == {"latin.txt": "file must have at most 1000 bytes, got 2000"}
    assert taken.files == ()


def test_submodules_stay_as_they_are(bench: Bench) -> None:
    git(
        bench.folder,
        "-c",
        "core.hooksPath=/dev/null",
        "update-index",
        "--add",
        "--cacheinfo",
        f"160000,{bench.head},sub",
    )
    git(bench.folder, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "submodule")
    clone = bench.clone()
    (clone / "sub").mkdir(exist_ok=True)
    (clone / "sub/x").write_text("x\n")
    taken = bench.take(clone)
    assert taken.left_out == {"sub/": "submodule: its contents are no part of a patch"}
    assert taken.files == ()


def test_files_that_only_the_rules_of_the_base_ignore_are_named(bench: Bench) -> None:
    clone = bench.clone()
    (clone / ".gitignore").write_text("")
    (clone / "build").mkdir()
    (clone / "build/page.html").write_text("x\n")
    (clone / "x.o").write_text("x\n")
    reason = "ignored by rules of the base"
    assert bench.take(clone).left_out == {"build/": reason, "x.o": reason}


def test_the_users_own_ignore_rules_apply(bench: Bench) -> None:
    (bench.folder / ".git/info/exclude").write_text("*.swp\n")
    clone = bench.clone()
    (clone / "x.swp").write_text("x\n")
    assert bench.take(clone).files == ()


def test_too_many_files_are_refused(bench: Bench) -> None:
    clone = bench.clone()
    for number in range(4):
        (clone / f"new-{number}").touch()
    with pytest.raises(RepositoryError, match="at most 3 files, got 4"):
        bench.take(clone, max_files=3)


def test_a_pipe_that_git_would_wait_for_is_refused(bench: Bench) -> None:
    clone = bench.clone()
    (clone / ".gitattributes").unlink()
    os.mkfifo(clone / ".gitattributes")
    (clone / "src/.gitattributes").mkdir()
    with pytest.raises(RepositoryError, match=r"\.gitattributes must be a file"):
        bench.take(clone)
    (clone / ".gitattributes").unlink()
    assert [file.path for file in bench.take(clone).files] == [".gitattributes"]


def test_too_many_bytes_and_names_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = bench.clone()
    for number in range(3):
        os.mkfifo(clone / f"pipe-{number}")
    monkeypatch.setattr(work_tree, "MAX_LEFT_OUT", 2)
    assert bench.take(clone).left_out["..."] == "1 more paths"
    monkeypatch.setattr(work_tree, "MAX_BYTES", 10)
    (clone / "new").write_text("x" * 11)
    with pytest.raises(RepositoryError, match="at most 10 bytes of new files, got 11"):
        bench.take(clone)


def test_a_tree_without_end_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_walk, "MAX_ENTRIES", 3)
    with pytest.raises(RepositoryError, match="at most 3 files and folders"):
        bench.take(bench.clone())


def test_folders_that_are_nested_too_deep_are_named(bench: Bench) -> None:
    clone = bench.clone()
    (clone / "/".join(["d"] * 140)).mkdir(parents=True)
    taken = bench.take(clone)
    assert list(taken.left_out.values()) == ["folders must be nested at most 128 deep"]


def test_a_clone_that_is_a_link_is_refused(bench: Bench) -> None:
    clone = bench.clone()
    clone.rename(clone.with_name("moved"))
    clone.symlink_to("/etc")
    with pytest.raises(RepositoryError, match="clone must be a folder"):
        bench.take(clone)


def test_the_programs_of_the_hostile_worker_do_run_when_git_runs_in_the_clone(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    clone = bench.clone()
    make_hostile_tree(clone, tmp_path / "marks/ran", bench.folder / ".git")
    git(clone, "config", "--unset", "core.worktree")
    for mark in (tmp_path / "marks").iterdir():
        mark.unlink()
    git(clone, "add", "mixed.txt")
    assert {"ran-fsmonitor", "ran-hook"} <= {path.name for path in (tmp_path / "marks").iterdir()}
