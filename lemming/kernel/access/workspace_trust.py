"""Permissions an organisation needs outside the folder, and the workspace trust check before they are used.

An organisation's own code is guarded in the whole process: every command starts with the guard, and most load nothing
else of the engine, so this module imports next to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from lemming.kernel.base.errors import NotTrusted

if TYPE_CHECKING:
    from lemming.kernel.org.config import Config
    from lemming.kernel.org.organisation import Organisation
    from lemming.kernel.org.resume import Agent


@dataclass(frozen=True)
class RequiredPermission:
    """A permission beyond plain turns, described in a sentence for the person who grants it.

    `bound_to`: the exact files and settings, by name, as SHA-256. `needs_agreement`: the action requires
    workspace trust, even if no person can be asked.
    """

    does: str
    bound_to: Mapping[str, str] = field(default_factory=dict)
    needs_agreement: bool = False


_guards: list[tuple[Callable[[Organisation], None], list[str]]] = []
"""By block of `guard_code`: `require`, and the folders that a person has agreed to for this run."""


@contextmanager
def guard_code(require: Callable[[Organisation], None]) -> Iterator[None]:
    """Call `require` before an organisation's own code is loaded, while the block runs.

    It raises `NotTrusted` for an organisation without workspace trust. A program with an embedded engine decides itself
    which code runs: without such a block nothing is checked.
    """
    guard = (require, list[str]())
    _guards.append(guard)
    try:
        yield
    finally:
        _guards[:] = [other for other in _guards if other is not guard]  # another thread may have added its own


def allow_code(folder: str | os.PathLike[str]) -> None:
    """Allow the code of organisations in or below a folder for the rest of the block."""
    if _guards:
        _guards[-1][1].append(os.path.realpath(folder))


def require_code_allowed(org: Organisation) -> None:
    """Raise `NotTrusted` for an organisation whose code the block's guard refuses."""
    base = os.path.realpath(org.base)
    allowed = [folder for _, folders in _guards for folder in folders]
    if _guards and not any(base == folder or base.startswith(f"{folder}/") for folder in allowed):
        _guards[-1][0](org)


class WorkspaceTrust:
    """Trust check before a tick's settings, and the files and tools they name, are used; by default no check."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self.require: Callable[[Config, Mapping[str, Agent] | None], None] = lambda _, __: None
        """Raises `NotTrusted`; gets the agents too once they have been read."""
        self.is_granted: Callable[[RequiredPermission], bool] = lambda _: True
        """Returns True if a person has agreed to a permission that an entry needs."""
        self.files: Mapping[str, str] | None = None
        """The SHA-256 of each file whose code may run, in hex; None allows any content."""

    def require_sources(self, sources: Mapping[str, bytes]) -> None:
        """Raise `NotTrusted` for source code, by file, without trust or changed since."""
        if self.files is None:
            require_code_allowed(self._org)
            return
        for file, source in sources.items():
            # The very bytes that will run: a file read again for the import could have changed.
            if self.files.get(file) != sha256(source).hexdigest():
                hint = "review it with `lemming trust`, accept it with `lemming trust --yes`"
                raise NotTrusted("this code has changed since it was trusted", where=file, hint=hint)
