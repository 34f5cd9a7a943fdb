"""`lemming rehearse` and `lemming replay`: recorded ticks again, with a change or exactly as they were."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from lemming.commands.command_context import (
    BudgetUsd,
    CommandContext,
    Quiet,
    Settings,
    SideEffects,
    Trust,
    argument,
    option,
)
from lemming.commands.history import print_entry_difference, print_file_change
from lemming.commands.signals import stop_on_signals
from lemming.commands.terminal import (
    format_count,
    format_usd,
    join_names,
    print_data,
    print_json,
    print_notice,
    print_text,
    print_truncated,
    print_warning,
)
from lemming.commands.trust import has_workspace_trust, load_settings, require_workspace_trust
from lemming.evals.rehearsal.rehearsal import RehearsalOptions, RehearsalResult, find_recorded_span
from lemming.evals.rehearsal.rehearsal import rehearse as run_rehearsal
from lemming.evals.rehearsal.rehearsal_runtime import describe_skipped_calls
from lemming.journal_tools.fork import SettingOverride
from lemming.journal_tools.replay.replay_runtime import ReplayMismatch
from lemming.journal_tools.replay.tick_replay import ReplayResult, list_replayable_ticks, replay_into
from lemming.journal_tools.replay.tick_replay import replay_ticks as replay_in_place
from lemming.journal_tools.tick_ranges import list_journals, parse_tick_range
from lemming.journal_tools.verify.state_root import compute_file_digests, compute_state_root
from lemming.kernel.access.workspace_trust import allow_code
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.config import load_config
from lemming.kernel.plugins.capability_table import provided

_LAST_TICK_BOUND = 10**12
_MAX_FILES_NAMED = 5


def rehearse(
    context: CommandContext,
    settings: Settings = None,
    ticks: Annotated[str | None, option("--ticks A..B", "Ticks to include: 7, 3..9, 3.. or ..9. Default: all.")] = None,
    budget: BudgetUsd = None,
    dry_run: Annotated[
        bool, option("--dry-run", "Call no model; show how many prompts would differ and the cost.")
    ] = False,
    tools: SideEffects = False,
    keep: Annotated[
        Path | None, option("--keep DIR", "Keep the fork in this folder; continues an interrupted rehearsal.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Rerun recorded ticks with a change and show what differs.

    The rerun happens in a fork: this organisation is not changed. Resumes and settings are the current ones,
    changed by --set; without --set, the output shows the effect of edits made since the recorded ticks.
    Messages of people and channels arrive in the same ticks as recorded, and the clock shows the recorded
    times.

    Answers come from the record for unchanged prompts; models are called for changed prompts only. Channels
    send nothing. A tool with outside effects returns its recorded result for an unchanged call, and is not
    run otherwise.

    Exit status: 0 complete; otherwise the status of the cause of the stop: 6 the budget, 2 a model with
    recorded answers only.

    \b
    Examples:
      lemming rehearse --set agents/editor/resume.json:/instructions="Be brief." --dry-run
      lemming rehearse --set agents/editor/resume.json:/model/key=fast --ticks 10..20 --budget 0.50
      lemming rehearse --keep ../what-if --json | jq -c 'select(.type == "entry_difference") | .diff'
    """
    base = context.org
    first, last = parse_tick_range(ticks) if ticks else (0, None)
    typed_ticks = range(first, (_LAST_TICK_BOUND if last is None else last) + 1) if ticks else None
    tick_range = find_recorded_span(base, typed_ticks)
    rehearsal_options = RehearsalOptions(
        first=tick_range.start,
        last=tick_range.stop - 1,
        settings=tuple(SettingOverride.parse(text) for text in settings or []),
        budget=budget,
        is_dry=dry_run,
        makes_calls=tools,
    )
    if keep is not None and dry_run:
        raise UsageError("--keep and --dry-run exclude each other", hint="use one of them")
    require_workspace_trust(base, is_trusted=trust, can_ask=not context.as_json)
    with tempfile.TemporaryDirectory(prefix="lemming-rehearsal-") as scratch, stop_on_signals() as switch:
        folder = Path(scratch, "fork") if keep is None else keep.expanduser().resolve()
        allow_code(folder)  # with the same trust as the original
        rehearsal = run_rehearsal(base, folder, rehearsal_options, stop=switch.stop)
    _print_rehearsal(rehearsal, is_dry=dry_run)
    if keep is not None:
        print_notice(f"fork kept in {folder}")
    if rehearsal.stopped_by is not None:
        raise rehearsal.stopped_by
    if rehearsal.cannot_tell and not dry_run:
        hint = f"use another model: --set agents/{rehearsal.scripted[0]}/resume.json:/model/key=KEY"
        raise UsageError(rehearsal.cannot_tell, hint=hint)
    if rehearsal.last < rehearsal_options.last:
        raise typer.Exit(switch.exit_status)


def _format_tick_range(first: int, last: int) -> str:
    return f"tick {first}" if first == last else f"ticks {first} to {last}"


def _print_rehearsal(rehearsal: RehearsalResult, *, is_dry: bool) -> None:
    for entry in rehearsal.entries:
        print_json("entry_difference", entry.as_json())
    print_json("rehearsed", {**rehearsal.as_json(), "dry_run": is_dry})
    if rehearsal.remark:
        print_notice(rehearsal.remark)
    if not is_dry:
        for entry in rehearsal.entries:
            print_entry_difference(entry)
        for end in rehearsal.ends:
            print_truncated(f"tick {end.tick}  {end.agent}  ended {end.before or '(no turn)'}", "bold")
            print_truncated(f"  now: {end.after or '(no turn)'}")
        for file in rehearsal.files:
            print_file_change(file)
        if rehearsal.last >= rehearsal.first and rehearsal.is_unchanged and not rehearsal.cannot_tell:
            print_data("no differences")
    for line in describe_skipped_calls(rehearsal.skipped_calls):
        print_warning(f"not run: {line}")
    for tick, agent in rehearsal.not_repeated:
        print_warning(f"tick {tick}: {agent}: not rehearsed: the engine, a capability or the disk ended that turn")
    (_print_dry_run if is_dry else _print_spending)(rehearsal)
    if rehearsal.caveat and (is_dry or not rehearsal.cannot_tell):
        print_warning(rehearsal.caveat)


def _print_spending(rehearsal: RehearsalResult) -> None:
    spending = rehearsal.spending
    if rehearsal.last < rehearsal.first:
        print_notice(f"stopped in tick {rehearsal.first}")
        return
    changes = [entry.change for entry in rehearsal.entries]
    counts = {change: changes.count(change) for change in ("changed", "new", "gone")}
    change_counts = ", ".join(f"{count} {change}" for change, count in counts.items() if count)
    print_notice(f"{_format_tick_range(rehearsal.first, rehearsal.last)}: entries: {change_counts or 'none differs'}")
    answers = format_count(rehearsal.reused, "answer")
    dollars = float(spending.dollars) if spending.calls > spending.unpriced else None
    price = format_usd(dollars, calls=spending.calls, unpriced=spending.unpriced)
    cost = f": {price}" if spending.calls else ""
    print_notice(f"{answers} from the record, {format_count(spending.calls, 'call')} made{cost}")


def _print_dry_run(rehearsal: RehearsalResult) -> None:
    differing = len(rehearsal.unrecorded_prompts)
    share = f"{differing} of {differing + rehearsal.reused} questions"
    print_notice(f"{_format_tick_range(rehearsal.first, rehearsal.last)}: at least {share} would differ")
    if not differing:
        print_notice("dry run: no model was called, and none would be")
        return
    for number, spending in ((differing, rehearsal.spending), (differing + rehearsal.reused, rehearsal.full_estimate)):
        price = float(spending.max_dollars) if spending.calls > spending.unpriced else None
        dollars = format_usd(price, calls=spending.calls, unpriced=spending.unpriced)
        subject = "the differing prompts cost" if spending is rehearsal.spending else f"all {number} would cost"
        print_notice(f"{subject} at most {dollars}")
    print_notice("dry run: no model was called")


def replay(
    context: CommandContext,
    ticks: Annotated[
        str | None, argument("TICKS", "Ticks to replay: 7 or 3..9. Default: all. With --into: replay up to this tick.")
    ] = None,
    into: Annotated[Path | None, option("--into DIR", "Replay the whole organisation in a new folder.")] = None,
    quiet: Quiet = False,
) -> None:
    """Replay recorded ticks and compare the results; stop at the first difference and print a diff.

    No model is called and no tool runs: an answer missing from the journals is an error. Without --into,
    every turn is recomputed from its record, and nothing is written. With --into, a copy of the initial
    organisation runs from the first journal on in an empty folder, and every plan, prompt and file is
    compared; later edits by hand show as differences. At the end, the state root of the copy is printed.

    Exit status 1: there is a difference.

    \b
    Examples:
      lemming replay
      lemming replay 3..9
      lemming replay --into /tmp/again
    """
    base = context.org
    selected_ticks = list_journals(base, ticks)
    try:
        if into is None:
            survey = survey_agents(base)
            strategies = {agent.turn.strategy for agent in survey.agents.values()}
            has_plugin_strategies = not strategies <= {None, *provided("strategies")}
            if has_plugin_strategies or survey.has_plugin_capabilities or load_config(base).org.capabilities:
                load_settings(base)  # which imports the plugins
            _print_replay(replay_in_place(base, selected_ticks))
        else:
            rerun_ticks = list_replayable_ticks(base, selected_ticks[-1] if selected_ticks else None)
            if has_workspace_trust(base):
                allow_code(into)  # with the same trust as the original
            _print_replay(replay_into(base, into, rerun_ticks))
            replayed, original = compute_file_digests(into), compute_file_digests(base)
            root, original_root = compute_state_root(replayed), compute_state_root(original)
            differing = sorted(file for file in {*replayed, *original} if replayed.get(file) != original.get(file))
            print_json("state_root", {"root": root, "original": original_root, "differing": differing})
            print_data(root)
            if differing:
                names = join_names(differing, _MAX_FILES_NAMED)
                print_warning(f"the organisation has the state root {original_root}; different files: {names}")
    except ReplayMismatch as difference:
        if difference.diff:
            print_text(difference.diff)
        raise


def _print_replay(replayed: Iterator[ReplayResult]) -> None:
    ticks = turns = 0
    for replayed_tick in replayed:
        ticks, turns = ticks + 1, turns + replayed_tick.turns
        print_json("tick_replayed", vars(replayed_tick))
        if replayed_tick.not_repeatable:
            names = ", ".join(replayed_tick.not_repeatable)
            print_notice(
                f"tick {replayed_tick.tick}: not compared: {names} (the engine, a capability or the disk ended that turn)"
            )
    print_notice(f"{format_count(ticks, 'tick')}, {format_count(turns, 'turn')}: all results are the same")
