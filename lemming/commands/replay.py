"""`lemming replay`: replay recorded ticks with recorded answers and compare the results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from lemming.commands.command_context import CommandContext, Quiet, argument, option
from lemming.commands.terminal import format_count, print_data, print_json, print_notice, print_text, print_warning
from lemming.commands.trust import load_settings
from lemming.journal_tools.replay.replay_runtime import ReplayMismatch
from lemming.journal_tools.replay.tick_replay import ReplayResult, list_replayable_ticks, replay_into
from lemming.journal_tools.replay.tick_replay import replay_ticks as replay_in_place
from lemming.journal_tools.tick_ranges import list_journals
from lemming.journal_tools.verify.state_root import compute_file_digests, compute_state_root
from lemming.kernel.agents import survey_agents
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_table import provided

_MAX_FILES_NAMED = 5


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
            _import_plugins(base)
            _print_replay(replay_in_place(base, selected_ticks))
        else:
            rerun_ticks = list_replayable_ticks(base, selected_ticks[-1] if selected_ticks else None)
            _print_replay(replay_into(base, into, rerun_ticks))
            _print_state_root(base, into)
    except ReplayMismatch as difference:
        if difference.diff:
            print_text(difference.diff)
        raise


def _import_plugins(base: OrgPath) -> None:
    """Import the plugins if an agent uses one of their strategies or capabilities."""
    survey = survey_agents(base)
    strategies = {agent.turn.strategy for agent in survey.agents.values()}
    if (
        not strategies <= {None, *provided("strategies")}
        or survey.has_plugin_capabilities
        or load_config(base).org.capabilities
    ):
        load_settings(base)


def _print_replay(replayed: Iterator[ReplayResult]) -> None:
    ticks = turns = 0
    for replayed_tick in replayed:
        ticks, turns = ticks + 1, turns + replayed_tick.turns
        print_json("tick_replayed", vars(replayed_tick))
        if replayed_tick.not_repeatable:
            names = ", ".join(replayed_tick.not_repeatable)
            print_notice(f"tick {replayed_tick.tick}: not compared: {names} (the engine or the disk ended that turn)")
    print_notice(f"{format_count(ticks, 'tick')}, {format_count(turns, 'turn')}: all results are the same")


def _print_state_root(base: OrgPath, into: Path) -> None:
    replayed, original = compute_file_digests(into), compute_file_digests(base)
    root, original_root = compute_state_root(replayed), compute_state_root(original)
    differing = sorted(file for file in {*replayed, *original} if replayed.get(file) != original.get(file))
    print_json("state_root", {"root": root, "original": original_root, "differing": differing})
    print_data(root)
    if differing:
        suffix = f" and {len(differing) - _MAX_FILES_NAMED} more" if len(differing) > _MAX_FILES_NAMED else ""
        file_list = ", ".join(differing[:_MAX_FILES_NAMED])
        print_warning(f"the organisation has the state root {original_root}; different files: {file_list}{suffix}")
