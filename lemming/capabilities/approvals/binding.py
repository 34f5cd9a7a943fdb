"""Which files a call names, and what they hold: what an approval is bound to (docs/approvals.md).

A call that somebody let pass because of what a script says is not to run another script.
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

from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.kernel.files.real_place import real_path
from lemming.kernel.files.refusals import require_about_one_file
from lemming.kernel.files.stamps import is_there

NOT_THERE = ""
"""What a file holds that is not there, and that the call names as one."""
FILE_ARGUMENTS = frozenset({"path", "file", "source", "destination"})
SHOWN_FILES = 100
LARGEST_BYTES = 1 << 30
LONGEST_PATH = 4096
_BY_ITSELF = ("/proc/", "/sys/")
_LOOK = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # no pipe is waited for


class Binding(NamedTuple):
    """What an approval is for beside the words of a call.

    `files`: the SHA-256 of each, by its place; a link stands at what it leads to. `unbound`: what may become
    another thing before the call is made, in words.
    """

    files: dict[str, str]
    unbound: list[str]


def binds_of(
    agent: Agent,
    base: Path,
    tool_class: str,
    args: Mapping[str, Any],
    staged: Mapping[str, bytes],
    removed: Collection[str] = (),
) -> Binding:
    """Return what a call is bound to, as a turn sees it, and what of it cannot be.

    `tool_class` "execute": any word of a text may name a file. More than `SHOWN_FILES` are bound as one.
    """
    look = _Look(agent, base, staged, removed)
    executes = tool_class == "execute"
    for key, text in _texts(args):
        look.at_path(text, is_file=key in FILE_ARGUMENTS and tool_class in ("read", "write"))
        if executes:
            for word in words_in(text):
                look.at_word(word)
    unbound = [line for _, text in _texts(args) for line in unbound_in(text)] if executes else []
    return Binding(_shown(look.files), [*dict.fromkeys([*look.unbound, *unbound])])


class _Look:
    """Looks at the files that words name, as one turn sees them: `files` and `unbound` grow."""

    def __init__(
        self, agent: Agent, base: Path, staged: Mapping[str, bytes], removed: Collection[str]
    ) -> None:
        self._agent, self._base, self._staged, self._removed = agent, base, staged, removed
        self._org, self._named = real_path(str(base)), os.path.normpath(base)
        self._folders = (f"{base}/{paths.workspace_folder(agent.name)}", f"{base}")
        self.files: dict[str, str] = {}
        self.unbound: list[str] = []

    def at_path(self, text: str, *, is_file: bool) -> None:
        """Look at what a whole argument names, as tools of the engine take it."""
        if len(text) > LONGEST_PATH:
            return
        with suppress(ToolError):
            place = resolve(self._agent, self._base, text, "read", caller="approval")
            found = self._bind(f"{place.root}/{place.relative}", is_named=False)
            if is_file and not found and place.relative:
                self.files.setdefault(place.key, NOT_THERE)

    def at_word(self, word: str) -> None:
        """Look at what a word of a command may name: from the workspace, or from the organisation."""
        if word.startswith("/"):
            self._bind(word, is_named=True)
            return
        workspace, org = self._folders
        if not self._bind(f"{workspace}/{word}", is_named=word not in (".", "./")):
            self._bind(f"{org}/{word}", is_named=False)

    def _bind(self, path: str, *, is_named: bool) -> bool:
        """Bind what is at a path, whatever links lead there; return whether there is anything."""
        if "\0" in path:
            return False
        try:
            stands, real = is_there(path), real_path(path)
            key = self._key(real)
            if key in self._removed:
                return False
            if key in self._staged:
                self.files[key] = hashlib.sha256(self._staged[key]).hexdigest()
            elif stands and not self.files.get(key):
                self._bind_opened(real, key, is_named=is_named)
            return stands or key in self._staged
        except (FileNotFoundError, UnicodeError):
            return False
        except OSError as error:
            require_about_one_file(path, error)  # else nobody knows whether it is as it was
            self.unbound.append(f"{path}, which cannot be read ({error.strerror})")
            return True

    def _bind_opened(self, real: str, key: str, *, is_named: bool) -> None:
        try:
            mode = os.stat(real).st_mode
        except FileNotFoundError:  # a link to nowhere, until somebody fills it
            self.files[key] = NOT_THERE
            return
        if real.startswith(_BY_ITSELF):
            self.unbound.append(f"{real}, which changes by itself")
            return
        if stat.S_ISDIR(mode) and is_named:
            self.unbound.append(f"what is in the folder {key or '.'}")
        if not stat.S_ISREG(mode):
            return
        with open(os.open(real, _LOOK), "rb") as file:
            if os.fstat(file.fileno()).st_size > LARGEST_BYTES:
                self.unbound.append(f"{key}, which is too large")
            else:
                self.files[key] = hashlib.file_digest(file, "sha256").hexdigest()

    def _key(self, real: str) -> str:
        """Return a place as a `FileEffect` has it: relative in the organisation, else absolute."""
        if real in (self._org, self._named):
            return ""
        return real.removeprefix(f"{self._org}/").removeprefix(f"{self._named}/")


def _shown(files: dict[str, str]) -> dict[str, str]:
    """Return files by their places; those that are too many to be shown as one, with a digest of all."""
    if len(files) <= SHOWN_FILES:
        return files
    names = [*files]
    rest = "\n".join(f"{name} {files[name]}" for name in sorted(names[SHOWN_FILES:]))
    together = f"({len(names) - SHOWN_FILES} more files, together)"
    kept = {name: files[name] for name in names[:SHOWN_FILES]}
    return {**kept, together: hashlib.sha256(rest.encode("utf-8", "surrogatepass")).hexdigest()}


def changed(binds: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """Return the files that are not as they were, by their places: also one that cannot be read any more."""
    return [path for path in sorted({*binds, *before}) if binds.get(path) != before.get(path)]


def changed_since(word: Mapping[str, Any], binds: Mapping[str, str]) -> list[str]:
    """Return the files that are not as they were as this word was given; who edits may name other files."""
    before = word["binds"]
    if word["is_edited"]:  # what these held nobody has said
        return [path for path in sorted(binds) if path in before and binds[path] != before[path]]
    return changed(binds, before)


def changed_text(paths: Sequence[str]) -> str:
    """Return what a request adds that asks again, since these files have changed."""
    return f"; {', '.join(paths)} changed since it was approved" if paths else ""


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of a JSON value, each with the key that it stands at."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, name)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner, key)


# --- the words of a command ----------------------------------------------------------------------
# No shell is imitated: a word too many binds a file too many, and what a shell would make of the rest is said
# to be unbound, in words.


LONGEST_WORD = 4096
MOST_SAID = 20
DEPTH = 4
SHOWN_CHARS = 200
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


def words_in(text: str) -> list[str]:
    """Return the words of a text that may be paths, each once.

    >>> found = words_in("sh -c \\"cat 'my notes.txt'\\" --to=/tmp/x")
    >>> [it for it in found if it in ("my notes.txt", "/tmp/x")]
    ['/tmp/x', 'my notes.txt']
    """
    found: dict[str, None] = {}
    _gather(text, found, 0)
    return [word for word in found if word and len(word) <= LONGEST_WORD]


def _gather(text: str, found: dict[str, None], depth: int) -> None:
    tokens = _tokens(text)
    for word in (*_BETWEEN.split(text), *_BETWEEN_PARTS.split(text), *tokens):
        for each in (word, word[2:] if word.startswith("-") else "", word.partition("=")[2]):
            found.setdefault(each)
    for token in tokens:
        # A word in quotes may be a command of its own, as in sh -c '...'.
        if depth < DEPTH and token != text and _BETWEEN.search(token):
            _gather(token, found, depth + 1)


def _tokens(text: str) -> list[str]:
    """Return the words of a command as a shell would quote them; none where its quotes do not end."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return [*lexer]
    except ValueError:
        return []


def unbound_in(command: str) -> list[str]:
    """Return what a command may come to do whatever its words and the files that they name say.

    >>> unbound_in("ls")
    ['programs, and files that these or the named ones read in turn']
    """
    said = [*dict.fromkeys(_bare_words(command))]
    more = [f"and {len(said) - MOST_SAID} more words of this kind"] if len(said) > MOST_SAID else []
    return [*said[:MOST_SAID], *more, ALWAYS]


def _bare_words(command: str) -> Iterator[str]:
    for word in _SPACES.split(command):
        if "$" in word or "`" in word:
            yield f"{_cut(word)}: what it stands for when it runs"
        elif re.search(r"[*?\[{~]", word):
            yield f"{_cut(word)}: which files it stands for when it runs"
        elif _ASSIGNMENT.match(word):
            yield f"{_cut(word)}: what a variable of that name changes"
    if "<<" in command:
        yield "<<: what the program does with the text behind it"
    if "\\" in command:
        yield "\\: the word that stands there without it"
    names = dict.fromkeys(word.rpartition("/")[2] or word for word in _COMMAND_WORD.findall(command))
    for name in names:
        if name in _MOVES:
            yield f"{name}: paths behind it begin in another folder"
        elif _RUNNERS.fullmatch(name):
            yield f"{name}: what it runs, or is told to run, beyond the files named here"
    if command and not _tokens(command):
        yield "quotes that do not end"


def _cut(word: str) -> str:
    return word if len(word) <= SHOWN_CHARS else f"{word[:SHOWN_CHARS]}… ({len(word)} characters)"
