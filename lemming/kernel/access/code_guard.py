"""Guard of an organisation's own code in this process: no command loads such code without trust.

Every command starts with a guard, and most load nothing else of the engine, so this module imports next to
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lemming.kernel.org.organisation import Organisation


class CodeGuard:
    """Guard of an organisation's own code in this process, for a block.

    `require` raises `NotTrusted` for an organisation without workspace trust. Organisations in or
    below the `allowed` folders are not checked: a person has agreed to them for this run.
    """

    def __init__(self, require: Callable[[Organisation], None]) -> None:
        self.require = require
        self.allowed: list[str] = []

    def check_org(self, org: Organisation) -> None:
        """Raise `NotTrusted` unless the organisation's code may be loaded."""
        base = os.path.realpath(org.base)
        allowed = [folder for guard in _guards for folder in guard.allowed]
        if not any(base == folder or base.startswith(f"{folder}/") for folder in allowed):
            self.require(org)


_guards: list[CodeGuard] = []


@contextmanager
def guard_code(require: Callable[[Organisation], None]) -> Iterator[None]:
    """Call `require` before an organisation's own code is loaded, while the block runs.

    A program with an embedded engine decides itself which code runs: without such a block nothing is checked.
    """
    guard = CodeGuard(require)
    _guards.append(guard)
    try:
        yield
    finally:
        _guards.remove(guard)  # not the last one if another thread added its own


def allow_code(folder: str | os.PathLike[str]) -> None:
    """Allow the code of organisations in or below a folder for the rest of the block."""
    if _guards:
        _guards[-1].allowed.append(os.path.realpath(folder))


def require_code_allowed(org: Organisation) -> None:
    """Raise `NotTrusted` for an organisation whose code the block's guard refuses."""
    if _guards:
        _guards[-1].check_org(org)
