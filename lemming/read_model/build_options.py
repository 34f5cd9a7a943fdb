"""Options of a build: commands show a bar and use all cores, a page or a program does neither."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from lemming.kernel.org.organisation import Organisation

Progress = Callable[[str, int, int], object]
"""Receives the current step, the number done and the total, for a waiting person."""


class BuildOptions:
    """The options of an organisation's read model: `org.get_cache(BuildOptions)`.

    `show_progress`: opens the display of a build. `uses_all_cores`: read many journals in several processes
    (`map_chunks`).
    """

    def __init__(self, _: Organisation) -> None:
        self.show_progress: Callable[[], AbstractContextManager[Progress]] = lambda: nullcontext(lambda *_: None)
        self.uses_all_cores = False
