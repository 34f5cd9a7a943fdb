"""LeMMing: an organisation of AI agents in a folder, run by a clock of ticks."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.version import __version__

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from lemming.builder.org_builder import Organisation, build
    from lemming.client.ask_client import (
        AskOutcome,
        NotAnswered,
        aask,
        answer,
        approve,
        ask,
        deny,
        list_person_inbox,
        wait_for,
    )
    from lemming.client.event_stream import EventStream, stream_ask, stream_ticks

__all__ = [
    "AskOutcome",
    "EventStream",
    "NotAnswered",
    "Organisation",
    "__version__",
    "aask",
    "answer",
    "approve",
    "ask",
    "build",
    "deny",
    "list_person_inbox",
    "stream_ask",
    "stream_ticks",
    "wait_for",
]
_HOMES = {
    **dict.fromkeys(("AskOutcome", "NotAnswered", "aask", "ask", "wait_for"), "lemming.client.ask_client"),
    **dict.fromkeys(("answer", "approve", "deny", "list_person_inbox"), "lemming.client.ask_client"),
    **dict.fromkeys(("EventStream", "stream_ask", "stream_ticks"), "lemming.client.event_stream"),
    **dict.fromkeys(("Organisation", "build"), "lemming.builder.org_builder"),
}
"""The module of each public name; the engine is imported only on use."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in ("engine", "errors"):  # `from lemming import engine` asks here first
        return import_module(f"lemming.{name}")
    from lemming.kernel.base.aliases import find_renamed

    return find_renamed(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


class _OldModules:
    """Import hook for renamed modules, called after all other finders."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a renamed module, or None."""
        if not name.startswith(f"{__name__}."):
            return None
        from lemming.libraries.old_modules import find_old_module

        return find_old_module(name)


sys.meta_path.append(_OldModules)
