"""What running an organisation does outside its folder, to be agreed to, and what is asked before it does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from lemming.kernel.base.errors import NotTrusted

if TYPE_CHECKING:  # every command begins with a guard, and most load nothing else of the engine
    from lemming.kernel.org.config import Config
    from lemming.kernel.org.organisation import Organisation
    from lemming.kernel.org.resume import Agent


@dataclass(frozen=True)
class Reach:
    """One thing that running does beyond plain turns, in a sentence that a person can agree to.

    `bound_to`: what exactly it is said of, by the name of a file or a setting, as SHA-256. `needs_agreement`:
    it is not done before somebody has agreed, also where nobody can be asked.
    """

    does: str
    bound_to: Mapping[str, str] = field(default_factory=dict)
    needs_agreement: bool = False


@dataclass(eq=False)
class CodeGuard:
    """What stands before the code of organisations' own in this process, for a block.

    `require` raises `NotTrusted` for an organisation whose code nobody has agreed to. What is in or below the
    `allowed` folders is not asked about: a person has agreed to it for this run.
    """

    require: Callable[[Organisation], None]
    allowed: list[str] = field(default_factory=list)

    def look_at(self, org: Organisation) -> None:
        """Raise `NotTrusted` unless the organisation's code may be loaded."""
        base = os.path.realpath(org.base)
        allowed = [folder for guard in _guards for folder in guard.allowed]
        if not any(base == folder or base.startswith(f"{folder}/") for folder in allowed):
            self.require(org)


_guards: list[CodeGuard] = []


@contextmanager
def code_guarded(require: Callable[[Organisation], None]) -> Iterator[None]:
    """Have `require` asked, while the block runs, before code of an organisation's own is loaded.

    A program that embeds the engine decides for itself what it runs: without such a block nobody is asked.
    """
    guard = CodeGuard(require)
    _guards.append(guard)
    try:
        yield
    finally:
        _guards.remove(guard)  # which another thread's may stand behind


def allow_code(folder: str | os.PathLike[str]) -> None:
    """Ask no more, in this block, about the code of organisations in or below a folder."""
    if _guards:
        _guards[-1].allowed.append(os.path.realpath(folder))


class Consent:
    """What is asked before the settings of a tick, and what they name, are used; by default nothing.

    Files of tools are loaded behind this one door: `require_sources` is called before any of them is.
    """

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self.require: Callable[[Config, Mapping[str, Agent] | None], None] = lambda _, __: None
        """Raises `NotTrusted`; is given the agents too once they have been read."""
        self.files: Mapping[str, str] | None = None
        """The SHA-256 of each file whose code may run, in hex; None: whatever it says."""

    def require_sources(self, sources: Mapping[str, bytes]) -> None:
        """Raise `NotTrusted` for code, by file, that nobody agreed to, or that has changed since."""
        if self.files is None and _guards:
            _guards[-1].look_at(self._org)
        if self.files is None:
            return
        for file, source in sources.items():
            if self.files.get(file) != sha256(source).hexdigest():
                hint = "`lemming trust` shows it, `lemming trust --yes` agrees to it"
                raise NotTrusted(
                    "this code has changed, and nobody here has agreed to it", where=file, hint=hint
                )
