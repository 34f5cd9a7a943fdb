"""The clock: run one tick, a series of ticks, or ticks without end.

A tick is a function of the files and of the answers from outside during the tick. The answers are in the
tick's journal; an interrupted tick is finished by running the tick again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.clock import Clock, elapsed_ms
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.integers import LAST_TICK
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.journal.engine_events import Observer, TickBegins, TickEnds, ignore_event
from lemming.kernel.journal.journal_file import (
    OWN_LIMIT_BYTES,
    Durability,
    Journal,
    is_committed,
    journal_ticks,
    read_journal,
)
from lemming.kernel.journal.journal_packing import TICKS_PER_SEGMENT, remove_old_segments, seal_old_journals
from lemming.kernel.journal.journal_records import (
    Record,
    TickCommitted,
    TurnCommitted,
    TurnEnded,
    TurnSkipped,
)
from lemming.kernel.journal.record_lookup import find_plan
from lemming.kernel.journal.turn_report import TickReport, TurnReport
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.org.schedule import is_due, sort_by_fire_point
from lemming.kernel.plugins.plugin_registry import load_installed_plugins
from lemming.kernel.tick.clock_reading import clock_setback_problem, previous_reading
from lemming.kernel.tick.firing_plan import TickPlan
from lemming.kernel.tick.gateways import Gateways
from lemming.kernel.tick.missing_ledger_lines import find_lost_turns
from lemming.kernel.tick.next_tick import find_next_tick, require_newest, summarize_progress
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot, apply_server_scan, find_unknown_tools, take_snapshot
from lemming.kernel.tick.tick_counter import (
    encode_counter,
    load_counter,
    load_tick,
    missing_counter_problem,
    persist_tick,
    require_no_later_turns,
)
from lemming.operations.engine_session import open_to_run
from lemming.operations.interval_timer import IntervalTimer, count_remaining_ticks

RESERVED_BYTES = 1 << 20  # of room on the disk, before anything is paid for
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
        raise UsageError(f"there is no tick {tick}", hint=f"ticks are 0 to {LAST_TICK}")
    with open_to_run(base_path, command="run_tick", clock=clock, notify=notify, stop=stop) as runtime:
        return runtime.record_tick(run_opened(runtime, tick, advance=False))


def run_opened(runtime: Runtime, tick: int, *, advance: bool) -> TickReport:
    """Run a tick as `run_tick` does, in an opened organisation; `advance` persists the next tick."""
    if report := recorded_report(runtime.org, tick):
        return report
    report = _run_tick(runtime, tick, journal_ticks(runtime.org, with_sealed=False), advance=advance)
    _deliver_messages(runtime, report)
    return report


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
    with open_to_run(
        base_path, command="run-once", clock=clock, notify=notify, stop=stop, batch=batch
    ) as runtime:
        runtime.chosen = tuple(dict.fromkeys(agents))
        report = _run_next(runtime, load_tick(runtime.org))
        if runtime.chosen and report.is_complete:  # that was a tick which had been interrupted
            return _run_next(runtime, load_tick(runtime.org))
        return report


def run_forever(
    base_path: str | os.PathLike[str],
    *,
    interval_s: float | None = None,
    max_ticks: int | None = None,
    until_tick: int | None = None,
    wake_on_change: bool = False,
    eager: bool = False,
    batch: bool = False,
    clock: Clock | None = None,
    notify: Observer = ignore_event,
    stop: threading.Event | None = None,
) -> None:
    """Run ticks as `ticks` does, until `stop` is set, after `max_ticks`, or after `until_tick`."""
    for _ in ticks(
        base_path,
        interval_s=interval_s,
        max_ticks=max_ticks,
        until_tick=until_tick,
        wake_on_change=wake_on_change,
        eager=eager,
        batch=batch,
        clock=clock,
        notify=notify,
        stop=stop,
    ):
        pass


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
        timer, burst, base, completed = IntervalTimer(runtime), None, runtime.base, 0
        if wake_on_change:
            from lemming.operations.change_poller import ChangePoller

            timer = ChangePoller(runtime)
        if eager or until_quiet:
            from lemming.operations.burst import BurstController

            burst = BurstController(runtime)
        runtime.is_immediate, runtime.chosen = immediate, tuple(dict.fromkeys(agents))
        while not runtime.stop.is_set() and count_remaining_ticks(
            tick := load_tick(base), completed, max_ticks, until_tick
        ):
            with timer.around_tick():
                report = _run_next(runtime, tick)
            yield report
            if runtime.chosen:  # that was a tick which had been interrupted
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
                    next_tick, read_at = load_counter(base)  # as if each had been run
                    persist_tick(base, next_tick + skipped_ticks, read_at=read_at, sync=True)
                    completed, runtime.next_tick = completed + skipped_ticks, next_tick + skipped_ticks


def recorded_report(base_path: str | os.PathLike[str], tick: int) -> TickReport | None:
    """Return the report of a committed tick from its journal, or None for an uncommitted tick."""
    base = Organisation.from_path(base_path)
    if not is_committed(base, tick):
        return None
    return replace(build_report(tick, read_journal(base, tick)), base=str(base))


def build_report(tick: int, records: Sequence[Record]) -> TickReport:
    """Return the report of a tick from the records of its journal."""
    turns = [record.report for record in records if isinstance(record, TurnEnded)]
    started = find_plan(records)
    plan = TickPlan.from_record(started) if started else TickPlan(tick=tick, order=[])
    return TickReport(
        tick=tick,
        turns=(*turns, *plan.excluded_reports()),
        not_due=len(plan.not_due),
        was_recorded=True,
        duration_ms=sum(turn.duration_ms for turn in turns),
    )


def _run_next(runtime: Runtime, tick: int) -> TickReport:
    journalled_ticks = journal_ticks(runtime.org, with_sealed=False)
    report = _run_tick(
        runtime, _resolve_next_tick(runtime, tick, journalled_ticks), journalled_ticks, advance=True
    )
    _deliver_messages(runtime, report)
    return runtime.record_tick(report)


def _deliver_messages(runtime: Runtime, report: TickReport) -> None:
    """Deliver entries addressed to channels, after their tick is over."""
    if runtime.gateways and report.is_complete:
        runtime.gateways.deliver(runtime.load_config(), report, runtime.clock.now, runtime.report_problem)


def _resolve_next_tick(runtime: Runtime, counted: int, journalled_ticks: list[int]) -> int:
    """Return the tick to run, after repairing an interrupted counter update.

    `tick.json` is replaced before the journal is closed: an unclosed journal of the previous tick is closed
    here. A closed journal of the tick in `tick.json` was written by `run_tick`, which leaves `tick.json`
    unchanged.
    """
    runtime.check_counter(counted)
    next_tick = find_next_tick(runtime.org, counted, journalled_ticks, boot_id=runtime.clock.boot_id)
    if next_tick.to_error:
        raise next_tick.to_error
    if next_tick.tick != counted:
        read_at = (
            previous_reading(runtime.base, next_tick.tick, journalled_ticks)
            if load_counter(runtime.base)[1]
            else ""
        )
        persist_tick(runtime.base, next_tick.tick, read_at=read_at, sync=True)
    if next_tick.unclosed is not None:
        # Not flushed: what a power cut takes of it, the next run writes again.
        with Journal(runtime.org, next_tick.unclosed, epoch=runtime.epoch, durability="off") as journal:
            totals = build_report(journal.tick, journal.records).totals
            journal.append(TickCommitted(tick=journal.tick, advanced=True, totals=totals))
    return next_tick.tick


def _run_tick(runtime: Runtime, tick: int, ticks: list[int], *, advance: bool) -> TickReport:
    """Run a tick as described in docs/concepts.md; `ticks` are the ticks with a journal of their own."""
    began = time.perf_counter()
    config = runtime.load_config()
    base, durability = runtime.base, config.org.durability
    if not path_exists(f"{base}/{paths.TICK_FILE}"):  # the first run ever: before there is a journal
        if problem := missing_counter_problem(base):
            runtime.report_problem(problem)
        persist_tick(base, load_tick(base), sync=durability != "off")
    require_newest(runtime.org, tick, ticks)
    is_begun = ticks[-1:] == [tick]
    if not runtime.has_checked_history:  # once, as the engine starts
        runtime.has_checked_history = True
        if lost_turns := find_lost_turns(runtime.org, [at for at in ticks if at < tick]):
            from lemming.kernel.tick.turn_file_repair import write_lost_turns

            write_lost_turns(runtime, config, lost_turns)
    # Before the snapshot: what has arrived is for this tick.
    if config.has_channels and runtime.uses_gateways:
        runtime.gateways = runtime.org.get_cache(Gateways)
        runtime.gateways.receive(config, tick, runtime.clock.now, runtime.report_problem)
    records = read_journal(runtime.org, tick, limit_bytes=OWN_LIMIT_BYTES) if is_begun else []
    started = find_plan(records)
    plan, since = (
        TickPlan.from_record(started) if started else None,
        partial(runtime.previous_reading, tick, ticks),
    )
    snapshot = take_snapshot(runtime.org, config, tick, plan, at=runtime.now(), since=since)
    if runtime.is_immediate and not started:
        from lemming.kernel.tick.pending_work import immediate_snapshot  # a tick by the clock does not look

        snapshot = immediate_snapshot(snapshot)
    if runtime.chosen:
        from lemming.kernel.tick.named_agents import select_agents

        snapshot = select_agents(runtime, snapshot, is_begun=started is not None)
    if not started and runtime.is_live:
        snapshot.record_schedules()
    # Again, as the agents are known now, whose programs and servers need a word as well.
    runtime.require_trusted(config, snapshot.survey.agents)
    if problem := clock_setback_problem(snapshot.plan.at, snapshot.plan.since):
        runtime.report_problem(problem)
    _announce_tick(runtime, snapshot, records)
    if (
        not is_begun
        and (turns := snapshot.quiet_reports()) is not None
        and runtime.can_be_quiet(config, ticks)
    ):
        return _end_quiet_tick(runtime, snapshot, turns, began, advance=advance)
    if not is_begun and tick != runtime.last_tick + 1:  # else this engine has written the ledgers
        require_no_later_turns(runtime.org, tick, snapshot.plan.order)
    snapshot = apply_server_scan(snapshot, started, runtime.scan_servers)
    from lemming.kernel.tick.running_tick import (
        Tick,  # all that a turn needs, and a tick without turns does not
    )
    from lemming.operations.looping import pause_looping_agents

    with Journal(
        runtime.org,
        tick,
        epoch=runtime.epoch,
        durability=durability,
        prompts=runtime.prompts,
        tell=runtime.notify if runtime.has_observers else ignore_event,
    ) as journal:
        journal.reserve(RESERVED_BYTES)
        current = Tick.start_or_resume(
            runtime, journal, snapshot, previous=next((at for at in reversed(ticks) if at < tick), None)
        )
        runtime.start_batching(journal)
        current.take_turns()
        report = current.report(began)
        if current.is_stopped:
            return report
        current.remove_expired_entries()
        pause_looping_agents(runtime, report)
        if runtime.is_live:  # jobs that its turns made count from this reading on, not from the next
            snapshot.record_schedules()
        _advance_counter(base, tick, snapshot.next_reading, durability, advance=advance)
        journal.append(TickCommitted(tick=report.tick, advanced=advance, totals=report.totals))
    if ticks and ticks[-1] // TICKS_PER_SEGMENT < tick // TICKS_PER_SEGMENT:
        _archive_journals(runtime.org, tick, config)
    runtime.notify(TickEnds(report=report))
    return report


def _archive_journals(org: Organisation, tick: int, config: Config) -> None:
    """Pack old journals, and remove the oldest according to the settings."""
    seal_old_journals(org, tick, config.org.plain_journals)
    if config.org.kept_journals is not None:
        for segment in remove_old_segments(org, tick, config.org.kept_journals):
            EngineLog(org).info("journals_removed", tick=tick, file=segment)


def _announce_tick(runtime: Runtime, snapshot: Snapshot, records: list[Record]) -> None:
    """Notify observers that a tick begins, or that an interrupted tick resumes from the records."""
    if snapshot.plan.order or find_unknown_tools(snapshot):
        load_installed_plugins()
    if runtime.has_observers:
        progress = summarize_progress(records) if records else {}
        runtime.notify(TickBegins(**snapshot.plan.as_json(), **progress))
    for problem in (*snapshot.config.warnings, *snapshot.survey.warnings, *find_unknown_tools(snapshot)):
        runtime.report_problem(problem)


def _end_quiet_tick(
    runtime: Runtime, snapshot: Snapshot, turn_reports: Sequence[TurnReport], began: float, *, advance: bool
) -> TickReport:
    """End a tick without turns: no journal is written, only the counter."""
    tick = snapshot.tick
    if runtime.has_observers:
        for turn_report in turn_reports:
            runtime.notify(
                (TurnSkipped if turn_report.status == "skipped" else TurnCommitted)(report=turn_report)
            )
    if advance:
        is_synced = snapshot.config.org.durability != "off"
        persist_tick(runtime.base, tick + 1, read_at=snapshot.next_reading, sync=is_synced)
    report = TickReport(
        tick=tick,
        turns=(*turn_reports, *snapshot.plan.excluded_reports()),
        not_due=len(snapshot.plan.not_due),
        is_quiet=True,
        duration_ms=elapsed_ms(began),
        base=str(runtime.base),
    )
    runtime.notify(TickEnds(report=report))
    return report


def _advance_counter(base: Path, tick: int, read_at: str, durability: Durability, *, advance: bool) -> None:
    """Make everything survive power loss with one flush, and advance the counter."""
    if not advance:
        if durability != "off":
            fs.sync_file_system(base)
    elif durability == "off":
        persist_tick(base, tick + 1, read_at=read_at)
    else:
        fs.write_after_sync(base, paths.TICK_FILE, encode_counter(tick + 1, read_at))
