"""One tick, step by step. Read this file first; docs/architecture.md draws the same nine steps.

A tick is a function of the files and of the answers from outside: models, tools, the clock. Each answer is
in the tick's journal before anything that follows from it:

    intent < answer < effects < commit

So an interrupted tick is finished by running it again. Recorded answers come from the journal, and only the
missing ones are asked for. `lemming.engine` runs one tick after another; a turn is in `lemming.kernel.turn`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.errors import Problem
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.journal.engine_events import TickBegins, TickEnds, ignore_event
from lemming.kernel.journal.journal_file import OWN_LIMIT_BYTES, Durability, Journal, read_journal
from lemming.kernel.journal.journal_packing import TICKS_PER_SEGMENT
from lemming.kernel.journal.journal_parser import find_plan
from lemming.kernel.journal.journal_records import Record, TickCommitted, TurnCommitted, TurnSkipped
from lemming.kernel.journal.turn_report import TickReport, TurnReport
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import load_installed_plugins
from lemming.kernel.tick.firing_plan import TickPlan
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot, take_snapshot
from lemming.kernel.tick.tick_counter import encode_counter, load_tick, persist_tick
from lemming.kernel.tick.tick_hooks import later_reading
from lemming.libraries.journal_sealing import remove_old_segments, seal_old_journals
from lemming.operations.clock_schedules import record_schedules
from lemming.operations.gateways import Gateways
from lemming.operations.next_tick import (
    missing_counter_problem,
    require_newest,
    require_no_later_turns,
    summarize_progress,
)
from lemming.operations.tick_tools import apply_server_scan, find_unknown_tools
from lemming.operations.turns.idle_agents import find_quiet_reports

RESERVED_BYTES = 1 << 20  # of room on the disk, before anything is paid for


def run_one_tick(runtime: Runtime, tick: int, journalled: list[int], *, advance: bool) -> TickReport:
    """Run a tick, or finish an interrupted one, and return its report.

    `journalled`: the ticks with a journal file of their own, in order. `advance`: whether `tick.json` moves
    on to the next tick. The engine has checked that this tick is not committed.
    """
    began = time.perf_counter()
    # 1. The folder is locked: `open_to_run` made the runtime. What follows is the same for a new tick and
    #    for one that was interrupted; `is_begun` says that its journal is already there.
    is_begun = journalled[-1:] == [tick]
    config = runtime.load_config()
    _check_past(runtime, config, tick, journalled)

    # 2. Receive messages, before the snapshot: what has arrived is for this tick.
    gateways = runtime.org.get_cache(Gateways) if config.has_channels and runtime.uses_gateways else None
    if gateways:
        gateways.receive(config, tick, runtime.clock.now, runtime.report_problem)

    # 3. Plan: the agents that are due, in the order of their turns. A tick that was begun keeps its plan.
    records = read_journal(runtime.org, tick, limit_bytes=OWN_LIMIT_BYTES) if is_begun else []
    snapshot = _take_snapshot(runtime, config, tick, journalled, records)
    _announce_tick(runtime, snapshot, records)

    quiet = None if is_begun else find_quiet_reports(snapshot)
    if quiet is not None and runtime.can_be_quiet(config, journalled):  # no turns: only the counter moves on
        report = _end_quiet_tick(runtime, snapshot, quiet, began, advance=advance)
    else:
        if not is_begun and tick != runtime.last_tick + 1:  # otherwise this engine has written the ledgers
            require_no_later_turns(runtime.org, tick, snapshot.plan.order)
        snapshot = apply_server_scan(snapshot, find_plan(records), runtime.scan_servers)
        report = _run_with_journal(runtime, snapshot, journalled, began, advance=advance)

    # 9. Deliver entries that are addressed to channels. A stopped tick delivers when it is finished.
    if gateways and report.is_complete:
        gateways.deliver(runtime.load_config(), report, runtime.clock.now, runtime.report_problem)
    return report


def _run_with_journal(
    runtime: Runtime, snapshot: Snapshot, journalled: list[int], began: float, *, advance: bool
) -> TickReport:
    """Run steps 4 to 8 of a tick that has turns."""
    # Imported here: all that a turn needs, which a tick without turns does not pay for.
    from lemming.kernel.tick.running_tick import Tick
    from lemming.operations.retention import remove_expired
    from lemming.operations.turns.agent_turns import take_turns

    config, tick = snapshot.config, snapshot.tick
    # 4. Open the journal. Its first record is the plan, so an interrupted tick keeps its agents and order.
    with Journal(
        runtime.org,
        tick,
        epoch=runtime.epoch,
        durability=config.org.durability,
        prompts=runtime.prompts,
        tell=runtime.notify if runtime.has_observers else ignore_event,
    ) as journal:
        journal.reserve(RESERVED_BYTES)
        previous = next((at for at in reversed(journalled) if at < tick), None)
        current = Tick.start_or_resume(runtime, journal, snapshot, previous=previous)
        runtime.start_calls(journal)

        # 5. Every turn: record its inputs, ask, act, write its files, commit. A committed turn is not taken
        #    again. Turns that do not wait for each other run in parallel; the files are the same. From here:
        #    `take_turns` -> `AgentTurns` (the turns of one agent) -> `take_turn` in `turn_loop` (one turn).
        take_turns(current)
        report = current.report(began)
        if current.is_stopped:  # the operator stopped it: the next run finishes this tick
            return report

        # 6. Remove expired entries, after the turns: each reader had its chance to see them.
        remove_expired(current)
        if any(turn.stopped for turn in report.turns):
            from lemming.operations.agent_pause import pause_looping_agents  # rarely needed

            pause_looping_agents(runtime, report)
        if runtime.is_live:  # jobs that its turns made count from this reading on, not from the next
            record_schedules(snapshot)

        # 7. One flush for the whole tick, then the counter. If the engine dies before, this tick runs again;
        #    if it dies after, the next run only closes this journal.
        _advance_counter(runtime.base, tick, snapshot.next_reading, config.org.durability, advance=advance)

        # 8. The last record commits the tick.
        journal.append(TickCommitted(tick=report.tick, advanced=advance, totals=report.totals))
    if journalled and journalled[-1] // TICKS_PER_SEGMENT < tick // TICKS_PER_SEGMENT:
        _archive_journals(runtime.org, tick, config)
    runtime.notify(TickEnds(report=report))
    return report


def _check_past(runtime: Runtime, config: Config, tick: int, journalled: list[int]) -> None:
    """Write the first counter, require that no later tick has run, and restore what a power cut took."""
    base = runtime.base
    if not path_exists(f"{base}/{paths.TICK_FILE}"):  # the first run ever: before there is a journal
        if problem := missing_counter_problem(base):
            runtime.report_problem(problem)
        persist_tick(base, load_tick(base), sync=config.org.durability != "off")
    require_newest(runtime.org, tick, journalled)
    if not runtime.has_checked_history:  # once, as the engine starts
        runtime.has_checked_history = True
        if earlier := [at for at in journalled if at < tick]:
            from lemming.operations.lost_turns import restore_lost_turns

            restore_lost_turns(runtime, config, earlier)


def _take_snapshot(
    runtime: Runtime, config: Config, tick: int, journalled: list[int], records: list[Record]
) -> Snapshot:
    """Return the files as all turns of this tick see them, with the recorded or a new plan."""
    started = find_plan(records)
    plan = TickPlan.from_record(started) if started else None
    since = partial(runtime.previous_reading, tick, journalled)
    snapshot = take_snapshot(runtime.org, config, tick, plan, at=runtime.now(), since=since)
    if runtime.is_immediate and not started:
        from lemming.operations.pending_work import immediate_snapshot  # a tick by the clock does not look

        snapshot = immediate_snapshot(snapshot)
    if runtime.chosen:
        from lemming.operations.named_agents import select_agents

        snapshot = select_agents(runtime, snapshot, is_begun=started is not None)
    if not started and runtime.is_live:
        record_schedules(snapshot)
    # Again, with the agents of this tick: their programs and servers need the user's agreement as well.
    runtime.require_trusted(config, snapshot.survey.agents)
    return snapshot


def _announce_tick(runtime: Runtime, snapshot: Snapshot, records: list[Record]) -> None:
    """Notify observers that a tick begins, or that an interrupted tick resumes from the records."""
    if problem := _clock_setback_problem(snapshot.plan.at, snapshot.plan.since):
        runtime.report_problem(problem)
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
            runtime.notify((TurnSkipped if turn_report.status == "skipped" else TurnCommitted)(report=turn_report))
    if advance:
        is_synced = snapshot.config.org.durability != "off"
        persist_tick(runtime.base, tick + 1, read_at=snapshot.next_reading, sync=is_synced)
    report = TickReport(
        tick=tick,
        turns=(*turn_reports, *snapshot.plan.excluded_reports()),
        not_due=len(snapshot.plan.not_due),
        is_quiet=True,
        duration_ms=elapsed_ms(began),
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


def _archive_journals(org: Organisation, tick: int, config: Config) -> None:
    """Pack old journals, and remove the oldest according to the settings."""
    seal_old_journals(org, tick, config.org.plain_journals)
    if config.org.kept_journals is not None:
        for segment in remove_old_segments(org, tick, config.org.kept_journals):
            EngineLog(org).info("journals_removed", tick=tick, file=segment)


def _clock_setback_problem(at: str, since: str) -> Problem | None:
    """Return the problem to report if the clock was set back since the last tick, or None."""
    if not since or at >= since:
        return None
    pause_text = "until the clock has passed that time again" if later_reading(at, since) == since else "in this tick"
    return Problem(
        f"the clock was set back, from {since} to {at}: no schedule by the clock is due {pause_text}",
        hint="check the machine's clock; missed turns are made up for only once",
        severity="warning",
    )
