"""Open an organisation to run ticks, with the observers from the settings."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from lemming.kernel.base.clock import Clock
from lemming.kernel.base.errors import LemmingError, NotTrusted, Problem
from lemming.kernel.journal.engine_events import Event, Observer
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import get_capability
from lemming.kernel.plugins.plugin_registry import collect_items
from lemming.kernel.plugins.provider_errors import describe_exception, locate_error
from lemming.kernel.tick.runtime import Runtime, open_org
from lemming.kernel.tick.tick_counter import load_tick
from lemming.operations.pending_rename import require_no_rename

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
    """Hold the lock of an organisation in the block. `watch`: report answers in calls. Raises as `open_org` does."""
    runtime: Runtime | None = None
    if batch:
        get_capability(BATCHES)  # fail before the start if the capability is not installed
    try:
        with open_org(
            base_path,
            command=command,
            clock=clock,
            notify=notify,
            stop=stop,
            batching_capability=BATCHES if batch else "",
            build_observers=build_observers,
        ) as runtime:
            require_no_rename(runtime.base)
            runtime.is_streaming = watch
            try:
                yield runtime
            except NotTrusted:  # do not run the alert command either: it belongs to the untrusted organisation
                raise
            except LemmingError as error:
                _alert_engine_error(error, runtime)
                raise
    finally:
        if runtime is not None:
            runtime.at_end()


def build_observers(runtime: Runtime, config: Config) -> list[Observer]:
    """Build the observers from the settings. Code for disabled features is not imported."""
    observers: list[Observer] = []
    if config.org.history != "off":
        from lemming.git_history.recorder import Recorder

        observers.append(Recorder(runtime, is_flushed=config.org.durability != "off").on_event)
    if config.org.on_failure or config.org.on_waiting:
        from lemming.operations.alerts import Alerts

        observers.append(runtime.org.get_cache(Alerts).begin_tick(runtime, config.org, _iter_waiting_items).on_event)
    return [*observers, *build_plugin_observers(runtime, tuple(config.org.plugins))]


def _iter_waiting_items(org: Organisation) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the items waiting for people with a unique name: request and person."""
    from lemming.obligations.waiting_items import list_person_inbox

    for item in list_person_inbox(org):
        yield (f"{item.identity} {item.person}", {"about": item.person, "text": item.summary_line, "id": item.id})


def _alert_engine_error(error: LemmingError, runtime: Runtime) -> None:
    """Run the failure command for an error that ends the run, if the settings name a command."""
    settings, tick = runtime.settings, -1
    with contextlib.suppress(LemmingError):  # an unreadable file ends the run anyway
        settings = settings or load_config(runtime.org).org
        tick = load_tick(runtime.org)
    if settings is not None and settings.on_failure:
        from lemming.operations.alerts import Alerts

        alerts = runtime.org.get_cache(Alerts).begin_tick(runtime, settings, _iter_waiting_items)
        alerts.on_engine_error(error, tick)


def build_plugin_observers(runtime: Runtime, plugins: tuple[str, ...]) -> Iterator[Observer]:
    """Yield the observers from the organisation's plugins, by name. Each observer lasts for a tick."""
    for name, function in collect_items("observer", plugins, dict).items():
        yield _IsolatedObserver(runtime, name, function).on_event


class _IsolatedObserver:
    """An observer that receives no further events after an exception."""

    def __init__(self, runtime: Runtime, name: str, function: Observer) -> None:
        self._runtime, self._name, self._function, self._has_failed = runtime, name, function, False

    def on_event(self, event: Event) -> None:
        """Pass an event to the observer."""
        if self._has_failed:
            return
        try:
            self._function(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: the turn is not to blame
            self._has_failed = True
            message = f"the observer {self._name} failed at {event.kind}: {describe_exception(error)}"
            hint = "fix it; it receives no more events in this tick"
            location = locate_error(error)
            self._runtime.report_problem(Problem(message, location, hint=hint, severity="warning", code="LMG-406"))
