"""Supervision of `run-forever` from outside: systemd's watchdog and /healthz."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lemming.commands.command_context import parse_seconds
from lemming.commands.terminal import print_notice
from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.engine_events import Event, Observer
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.operations.systemd_notify import (
    HOST,
    PATH,
    EngineProgress,
    Health,
    SystemdNotifier,
    run_watchdog,
    serve_health,
)
from lemming.queries.checks.health_checks import make_issue
from lemming.queries.org_status import load_org_status
from lemming.queries.screens.status_screen import status_to_json


@contextlib.contextmanager
def supervise(
    base: OrgPath, observer: Observer, *, health: int | None, interval_s: float | None, batch: bool
) -> Iterator[Observer]:
    """Report progress to systemd and /healthz; yield the engine's observer, which also passes events to `observer`."""
    supervisor, folder = SystemdNotifier(), Path(base)
    progress = EngineProgress(Organisation(folder), interval_s=interval_s, batch=batch)

    def notify_all(event: Event) -> None:
        progress.on_event(event)
        supervisor.on_event(event)
        observer(event)

    with contextlib.ExitStack() as stack:
        if health is not None:
            probe = partial(_check_health, Organisation(folder), progress)
            port = stack.enter_context(serve_health(health, probe, folder))
            print_notice(f"http://{HOST}:{port}{PATH} reports the health", style="dim")
        stack.enter_context(run_watchdog(supervisor, progress, folder))
        yield notify_all


def _check_health(org: Organisation, progress: EngineProgress, query: dict[str, str]) -> Health:
    """Return the health of the organisation for a query."""
    if unknown := query.keys() - {"max_age"}:
        raise UsageError(f'unknown query parameter "{min(unknown)}"', hint=f"write {PATH}?max_age=10m")
    try:
        max_age_s = parse_seconds(query["max_age"]) if "max_age" in query else None
    except ValueError as error:
        raise UsageError(str(error), hint=f"{PATH}?max_age=10m") from error
    issues = []
    if silent_s := progress.overdue_s:
        text = f"no progress for {silent_s:.0f} s in tick {progress.tick}"
        hint = "restart the engine: it continues where it stopped"
        issues.append(make_issue("engine", text, hint, tick=progress.tick))
    org_status = load_org_status(org, max_age_s=max_age_s, extra_issues=issues)
    return Health(not org_status.issues, {"type": "status", **status_to_json(org_status)})
