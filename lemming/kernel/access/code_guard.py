"""What stands before the code of organisations' own in this process: no command loads it unasked.

Every command begins with a guard, and most load nothing else of the engine: so this imports next to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lemming.kernel.org.organisation import Organisation


class CodeGuard:
    """What stands before the code of organisations' own in this process, for a block.

    `require` raises `NotTrusted` for an organisation whose code nobody has agreed to. What is in or below the
    `allowed` folders is not asked about: a person has agreed to it for this run.
    """

    def __init__(self, require: Callable[[Organisation], None]) -> None:
        self.require = require
        self.allowed: list[str] = []

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


def require_code_allowed(org: Organisation) -> None:
    """Raise `NotTrusted` for an organisation whose code the block's guard does not let be loaded."""
    if _guards:
        _guards[-1].look_at(org)
