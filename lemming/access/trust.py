"""What a person has agreed to: what an organisation makes its engine run or reach outside its folder.

An organisation is a folder that may come from anybody. What its settings name beyond plain turns is put into
sentences (`lemming.inspect.reach`). Those that somebody has agreed to are kept outside the folder, in
`$XDG_STATE_HOME/lemming/agreed/` (else `~/.local/state/...`), one readable file for each organisation; and a
word in `.lemming/made-here` that stands in it too marks one that `lemming init` has made on this machine.
Removing the file takes everything back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.errors import DiskError
from lemming.files import fs
from lemming.files.jsontext import JsonProblem, parse, pretty

MADE_HERE = ".lemming/made-here"
_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True)
class Agreement:
    """What a person has agreed to for the organisation in `base`; nothing when nobody has."""

    base: Path

    def lacks(self, sentences: Iterable[str]) -> list[str]:
        """Return the sentences that nobody has agreed to."""
        wanted = list(sentences)
        if not wanted:
            return []
        kept = self._read()
        if self._is_made_here(kept.get("made_here")):
            return []
        agreed = kept.get("agreed")
        return [sentence for sentence in wanted if not (isinstance(agreed, list) and sentence in agreed)]

    def add(self, sentences: Iterable[str]) -> None:
        """Keep that a person has agreed to these sentences. Raises `DiskError`."""
        kept = self._read()
        agreed = kept.get("agreed")
        all_of_them = dict.fromkeys([*(agreed if isinstance(agreed, list) else []), *sentences])
        self._write({**kept, "org": self._org, "agreed": list(all_of_them)})

    def note_maker(self) -> None:
        """Keep that the organisation has just been made here, so that it is our own. Raises `DiskError`."""
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

    def _is_made_here(self, word: object) -> bool:
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


def state_folder() -> Path:
    """Return where this user's state of LeMMing is kept. Raises `DiskError` for a user without a home."""
    try:
        chosen = os.environ.get("XDG_STATE_HOME", "")
        state = Path(chosen) if os.path.isabs(chosen) else Path.home() / ".local/state"
    except RuntimeError as error:
        raise DiskError("this user has no home", where="lemming/agreed", hint="set XDG_STATE_HOME") from error
    return state / "lemming"
