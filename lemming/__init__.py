"""LeMMing: an organisation of AI agents in a folder, run by a clock of ticks."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.version import __version__

if TYPE_CHECKING:
    from lemming.builder.org_builder import Organisation, build
    from lemming.client.ask_client import AskOutcome, NotAnswered, aask, ask, wait_for
    from lemming.client.event_stream import EventStream, stream_ask, stream_ticks
    from lemming.client.person_actions import answer, approve, deny, list_person_inbox

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
    **dict.fromkeys(("answer", "approve", "deny", "list_person_inbox"), "lemming.client.person_actions"),
    **dict.fromkeys(("EventStream", "stream_ask", "stream_ticks"), "lemming.client.event_stream"),
    **dict.fromkeys(("Organisation", "build"), "lemming.builder.org_builder"),
}
"""Where each name lives: the engine is imported by who asks."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_MOVED = {
    **{name: f"kernel.org.{name}" for name in ("schedule", "config", "organisation", "resume")},
    **{name: f"kernel.base.{name}" for name in ("clock", "contract", "paths")},
    **{name: f"kernel.tools.{name}" for name in ("arguments", "toolset")},
    **{name: f"kernel.{name}" for name in ("access", "files", "journal", "llm", "plugins", "tick", "turn")},
    **{
        name: f"capabilities.{name}"
        for name in ("approvals", "channels", "gates", "mcp", "plans", "skills", "toolbox", "trust")
    },
    "models": "kernel.org.model_entries",
    "kinds": "kernel.base.entry_kinds",
    "quoting": "kernel.base.untrusted_quoting",
    "events": "kernel.journal.engine_events",
    "report": "kernel.journal.turn_report",
    "declared": "kernel.tools.tool_decorator",
    "mail": "kernel.inboxes",
    "when": "capabilities.conditions.predicates",
}
"""Modules that stood in this package up to 0.2.0, and where each is now."""


class _MovedModules:
    """Import hook that reports the new path of a moved module, called after all other finders."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise `ModuleNotFoundError` with the new path of a moved module."""
        package, _, submodule = name.partition(".")
        old = submodule.partition(".")[0]
        if package == __name__ and old in _MOVED:
            message = f"{package}.{old} is {package}.{_MOVED[old]} now"
            raise ModuleNotFoundError(message, name=name)


sys.meta_path.append(_MovedModules)
