"""The screens by name: of the package, and of installed capabilities. A screen is imported on use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lemming.kernel.base.errors import UsageError
from lemming.kernel.plugins.capability_loader import missing_reason
from lemming.kernel.plugins.capability_spec import load_object
from lemming.kernel.plugins.capability_table import provided

if TYPE_CHECKING:
    from lemming.queries.screens.screen import Screen

OWN_SCREENS = {
    "status": "lemming.queries.screens.status_screen:STATUS",
    "agents": "lemming.queries.screens.agents_screen:AGENTS",
    "requests": "lemming.queries.screens.requests_screen:REQUESTS",
    "waiting": "lemming.queries.screens.requests_screen:WAITING",
    "findings": "lemming.queries.screens.findings_screen:FINDINGS",
    "outbox": "lemming.queries.screens.entries_screen:OUTBOX",
    "inbox": "lemming.queries.screens.entries_screen:INBOX",
    "cost": "lemming.queries.screens.cost_screen:COST",
    "coming": "lemming.queries.forecast:COMING",
    "models": "lemming.queries.screens.models_screen:MODELS",
    "tools": "lemming.queries.screens.tools_screen:TOOLS",
    "history": "lemming.queries.screens.commits_screen:COMMITS",
    "memory": "lemming.queries.screens.entries_screen:MEMORY",
    "credits": "lemming.queries.screens.cost_screen:CREDITS",
    "logs": "lemming.queries.screens.logs_screen:LOGS",
    "trust": "lemming.queries.screens.trust_screen:TRUST",
    "graph": "lemming.queries.screens.graph_screen:ARROWS",
    "doctor": "lemming.queries.screens.checks_screen:DOCTOR",
    "checks": "lemming.queries.screens.checks_screen:CHECKS",
}
"""The screens of the package, in the order of the page, each with the import path of the declaration."""


def load_screen(name: str) -> Screen:
    """Return a screen by name. Raises `UsageError` for an unknown name, or if its capability is not installed."""
    if name not in OWN_SCREENS and name not in provided("screens"):
        from lemming.kernel.base.jsontext import did_you_mean

        names = list_screen_names()
        raise UsageError(
            f'screen "{name[:80]}" does not exist', hint=did_you_mean(name[:80], names) or ", ".join(names)
        )
    owner, path = provided("screens").get(name, ("", OWN_SCREENS.get(name, "")))
    if owner and (reason := missing_reason(owner)):
        raise UsageError(reason, hint="install lemming-engine again")
    screen: Screen = load_object(path)
    return screen


def list_screen_names() -> list[str]:
    """Return the names of all installed screens."""
    return [*OWN_SCREENS, *(name for name, (owner, _) in provided("screens").items() if not missing_reason(owner))]


def iter_screens() -> Iterator[Screen]:
    """Yield all installed screens, with an import of each declaring module."""
    yield from map(load_screen, list_screen_names())
