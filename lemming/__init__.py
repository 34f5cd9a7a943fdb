"""LeMMing: an organisation of AI agents in a folder, run by a clock of ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lemming.base.version import __version__

if TYPE_CHECKING:
    from lemming.asking import AskOutcome, aask, ask
    from lemming.building import build

__all__ = ["AskOutcome", "__version__", "aask", "ask", "build"]


def __getattr__(name: str) -> Any:
    if name in ("AskOutcome", "aask", "ask"):  # the engine is imported by who asks
        from lemming import asking

        return getattr(asking, name)
    if name == "build":
        from lemming.building import build

        return build
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
