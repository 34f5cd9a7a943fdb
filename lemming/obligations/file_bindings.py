"""Files named by a call, and their contents, to which an approval is bound (docs/gates.md).

An approval given for one content of a script must not run another script.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.kernel.files.canonical_path import real_path
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.files.stat_cache import path_exists

MISSING_FILE = ""
"""Digest of a missing file named by the call: creating the file changes the binding."""
FILE_ARGUMENTS = frozenset({"path", "file", "source", "destination"})
MAX_LISTED_FILES = 100
MAX_FILE_BYTES = 1 << 30
MAX_PATH_CHARS = 4096
_VOLATILE_FOLDERS = ("/proc/", "/sys/")
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # opening a pipe must not wait


class ApprovalBinding(NamedTuple):
    """Binding of an approval besides the text of the call.

    `files`: SHA-256 of each file, by path; a link is stored under the target. `unbound`: descriptions of
    effects that may change before the call runs.
    """

    files: dict[str, str]
    unbound: list[str]


def compute_binding(
    agent: Agent,
    base: Path,
    tool_class: str,
    args: Mapping[str, Any],
    staged: Mapping[str, bytes],
    removed: Collection[str] = (),
) -> ApprovalBinding:
    """Return the binding of a call from the turn's view, with the effects that cannot be bound.

    `tool_class` "execute": any word of a text may name a file. Files beyond `MAX_LISTED_FILES` share one
    digest.
    """
    scan = _BindingScan(agent, base, staged, removed)
    executes = tool_class == "execute"
    for key, text in _iter_texts(args):
        scan.bind_path_argument(text, is_file=key in FILE_ARGUMENTS and tool_class in ("read", "write"))
        if executes:
            for candidate in _extract_path_candidates(text):
                scan.bind_command_word(candidate)
    unbound = [line for _, text in _iter_texts(args) for line in find_unbindable_effects(text)] if executes else []
    return ApprovalBinding(_summarize_bound_files(scan.files), [*dict.fromkeys([*scan.unbound, *unbound])])


class _BindingScan:
    """Scan of the files named by texts, from a turn's view. `files` and `unbound` grow."""

    def __init__(self, agent: Agent, base: Path, staged: Mapping[str, bytes], removed: Collection[str]) -> None:
        self._agent, self._base, self._staged, self._removed = agent, base, staged, removed
        self._org, self._named = real_path(str(base)), os.path.normpath(base)
        self._folders = (f"{base}/{paths.workspace_folder(agent.name)}", f"{base}")
        self.files: dict[str, str] = {}
        self.unbound: list[str] = []

    def bind_path_argument(self, text: str, *, is_file: bool) -> None:
        """Bind the file named by a whole argument, as the engine's tools resolve paths."""
        if len(text) > MAX_PATH_CHARS:
            return
        with suppress(ToolError):
            resolved = resolve_path(self._agent, self._base, text, "read", caller="approval")
            exists = self._bind_path(f"{resolved.root}/{resolved.relative}", is_named=False)
            if is_file and not exists and resolved.relative:
                self.files.setdefault(resolved.path_key, MISSING_FILE)

    def bind_command_word(self, candidate: str) -> None:
        """Bind a file named by a word of a command, relative to the workspace or the organisation."""
        if candidate.startswith("/"):
            self._bind_path(candidate, is_named=True)
            return
        workspace, org = self._folders
        if not self._bind_path(f"{workspace}/{candidate}", is_named=candidate not in (".", "./")):
            self._bind_path(f"{org}/{candidate}", is_named=False)

    def _bind_path(self, path: str, *, is_named: bool) -> bool:
        """Bind the content at a path, following links. Return True if the path exists."""
        if "\0" in path:
            return False
        try:
            exists, real = path_exists(path), real_path(path)
            key = self._file_key(real)
            if key in self._removed:
                return False
            # The turn's own writes are on disk before the call runs: their contents are what it finds.
            if key in self._staged:
                self.files[key] = hashlib.sha256(self._staged[key]).hexdigest()
            elif exists and not self.files.get(key):
                self._bind_content(real, key, is_named=is_named)
            return exists or key in self._staged
        except (FileNotFoundError, UnicodeError):
            return False
        except OSError as error:
            require_about_one_file(path, error)  # otherwise the file may have changed unnoticed
            self.unbound.append(f"{path}, which cannot be read ({error.strerror})")
            return True

    def _bind_content(self, real_file: str, key: str, *, is_named: bool) -> None:
        try:
            mode = os.stat(real_file).st_mode
        except FileNotFoundError:  # a dangling link, whose target may appear later
            self.files[key] = MISSING_FILE
            return
        if real_file.startswith(_VOLATILE_FOLDERS):
            self.unbound.append(f"{real_file}, which changes by itself")
            return
        # Only a folder named in words: every command runs in the workspace, and reporting that helps nobody.
        if stat.S_ISDIR(mode) and is_named:
            self.unbound.append(f"what is in the folder {key or '.'}")
        if not stat.S_ISREG(mode):
            return
        with open(os.open(real_file, _OPEN_FLAGS), "rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                self.unbound.append(f"{key}, which is too large")
            else:
                self.files[key] = hashlib.file_digest(file, "sha256").hexdigest()

    def _file_key(self, real_file: str) -> str:
        """Return a path as in `FileEffect`: relative inside the organisation, else absolute."""
        if real_file in (self._org, self._named):
            return ""
        return real_file.removeprefix(f"{self._org}/").removeprefix(f"{self._named}/")


def _summarize_bound_files(files: dict[str, str]) -> dict[str, str]:
    """Return files by path; files beyond the limit become one item with a digest of all."""
    if len(files) <= MAX_LISTED_FILES:
        return files
    names = [*files]
    rest_lines = "\n".join(f"{name} {files[name]}" for name in sorted(names[MAX_LISTED_FILES:]))
    rest_name = f"({len(names) - MAX_LISTED_FILES} more files, together)"
    listed = {name: files[name] for name in names[:MAX_LISTED_FILES]}
    return {**listed, rest_name: hashlib.sha256(rest_lines.encode("utf-8", "surrogatepass")).hexdigest()}


def describe_changed_files(paths: Sequence[str]) -> str:
    """Return the addition to a repeated request: these files have changed."""
    return f"; {', '.join(paths)} changed since it was approved" if paths else ""


def _iter_texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts in a JSON value, each with the nearest key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _iter_texts(inner, name)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _iter_texts(inner, key)


# --- the words of a command ----------------------------------------------------------------------
# No shell is emulated: a word too many only binds a file too many, and shell expansions are reported
# as unbound.


MAX_WORD_CHARS = 4096
MAX_LISTED_WORDS = 20
MAX_DEPTH = 4
MAX_SHOWN_CHARS = 200
_BETWEEN = re.compile(r"[\s;|&()<>=\"'`$]+")
_BETWEEN_PARTS = re.compile(r"[\s;|&()<>=\"'`$:,@{}\[\]\\]+")
_SPACES = re.compile(r"\s+")
_RUNNERS = re.compile(
    r"make|gmake|ninja|just|tox|nox|npm|npx|yarn|pnpm|bun|cargo|go|gradle|mvn|ant|rake|bundle|composer|"
    r"docker|podman|kubectl|terraform|ansible-playbook|git|pytest|pip|uv|poetry|sh|bash|dash|zsh|fish|"
    r"ksh|busybox|python|python2|python3|perl|ruby|node|deno|php|lua|awk|sed|env|sudo|su|doas|ssh|eval|"
    r"exec|source|\.|xargs|find|parallel|nohup|timeout|at|batch|crontab|systemd-run|watch|entr"
)
_MOVES = frozenset({"cd", "pushd", "popd", "chdir"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_COMMAND_WORD = re.compile(r"[^\s;|&()<>`\"'${}]+")
ALWAYS = "programs, and files that these or the named ones read in turn"


def _extract_path_candidates(text: str) -> list[str]:
    """Return the words of a text that may be paths, each once.

    >>> found = _extract_path_candidates("sh -c \\"cat 'my notes.txt'\\" --to=/tmp/x")
    >>> [it for it in found if it in ("my notes.txt", "/tmp/x")]
    ['/tmp/x', 'my notes.txt']
    """
    candidates: dict[str, None] = {}
    _collect_words(text, candidates, 0)
    return [candidate for candidate in candidates if candidate and len(candidate) <= MAX_WORD_CHARS]


def _collect_words(text: str, candidates: dict[str, None], depth: int) -> None:
    tokens = _split_shell_words(text)
    for piece in (*_BETWEEN.split(text), *_BETWEEN_PARTS.split(text), *tokens):
        for part in (piece, piece[2:] if piece.startswith("-") else "", piece.partition("=")[2]):
            candidates.setdefault(part)
    for token in tokens:
        # A word in quotes may be a command of its own, as in sh -c '...'.
        if depth < MAX_DEPTH and token != text and _BETWEEN.search(token):
            _collect_words(token, candidates, depth + 1)


def _split_shell_words(text: str) -> list[str]:
    """Return the words of a command after shell quoting, or an empty list for unclosed quotes."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return [*lexer]
    except ValueError:
        return []


def find_unbindable_effects(command: str) -> list[str]:
    """Return effects of a command beyond the words and the named files.

    >>> find_unbindable_effects("ls")
    ['programs, and files that these or the named ones read in turn']
    """
    effects = [*dict.fromkeys(_iter_unbindable_effects(command))]
    rest_count = len(effects) - MAX_LISTED_WORDS
    rest_note = [f"and {rest_count} more words of this kind"] if rest_count > 0 else []
    return [*effects[:MAX_LISTED_WORDS], *rest_note, ALWAYS]


def _iter_unbindable_effects(command: str) -> Iterator[str]:
    for token in _SPACES.split(command):
        if "$" in token or "`" in token:
            yield f"{_truncate(token)}: what it stands for when it runs"
        elif re.search(r"[*?\[{~]", token):
            yield f"{_truncate(token)}: which files it stands for when it runs"
        elif _ASSIGNMENT.match(token):
            yield f"{_truncate(token)}: what a variable of that name changes"
    if "<<" in command:
        yield "<<: what the program does with the text behind it"
    if "\\" in command:
        yield "\\: the word that stands there without it"
    names = dict.fromkeys(token.rpartition("/")[2] or token for token in _COMMAND_WORD.findall(command))
    for name in names:
        if name in _MOVES:
            yield f"{name}: paths behind it begin in another folder"
        elif _RUNNERS.fullmatch(name):
            yield f"{name}: what it runs, or is told to run, beyond the files named here"
    if command and not _split_shell_words(command):
        yield "quotes that do not end"


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}… ({len(text)} characters)"
