"""The words of a command that may name files, and what in it names others than it says. Pure.

No shell is imitated: a word too many binds a file too many, and what a shell would make of the rest is said
to be unbound, in words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

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
    said = [*dict.fromkeys(_said_of(command))]
    more = [f"and {len(said) - MOST_SAID} more words of this kind"] if len(said) > MOST_SAID else []
    return [*said[:MOST_SAID], *more, ALWAYS]


def _said_of(command: str) -> Iterator[str]:
    for word in _SPACES.split(command):
        if "$" in word or "`" in word:
            yield f"{_shown(word)}: what it stands for when it runs"
        elif re.search(r"[*?\[{~]", word):
            yield f"{_shown(word)}: which files it stands for when it runs"
        elif _ASSIGNMENT.match(word):
            yield f"{_shown(word)}: what a variable of that name changes"
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


def _shown(word: str) -> str:
    return word if len(word) <= SHOWN_CHARS else f"{word[:SHOWN_CHARS]}… ({len(word)} characters)"
