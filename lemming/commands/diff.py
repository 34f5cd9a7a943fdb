"""`lemming diff`: differences between two ticks, or between two organisations."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemming.commands.command_context import CommandContext, argument, option, require_agent_folder
from lemming.commands.terminal import (
    Style,
    format_count,
    format_usd,
    one_line,
    print_columns,
    print_data,
    print_json,
    print_notice,
    print_truncated,
)
from lemming.git_history.history_reader import FileChange, StateDiff
from lemming.journal_tools.journal_history import open_past
from lemming.journal_tools.tick_ranges import parse_tick_range
from lemming.kernel.base.errors import NotAnOrg, UsageError
from lemming.kernel.base.integers import LAST_TICK, parse_int
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.org.organisation import Organisation, require_known_format

if TYPE_CHECKING:
    from lemming.evals.rehearsal.org_comparison import Comparison, EntryDifference, ValueDifference

_STYLES: dict[str, Style] = {"+": "green", "-": "red", "@": "dim"}
_DIFF_HEADER = re.compile(r"(diff --git |index |--- |\+\+\+ |(new|deleted) file |(old|new) mode )")
_VALUE_WIDTH = 200

OneAgent = Annotated[str | None, argument("[AGENT]", "Show this agent's files only.", completes_agents=True)]
OnlyStat = Annotated[bool, option("--stat", "Show file names and line counts only.")]
_STATE_HELP = 'Tick number, commit, "now", or the folder of an organisation.'


def diff(
    context: CommandContext,
    old: Annotated[str, argument("A", _STATE_HELP)],
    new: Annotated[str, argument("B", _STATE_HELP)],
    agent: OneAgent = None,
    only_stat: OnlyStat = False,
    ticks: Annotated[
        str | None, option("--ticks A..B", "Of two folders, compare entries of these ticks only: 7, 3..9, 3.. or ..9.")
    ] = None,
) -> None:
    """Show file differences between two ticks, or all differences between two organisations.

    `now` means the files on disk. Two folders are compared by agents, settings, entries, files and spending.
    Entries are matched by tick, author and kind; ledgers, logs and journals are not compared.

    Exit status: 1 for two organisations that differ, else 0.

    \b
    Examples:
      lemming diff 40 now --stat
      lemming diff 40 42 editor
      lemming diff . ../what-if --ticks 10..20
    """
    if _is_folder(old) or _is_folder(new):
        if agent is not None or only_stat:
            raise UsageError("AGENT and --stat are for two ticks, got a folder", hint=f"lemming diff {old} {new}")
        _compare_orgs(context, Path(old), Path(new), ticks)
        return
    if ticks is not None:
        raise UsageError("--ticks is for two folders, got two ticks", hint=f"lemming diff {old} {new}")
    base = context.org
    if agent is not None:
        require_agent_folder(base, agent)
    past = open_past(base)
    changes = past.changes_between(old, new, agent=agent or "")
    print_json("changes", {"from": old, "to": new, **changes_to_json(changes, only_stat=only_stat)})
    if past.reliability_note:
        print_notice(past.reliability_note)
    print_changes(changes, only_stat=only_stat)


def _is_folder(name: str) -> bool:
    """Return True for a folder that is neither a tick number nor "now"."""
    return name != "now" and parse_int(name, le=LAST_TICK) is None and Path(name).expanduser().is_dir()


def changes_to_json(changes: StateDiff, *, only_stat: bool) -> dict[str, Any]:
    """Return the changed files as JSON; with `only_stat`, without the diff itself."""
    return {key: commit_row for key, commit_row in changes.as_json().items() if not (only_stat and key == "diff")}


def _compare_orgs(context: CommandContext, before: Path, after: Path, ticks: str | None = None) -> None:
    """Print the differences between two organisations. Exits with 1 if there are any."""
    from lemming.evals.rehearsal.org_comparison import compare_orgs  # with it come copies of organisations

    tick_range = parse_tick_range(ticks) if ticks else None
    first_org, second_org = (_open_org(folder) for folder in (before, after))
    comparison = compare_orgs(first_org, second_org, tick_range)
    (_print_comparison_as_json if context.as_json else _print_comparison)(comparison)
    if not comparison.is_same:
        raise typer.Exit(1)
    print_notice("no differences")


def _open_org(folder: Path) -> Organisation:
    """Open the organisation in a folder. Raises `NotAnOrg` if there is none."""
    org = Organisation.from_path(folder.expanduser().resolve())
    if not (org.base / "agents").is_dir():
        raise NotAnOrg("the folder has no agents/ folder", where=str(org.base), hint="name an organisation's folder")
    require_known_format(org.base)
    return org


def _print_comparison_as_json(comparison: Comparison) -> None:
    for name, side in comparison.agents.items():
        print_json("agent_difference", {"agent": name, "only_in": side})
    for value in comparison.values:
        print_json("value_difference", asdict(value))
    for entry in comparison.entries:
        print_json("entry_difference", entry.as_json())
    for file in comparison.files:
        print_json("file_difference", asdict(file))
    for spent in comparison.spent:
        print_json("spent_difference", asdict(spent))


def _print_comparison(comparison: Comparison) -> None:
    for name, side in comparison.agents.items():
        print_truncated(f"agent  {name}  only {side}", "bold")
    for value in comparison.values:
        _print_value(value)
    for entry in comparison.entries:
        print_entry_difference(entry)
    for file in comparison.files:
        print_file_change(file)
    for spent in comparison.spent:
        print_truncated(
            f"spent  {spent.agent}  {_describe_spending(spent.before)} before, {_describe_spending(spent.after)} after",
            "bold",
        )


def _print_value(value: ValueDifference) -> None:
    print_truncated(f"{value.file}:{value.pointer}", "bold")
    for sign, setting in (("-", value.before), ("+", value.after)):
        if setting is not None:
            print_truncated(f"  {sign}{one_line(to_line(setting), _VALUE_WIDTH)}", "red" if sign == "-" else "green")


def _describe_spending(spent: dict[str, Any]) -> str:
    turns, credits = format_count(spent["turns"], "turn"), format_count(spent["credits"], "credit")
    return f"{turns}, {credits}, {format_usd(spent['cost_usd'])}"


# --- differences in words ----------------------------------------------------------------------


def print_changes(changes: StateDiff, *, only_stat: bool) -> None:
    """Print the changed files and, unless `only_stat`, their diffs."""
    print_columns([[file.change, file.path, _format_line_counts(file)] for file in changes.files])
    if not changes.files:
        print_data("no file differs")
    elif not only_stat:
        print_data()
        for line in changes.diff.splitlines():
            print_truncated(line, "bold" if _DIFF_HEADER.match(line) else _STYLES.get(line[:1], "plain"))


def print_entry_difference(entry: EntryDifference) -> None:
    """Print a changed entry with the diff."""
    print_truncated(f"tick {entry.tick}  {entry.agent}  {entry.kind}  {entry.change}", "bold")
    for line in entry.diff.splitlines():
        print_truncated(f"  {line}", _STYLES.get(line[:1], "plain"))


def print_file_change(file: FileChange) -> None:
    """Print a changed file with line counts."""
    print_truncated(f"file  {file.path}  {file.change}  {_format_line_counts(file)}", "bold")


def summarize_files(files: list[FileChange]) -> str:
    """Return the number of changed files by kind, on a line."""
    kinds = [file.change for file in files]
    parts = [f"{kinds.count(kind)} {kind}" for kind in ("added", "modified", "deleted") if kind in kinds]
    return f"{format_count(len(files), 'file')} ({', '.join(parts)})" if parts else "no file"


def _format_line_counts(file: FileChange) -> str:
    return "not text" if file.added is None else f"+{file.added} -{file.removed}"
