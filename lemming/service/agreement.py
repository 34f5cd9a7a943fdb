"""What a person has agreed to: what an organisation makes its engine run or reach outside its folder.

An organisation is a folder that may come from anybody. What its settings name beyond plain turns is put into
sentences (`lemming.facts.reach`), each bound to what it was said of: the contents of files, the exact words
of a command. What somebody has agreed to is kept outside the folder, in `$XDG_STATE_HOME/lemming/agreed/`
(else `~/.local/state/...`), one readable file for each organisation; and a word in `.lemming/made-here` that
stands in it too marks one that `lemming init` has made on this machine. Removing the file takes everything
back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.kernel.access.trust import Reach
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.jsontext import JsonProblem, parse, pretty
from lemming.kernel.files import fs
from lemming.kernel.files.real_place import real_path
from lemming.kernel.files.stamps import is_file, is_folder, is_there

MADE_HERE = ".lemming/made-here"
_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True)
class Missing:
    """Something that nobody has agreed to; `changed` names what is otherwise than when somebody did."""

    reach: Reach
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.changed:
            return self.reach.does
        return f"{self.reach.does} (changed since somebody agreed to it: {', '.join(self.changed)})"


@dataclass(frozen=True)
class Agreement:
    """What a person has agreed to for the organisation in `base`; nothing when nobody has."""

    base: Path

    def lacks(self, reaches: Iterable[Reach]) -> list[Missing]:
        """Return what nobody has agreed to, or not as it is now."""
        wanted = list(reaches)
        if not wanted:
            return []
        kept = self._read()
        agreed, is_made_here = _agreed_in(kept), self._is_made_here(kept)
        if self._is_ours(kept):
            return []
        ours = kept.get("ours")
        if is_made_here and isinstance(ours, dict):
            agreed = {**ours, **agreed}
        return [
            Missing(reach, _changed(agreed.get(reach.does, reach.bound_to), reach.bound_to))
            for reach in wanted
            if agreed.get(reach.does) != reach.bound_to
        ]

    def add(self, reaches: Iterable[Reach]) -> None:
        """Keep that a person has agreed to these as they are now. Raises `DiskError`."""
        kept = self._read()
        agreed = _agreed_in(kept) | {reach.does: dict(reach.bound_to) for reach in reaches}
        self._write({**kept, "org": self._org, "agreed": agreed})

    def note_ours(self, reaches: Iterable[Reach]) -> None:
        """Keep what one made here runs, so that all else is asked about once git has fetched into it.

        Raises `DiskError`.
        """
        ours = {reach.does: dict(reach.bound_to) for reach in reaches}
        kept = self._read() if ours else {}
        if kept.get("ours") != ours and self._is_ours(kept):
            self._write({**kept, "ours": ours})

    def note_maker(self) -> None:
        """Keep that the organisation has just been made here, so that it is our own. Raises `DiskError`."""
        # Not to be guessed, or a folder from elsewhere could say of itself that it was made here.
        word = os.urandom(16).hex()
        fs.publish(self.base, MADE_HERE, f"{word}\n".encode())
        self._write({"org": self._org, "made_here": word})

    @property
    def file(self) -> Path:
        """Where it is kept."""
        return state_folder() / "agreed" / self._name

    @property
    def _name(self) -> str:
        return f"{sha256(os.fsencode(self._org)).hexdigest()[:24]}.json"

    @property
    def _org(self) -> str:
        return str(self.base.resolve())

    @property
    def is_ours(self) -> bool:
        """Whether it was made here, and git has brought nothing into it from elsewhere."""
        return self._is_ours(self._read())

    def _is_ours(self, kept: Mapping[str, Any]) -> bool:
        return self._is_made_here(kept) and not has_fetched(self.base)

    def _is_made_here(self, kept: Mapping[str, Any]) -> bool:
        word = kept.get("made_here")
        try:
            found = fs.read_bytes(self.base / MADE_HERE, 100).decode("ascii", "replace").strip()
        except OSError:
            return False
        return isinstance(word, str) and bool(word) and found == word

    def _read(self) -> dict[str, Any]:
        try:
            kept = parse(fs.read_bytes(self.file, _LIMIT_BYTES))
        except (OSError, JsonProblem):
            return {}
        return kept if isinstance(kept, dict) and kept.get("org") == self._org else {}

    def _write(self, kept: dict[str, Any]) -> None:
        folder = state_folder()
        fs.make_root(folder)
        fs.publish(folder, f"agreed/{self._name}", pretty(kept))


def _agreed_in(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was agreed to by sentence; before contents were kept, it was a list of sentences."""
    agreed = kept.get("agreed")
    if isinstance(agreed, list):
        return {sentence: {} for sentence in agreed if isinstance(sentence, str)}
    return agreed if isinstance(agreed, dict) else {}


def _changed(agreed: object, now: Mapping[str, str]) -> tuple[str, ...]:
    before = agreed if isinstance(agreed, dict) else {}
    return tuple(name for name in sorted({*before, *now}) if before.get(name) != now.get(name))


def state_folder() -> Path:
    """Return where this user's state of LeMMing is kept. Raises `DiskError` for a user without a home."""
    try:
        chosen = os.environ.get("XDG_STATE_HOME", "")
        state = Path(chosen) if os.path.isabs(chosen) else Path.home() / ".local/state"
    except RuntimeError as error:
        raise DiskError("this user has no home", where="lemming/agreed", hint="set XDG_STATE_HOME") from error
    return state / "lemming"


# --- whether git has fetched ---------------------------------------------------------------------
# `FETCH_HEAD` is written by every fetch and pull (git-scm.com/docs/gitrevisions). A folder may lie deep in a
# repository, and `.git` may be a file that says where it is (git-scm.com/docs/gitrepository-layout).


_POINTER_LIMIT_BYTES = 1 << 13


def has_fetched(folder: Path) -> bool:
    """Return whether a repository that the folder lies in has ever fetched; one that cannot be read has.

    Raises `DiskError` when the disk does not say.
    """
    here = Path(real_path(str(folder)))
    return any(_has_fetched(inner / ".git") for inner in (here, *here.parents))


def _has_fetched(git: Path) -> bool:
    if is_folder(str(git)):
        return is_there(f"{git}/FETCH_HEAD")
    if not is_file(str(git)):
        return False
    try:
        work_tree = _named(git, "gitdir: ")
        common = work_tree / "commondir"
        folders = [work_tree, _named(common, "") if is_file(str(common)) else work_tree]
    except OSError:
        return True  # what cannot be told counts as fetched
    return any(is_there(f"{folder}/FETCH_HEAD") for folder in folders)


def _named(file: Path, prefix: str) -> Path:
    """Return the folder that a file of git's names, which may be relative to its own."""
    text = os.fsdecode(fs.read_bytes(file, _POINTER_LIMIT_BYTES)).strip()
    return file.parent / text.removeprefix(prefix)
