"""The clock: one tick, one after another, for ever.

A tick is a function of the files and of the answers that came from outside while it ran. The answers are in
the tick's journal, so running an interrupted tick again is how it is finished.
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
from lemming.kernel.files.stamps import is_there
from lemming.kernel.journal.events import Observer, TickBegins, TickEnds, ignore
from lemming.kernel.journal.file import (
    OWN_LIMIT_BYTES,
    Durability,
    Journal,
    is_committed,
    journal_ticks,
    read_journal,
)
from lemming.kernel.journal.lookup import plan_in
from lemming.kernel.journal.records import Record, TickCommitted, TurnCommitted, TurnEnded, TurnSkipped
from lemming.kernel.journal.report import TickReport, TurnReport
from lemming.kernel.journal.sealing import TICKS_PER_SEGMENT, remove_old_segments, seal_old_journals
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.org.schedule import in_order, is_due
from lemming.kernel.plugins.registry import load_installed_plugins
from lemming.kernel.tick.carriers import Carriers
from lemming.kernel.tick.clock_reading import previous_reading, set_back_text
from lemming.kernel.tick.counter import (
    counter,
    load_counter,
    load_tick,
    persist_tick,
    require_ledgers_before,
    why_not_tick_1,
)
from lemming.kernel.tick.firing_plan import Plan
from lemming.kernel.tick.lost_turns import find_lost_turns
from lemming.kernel.tick.next_tick import find_next_tick, progress_of, require_newest
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot, take_snapshot, unknown_tools, with_servers
from lemming.service.opened import open_to_run
from lemming.service.timer import Timer, ticks_left

RESERVED_BYTES = 1 << 20  # of room on the disk, before anything is paid for
__all__ = [
    "get_firing_agents", "load_tick", "persist_tick", "recorded_report", "run_forever", "run_once",
    "run_opened", "run_tick", "ticks",
]  # fmt: skip


def get_firing_agents(agents: Iterable[Agent], tick: int) -> list[Agent]:
    """Return the agents that fire at this tick, in the order in which they take their turns."""
    return in_order(agent for agent in agents if is_due(agent.schedule, tick))


def run_tick(
    base_path: str | os.PathLike[str],
    tick: int,
    *,
    clock: Clock | None = None,
    notify: Observer = ignore,
    stop: threading.Event | None = None,
) -> TickReport:
    """Execute one tick and return what became of every agent. `tick.json` is left as it is.

    A tick that was committed is not run again: its recorded report is returned. A tick that was
    interrupted goes on where its journal ends. Raises `OrgBusy`, `ConfigError`, `CorruptState`, `DiskError`.
    """
    if not 0 <= tick <= LAST_TICK:
        raise UsageError(f"there is no tick {tick}", hint=f"ticks are 0 to {LAST_TICK}")
    with open_to_run(base_path, command="run_tick", clock=clock, notify=notify, stop=stop) as runtime:
        return runtime.noted(run_opened(runtime, tick, advance=False))


def run_opened(runtime: Runtime, tick: int, *, advance: bool) -> TickReport:
    """Do what `run_tick` does where the organisation is open already; `advance` persists the next tick."""
    if report := recorded_report(runtime.org, tick):
        return report
    report = _run(runtime, tick, journal_ticks(runtime.org, with_sealed=False), advance=advance)
    _hand_out(runtime, report)
    return report


def run_once(
    base_path: str | os.PathLike[str],
    *,
    agents: Iterable[str] = (),
    batch: bool = False,
    clock: Clock | None = None,
    notify: Observer = ignore,
    stop: threading.Event | None = None,
) -> TickReport:
    """Run the tick that `tick.json` names, and persist the next one.

    With `agents`, only these are due in it, whatever their schedules say; a tick that was interrupted is
    finished first. With `batch`, model calls go through batch APIs: cheaper, and answered within a day.
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
    notify: Observer = ignore,
    stop: threading.Event | None = None,
) -> None:
    """Run tick after tick as `ticks` does, until `stop` is set, `max_ticks` have run, or `until_tick` has."""
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
    hurried: bool = False,
    agents: Iterable[str] = (),
    command: str = "run-forever",
    batch: bool = False,
    watch: bool = False,
    clock: Clock | None = None,
    notify: Observer = ignore,
    stop: threading.Event | None = None,
) -> Iterator[TickReport]:
    """Run tick after tick as they are asked for, yielding the report of each.

    `interval_s` is from the start of one tick to the start of the next (default: `config/org.json`). With
    `wake_on_change` a change of files ends the pause, and ticks in which nobody is due are slept through:
    counted, not yielded. The organisation is held from the first report asked for to the last.

    With `eager` the next tick begins at once while something new is addressed to an agent, at most
    `ticks_in_a_row` times; with `until_quiet`, too, and then it ends. In such ticks, and with `hurried` from
    the first on, only those wake for whom something is new. `agents`: only these are due in the first tick,
    as with `run_once`. `command`: for who finds it held.
    """
    with open_to_run(
        base_path, command=command, clock=clock, notify=notify, stop=stop, batch=batch, watch=watch
    ) as runtime:
        timer, row, base, done = Timer(runtime), None, runtime.base, 0
        if wake_on_change:
            from lemming.service.sleep import Sleeper

            timer = Sleeper(runtime)
        if eager or until_quiet:
            from lemming.service.eager import Eager

            row = Eager(runtime)
        runtime.hurries, runtime.chosen = hurried, tuple(dict.fromkeys(agents))
        while not runtime.stop.is_set() and ticks_left(tick := load_tick(base), done, max_ticks, until_tick):
            with timer.tick():
                report = _run_next(runtime, tick)
            yield report
            if runtime.chosen:  # that was a tick which had been interrupted
                continue
            done += 1
            runtime.hurries = bool(row and row.goes_on(report))
            if runtime.hurries:
                continue
            if until_quiet:
                return
            if left := ticks_left(report.tick + 1, done, max_ticks, until_tick):
                pause = runtime.load_config().org.tick_interval_s if interval_s is None else interval_s
                if passed := timer.sleep(report, pause, left):
                    counted, read_at = load_counter(base)  # as if each had been run
                    persist_tick(base, counted + passed, read_at=read_at, sync=True)
                    done, runtime.counted = done + passed, counted + passed


def recorded_report(base_path: str | os.PathLike[str], tick: int) -> TickReport | None:
    """Return the report of a committed tick from its journal; None when it is not committed."""
    base = Organisation.at(base_path)
    if not is_committed(base, tick):
        return None
    return replace(report_of(tick, read_journal(base, tick)), base=str(base))


def report_of(tick: int, records: Sequence[Record]) -> TickReport:
    """Return what a tick did, as the records of its journal tell it."""
    turns = [record.report for record in records if isinstance(record, TurnEnded)]
    started = plan_in(records)
    plan = Plan.of(started) if started else Plan(tick=tick, order=[])
    return TickReport(
        tick=tick,
        turns=(*turns, *plan.turns_not_taken()),
        not_due=len(plan.not_due),
        was_recorded=True,
        duration_ms=sum(turn.duration_ms for turn in turns),
    )


def _run_next(runtime: Runtime, tick: int) -> TickReport:
    begun = journal_ticks(runtime.org, with_sealed=False)
    report = _run(runtime, _next_tick(runtime, tick, begun), begun, advance=True)
    _hand_out(runtime, report)
    return runtime.noted(report)


def _hand_out(runtime: Runtime, report: TickReport) -> None:
    """Send out what is addressed to channels, once its tick is over."""
    if runtime.carriers and report.is_complete:
        runtime.carriers.hand_out(runtime.load_config(), report, runtime.clock.now, runtime.tell)


def _next_tick(runtime: Runtime, counted: int, begun: list[int]) -> int:
    """Return the tick to run, and tidy up what an end between two writes left behind.

    `tick.json` is replaced before the journal is closed: a journal of the tick before it that is not closed
    is closed here. A journal that is closed while `tick.json` still names its tick was run by `run_tick`,
    which leaves `tick.json` alone.
    """
    runtime.note_counter(counted)
    found = find_next_tick(runtime.org, counted, begun, boot_id=runtime.clock.boot_id)
    if found.error:
        raise found.error
    if found.tick != counted:
        read_at = previous_reading(runtime.base, found.tick, begun) if load_counter(runtime.base)[1] else ""
        persist_tick(runtime.base, found.tick, read_at=read_at, sync=True)
    if found.unclosed is not None:
        # Not flushed: what a power cut takes of it, the next run writes again.
        with Journal(runtime.org, found.unclosed, epoch=runtime.epoch, durability="off") as journal:
            totals = report_of(journal.tick, journal.records).totals
            journal.append(TickCommitted(tick=journal.tick, advanced=True, totals=totals))
    return found.tick


def _run(runtime: Runtime, tick: int, ticks: list[int], *, advance: bool) -> TickReport:
    """One tick, as docs/concepts.md tells it; `ticks` are those that have a journal of their own."""
    began = time.perf_counter()
    config = runtime.load_config()
    base, durability = runtime.base, config.org.durability
    if not is_there(f"{base}/{paths.TICK_FILE}"):  # the first run ever: before there is a journal
        if problem := why_not_tick_1(base):
            runtime.tell(problem)
        persist_tick(base, load_tick(base), sync=durability != "off")
    require_newest(runtime.org, tick, ticks)
    is_begun = ticks[-1:] == [tick]
    if not runtime.has_looked_back:  # once, as the engine starts
        runtime.has_looked_back = True
        if lost := find_lost_turns(runtime.org, [at for at in ticks if at < tick]):
            from lemming.kernel.tick.lost_turns_written import write_lost_turns

            write_lost_turns(runtime, config, lost)
    # Before the snapshot: what has arrived is for this tick.
    if config.has_channels and runtime.sees_to_channels:
        runtime.carriers = runtime.org.own(Carriers)
        runtime.carriers.take_in(config, tick, runtime.clock.now, runtime.tell)
    records = read_journal(runtime.org, tick, limit_bytes=OWN_LIMIT_BYTES) if is_begun else []
    started = plan_in(records)
    plan, since = Plan.of(started) if started else None, partial(runtime.previous_reading, tick, ticks)
    snapshot = take_snapshot(runtime.org, config, tick, plan, at=runtime.now(), since=since)
    if runtime.hurries and not started:
        from lemming.kernel.tick.addressed import hurried  # a tick by the clock does not look

        snapshot = hurried(snapshot)
    if runtime.chosen:
        from lemming.kernel.tick.chosen import select_agents

        snapshot = select_agents(runtime, snapshot, is_begun=started is not None)
    if not started and runtime.is_live:
        snapshot.note_schedules()
    # Again, as the agents are known now, whose programs and servers need a word as well.
    runtime.require_agreed(config, snapshot.survey.agents)
    if problem := set_back_text(snapshot.plan.at, snapshot.plan.since):
        runtime.tell(problem)
    _announce(runtime, snapshot, records)
    if not is_begun and (turns := snapshot.why_quiet()) is not None and runtime.may_be_quiet(config, ticks):
        return _pass_over(runtime, snapshot, turns, began, advance=advance)
    if not is_begun and tick != runtime.ran + 1:  # else this engine has written the ledgers
        require_ledgers_before(runtime.org, tick, snapshot.plan.order)
    snapshot = with_servers(snapshot, started, runtime.look_at_servers)
    from lemming.kernel.tick.tick import Tick  # all that a turn needs, and a tick without turns does not
    from lemming.service.looping import pause_looping_agents

    with Journal(
        runtime.org,
        tick,
        epoch=runtime.epoch,
        durability=durability,
        prompts=runtime.prompts,
        tell=runtime.notify if runtime.is_heard else ignore,
    ) as journal:
        journal.reserve(RESERVED_BYTES)
        current = Tick.begin(
            runtime, journal, snapshot, after=next((at for at in reversed(ticks) if at < tick), None)
        )
        runtime.gather(journal)
        current.take_turns()
        report = current.report(began)
        if current.is_stopped:
            return report
        current.remove_expired_entries()
        pause_looping_agents(runtime, report)
        if runtime.is_live:  # jobs that its turns made count from this reading on, not from the next
            snapshot.note_schedules()
        _end_tick(base, tick, snapshot.kept_reading, durability, advance=advance)
        journal.append(TickCommitted(tick=report.tick, advanced=advance, totals=report.totals))
    if ticks and ticks[-1] // TICKS_PER_SEGMENT < tick // TICKS_PER_SEGMENT:
        _tidy_journals(runtime.org, tick, config)
    runtime.notify(TickEnds(report=report))
    return report


def _tidy_journals(org: Organisation, tick: int, config: Config) -> None:
    """Pack old journals, and remove the oldest where the settings want that."""
    seal_old_journals(org, tick, config.org.plain_journals)
    if config.org.kept_journals is not None:
        for segment in remove_old_segments(org, tick, config.org.kept_journals):
            EngineLog(org).info("journals_removed", tick=tick, file=segment)


def _announce(runtime: Runtime, snapshot: Snapshot, records: list[Record]) -> None:
    """Tell that a tick begins, or that one that was interrupted goes on, from these records."""
    if snapshot.plan.order or unknown_tools(snapshot):
        load_installed_plugins()
    if runtime.is_heard:
        kept = progress_of(records) if records else {}
        runtime.notify(TickBegins(**snapshot.plan.as_json(), **kept))
    for problem in (*snapshot.config.warnings, *snapshot.survey.warnings, *unknown_tools(snapshot)):
        runtime.tell(problem)


def _pass_over(
    runtime: Runtime, snapshot: Snapshot, turns: Sequence[TurnReport], began: float, *, advance: bool
) -> TickReport:
    """End a tick in which nobody takes a turn: it has no journal, and nothing but the counter is written."""
    tick = snapshot.tick
    if runtime.is_heard:
        for turn in turns:
            runtime.notify((TurnSkipped if turn.status == "skipped" else TurnCommitted)(report=turn))
    if advance:
        is_synced = snapshot.config.org.durability != "off"
        persist_tick(runtime.base, tick + 1, read_at=snapshot.kept_reading, sync=is_synced)
    report = TickReport(
        tick=tick,
        turns=(*turns, *snapshot.plan.turns_not_taken()),
        not_due=len(snapshot.plan.not_due),
        is_quiet=True,
        duration_ms=elapsed_ms(began),
        base=str(runtime.base),
    )
    runtime.notify(TickEnds(report=report))
    return report


def _end_tick(base: Path, tick: int, read_at: str, durability: Durability, *, advance: bool) -> None:
    """Make everything survive power loss with one flush, and move the counter on."""
    if not advance:
        if durability != "off":
            fs.sync_file_system(base)
    elif durability == "off":
        persist_tick(base, tick + 1, read_at=read_at)
    else:
        fs.publish_last(base, paths.TICK_FILE, counter(tick + 1, read_at))
