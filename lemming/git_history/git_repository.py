"""Git repository with an organisation's history.

The organisation's folder is the work tree. Settings, ignore rules and attributes are separate, so neither the
user's own repository in the same folder nor the user's git settings are read or changed. Only plumbing
commands are used: no hooks, no signatures, no prompts.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.errors import GitFailed
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.libraries import git_program
from lemming.libraries.git_program import run_git

FOLDER = ".lemming/history.git"
BRANCH = "refs/heads/main"
TRACKED = ("agents", "config", "shared", paths.TRUST, paths.TICK_FILE)
EXCLUDED = ("/agents/*/logs/", ".*.tmp")
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
MIN_GIT_VERSION = (2, 30)
MAX_FILE_BYTES = 1 << 30  # git would read a larger one for longer than a tick may take
# git knows these from 2.36 on; older ones flush packs only.
_FLUSHED = ("-c", "core.fsync=all", "-c", "core.fsyncMethod=batch")
_UNFLUSHED = ("-c", "core.fsync=none")
_NEUTRAL_FOLDER = Path("/")  # working folder of git: a folder that no other program uses

# Whatever stands in .gitattributes files of the work tree, bytes are kept as they are.
_ATTRIBUTES = b"* -text -ident -filter -working-tree-encoding !diff\n"
_CONFIG = b"""[core]
\trepositoryformatversion = 0
\tbare = true
\tfilemode = true
\thooksPath = /dev/null
\tfsmonitor = false
\tlogAllRefUpdates = false
\tquotePath = false
\tfsync = committed
[gc]
\tautoDetach = false
"""
# a killed git leaves them, and each would stop every later git
_LOCKS = ("index.lock", "HEAD.lock", f"{BRANCH}.lock", "gc.pid")


@dataclass(frozen=True)
class Repository:
    """The history of the organisation in `base`.

    `work_tree`, `index` and `objects` replace the usual paths, for read-only access. `is_flushed`: git's
    writes survive power loss. `extra_paths`: files and folders tracked besides `TRACKED`.
    """

    base: Path
    work_tree: str = ""
    index: str = ""
    objects: str = ""
    is_flushed: bool = True
    extra_paths: Sequence[str] = ()

    @property
    def folder(self) -> Path:
        """Folder of the repository."""
        return self.base / FOLDER

    def exists(self) -> bool:
        """Return True if the history exists; its settings are the last file that `create` writes."""
        return (self.folder / "config").exists()

    def create(self) -> None:
        """Create an empty repository if missing. Safe to repeat, also after a crash."""
        for folder in ("objects", "refs/heads"):
            fs.make_folder(self.base, f"{FOLDER}/{folder}")
        fs.write_atomic(self.base, f"{FOLDER}/HEAD", f"ref: {BRANCH}\n".encode(), sync=True)
        fs.write_atomic(self.base, f"{FOLDER}/info/attributes", _ATTRIBUTES, sync=True)
        fs.write_atomic(self.base, f"{FOLDER}/config", _CONFIG, sync=True)

    def require_usable(self) -> None:
        """Raise `GitFailed` unless git is usable and the repository's own files are unchanged.

        Settings of a repository can start programs, and special files can block git for ever.
        """
        require_git()
        _require_own_repository(self.base)
        # a `.gitattributes` that is a pipe would block git for ever
        tops = [self.base / top for top in (*TRACKED, *self.extra_paths)]
        for folder in [str(self.base), *(folder for top in tops for folder, _, _ in walk(top))]:
            path = os.path.join(folder, ".gitattributes")
            if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
                where = os.path.relpath(path, self.base)
                raise GitFailed("expected a file; git is not started", where=where, hint="move it away")

    def remove_stale_locks(self) -> None:
        """Remove the lock files of a killed git. Only for the holder of the organisation's lock."""
        for name in _LOCKS:
            if (self.folder / name).exists():
                fs.remove(self.base, f"{FOLDER}/{name}")

    def run(self, *arguments: str, stdin: bytes = b"", **environment: str) -> bytes:
        """Run git and return its output. Raises `GitFailed` with git's error message."""
        flags = _FLUSHED if self.is_flushed else _UNFLUSHED
        variables = {**self._build_environment(), **environment}
        completed = run_git([*flags, *arguments], folder=_NEUTRAL_FOLDER, environment=variables, stdin=stdin)
        if completed.returncode != 0:
            error_text = completed.stderr.decode("utf-8", "replace").strip() or f"exit status {completed.returncode}"
            hint = f"check the repository with `git --git-dir={FOLDER} fsck`; ticks continue without it"
            if "No space left" in error_text:
                hint = "free some disk space; the next commit catches up"
            raise GitFailed(f"git {arguments[0]}: {error_text}", where=FOLDER, hint=hint)
        return completed.stdout

    def is_damaged(self) -> bool:
        """Return True if a usable git reports broken or missing objects of the history."""
        try:
            # git cannot be started, which is no error of the repository
            self.run("rev-parse", "--git-dir")
        except GitFailed:
            return False
        try:
            self.run("fsck", "--connectivity-only", "--no-progress", "--no-dangling")
        except GitFailed:
            return True
        return False

    def head(self) -> str:
        """Return the newest commit, or an empty text."""
        output = self.run("for-each-ref", "--format=%(objectname)", BRANCH)
        return output.decode().strip()

    def list_changes(self) -> list[str]:
        """Return the files that differ from the staged state: added, changed and removed files."""
        # set explicitly: the user's own ignore rules must not apply here
        exclude = [f"--exclude={pattern}" for pattern in EXCLUDED]
        kinds = ("--others", "--modified", "--deleted")
        listed = self.run("ls-files", "-z", *kinds, *exclude, "--", *TRACKED, *self.extra_paths)
        names = {os.fsdecode(name) for name in listed.split(b"\0") if name}
        return sorted(file for name in names for file in self._expand_path(name))

    def stage(self, files: Iterable[str]) -> str:
        """Stage the current state of the files, and return the tree of the whole index."""
        trackable = b"\0".join(os.fsencode(file) for file in files if self._can_be_tracked(file))
        # by standard input: the list may be longer than a command line can be
        self.run("update-index", "-z", "--add", "--remove", "--replace", "--stdin", stdin=trackable)
        return self.run("write-tree").decode().strip()

    def commit(self, tree: str, message: str, *, at_s: int, author: str) -> str:
        """Add a commit to the branch and return its id."""
        head = self.head()
        parent = ["-p", head] if head else []
        emails = {f"GIT_{role}_EMAIL": "lemming@localhost" for role in ("AUTHOR", "COMMITTER")}
        dates = {f"GIT_{role}_DATE": f"@{max(at_s, 0)} +0000" for role in ("AUTHOR", "COMMITTER")}
        names = {"GIT_AUTHOR_NAME": author, "GIT_COMMITTER_NAME": "LeMMing"}
        environment = {**emails, **dates, **names}
        output = self.run("commit-tree", tree, *parent, "-F", "-", stdin=message.encode(), **environment)
        commit = output.decode().strip()
        # only from the head that was read: a concurrent commit is never lost
        self.run("update-ref", BRANCH, commit, head or "0" * len(commit))
        return commit

    @contextlib.contextmanager
    def open_scratch(self, work_tree: Path | None = None) -> Iterator[Repository]:
        """Yield the repository with a temporary index and objects: reads and checkouts leave the history unchanged."""
        with tempfile.TemporaryDirectory(prefix="lemming-") as scratch:
            os.mkdir(f"{scratch}/objects")
            yield replace(
                self, work_tree=str(work_tree or self.base), index=f"{scratch}/index", objects=f"{scratch}/objects"
            )

    def _build_environment(self) -> dict[str, str]:
        """Return the variables that name the parts of the repository."""
        git_folder = str(self.folder)
        environment = {"GIT_DIR": git_folder, "GIT_WORK_TREE": self.work_tree or str(self.base)}
        if self.index:
            environment["GIT_INDEX_FILE"] = self.index
        if self.objects:
            environment["GIT_OBJECT_DIRECTORY"] = self.objects
            # in quotes: a colon separates folders
            quoted = git_folder.replace("\\", "\\\\").replace('"', '\\"')
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = f'"{quoted}/objects"'
        return environment

    def _expand_path(self, name: str) -> Iterator[str]:
        """Yield the files of a listed name; git lists a repository inside the work tree as one folder."""
        # git names a repository in a workspace as one folder, and would keep only which commit it is at
        if not name.endswith("/"):
            yield name
            return
        for folder, folders, files in walk(self.base / name):
            if ".git" in folders:
                folders.remove(".git")
            inside = os.path.relpath(folder, self.base)
            yield from (f"{inside}/{file.name}" for file in files if file.name != ".git")

    def _can_be_tracked(self, file: str) -> bool:
        """Return True if git can track a file, so no unsuitable file blocks all others."""
        path = self.base / file
        parent = path.parent
        # beyond a link to a folder: one such name would make git refuse all of them
        if parent.exists() and parent.resolve() != self.base.resolve() / os.path.dirname(file):
            return False
        try:
            status = path.lstat()
        except OSError:
            return True  # the file is removed, and the removal is recorded
        if stat.S_ISREG(status.st_mode):
            # one file that git cannot read would make it refuse all of them
            return status.st_size <= MAX_FILE_BYTES and os.access(path, os.R_OK)
        return stat.S_ISLNK(status.st_mode)


def require_git() -> None:
    """Raise `GitFailed` without git, or for an outdated version."""
    hint = 'install git {oldest} or newer, or turn the history off: "lemming history off"'
    git_program.require_git(MIN_GIT_VERSION, hint)


# --- allowed contents of a repository -------------------------------------------------------------
# An organisation may come from a stranger, and git believes its files: settings start programs, a link or
# `alternates` leads elsewhere, a pipe never ends. So the settings must be the bytes that we write, every name
# that steers git is on a closed list, and everything is a regular file or a folder.


_ALLOWED_NAMES = {
    "": {
        "HEAD", "FETCH_HEAD", "ORIG_HEAD", "branches", "config", "description", "gc.log", "gc.pid", "hooks",
        "index", "info", "logs", "objects", "packed-refs", "refs",
    },
    "info": {"attributes", "exclude", "refs"},
    "objects/info": {"commit-graph", "commit-graphs", "packs"},
}  # fmt: skip
_MOVE_HINT = "move it away if it is not yours: a foreign repository may run its own programs"


def _require_own_repository(base: Path) -> None:
    """Raise `GitFailed` unless git may start safely."""
    for folder in (os.path.dirname(FOLDER), FOLDER):
        if not os.path.isdir(base / folder) or os.path.islink(base / folder):
            raise GitFailed("expected a folder; git is not started", where=folder, hint=_MOVE_HINT)
    for file, expected in ((f"{FOLDER}/config", _CONFIG), (f"{FOLDER}/info/attributes", _ATTRIBUTES)):
        content = b""
        try:
            content = fs.read_bytes(base / file, len(expected))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise GitFailed(f"cannot be read: {error.strerror}", where=file) from error
        if content != expected:
            message = "the settings must be as LeMMing writes them; the repository is not used"
            hint = f"restore it from another organisation if you trust it; else move {FOLDER} away"
            raise GitFailed(message, where=file, hint=hint)
    for inner, names in _ALLOWED_NAMES.items():
        folder = os.path.join(FOLDER, inner)
        for name in os.listdir(base / folder) if (base / folder).is_dir() else ():
            if name not in names and not name.endswith((".lock", ".tmp")):
                where = os.path.join(folder, name)
                raise GitFailed("not part of a history; git is not started", where=where, hint=_MOVE_HINT)
    for path in _iter_special_files(f"{base}/{FOLDER}"):
        location = os.path.relpath(path, base)
        raise GitFailed("expected a file or a folder; git is not started", where=location, hint=_MOVE_HINT)


def _iter_special_files(folder: str) -> Iterator[str]:
    """Yield paths that are neither regular files nor folders, at any depth, without following links."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _iter_special_files(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    yield entry.path
    except OSError as error:
        raise GitFailed(f"cannot be read: {error.strerror}", where=folder) from error
