"""The git repository that holds an organisation's history: the only file that starts git.

The organisation's folder is its work tree; its settings, ignore rules and attributes are its own, so that
neither the user's repository in the same folder nor the user's git settings are read or touched. Only
plumbing is used: no hooks, no signatures, no prompts.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.errors import GitFailed
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk

FOLDER = ".lemming/history.git"
BRANCH = "refs/heads/main"
KEPT = ("agents", "config", "shared", paths.TRUST, paths.TICK_FILE)
LEFT_OUT = ("/agents/*/logs/", ".*.tmp")
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
OLDEST_GIT = (2, 30)
PATIENCE_S = 600.0
LARGEST_BYTES = 1 << 30  # git would read a larger one for longer than a tick may take
# git knows these from 2.36 on; older ones flush packs only.
_FLUSHED = ("-c", "core.fsync=all", "-c", "core.fsyncMethod=batch")
_UNFLUSHED = ("-c", "core.fsync=none")
_ELSEWHERE = "/"  # where git is started: a folder in which nobody else puts anything

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
_VERSION = re.compile(r"git version (\d+)\.(\d+)")


@dataclass(frozen=True)
class Repository:
    """The history of the organisation in `base`.

    `work_tree`, `index` and `objects` stand in for the usual places, for looks that must change nothing.
    `is_flushed`: what git writes survives power loss. `also`: files and folders that are kept beside `KEPT`.
    """

    base: Path
    work_tree: str = ""
    index: str = ""
    objects: str = ""
    is_flushed: bool = True
    also: Sequence[str] = ()

    @property
    def folder(self) -> Path:
        """Where the repository is."""
        return self.base / FOLDER

    def exists(self) -> bool:
        """Return whether there is a history; its settings are the last thing that `make` writes."""
        return (self.folder / "config").exists()

    def make(self) -> None:
        """Make an empty repository, where there is none. Safe to repeat, also after a crash."""
        for folder in ("objects", "refs/heads"):
            fs.make_folder(self.base, f"{FOLDER}/{folder}")
        fs.publish(self.base, f"{FOLDER}/HEAD", f"ref: {BRANCH}\n".encode(), sync=True)
        fs.publish(self.base, f"{FOLDER}/info/attributes", _ATTRIBUTES, sync=True)
        fs.publish(self.base, f"{FOLDER}/config", _CONFIG, sync=True)

    def check(self) -> None:
        """Raise `GitFailed` unless git can be used and the repository is as we made it.

        Settings of a repository can start programs, and its files can be what git waits on for ever.
        """
        require_git()
        require_ours(self.base, {"config": _CONFIG, "info/attributes": _ATTRIBUTES})
        require_no_pipes(self.base, (*KEPT, *self.also))

    def remove_stale_locks(self) -> None:
        """Remove what a killed git left. Only for the holder of the organisation's lock."""
        for name in _LOCKS:
            if (self.folder / name).exists():
                fs.remove(self.base, f"{FOLDER}/{name}")

    def run(self, *words: str, feed: bytes = b"", **environment: str) -> bytes:
        """Run git and return what it printed; raise `GitFailed` with what it complained about."""
        program = shutil.which("git", path=_path()) or "git"
        try:
            done = subprocess.run(
                [program, *(_FLUSHED if self.is_flushed else _UNFLUSHED), *words],
                input=feed,
                capture_output=True,
                check=False,
                cwd=_ELSEWHERE,
                env={**self._environment(), **environment},
                timeout=PATIENCE_S,
                start_new_session=True,  # Ctrl-C is for the engine; a commit under way is finished
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GitFailed(f"git {words[0]}: {error}", where=FOLDER) from error
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip() or f"exit status {done.returncode}"
            raise GitFailed(f"git {words[0]}: {said}", where=FOLDER, hint=_hint(said))
        return done.stdout

    def is_damaged(self) -> bool:
        """Return whether git, itself in order, finds that something the history needs is broken or gone."""
        try:
            # git cannot even be started: that says nothing about what is stored
            self.run("rev-parse", "--git-dir")
        except GitFailed:
            return False
        try:
            self.run("fsck", "--connectivity-only", "--no-progress", "--no-dangling")
        except GitFailed:
            return True
        return False

    def head(self) -> str:
        """Return the newest commit; empty when there is none."""
        found = self.run("for-each-ref", "--format=%(objectname)", BRANCH)
        return found.decode().strip()

    def changes(self) -> list[str]:
        """Return the files that differ from what was staged last: added, changed and removed ones."""
        # given by hand: what people leave out of a repository of their own is still kept here
        exclude = [f"--exclude={pattern}" for pattern in LEFT_OUT]
        kinds = ("--others", "--modified", "--deleted")
        listed = self.run("ls-files", "-z", *kinds, *exclude, "--", *KEPT, *self.also)
        names = {os.fsdecode(name) for name in listed.split(b"\0") if name}
        return sorted(file for name in names for file in self._files(name))

    def stage(self, files: Iterable[str]) -> str:
        """Take the files as they are now, or are not, into the index; return the tree of the whole."""
        able = b"\0".join(os.fsencode(file) for file in files if self._can_be_kept(file))
        # by standard input: the list may be longer than a command line can be
        self.run("update-index", "-z", "--add", "--remove", "--replace", "--stdin", feed=able)
        return self.run("write-tree").decode().strip()

    def commit(self, tree: str, message: str, *, at_s: int, author: str) -> str:
        """Add a commit to the line and return its id."""
        head = self.head()
        parent = ["-p", head] if head else []
        who = {f"GIT_{role}_EMAIL": "lemming@localhost" for role in ("AUTHOR", "COMMITTER")}
        when = {f"GIT_{role}_DATE": f"@{max(at_s, 0)} +0000" for role in ("AUTHOR", "COMMITTER")}
        names = {"GIT_AUTHOR_NAME": author, "GIT_COMMITTER_NAME": "LeMMing"}
        environment = {**who, **when, **names}
        made = self.run("commit-tree", tree, *parent, "-F", "-", feed=message.encode(), **environment)
        commit = made.decode().strip()
        # only from the head that was read: a commit of somebody else between the two is never lost
        self.run("update-ref", BRANCH, commit, head or "0" * len(commit))
        return commit

    @contextlib.contextmanager
    def aside(self, work_tree: Path | None = None) -> Iterator[Repository]:
        """Yield the repository with an index and new objects of its own, in a temporary folder.

        Looking at it, or checking out into another work tree, then changes nothing here.
        """
        with tempfile.TemporaryDirectory(prefix="lemming-") as scratch:
            os.mkdir(f"{scratch}/objects")
            yield replace(
                self,
                work_tree=str(work_tree or self.base),
                index=f"{scratch}/index",
                objects=f"{scratch}/objects",
            )

    def _environment(self) -> dict[str, str]:
        """Return all that git may know: no settings but ours, no variables of a git that started us.

        Without a home (and XDG_CONFIG_HOME) there is none in which settings could lie.
        """
        place = str(self.folder)
        environment = {
            "PATH": _path(),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_ALLOW_PROTOCOL": "none",  # nothing is ever fetched, whatever a foreign repository promises
            # else refs/replace puts other objects in the place of those that were kept
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",  # or looking would write the index beside a running engine
            "GIT_LITERAL_PATHSPECS": "1",  # a file may be called `*` or `:(top)`
            "GIT_DIR": place,
            "GIT_WORK_TREE": self.work_tree or str(self.base),
        }
        if self.index:
            environment["GIT_INDEX_FILE"] = self.index
        if self.objects:
            environment["GIT_OBJECT_DIRECTORY"] = self.objects
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(f"{place}/objects")
        return environment

    def _files(self, name: str) -> Iterator[str]:
        """Yield the files a name stands for: git shows a repository inside the work tree as one folder."""
        # git names a repository in a workspace as one folder, and would keep only which commit it is at
        if not name.endswith("/"):
            yield name
            return
        for folder, folders, files in walk(self.base / name):
            if ".git" in folders:
                folders.remove(".git")
            inside = os.path.relpath(folder, self.base)
            yield from (f"{inside}/{file.name}" for file in files if file.name != ".git")

    def _can_be_kept(self, file: str) -> bool:
        """Return whether git can take a file: one odd file must not keep all others out of the history."""
        path = self.base / file
        above = path.parent
        # beyond a link to a folder: one such name would make git refuse all of them
        if above.exists() and above.resolve() != self.base.resolve() / os.path.dirname(file):
            return False
        try:
            status = path.lstat()
        except OSError:
            return True  # it is gone, and that is what is to be kept
        if stat.S_ISREG(status.st_mode):
            # one file that git cannot read would make it refuse all of them
            return status.st_size <= LARGEST_BYTES and os.access(path, os.R_OK)
        return stat.S_ISLNK(status.st_mode)


def require_git() -> None:
    """Raise `GitFailed` when there is no git, or one that is too old."""
    found, oldest = git_version(), ".".join(map(str, OLDEST_GIT))
    hint = f'install git {oldest} or newer, or turn the history off: "lemming history off"'
    if found is None:
        raise GitFailed("the history needs git, and there is none", hint=hint)
    if found < OLDEST_GIT:
        raise GitFailed(f"the history needs git {oldest}, this is {'.'.join(map(str, found))}", hint=hint)


def git_version() -> tuple[int, int] | None:
    """Return the version of the git that is installed; None when there is none."""
    return _version_on(_path())


def _path() -> str:
    """Return where programs are looked for: not in the folder we happen to be in."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    # "." or "" in PATH would start a git that lies in the organisation's folder
    return os.pathsep.join(folder for folder in folders if os.path.isabs(folder))


def _quoted(path: str) -> str:
    """Return a path as git takes it in a list, in which a colon would end it."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


@cache
def _version_on(path: str) -> tuple[int, int] | None:
    try:
        done = subprocess.run(
            [shutil.which("git", path=path) or "git", "--version"],
            capture_output=True,
            check=False,
            text=True,
            cwd=_ELSEWHERE,
            env={"PATH": path, "LC_ALL": "C"},
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.match(done.stdout)
    return (int(match[1]), int(match[2])) if match else None


def _hint(said: str) -> str:
    if "No space left" in said:
        return "the disk is full; free some space, the next commit catches up"
    return f"ticks go on without it; `git --git-dir={FOLDER} fsck` says whether the repository is whole"


# --- what a repository may consist of ------------------------------------------------------------
# An organisation may come from a stranger, and git believes its files: settings start programs, a link or
# `alternates` leads elsewhere, a pipe never ends. So the settings must be the bytes that we write, every name
# that steers git is on a closed list, and everything is a regular file or a folder.


ATTRIBUTES = ".gitattributes"
_NAMES = {
    "": {
        "HEAD", "FETCH_HEAD", "ORIG_HEAD", "branches", "config", "description", "gc.log", "gc.pid", "hooks",
        "index", "info", "logs", "objects", "packed-refs", "refs",
    },
    "info": {"attributes", "exclude", "refs"},
    "objects/info": {"commit-graph", "commit-graphs", "packs"},
}  # fmt: skip
_MOVE = "an organisation from elsewhere may hold what you do not expect; move it away if it is not yours"


def require_ours(base: Path, contents: Mapping[str, bytes]) -> None:
    """Raise `GitFailed` unless the repository is one that git may be started on.

    `contents` are the files that must be there byte for byte.
    """
    for place in (os.path.dirname(FOLDER), FOLDER):
        if not os.path.isdir(base / place) or os.path.islink(base / place):
            raise GitFailed("this is not a folder; git is not started", where=place, hint=_MOVE)
    for name, ours in contents.items():
        if _content(base, f"{FOLDER}/{name}", len(ours)) != ours:
            hint = f"if you trust it, restore it from another organisation; else move {FOLDER} away"
            raise GitFailed(
                "this is not as LeMMing writes it; it is not used", where=f"{FOLDER}/{name}", hint=hint
            )
    for inner, names in _NAMES.items():
        for name in _names(f"{base}/{FOLDER}/{inner}"):
            if name not in names and not name.endswith((".lock", ".tmp")):
                raise GitFailed(
                    "this does not belong to a history; git is not started",
                    where=os.path.join(FOLDER, inner, name),
                    hint=_MOVE,
                )
    for path in _odd_files(f"{base}/{FOLDER}"):
        where = os.path.relpath(path, base)
        raise GitFailed("neither a file nor a folder; git is not started", where=where, hint=_MOVE)


def require_no_pipes(base: Path, below: Iterable[str]) -> None:
    """Raise `GitFailed` for a `.gitattributes` on which git, which opens it, would wait for ever."""
    folders = [str(base), *(folder for top in below for folder, _, _ in walk(base / top))]
    for folder in folders:
        path = os.path.join(folder, ATTRIBUTES)
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            where = os.path.relpath(path, base)
            raise GitFailed("not a file; git is not started", where=where, hint="move it away")


def _content(base: Path, file: str, size: int) -> bytes:
    try:
        return fs.read_bytes(base / file, size)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise GitFailed(f"cannot be read: {error.strerror}", where=file) from error


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _odd_files(folder: str) -> Iterator[str]:
    """Yield what is neither a regular file nor a folder, at any depth; links are not followed."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _odd_files(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    yield entry.path
    except OSError as error:
        raise GitFailed(f"cannot be read: {error.strerror}", where=folder) from error
