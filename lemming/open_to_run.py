"""An organisation opened to be run: with it come those who are told what happens, beside the caller."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager

from lemming.clock import Clock
from lemming.config import Config
from lemming.events import Observer
from lemming.tick.runtime import Runtime, open_org


def open_to_run(
    base_path: str | os.PathLike[str],
    *,
    command: str,
    clock: Clock | None,
    notify: Observer,
    stop: threading.Event | None,
    batch: bool = False,
) -> AbstractContextManager[Runtime]:
    """Hold an organisation's lock for the length of the block. Raises as `open_org`."""
    return open_org(
        base_path,
        command=command,
        clock=clock,
        notify=notify,
        stop=stop,
        batch=batch,
        observers_of=observers_of,
    )


def observers_of(runtime: Runtime, config: Config) -> list[Observer]:
    """Return who is to be told by these settings; nothing is imported for what is off."""
    if config.org.history == "off":
        return []
    from lemming.history.recorder import Recorder

    return [Recorder(runtime, is_flushed=config.org.durability != "off").hear]
