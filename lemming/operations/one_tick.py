"""One tick, step by step. Read this file first; docs/architecture.md draws the same nine steps.

A tick is a function of the files and of the answers from outside: models, tools, the clock. Each answer is
in the tick's journal before anything that follows from it:

    intent < answer < effects < commit

So an interrupted tick is finished by running it again. Recorded answers come from the journal, and only the
missing ones are asked for. `lemming.engine` runs one tick after another; a turn is in `lemming.kernel.turn`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.journal.engine_events import TickBegins, TickEnds, ignore_event
from lemming.kernel.journal.journal_file import OWN_LIMIT_BYTES, Durability, Journal, read_journal
from lemming.kernel.journal.journal_parser import find_tick_started
from lemming.kernel.journal.journal_records import Record, TickCommitted, TickStarted, TurnCommitted, TurnSkipped
from lemming.kernel.journal.journal_segments import TICKS_PER_SEGMENT
from lemming.kernel.journal.tick_plan import TickPlan, later_reading
from lemming.kernel.journal.turn_report import TickReport, TurnReport
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.config import Config
from lemming.kernel.org.settings_files import load_recorded_settings
from lemming.kernel.plugins.capability_loader import load_provided
from lemming.kernel.plugins.capability_table import PREFIXES, provided
from lemming.kernel.plugins.plugin_registry import load_installed_plugins
from lemming.kernel.tick.context_builder import build_tick_context
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.tick_counter import encode_counter, load_tick, persist_tick
from lemming.kernel.tick.tick_hooks import get_capability_uses, uses_clock
from lemming.kernel.tick_context import TickContext
from lemming.kernel.tools import get_server_sources, missing_server_tool_reason, refresh_tools
from lemming.libraries.journal_sealing import remove_old_segments, seal_old_journals
from lemming.operations.clock_schedules import record_schedules
from lemming.operations.gateways import Gateways
from lemming.operations.next_tick import (
    missing_counter_problem,
    require_newest,
    require_no_later_turns,
    summarize_progress,
)
from lemming.operations.turns.idle_cache import find_quiet_reports

RESERVED_BYTES = 1 << 20  # of room on the disk, before anything is paid for


def run_one_tick(runtime: Runtime, tick: int, journaled: list[int], *, advance: bool) -> TickReport:
    """Run a tick, or finish an interrupted one, and return its report.

    `journaled`: the ticks with a journal file of their own, in order. `advance`: whether `tick.json` moves
    on to the next tick. The engine has checked that this tick is not committed.
    """
    began = time.perf_counter()
    # 1. The folder is locked: `lemming.engine.open_to_run` made the runtime. What follows is the same for a new tick and
    #    for one that was interrupted; `is_begun` says that its journal is already there.
    is_begun = journaled[-1:] == [tick]
    config = runtime.load_config()
    _recover_past(runtime, config, tick, journaled)

    # 2. Receive messages, before the files are read: what has arrived is for this tick.
    gateways = runtime.org.get_cache(Gateways) if config.has_channels and runtime.uses_gateways else None
    if gateways:
        gateways.receive(config, tick, runtime.clock.now, runtime.report_problem)

    # 3. Plan: the agents that are due, in the order of their turns. A tick that was begun keeps its plan.
    records = read_journal(runtime.org, tick, limit_bytes=OWN_LIMIT_BYTES) if is_begun else []
    tick_context = _build_tick_context(runtime, config, tick, journaled, records)
    _announce_tick(runtime, tick_context, records)

    quiet = None if is_begun else find_quiet_reports(tick_context)
    if quiet is not None and _can_be_quiet(runtime, config, journaled):  # no turns: only the counter moves on
        report = _end_quiet_tick(runtime, tick_context, quiet, began, advance=advance)
    else:
        if not is_begun and tick != runtime.last_tick + 1:  # otherwise this engine has written the ledgers
            require_no_later_turns(runtime.org, tick, tick_context.plan.order)
        tick_context = _scan_servers(runtime, tick_context, find_tick_started(records))
        report = _run_with_journal(runtime, tick_context, journaled, began, advance=advance)

    # 9. Deliver entries that are addressed to channels. A stopped tick delivers when it is finished.
    if gateways and report.is_complete:
        gateways.deliver(runtime.load_config(), report, runtime.clock.now, runtime.report_problem)
    return report


def _can_be_quiet(runtime: Runtime, config: Config, journaled: list[int]) -> bool:
    """Return False if a tick without turns needs a journal, because the newest lacks a settings file.

    A pause seen only by quiet ticks must hold in the next process, whatever happens to its file. Before the first journal
    nothing can be lost.
    """
    if journaled and config.digests and runtime.journaled_settings is None:
        runtime.journaled_settings = load_recorded_settings(runtime.org)
    return not journaled or not config.digests.keys() - (runtime.journaled_settings or set())


def _run_with_journal(
    runtime: Runtime, tick_context: TickContext, journaled: list[int], began: float, *, advance: bool
) -> TickReport:
    """Run steps 4 to 8 of a tick with turns."""
    # Imported here: all that a turn needs, which a tick without turns does not pay for.
    from lemming.operations.retention import remove_expired
    from lemming.operations.turns.agent_turns import take_turns
    from lemming.operations.turns.running_tick import RunningTick

    config, tick = tick_context.config, tick_context.tick
    # 4. Open the journal. Its first record is the plan, so an interrupted tick keeps its agents and order.
    with Journal(
        runtime.org,
        tick,
        epoch=runtime.epoch,
        durability=config.org.durability,
        prompts=runtime.prompts,
        notify=runtime.notify if runtime.has_observers else ignore_event,
    ) as journal:
        journal.reserve(RESERVED_BYTES)
        previous = next((earlier for earlier in reversed(journaled) if earlier < tick), None)
        running_tick = RunningTick.start_or_resume(runtime, journal, tick_context, previous=previous)
        _set_up_batching(runtime, journal)

        # 5. Every turn: record its inputs, ask, act, write its files, commit. A committed turn is not taken
        #    again. Turns that do not wait for each other run in parallel; the files are the same. From here:
        #    `take_turns` -> `AgentTurns` (the turns of one agent) -> `take_turn` in `turn_loop` (one turn).
        take_turns(running_tick)
        report = running_tick.report(began)
        if running_tick.is_stopped:  # the operator stopped it: the next run finishes this tick
            return report

        # 6. Remove expired entries, after the turns: each reader had its chance to see them.
        remove_expired(running_tick)
        if any(turn.stopped for turn in report.turns):
            from lemming.operations.agent_pause import pause_looping_agents  # rarely needed

            pause_looping_agents(runtime, report)
        if runtime.is_live:  # jobs that its turns made count from this reading on, not from the next
            record_schedules(tick_context)

        # 7. One flush for the whole tick, then the counter. If the engine dies before, this tick runs again;
        #    if it dies after, the next run only closes this journal.
        _advance_counter(runtime.base, tick, _find_next_reading(tick_context), config.org.durability, advance=advance)

        # 8. The last record commits the tick.
        journal.append(TickCommitted(tick=report.tick, advanced=advance, totals=report.totals))
    if journaled and journaled[-1] // TICKS_PER_SEGMENT < tick // TICKS_PER_SEGMENT:
        seal_old_journals(runtime.org, tick, config.org.plain_journals)
        if (kept_ticks := config.org.kept_journals) is not None:
            for segment in remove_old_segments(runtime.org, tick, kept_ticks):
                EngineLog(runtime.org).info("journals_removed", tick=tick, file=segment)
    runtime.notify(TickEnds(report=report))
    return report


def _recover_past(runtime: Runtime, config: Config, tick: int, journaled: list[int]) -> None:
    """Write the first counter, require that no later tick has run, and restore what a power cut took."""
    base = runtime.base
    if not path_exists(f"{base}/{paths.TICK_FILE}"):  # the first run ever: before there is a journal
        if problem := missing_counter_problem(base):
            runtime.report_problem(problem)
        persist_tick(base, load_tick(base), sync=config.org.durability != "off")
    require_newest(runtime.org, tick, journaled)
    if not runtime.has_checked_history:  # once, as the engine starts
        runtime.has_checked_history = True
        if earlier := [number for number in journaled if number < tick]:
            from lemming.operations.lost_turns import restore_lost_turns

            restore_lost_turns(runtime, config, earlier)


def _build_tick_context(
    runtime: Runtime, config: Config, tick: int, journaled: list[int], records: list[Record]
) -> TickContext:
    """Return the files as all turns of this tick see them, with the recorded or a new plan."""
    started = find_tick_started(records)
    plan = TickPlan.from_record(started) if started else None
    since = partial(runtime.previous_reading, tick, journaled)
    tick_context = build_tick_context(runtime.org, config, tick, plan, at=runtime.now(), since=since)
    if runtime.is_immediate and not started:
        from lemming.operations.pending_work import restrict_to_pending_work  # a tick by the clock does not look

        tick_context = restrict_to_pending_work(tick_context)
    if runtime.chosen:
        from lemming.operations.named_agents import select_agents

        tick_context = select_agents(runtime, tick_context, is_begun=started is not None)
    if not started and runtime.is_live:
        record_schedules(tick_context)
    # Again, with the agents of this tick: their programs and servers need the user's agreement as well.
    runtime.require_trusted(config, tick_context.survey.agents)
    return tick_context


def _announce_tick(runtime: Runtime, tick_context: TickContext, records: list[Record]) -> None:
    """Notify observers that a tick begins, or that an interrupted tick resumes from the records."""
    at, since = tick_context.plan.at, tick_context.plan.since
    if since and at < since:
        pause_text = (
            "until the clock has passed that time again" if later_reading(at, since) == since else "in this tick"
        )
        message = f"the clock was set back, from {since} to {at}: no schedule by the clock is due {pause_text}"
        hint = "check the machine's clock; missed turns are made up for only once"
        runtime.report_problem(Problem(message, hint=hint, severity="warning"))
    if tick_context.plan.order or any(_iter_unknown_tools(tick_context)):
        load_installed_plugins()
    if runtime.has_observers:
        progress = summarize_progress(records) if records else {}
        runtime.notify(TickBegins(**tick_context.plan.as_json(), **progress))
    for problem in (*tick_context.config.warnings, *tick_context.survey.warnings, *_iter_unknown_tools(tick_context)):
        runtime.report_problem(problem)


def _iter_unknown_tools(tick_context: TickContext) -> Iterator[Problem]:
    survey, toolset = tick_context.survey, tick_context.toolset
    toolsets = {name: toolset.for_agent(name) for mentions in survey.by_tool.values() for name, _ in mentions}
    for tool, mentions in sorted(survey.by_tool.items()):
        for name, index in mentions:
            is_optional = survey.agents[name].permissions.may_be_absent
            if is_optional or any(is_match(tool_name, tool) for tool_name in toolsets[name]):
                continue
            if tool.startswith(PREFIXES):
                reason = missing_server_tool_reason(tick_context.org, tool, today=True)
            else:
                reason = f'tool "{tool}" does not exist', toolsets[name].suggest_tools(tool)
            file, pointer = paths.resume_file(name), f"/permissions/tools/{index}"
            if reason:
                yield Problem(reason[0], file, pointer=pointer, hint=reason[1], severity="warning", code="LMG-301")


def _scan_servers(runtime: Runtime, tick_context: TickContext, started: TickStarted | None) -> TickContext:
    """Return the tick's context with the catalogues of tool servers: from the tick's record, else from a scan."""
    if not tick_context.survey.has_server_tools:
        return tick_context
    # A resumed tick offers the recorded tools: the servers may list others by now.
    servers = started.server_tools if started else runtime.scan_servers(tick_context)
    for name, source in get_server_sources(tick_context.org).items():
        source.apply_scan(servers.get(name, {}))
    refresh_tools(tick_context.config.org, tick_context.org)
    return replace(tick_context, servers=servers)


def _find_next_reading(tick_context: TickContext) -> str:
    """Return the clock reading from which the next tick starts, or an empty text without clock schedules."""
    uses = get_capability_uses(tick_context.org, tick_context.survey, tick_context.config)
    return tick_context.plan.next_reading if uses_clock(uses) else ""


def _end_quiet_tick(
    runtime: Runtime, tick_context: TickContext, turn_reports: Sequence[TurnReport], began: float, *, advance: bool
) -> TickReport:
    """End a tick without turns: no journal is written, only the counter."""
    tick = tick_context.tick
    if runtime.has_observers:
        for turn_report in turn_reports:
            runtime.notify((TurnSkipped if turn_report.status == "skipped" else TurnCommitted)(report=turn_report))
    if advance:
        is_synced = tick_context.config.org.durability != "off"
        persist_tick(runtime.base, tick + 1, read_at=_find_next_reading(tick_context), sync=is_synced)
    report = TickReport(
        tick=tick,
        turns=(*turn_reports, *tick_context.plan.excluded_reports()),
        not_due=len(tick_context.plan.not_due),
        is_quiet=True,
        duration_ms=elapsed_ms(began),
    )
    runtime.notify(TickEnds(report=report))
    return report


def _set_up_batching(runtime: Runtime, journal: Journal) -> None:
    """Give the runtime the tick's journal, and a batcher for its model calls if the run asks for one.

    Batches sent by an earlier attempt are always awaited, because they are paid for. Raises `ConfigError` if the
    capability is not installed.
    """
    kinds = provided("records")
    recorded_names = (kinds[record.kind][0] for record in journal.records if record.kind in kinds)
    capability_name = runtime.batching_capability or next(recorded_names, "")
    runtime.batcher, runtime.journal = None, journal
    if not capability_name:
        return
    from lemming.kernel.llm.call_batching import BatchContext

    batch_context = BatchContext(
        make=runtime.backends.make_provider,
        live=runtime.complete_live,
        record_batched=runtime.record_batched,
        journal=journal,
        clock=runtime.clock.now,
        notify=runtime.notify,
        stop=runtime.stop,
        sends=capability_name == runtime.batching_capability,
        sleep=runtime.stop.wait,
    )
    runtime.batcher = load_provided("call_batchers", capability_name)(batch_context)


def _advance_counter(base: Path, tick: int, read_at: str, durability: Durability, *, advance: bool) -> None:
    """Make everything survive power loss with one flush, and advance the counter."""
    if not advance:
        if durability != "off":
            fs.sync_file_system(base)
    elif durability == "off":
        persist_tick(base, tick + 1, read_at=read_at)
    else:
        fs.write_after_sync(base, paths.TICK_FILE, encode_counter(tick + 1, read_at))
