"""What an organisation makes its engine run or reach outside its folder, and what a person has agreed to.

An organisation is a folder that may come from anybody. What its settings name beyond plain turns is put into
sentences, and the sentences that somebody has agreed to are kept outside the folder, in
`$XDG_STATE_HOME/lemming/agreed/` (else `~/.local/state/...`), one readable file for each organisation. One
that `lemming init` has made on this machine is its maker's own: a word in its `.lemming/made-here` that
stands in that file too says so. Removing the file takes everything back.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lemming.agents import Agent
from lemming.config import Config, ModelEntry
from lemming.errors import DiskError
from lemming.files import fs
from lemming.files.jsontext import JsonProblem, parse, pretty
from lemming.redaction import without_userinfo

MADE_HERE = ".lemming/made-here"
_LIMIT_BYTES = 1 << 20
_USUAL_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY")
_DOES_WHAT = "does what "
_OWN_MODULES = "lemming."


def reaches(base: Path, config: Config, agents: Iterable[Agent]) -> list[str]:
    """Return in sentences what running the organisation does outside its folder, in a fixed order."""
    return list(dict.fromkeys([*_owner(base), *_settings(config, agents), *_folders(base, agents)]))


def _owner(base: Path) -> Iterator[str]:
    owner, us = base.stat().st_uid, os.geteuid()
    behind_sudo = us == 0 and os.environ.get("SUDO_UID") == str(owner)
    if owner != us and not behind_sudo:
        name = f"user {owner}"
        with contextlib.suppress(KeyError):
            name = pwd.getpwuid(owner).pw_name
        yield f"{_DOES_WHAT}{name}, who owns the folder, has written into it, with your rights"


def is_about_the_owner(sentence: str) -> bool:
    """Return whether a sentence of `reaches` says that the folder is another user's."""
    return sentence.startswith(_DOES_WHAT)


def _settings(config: Config, agents: Iterable[Agent]) -> Iterator[str]:
    for name in config.org.plugins:
        if not name.startswith(_OWN_MODULES):
            yield f"imports the Python module {name}"
    if config.org.executor == "dask":
        yield f"has its calls made by the cluster at {config.org.executor_address}, which may run code here"
    if config.org.shell.sandbox == "none":
        for agent in agents:
            if "shell" in agent.permissions.tools:
                yield f"lets {agent.name} run any command with your rights (shell.sandbox is none)"
    for entry in config.models.values():
        yield from _model(entry)


def _model(entry: ModelEntry) -> Iterator[str]:
    options = entry.options
    if entry.provider == "cli":
        words = options.get("command")
        command = " ".join(map(str, words)) if isinstance(words, list) else str(words)
        rest = "".join(f", {key} {json.dumps(options[key])}" for key in ("env", "cwd") if options.get(key))
        yield f"runs the program: {command}{rest}"
        return
    named, address = options.get("api_key_env"), options.get("base_url") or options.get("host")
    if entry.provider == "ollama":
        named = "OLLAMA_API_KEY"
    shown = without_userinfo(str(address or "")).partition("?")[0]
    if address and not is_this_machine(str(address)):
        yield f"sends prompts{f', and what the variable {named} holds,' if named else ''} to {shown}"
    elif named not in (None, *_USUAL_KEYS):
        yield f"sends what the variable {named} holds to {shown or entry.provider}"


def is_this_machine(address: str) -> bool:
    """Return whether an address, with a scheme or none, is one of this machine's.

    >>> is_this_machine("http://127.0.0.1:8000/v1"), is_this_machine("gpu:11434")
    (True, False)
    >>> is_this_machine("http://127.far.example/?://127.0.0.1")
    False
    """
    try:
        name = urlsplit(address if "://" in address else f"//{address}").hostname or "localhost"
    except ValueError:
        return False
    try:
        number = ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return number.is_loopback or number.is_unspecified


def _folders(base: Path, agents: Iterable[Agent]) -> Iterator[str]:
    for agent in agents:
        files = agent.permissions.file_access
        for does, granted in (("read", files.allow_read), ("write", files.allow_write)):
            for folder in granted:
                if os.path.isabs(folder) and not Path(folder).resolve().is_relative_to(base.resolve()):
                    yield f"lets {agent.name} {does} below {folder}"


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
