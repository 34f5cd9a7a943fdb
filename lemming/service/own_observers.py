"""Functions of plugins that are told what happens: what one raises is told of, and ends nothing."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.base.errors import Problem
from lemming.journal.events import Event, Observer
from lemming.plugins.errors import place_of, words_of
from lemming.plugins.registry import offered
from lemming.tick.runtime import Runtime


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
