"""Patches become trees again without a clone, and lists of lines for screens and gates."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lemming.capabilities.workers.repositories.engine_repository import EngineRepository
from lemming.capabilities.workers.repositories.git_command import GitError, RepositoryError
from lemming.capabilities.workers.repositories.tree_walk import to_text
from lemming.kernel.base.integers import to_int

_HUNK = re.compile(rb"@@ -\d+(?:,(\d{1,12}))? \+\d+(?:,(\d{1,12}))? @@")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_STATUSES = {b"new file mode ": "A", b"deleted file mode ": "D"}


@dataclass(frozen=True)
class Hunk:
    """Consecutive lines of a file. `lines`: mark (blank, "+" or "-") and text without line end.

    The mark "\\\\" has git's remark that a file has no newline at its end.
    """

    header: str
    lines: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class FileDiff:
    """The changes of one file. Fields as in `ChangedFile`; a binary file has no hunks.

    `size_bytes`: of a binary file as the patch leaves it; 0 where the patch holds only the difference.
    """

    path: str
    status: str = "M"
    insertions: int = 0
    deletions: int = 0
    is_binary: bool = False
    hunks: list[Hunk] = field(default_factory=list)
    size_bytes: int = 0


def rebuild_tree(engine_repo: EngineRepository, base: str, patch: bytes, tree: str) -> None:
    """Make the objects of a tree from base and patch. Raises RepositoryError if the patch gives another tree."""
    actual_tree = apply_patch(engine_repo, base, patch)
    if actual_tree != tree:
        raise RepositoryError(f"patch must give the tree {tree}, got {actual_tree}", where=f"base {base}")


def apply_patch(engine_repo: EngineRepository, base: str, patch: bytes, *, is_edited: bool = False) -> str:
    """Return the id of the tree that a patch makes of the commit `base`.

    `is_edited`: the line counts of its hunks are probably wrong. Raises RepositoryError with git's reason for a patch that
    does not apply.
    """
    # With the counts of the headers git drops lines that a person has added at the end of a hunk, and without them it
    # misreads a patch of several files that has no lines `diff --git`.
    attempts: list[tuple[str, ...]] = [("--recount",), ()] if is_edited else [(), ("--recount",)]
    with engine_repo.open_index(base) as env:
        for number, options in enumerate(attempts if patch.strip() else (), 1):
            try:
                engine_repo.run("apply", "--cached", "--binary", *options, env=env, stdin=patch)
                break
            except GitError as error:
                if number == len(attempts):
                    message = f"patch must apply to the commit {base}, got: {error.message}"
                    raise RepositoryError(message) from error
        return engine_repo.read("write-tree", env=env)


def replace_file(engine_repo: EngineRepository, tree: str, path: str, content: bytes) -> str:
    """Return the id of a tree in which a file has other content. Raises RepositoryError for a path without a file."""
    with engine_repo.open_index(tree) as env:
        facts = engine_repo.read("ls-files", "-s", "-z", "--", path, env=env).split()
        if not facts or facts[0] not in ("100644", "100755"):
            raise RepositoryError(f"path must be a file of the patch, got {path}", where=f"tree {tree}")
        name = engine_repo.read("hash-object", "-w", "--stdin", stdin=content)
        engine_repo.run("update-index", "--cacheinfo", f"{facts[0]},{name},{path}", env=env)
        return engine_repo.read("write-tree", env=env)


def parse_patch(patch: bytes) -> list[FileDiff]:
    """Return the changes of each file of a patch, in order. Text that is no UTF-8 is shown with `\\xNN`.

    A file that becomes a link, or a link a file, is in the list twice, as deleted and as added.
    """
    files: list[FileDiff] = []
    lines = patch.split(b"\n")
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.startswith(b"diff --git "):
            files.append(FileDiff(_read_path(line.removeprefix(b"diff --git "))))
        elif files and (match := _HUNK.match(line)):
            number = _read_hunk(files[-1], match, lines, number)
        elif files:
            _read_header(files[-1], line)
    return files


def _read_hunk(file: FileDiff, match: re.Match[bytes], lines: list[bytes], number: int) -> int:
    """Add a hunk to the file, and return the number of the line after it. `number`: of its first line."""
    hunk = Hunk(to_text(match.string))
    file.hunks.append(hunk)
    # The header counts the lines: a removed line of text such as "-- a/x" is no header.
    old_count, new_count = (to_int(count) if count is not None else 1 for count in match.groups())
    while number < len(lines) and (old_count > 0 or new_count > 0 or lines[number].startswith(b"\\")):
        mark, text = lines[number][:1] or b" ", lines[number][1:]
        if mark not in (b" ", b"+", b"-", b"\\"):
            break
        hunk.lines.append((mark.decode(), to_text(text)))
        old_count -= mark in (b" ", b"-")
        new_count -= mark in (b" ", b"+")
        file.insertions += mark == b"+"
        file.deletions += mark == b"-"
        number += 1
    return number


def _read_header(file: FileDiff, line: bytes) -> None:
    for prefix, status in _STATUSES.items():
        if line.startswith(prefix):
            file.status = status
    if line.startswith(b"rename to "):
        file.path, file.status = to_text(_unquote(line.removeprefix(b"rename to "))), "M"
    if file.is_binary and not file.size_bytes and line.startswith(b"literal "):
        file.size_bytes = to_int(line.removeprefix(b"literal "))
    file.is_binary = file.is_binary or line.startswith((b"GIT binary patch", b"Binary files "))


def _read_path(names: bytes) -> str:
    """Return the path of a line `a/PATH b/PATH`, both of which are the same or both in quotes."""
    if names.startswith(b'"'):
        old_name = re.match(rb'"((?:[^"\\]|\\.)*)"', names)
        return to_text(_unquote(old_name[0])[2:] if old_name else names)
    return to_text(names[2 : len(names) // 2])


def _unquote(name: bytes) -> bytes:
    """Return a path without git's quotes.

    >>> _unquote(b'"a\\\\303\\\\244\\\\n"'), _unquote(b"plain")
    (b'a\\xc3\\xa4\\n', b'plain')
    """
    if not name.startswith(b'"'):
        return name
    return _ESCAPE.sub(_replace_escape, name[1:-1])


def _replace_escape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 255]) if len(code) == 3 else _ESCAPES.get(code, code)
