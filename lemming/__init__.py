"""LeMMing: an organisation of AI agents in a folder, run by a clock of ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lemming.capabilities.requests.ask import AskOutcome, aask, ask

__all__ = ["AskOutcome", "__version__", "aask", "ask"]
__version__ = "0.2.0.dev0"


def __getattr__(name: str) -> Any:
    if name in ("AskOutcome", "aask", "ask"):  # the engine is imported by who asks
        from lemming.capabilities.requests import ask as asking

        return getattr(asking, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
