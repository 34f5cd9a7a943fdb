"""The engine's own repository, through which all git commands on files and patches of workers go.

It has no branches and borrows the user's objects. Its objects are a cache: recorded patches can rebuild each of them,
so the folder may be removed while no turn runs.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from lemming.capabilities.workers.repositories.git_command import GitRepository, RepositoryError
from lemming.capabilities.workers.repositories.user_repository import UserRepository
from lemming.kernel.base.integers import to_int
from lemming.kernel.files import fs

# These outrank each .gitattributes of a work tree: no conversion of bytes, no filter, no driver.
_ATTRIBUTES = b"* -text !eol !filter !ident !working-tree-encoding !merge !diff !conflict-marker-size !whitespace\n"
_BORROWED_FILES = ("shallow", "info/exclude")
_MAX_FILE_BYTES = 50_000_000


class EngineRepository(GitRepository):
    """A bare repository of the engine."""

    @contextlib.contextmanager
    def open_index(self, commit: str = "", work_tree: Path | None = None) -> Iterator[dict[str, str]]:
        """Yield the environment of an index of its own, filled with the files of a commit, if any.

        Without `work_tree`, the work tree is an empty folder.
        """
        # The index has no file times, so that git reads each file instead of trusting times that a worker can set.
        with tempfile.TemporaryDirectory(prefix="lemming-index-") as folder:
            fs.make_folder(Path(folder), "tree")
            env = {"GIT_INDEX_FILE": f"{folder}/index", "GIT_WORK_TREE": str(work_tree or f"{folder}/tree")}
            if commit:
                self.run("read-tree", commit, env=env)
            yield env

    def read_blobs(self, names: Sequence[str]) -> list[bytes]:
        """Return the contents of objects that are files or links, in the order of their ids."""
        output = self.run("cat-file", "--batch", stdin="".join(f"{name}\n" for name in names).encode())
        contents, start = [], 0
        for name in names:
            end = output.index(b"\n", start)
            header = output[start:end].split()
            if header[1] != b"blob":
                raise RepositoryError(f"object must be a blob, got {header[1].decode()}", where=name)
            start = end + 1 + to_int(header[2])
            contents.append(output[end + 1 : start])
            start += 1
        return contents


def open_engine_repository(
    folder: Path, repository: UserRepository | None, *, object_format: str = "sha1"
) -> EngineRepository:
    """Return the engine's repository in `folder`, created if missing. Safe to repeat, also after a kill.

    Without `repository`, nothing is borrowed: objects, of `object_format`, come from `load_bundle`.
    """
    create_repository(folder, "", repository, "\tbare = true\n", object_format=object_format)
    return EngineRepository(folder)


def create_repository(
    root: Path, relative: str, repository: UserRepository | None, settings: str, *,
    is_borrowing: bool = True, object_format: str = "sha1",
) -> None:  # fmt: skip
    """Write the files of an empty repository into `root/relative` that borrows the objects of another.

    Of the user's repository it takes the limit of a shallow history and personal ignore rules, but no branches, hooks,
    remotes or settings. `settings`: further lines of the section `core`, and sections.
    """
    prefix = f"{relative}/" if relative else ""
    object_format = repository.object_format if repository else object_format
    version = "[core]\n\trepositoryformatversion = 0\n"
    if object_format != "sha1":
        version = f"[extensions]\n\tobjectFormat = {object_format}\n[core]\n\trepositoryformatversion = 1\n"
    contents = {"config": (version + settings).encode(), "info/attributes": _ATTRIBUTES}
    contents["HEAD"] = b"ref: refs/heads/work\n"
    if repository and is_borrowing:
        contents["objects/info/alternates"] = quote_path(repository.objects.resolve())
    for name in _BORROWED_FILES if repository else ():
        source = repository.git_dir / name if repository else root
        if source.is_file():
            contents[name] = fs.read_bytes(source, _MAX_FILE_BYTES)
        elif (root / prefix / name).exists():  # the history has been completed since
            fs.remove(root, f"{prefix}{name}")
    # Each file is whole or missing, and none comes from `git init`, which leaves locks when it is killed. So two engines
    # may do this at once, and a repeat completes what was cut short.
    fs.make_root(root)
    for name in ("objects/info", "objects/pack", "refs/heads", "info"):
        fs.make_folder(root, f"{prefix}{name}")
    for name, content in contents.items():
        if not fs.has_content(root / prefix / name, content):
            fs.write_atomic(root, f"{prefix}{name}", content)


def quote_path(path: Path) -> bytes:
    """Return a line of `objects/info/alternates`, quoted where the path needs it.

    >>> quote_path(Path("/a/b")), quote_path(Path('/a"b'))
    (b'/a/b\\n', b'"/a\\\\"b"\\n')
    """
    text = str(path)
    if "\n" in text or '"' in text:
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return os.fsencode(text) + b"\n"


BRANCH = "work"
"""Name of the only branch of a clone."""


def make_clone(
    folder: Path, base: str, *, agent: str, repository: UserRepository | None, bundle: bytes = b"",
    is_full_copy: bool = False,
) -> None:  # fmt: skip
    """Create a clone in `folder`, which must not exist, with the files of the commit `base`.

    Its objects are borrowed from `repository`, or copied from there with `is_full_copy`, or come from `bundle`. A
    borrowing clone can read every object of the repository, also the user's stash. A clone that was cut short has to be
    removed before this is repeated. Raises RepositoryError for a folder that exists.
    """
    if folder.exists():
        raise RepositoryError("folder of a clone must not exist", where=str(folder), hint="remove it: it was cut short")
    settings = "\tbare = false\n\tfilemode = true\n\tlogAllRefUpdates = true\n"
    settings += f"[user]\n\tname = {agent}\n\temail = {to_address(agent)}\n[gc]\n\tauto = 0\n"
    object_format = "sha256" if len(base) == 64 else "sha1"
    is_borrowing = not is_full_copy and not bundle
    create_repository(folder, ".git", repository, settings, is_borrowing=is_borrowing, object_format=object_format)
    clone = GitRepository(folder / ".git")
    if bundle:
        load_bundle(clone, bundle, base)
    elif repository and is_full_copy:
        load_bundle(clone, make_bundle(repository, base, has_history=True), base, has_history=True)
    clone.run("update-ref", f"refs/heads/{BRANCH}", base)
    # No program of anybody has run here yet, so git may still use the clone itself.
    clone.run("read-tree", "-u", "--reset", base, env={"GIT_WORK_TREE": str(folder)}, cwd=folder)


def patch_clone(folder: Path, patch: bytes) -> None:
    """Change the files of a clone by a patch. No program of a worker may have run in the clone.

    Raises RepositoryError for a patch that does not apply, or that would write through a link.
    """
    env = {"GIT_WORK_TREE": str(folder)}
    GitRepository(folder / ".git").run("apply", "--binary", "--allow-empty", env=env, cwd=folder, stdin=patch)


def to_address(agent: str) -> str:
    """Return the mail address of an agent, in a domain that never exists.

    >>> to_address("coder")
    'coder@lemming.invalid'
    """
    return f"{agent}@lemming.invalid"


def make_bundle(source: GitRepository, base: str, *, has_history: bool = False) -> bytes:
    """Return a pack with the commit `base` and its files, without earlier commits unless `has_history`."""
    depth = () if has_history else ("--no-walk",)
    objects = source.run("rev-list", "--objects", "--no-object-names", *depth, base)
    return source.run("pack-objects", "--stdout", "-q", stdin=objects)


def load_bundle(target: GitRepository, bundle: bytes, base: str, *, has_history: bool = False) -> None:
    """Store the objects of a bundle of `base` in a repository. Safe to repeat.

    Without history, the repository is marked as shallow, so that git does not look for earlier commits.
    """
    target.run("index-pack", "--stdin", stdin=bundle)
    shallow = target.git_dir / "shallow"
    lines = shallow.read_bytes() if shallow.is_file() else b""
    if not has_history and base.encode() not in lines.split():
        fs.write_atomic(target.git_dir, "shallow", lines + base.encode() + b"\n")
