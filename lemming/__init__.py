"""LeMMing: an organisation of AI agents in a folder, run by a clock of ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lemming.base.version import __version__

if TYPE_CHECKING:
    from lemming.asking import AskOutcome, aask, ask
    from lemming.asking.streams import EventStream, stream_ask, stream_ticks
    from lemming.building import Organisation, build

__all__ = [
    "AskOutcome",
    "EventStream",
    "Organisation",
    "__version__",
    "aask",
    "ask",
    "build",
    "stream_ask",
    "stream_ticks",
]


def __getattr__(name: str) -> Any:
    if name in ("AskOutcome", "aask", "ask"):  # the engine is imported by who asks
        from lemming import asking

        return getattr(asking, name)
    if name in ("EventStream", "stream_ask", "stream_ticks"):
        from lemming.asking import streams

        return getattr(streams, name)
    if name in ("Organisation", "build"):
        from lemming import building

        return getattr(building, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
