"""Files that say how far other files are trusted: `trust/<path of the file>.json`, written with the file.

A file without one is as far trusted as whoever it belongs to. `.all.json` in a folder is about all that is
below it, what a command may have written there. Of the two the later one counts, of one tick the lower.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, NamedTuple

from lemming.capabilities.trust.authors import Authors
from lemming.capabilities.trust.words import AGENT, Part
from lemming.kernel.base.jsontext import JsonProblem, parse, pretty
from lemming.kernel.base.paths import ALL_RESUMES, TRUST
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import open_regular, walk
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.refusals import require_about_one_file
from lemming.kernel.files.stamps import is_there
from lemming.kernel.org.organisation import Organisation, OrgPath

ALL = ".all.json"
MARK_LIMIT_BYTES = 64 << 10
LONGEST_NAME_BYTES = 240  # a name has 255, and `.json` comes behind it
_LIKE_A_MARK = re.compile(r"\.json(\.d)*\Z")
_LIKE_ALL = re.compile(r"\.all\.*\Z")
_RESUME = re.compile(r"agents/[^/]+/resume\.json")
_NONE: Mapping[str, bytes] = {}


class Mark(NamedTuple):
    """What a mark says: of which file, the word, and the tick in which it was written."""

    file: str
    word: str
    tick: float


def mark_of(place: str) -> str:
    """Return where the mark of a file is, by `FileEffect.place`.

    >>> mark_of("shared/notes.txt"), mark_of("shared/a.json/b")
    ('trust/shared/notes.txt.json', 'trust/shared/a.json.d/b.json')
    """
    folder, _, name = place.rpartition("/")
    if _LIKE_ALL.match(name):
        name = f"{name}."
    return f"{_folder_of(folder)}/{_short(name)}.json"


def mark_below(folder: str) -> str:
    """Return where the mark of all that is below a folder is.

    >>> mark_below("shared")
    'trust/shared/.all.json'
    """
    return f"{_folder_of(folder)}/{ALL}"


def _folder_of(folder: str) -> str:
    """Return where the marks of the files in a folder are: no name there is that of a mark."""
    parts = ["@", *folder[1:].split("/")] if folder.startswith("/") else folder.split("/")
    names = [_short(f"{part}.d" if _LIKE_A_MARK.search(part) else part) for part in parts if part]
    return "/".join([TRUST, *names])


def _short(name: str) -> str:
    raw = name.encode("utf-8", "replace")
    return name if len(raw) <= LONGEST_NAME_BYTES else sha256(raw).hexdigest()


def mark_effect(file: str, word: str, tick: int, agent: str, sources: Iterable[Part]) -> FileEffect:
    """Return the mark that says how far a file is trusted, who wrote it when, and what made it so.

    A `file` that ends with `/` is all that is below that folder.
    """
    where = mark_below(file[:-1]) if file.endswith("/") else mark_of(file)
    named = [{"is": source.word, "of": source.source} for source in sources]
    plain = {"file": file, "trust": word, "tick": tick, "agent": agent, "from": named}
    return FileEffect(where, pretty(plain))


class Marks:
    """The marks of an organisation as one turn sees them; `staged` are files that are not on the disk yet."""

    def __init__(self, org: Organisation, authors: Authors, staged: Mapping[str, bytes] = _NONE) -> None:
        self._org, self._authors, self._staged = org, authors, staged
        self._staged_marks = sorted(place for place in staged if place.startswith(f"{TRUST}/"))
        self._has_any = bool(self._staged_marks) or is_there(f"{org.base}/{TRUST}")

    def of(self, place: str) -> Part:
        """Return how far a file is trusted; `place` as in `FileEffect.place`."""
        word = self._authors.vouched(self.marked(place), place, lambda: self._digest(place))
        return Part(word, place)

    def marked(self, place: str) -> str:
        """Return how far a file is trusted if nobody vouches for it."""
        order = self._authors.order
        words = [self._of_home(place)]
        if self._has_any:
            own = self._mark(mark_of(place))
            above = [mark for mark in map(self._mark, self._above(place)) if mark]
            words += [mark.word for mark in above if own is None or mark.tick >= own.tick]
            words += [own.word] if own else []
        return order.lowest(words)

    def below(self, place: str) -> Iterator[Part]:
        """Yield how far files below a folder are trusted, where any mark says so, and the folder's home.

        `place` as in `lemming.tools.Places`.
        """
        yield Part(self._of_home(place), place)
        yield from self._homes_below(place)
        if not self._has_any:
            return
        for where in self._above(f"{place}/"):
            if mark := self._mark(where):
                yield Part(mark.word, place)
        for where in self._all():
            if (mark := self._mark(where)) and _is_below(mark, where, place):
                word = self._authors.order.known(mark.word)
                if self._authors.order.is_low(word) and self._is_there(mark.file):
                    yield self.of(mark.file) if _is_one_file(mark.file) else Part(word, mark.file or where)

    def _is_there(self, file: str) -> bool:
        """Return whether there is a file that a mark is about."""
        return not _is_one_file(file) or file in self._staged or is_there(os.path.join(self._org.base, file))

    def _digest(self, place: str) -> str:
        """Return the SHA-256 of a file, in hex; empty for what is none."""
        if place in self._staged:
            return sha256(self._staged[place]).hexdigest()
        return digest_of(self._org, place)

    def _of_home(self, place: str) -> str:
        """Return how far a file is trusted because of where it is: in a channel's folder, say."""
        homes = self._authors.homes
        inside = (word for folder, word in homes.items() if place == folder or place.startswith(f"{folder}/"))
        return self._authors.order.lowest((AGENT, *inside))

    def _homes_below(self, place: str) -> Iterator[Part]:
        """Yield how far the files are trusted of those whose folders are below another."""
        for folder, word in self._authors.homes.items():
            is_below = place == "/" or folder.startswith(f"{place}/")
            if is_below and _holds_anything(os.path.join(self._org.base, folder)):
                yield Part(word, folder)

    @staticmethod
    def _above(place: str) -> Iterator[str]:
        """Yield the marks that are about all that is below the folders of a file."""
        folder = place
        while (folder := folder.rpartition("/")[0]) and folder != "/":
            yield mark_below(folder)

    def _all(self) -> Iterator[str]:
        """Yield where all marks are, sorted."""
        found = set(self._staged_marks)
        above = len(f"{self._org.base}/")
        for _, _, files in walk(f"{self._org.base}/{TRUST}"):
            found.update(file.path[above:] for file in files if file.name.endswith(".json"))
        yield from sorted(found)

    def _mark(self, where: str) -> Mark | None:
        """Return what a mark says; None where there is none. A damaged one trusts nobody, for ever."""
        if where in self._staged:
            return _decoded(self._staged[where])
        try:
            return self._org.files.value(where, _decoded, limit_bytes=MARK_LIMIT_BYTES)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return _DAMAGED


def digest_of(base: OrgPath, place: str) -> str:
    """Return the SHA-256 of a file of any size, in hex; empty for what is no regular file.

    Raises `DiskError` when the disk does not say.
    """
    path = os.path.join(base, place)
    try:
        with open_regular(path) as file:
            return file_digest(file, "sha256").hexdigest()
    except ValueError:
        return ""
    except OSError as error:
        # Else what a person vouches for would count, or not, by what the disk happens to say.
        require_about_one_file(path, error)
        return ""


def _holds_anything(folder: str) -> bool:
    """Return whether there is anything in a folder."""
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except OSError as error:
        require_about_one_file(folder, error)
        return False


def _is_one_file(file: str) -> bool:
    return bool(file) and not file.endswith("/")


def _is_below(mark: Mark, where: str, place: str) -> bool:
    if place == ALL_RESUMES:  # else a star is a letter, as any other in a folder's name
        return bool(_RESUME.fullmatch(mark.file))
    if place == "/" or not mark.file:
        return place == "/" or where.startswith(f"{_folder_of(place)}/")
    return mark.file == place or mark.file.startswith(f"{place}/")


_DAMAGED = Mark("", "", float("inf"))  # the least trusted, and no later mark undoes it


def _decoded(raw: bytes) -> Mark:
    try:
        plain: Any = parse(raw, limit_bytes=MARK_LIMIT_BYTES)
    except JsonProblem:
        return _DAMAGED
    match plain:
        case {"file": str(file), "trust": str(word), "tick": int(tick)}:
            return Mark(file, word, tick)
    return _DAMAGED


def rename_marks(base: OrgPath, old: str, new: str) -> None:
    """Copy the marks of what is below one folder to those of another, as which it is about to be known."""
    before, after = _folder_of(old), _folder_of(new)
    for _, _, files in walk(f"{base}/{before}"):
        for found in files:
            where = found.path.removeprefix(f"{base}/{before}")
            raw = fs.read_bytes(found.path, MARK_LIMIT_BYTES)
            with suppress(JsonProblem, KeyError, TypeError):  # one that is damaged trusts nobody there too
                plain: Any = parse(raw, limit_bytes=MARK_LIMIT_BYTES)
                raw = pretty({**plain, "file": new + str(plain["file"]).removeprefix(old)})
            fs.publish(Path(base), f"{after}{where}", raw)


def forget_marks(base: OrgPath, folder: str) -> None:
    """Take away the marks of what was below a folder."""
    if os.path.isdir(f"{base}/{_folder_of(folder)}"):
        fs.remove_tree(Path(base), _folder_of(folder))
