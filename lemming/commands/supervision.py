"""Who watches `run-forever` from outside: systemd's watchdog, and whoever asks for /healthz."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lemming.commands.options import duration
from lemming.commands.screen import tell
from lemming.facts.checklist.standing import Trouble
from lemming.facts.standing import standing_of
from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.events import Event, Observer
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.service.health import HOST, PATH, Health, health_server
from lemming.service.notify import Progress, Reports, Supervisor, watched


@contextlib.contextmanager
def supervised(
    base: OrgPath, hear: Observer, *, health: int | None, interval_s: float | None, batch: bool, quiet: bool
) -> Iterator[Observer]:
    """Tell whoever watches how the engine gets on; give what is to hear its events, `hear` among others."""
    supervisor, folder = Supervisor(), Path(base)
    progress = Progress(Organisation(folder), interval_s=interval_s, batch=batch)
    reports = Reports(supervisor)

    def all_hear(event: Event) -> None:
        progress.hear(event)
        reports.hear(event)
        hear(event)

    with contextlib.ExitStack() as stack:
        if health is not None:
            port = stack.enter_context(
                health_server(health, _look_at(Organisation(folder), progress), folder)
            )
            if not quiet:
                tell(f"http://{HOST}:{port}{PATH} says whether all is well", style="dim")
        stack.enter_context(watched(supervisor, progress, folder))
        yield all_hear


class _look_at:  # noqa: N801 - used like a function, with the organisation it has read before
    def __init__(self, org: Organisation, progress: Progress) -> None:
        self._org, self._progress = org, progress

    def __call__(self, words: dict[str, str]) -> Health:
        silent_s = self._progress.overdue_s
        text = f"nothing has happened for {silent_s:.0f} s in tick {self._progress.tick}"
        fix = "start it again: it goes on where it is"
        hung = [Trouble(text, hint=fix, about="engine", since_tick=self._progress.tick)]
        found = standing_of(self._org, max_age_s=_max_age(words), also=hung if silent_s else [])
        return Health(not found.troubles, {"type": "status", **found.as_json()})


def _max_age(words: dict[str, str]) -> float | None:
    if unknown := words.keys() - {"max_age"}:
        raise UsageError(f'there is no "{min(unknown)}" to ask for', hint=f"{PATH}?max_age=10m")
    try:
        return duration(words["max_age"]) if "max_age" in words else None
    except ValueError as error:
        raise UsageError(str(error), hint=f"{PATH}?max_age=10m") from error
