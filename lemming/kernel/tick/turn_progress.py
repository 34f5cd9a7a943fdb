"""Which turns of a tick are over, for calls that are made in the order of the turns."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

CHECK_STOP_S = 0.5


class TurnProgress:
    """Progress of a tick: the agents whose turns are over, and the agents that a call must follow.

    `earlier`: by agent, the agents whose turns began before and share a resource with it.
    """

    def __init__(self, earlier: Mapping[str, Collection[str]], stop: threading.Event) -> None:
        self._earlier, self._stop = earlier, stop
        self._finished: set[str] = set()
        self._changed = threading.Condition()

    def finish(self, name: str) -> None:
        """Note that all turns of an agent are over."""
        with self._changed:
            self._finished.add(name)
            self._changed.notify_all()

    def wait_for_earlier(self, name: str) -> bool:
        """Wait until the turns are over that an agent's call must follow. Return False if the engine is to end."""
        remaining = {*self._earlier.get(name, ())}
        with self._changed:
            while not self._stop.is_set():
                remaining -= self._finished
                if not remaining:
                    return True
                self._changed.wait(CHECK_STOP_S)
        return False
