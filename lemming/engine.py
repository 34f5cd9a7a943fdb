"""The clock: run one tick, a series of ticks, or ticks without end.

A tick is a function of the files and of the answers from outside during the tick. The answers are in the
tick's journal; an interrupted tick is finished by running the tick again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypedDict, Unpack

from lemming.kernel.agents import sort_by_fire_point
from lemming.kernel.base.aliases import accept_old_keywords
from lemming.kernel.base.clock import Clock
from lemming.kernel.base.errors import LemmingError, NotTrusted, Problem, UsageError
from lemming.kernel.base.integers import LAST_TICK
from lemming.kernel.journal.engine_events import Event, Observer, ignore_event
from lemming.kernel.journal.journal_file import Journal, is_committed, journal_ticks, read_journal
from lemming.kernel.journal.journal_parser import find_tick_started
from lemming.kernel.journal.journal_records import Record, TickCommitted, TurnEnded
from lemming.kernel.journal.tick_plan import TickPlan
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.org.schedule import is_due
from lemming.kernel.plugins.capability_loader import get_capability
from lemming.kernel.plugins.plugin_registry import collect_items
from lemming.kernel.plugins.provider_errors import describe_exception, locate_error
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.tick_counter import load_counter, load_tick, persist_tick
from lemming.kernel.tick.tick_hooks import previous_reading
from lemming.operations.next_tick import explain_skipped_ticks, find_next_tick
from lemming.operations.one_tick import run_one_tick
from lemming.operations.open_org import open_org
from lemming.operations.pending_rename import require_no_rename, require_no_rewind
from lemming.operations.tick_pacing import BurstController, IntervalTimer, count_remaining_ticks
from lemming.operations.unfinished_turns import UnfinishedTurns

__all__ = [
    "get_firing_agents", "load_tick", "persist_tick", "recorded_report", "run_forever", "run_once",
    "run_opened", "run_tick", "ticks",
]  # fmt: skip


def get_firing_agents(agents: Iterable[Agent], tick: int) -> list[Agent]:
    """Return the agents due at this tick, in the order of their turns."""
    return sort_by_fire_point(agent for agent in agents if is_due(agent.schedule, tick))


def run_tick(
    base_path: str | os.PathLike[str],
    tick: int,
    *,
    clock: Clock | None = None,
    notify: Observer = ignore_event,
    stop: threading.Event | None = None,
) -> TickReport:
    """Execute a tick and return the report of every agent. `tick.json` is not changed.

    A committed tick is not run again: its recorded report is returned. An interrupted tick resumes at the end
    of its journal. Raises `OrgBusy`, `ConfigError`, `CorruptState`, `DiskError`.
    """
    if not 0 <= tick <= LAST_TICK:
        raise UsageError(f"tick must be 0 to {LAST_TICK}, got {tick}")
    with open_to_run(base_path, command="run_tick", clock=clock, notify=notify, stop=stop) as runtime:
        return _record_tick(runtime, run_opened(runtime, tick, advance=False))


def run_opened(runtime: Runtime, tick: int, *, advance: bool) -> TickReport:
    """Run a tick as `run_tick` does, in an opened organisation; `advance` persists the next tick."""
    if report := recorded_report(runtime.org, tick):
        return report
    return run_one_tick(runtime, tick, journal_ticks(runtime.org, with_sealed=False), advance=advance)


def run_once(
    base_path: str | os.PathLike[str],
    *,
    agents: Iterable[str] = (),
    batch: bool = False,
    clock: Clock | None = None,
    notify: Observer = ignore_event,
    stop: threading.Event | None = None,
) -> TickReport:
    """Run the tick named in `tick.json`, and persist the next tick.

    With `agents`, only the agents are due, regardless of schedules; an interrupted tick is finished first.
    With `batch`, model calls go through batch APIs: cheaper, and answered within a day.
    """
    with open_to_run(base_path, command="run-once", clock=clock, notify=notify, stop=stop, batch=batch) as runtime:
        runtime.chosen = tuple(dict.fromkeys(agents))
        report = _run_next(runtime, load_tick(runtime.org))
        if runtime.chosen and report.is_complete:  # that was an interrupted tick
            return _run_next(runtime, load_tick(runtime.org))
        return report


class TickOptions(TypedDict, total=False):
    """Options for a series of ticks; `ticks` describes each option."""

    interval_s: float | None
    max_ticks: int | None
    until_tick: int | None
    wake_on_change: bool
    eager: bool
    until_quiet: bool
    batch: bool
    watch: bool
    clock: Clock | None
    notify: Observer
    stop: threading.Event | None


def run_forever(base_path: str | os.PathLike[str], **options: Unpack[TickOptions]) -> None:
    """Run ticks as `ticks` does, until `stop` is set, after `max_ticks`, or after `until_tick`."""
    for _ in ticks(base_path, **options):
        pass


@accept_old_keywords
def ticks(
    base_path: str | os.PathLike[str],
    *,
    interval_s: float | None = None,
    max_ticks: int | None = None,
    until_tick: int | None = None,
    wake_on_change: bool = False,
    eager: bool = False,
    until_quiet: bool = False,
    immediate: bool = False,
    agents: Iterable[str] = (),
    command: str = "run-forever",
    batch: bool = False,
    watch: bool = False,
    clock: Clock | None = None,
    notify: Observer = ignore_event,
    stop: threading.Event | None = None,
) -> Iterator[TickReport]:
    """Run ticks on demand, yielding the report of each.

    `interval_s` is the time from the start of a tick to the start of the next (default: `config/org.json`).
    With `wake_on_change`, a change of files ends the pause, and ticks without due agents are counted but not
    run or yielded. The organisation is locked from the first report to the last.

    With `eager`, the next tick begins immediately while entries addressed to an agent are new, at most
    `ticks_in_a_row` times; `until_quiet` does the same and then stops. In such ticks, and with `immediate`
    from the first tick on, only agents with news wake. `agents`: only the agents are due in the first tick,
    as with `run_once`. `command`: the name shown to other processes that find the organisation locked.
    """
    with open_to_run(
        base_path, command=command, clock=clock, notify=notify, stop=stop, batch=batch, watch=watch
    ) as runtime:
        timer, base, completed = IntervalTimer(runtime), runtime.base, 0
        burst = BurstController(runtime) if eager or until_quiet else None
        if wake_on_change:
            from lemming.operations.change_poller import ChangePoller

            timer = ChangePoller(runtime)
        runtime.is_immediate, runtime.chosen = immediate, tuple(dict.fromkeys(agents))
        while not runtime.stop.is_set() and count_remaining_ticks(
            tick := load_tick(base), completed, max_ticks, until_tick
        ):
            with timer.around_tick():
                report = _run_next(runtime, tick)
            yield report
            if runtime.chosen:  # that was an interrupted tick
                continue
            completed += 1
            runtime.is_immediate = bool(burst and burst.should_continue(report))
            if runtime.is_immediate:
                continue
            if until_quiet:
                return
            if remaining_ticks := count_remaining_ticks(report.tick + 1, completed, max_ticks, until_tick):
                pause = runtime.load_config().org.tick_interval_s if interval_s is None else interval_s
                if skipped_ticks := timer.sleep(report, pause, remaining_ticks):
                    next_tick, read_at = load_counter(base)  # as if each had been run separately
                    persist_tick(base, next_tick + skipped_ticks, read_at=read_at, sync=True)
                    completed, runtime.next_tick = completed + skipped_ticks, next_tick + skipped_ticks


def recorded_report(base_path: str | os.PathLike[str], tick: int) -> TickReport | None:
    """Return the report of a committed tick from its journal, or None for an uncommitted tick."""
    base = Organisation.from_path(base_path)
    if not is_committed(base, tick):
        return None
    return build_report(tick, read_journal(base, tick))


def build_report(tick: int, records: Sequence[Record]) -> TickReport:
    """Return the report of a tick from the records of its journal."""
    turns = [record.report for record in records if isinstance(record, TurnEnded)]
    started = find_tick_started(records)
    plan = TickPlan.from_record(started) if started else TickPlan(tick=tick, order=[])
    return TickReport(
        tick=tick,
        turns=(*turns, *plan.excluded_reports()),
        not_due=len(plan.not_due),
        was_recorded=True,
        duration_ms=sum(turn.duration_ms for turn in turns),
    )


def _run_next(runtime: Runtime, counted: int) -> TickReport:
    journaled = journal_ticks(runtime.org, with_sealed=False)
    tick = _resolve_next_tick(runtime, counted, journaled)
    return _record_tick(runtime, run_one_tick(runtime, tick, journaled, advance=True))


def _record_tick(runtime: Runtime, report: TickReport) -> TickReport:
    """Record a completed tick and its unfinished turns with reasons; return the report."""
    runtime.last_tick, runtime.next_tick = report.tick, report.tick + 1
    runtime.org.get_cache(UnfinishedTurns).record_tick(report, runtime.now())
    return report


def _resolve_next_tick(runtime: Runtime, counted: int, journaled_ticks: list[int]) -> int:
    """Return the tick to run, after repairing an interrupted counter update.

    `tick.json` is replaced before the journal is closed: an unclosed journal of the previous tick is closed
    here. A closed journal of the tick in `tick.json` was written by `run_tick`, which leaves `tick.json`
    unchanged.
    """
    if problem := explain_skipped_ticks(counted, runtime.next_tick):
        runtime.report_problem(problem)
    runtime.next_tick = counted
    next_tick = find_next_tick(runtime.org, counted, journaled_ticks, boot_id=runtime.clock.boot_id)
    if next_tick.to_error:
        raise next_tick.to_error
    if next_tick.tick != counted:
        read_at = (
            previous_reading(runtime.base, next_tick.tick, journaled_ticks) if load_counter(runtime.base)[1] else ""
        )
        persist_tick(runtime.base, next_tick.tick, read_at=read_at, sync=True)
    if next_tick.unclosed is not None:
        # Not flushed: after a power cut the next run writes it again.
        with Journal(runtime.org, next_tick.unclosed, epoch=runtime.epoch, durability="off") as journal:
            totals = build_report(journal.tick, journal.records).totals
            journal.append(TickCommitted(tick=journal.tick, advanced=True, totals=totals))
    return next_tick.tick


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
            require_no_rewind(runtime.base)
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
    plugin_observers = collect_items("observer", tuple(config.org.plugins), dict)
    return [*observers, *(_isolate_observer(runtime, name, observer) for name, observer in plugin_observers.items())]


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


def _isolate_observer(runtime: Runtime, name: str, observer: Observer) -> Observer:
    """Return an observer that passes events on until the first exception."""
    has_failed = False

    def on_event(event: Event) -> None:
        nonlocal has_failed
        if has_failed:
            return
        try:
            observer(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: the turn is not to blame
            has_failed = True
            message = f"the observer {name} failed at {event.kind}: {describe_exception(error)}"
            hint = "fix it; it receives no more events in this tick"
            location = locate_error(error)
            runtime.report_problem(Problem(message, location, hint=hint, severity="warning", code="LMG-406"))

    return on_event
