"""An organisation opened to be run: with it come those who are told what happens, beside the caller."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from lemming.kernel.base.clock import Clock
from lemming.kernel.base.errors import LemmingError, NotTrusted, Problem
from lemming.kernel.journal.events import Event, Observer
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capabilities import capability
from lemming.kernel.plugins.errors import place_of, words_of
from lemming.kernel.plugins.registry import offered
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.runtime import Runtime, open_org
from lemming.service.unfinished_rename import require_no_rename

BATCHES = "batches"


@contextlib.contextmanager
def open_to_run(
    base_path: str | os.PathLike[str],
    *,
    command: str,
    clock: Clock | None,
    notify: Observer,
    stop: threading.Event | None,
    batch: bool = False,
    watch: bool = False,
) -> Iterator[Runtime]:
    """Hold an organisation's lock for the length of the block; `watch`: answers are told of as they come.

    Raises as `open_org`.
    """
    opened: Runtime | None = None
    if batch:
        capability(BATCHES)  # refused here where it is not installed, before anything is begun
    try:
        with open_org(
            base_path,
            command=command,
            clock=clock,
            notify=notify,
            stop=stop,
            gathered_by=BATCHES if batch else "",
            observers_of=observers_of,
        ) as opened:
            require_no_rename(opened.base)
            opened.watches = watch
            try:
                yield opened
            except NotTrusted:  # nor is the command run that tells of errors: it is the organisation's
                raise
            except LemmingError as error:
                _notify(error, opened)
                raise
    finally:
        if opened is not None:
            opened.at_end()


def observers_of(runtime: Runtime, config: Config) -> list[Observer]:
    """Return who is to be told by these settings; nothing is imported for what is off."""
    observers: list[Observer] = []
    if config.org.history != "off":
        from lemming.history.recorder import Recorder

        observers.append(Recorder(runtime, is_flushed=config.org.durability != "off").hear)
    if config.org.on_failure or config.org.on_waiting:
        from lemming.service.alerts import Alerts

        observers.append(runtime.org.own(Alerts).under(runtime, config.org, _waiting_for_people).hear)
    return [*observers, *own_observers(runtime, tuple(config.org.plugins))]


def _waiting_for_people(org: Organisation) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield what waits for a person, by what names it: a request, and who of several is to answer."""
    from lemming.capabilities.requests.waiting import waiting

    for item in waiting(org):
        yield f"{item.identity} {item.person}", {"about": item.person, "text": item.line, "id": item.id}


def _notify(error: LemmingError, runtime: Runtime) -> None:
    """Have a person told that a run ends with an error, where the settings have a command for that."""
    settings, tick = runtime.settings, -1
    with contextlib.suppress(LemmingError):  # what could not be read, it ends with anyway
        settings = settings or load_config(runtime.org).org
        tick = load_tick(runtime.org)
    if settings is not None and settings.on_failure:
        from lemming.service.alerts import Alerts

        alerts = runtime.org.own(Alerts).under(runtime, settings, _waiting_for_people)
        alerts.stopped_by(error, tick)


def own_observers(runtime: Runtime, plugins: tuple[str, ...]) -> Iterator[Observer]:
    """Yield the observers that an organisation's plugins bring, by name; each lasts for a tick."""
    for name, function in offered("observer", plugins, dict).items():
        yield _Own(runtime, name, function).hear


class _Own:
    """An observer that hears nothing more once it has raised something."""

    def __init__(self, runtime: Runtime, name: str, function: Observer) -> None:
        self._runtime, self._name, self._function, self._broke = runtime, name, function, False

    def hear(self, event: Event) -> None:
        """Tell it an event."""
        if self._broke:
            return
        try:
            self._function(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: the turn is not to blame
            self._broke = True
            why = f"the observer {self._name} broke at {event.kind}: {words_of(error)}"
            hint = "it hears nothing more in this tick; mend it"
            where = place_of(error)
            self._runtime.tell(Problem(why, where, hint=hint, severity="warning", code="LMG-404"))
