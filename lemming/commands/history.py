"""History commands: `lemming history`, `history show`, `diff`, `fork` and `rewind`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from lemming.commands.command_context import (
    Apply,
    CommandContext,
    Settings,
    argument,
    option,
    require_agent_folder,
    with_parameters_of,
)
from lemming.commands.terminal import (
    Style,
    format_count,
    one_line,
    print_columns,
    print_data,
    print_json,
    print_notice,
    print_truncated,
    print_warning,
)
from lemming.git_history.history_reader import FileChange, GitHistory, StateDiff
from lemming.git_history.rewind import RewindResult, plan_rewind
from lemming.git_history.rewind import rewind as do_rewind
from lemming.journal_tools.fork import SettingOverride
from lemming.journal_tools.fork import fork as make_fork
from lemming.journal_tools.journal_history import open_past
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import OrgBusy, UsageError
from lemming.kernel.base.integers import LAST_TICK, parse_int
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.settings_edits import edit_file
from lemming.operations.open_org import open_org
from lemming.queries.screens.commits_screen import COMMITS

if TYPE_CHECKING:
    from lemming.evals.rehearsal.org_comparison import EntryDifference

_STYLES: dict[str, Style] = {"+": "green", "-": "red", "@": "dim"}
_DIFF_HEADER = re.compile(r"(diff --git |index |--- |\+\+\+ |(new|deleted) file |(old|new) mode )")

OneAgent = Annotated[str | None, argument("[AGENT]", "Show this agent's files only.")]
OnlyStat = Annotated[bool, option("--stat", "Show file names and line counts only.")]
_STATE_HELP = 'Tick number, commit, or "now".'


@with_parameters_of(COMMITS)
def history(context: CommandContext, **values: Any) -> None:
    """Show the history of ticks, or turn it on or off. Each line is a tick with changes, or edits by hand.

    With `on`, every tick becomes a commit in .lemming/history.git: future ticks, and past ticks found in the
    journals (unless an engine is running). With `off`, no more commits are added; existing commits stay
    readable. Both change one value in config/org.json.

    \b
    Examples:
      lemming history on
      lemming history editor -n 5
      lemming history --json | jq -s 'map(.credits) | add'
    """
    if values["agent"] in ("on", "off"):
        _set_history_mode(context.org, is_on=values["agent"] == "on")
    else:
        context.print_screen(COMMITS, COMMITS.load(context.org, values))


def _set_history_mode(base: OrgPath, *, is_on: bool) -> None:
    """Set the history mode in config/org.json and leave other settings unchanged."""
    from lemming.git_history.git_repository import FOLDER, require_git

    if is_on:
        require_git()
    new_mode, old_mode = "git" if is_on else "off", load_config(base).org.history
    if new_mode != old_mode:
        with edit_file(base, paths.ORG_FILE) as edit:
            edit.publish(dump_pretty({**parse(edit.raw, allow_bom=True), "history": new_mode}))
    rebuilt = _rebuild_history(base) if is_on else 0
    print_json("history", {"history": new_mode, "before": old_mode, "rebuilt": rebuilt})
    if not is_on:
        print_notice("the history is off; existing commits remain readable")
        return
    print_notice(f"the history is on: every tick with changes is committed to {FOLDER}")
    if rebuilt:
        print_notice(f"{format_count(rebuilt, 'tick')} rebuilt from the journals")
    print_notice("`lemming history` lists them, `lemming history show TICK` shows the changes of one")


def _rebuild_history(base: OrgPath) -> int:
    """Rebuild a missing history from the journals; return the number of rebuilt ticks, 0 while an engine runs."""
    from lemming.git_history.recorder import Recorder
    from lemming.journal_tools.journal_history import rebuild_history
    from lemming.journal_tools.tick_ranges import list_journals

    try:
        with open_org(base, command="history") as runtime:
            if not list_journals(base, None):
                return 0
            recorder = Recorder(runtime)
            repository = recorder.open()
            if not repository.head() and (rebuilt := rebuild_history(base, repository)):
                recorder.commit_pending(load_tick(base))
                return rebuilt
            return 0
    except OrgBusy:
        print_warning("an engine is running: the history begins with its next tick")
        return 0


def show_tick(
    context: CommandContext,
    tick: Annotated[str, argument("TICK", "Tick number, or a commit from `lemming history`.")],
    agent: OneAgent = None,
    only_stat: OnlyStat = False,
) -> None:
    """Show the files that a tick changed.

    Lines are cut to the width of a terminal; `| less` shows full lines.

    \b
    Examples:
      lemming history show 42 --stat
      lemming history show 42 editor
      lemming history show @3fa9c1d2e0
    """
    base = context.org
    if agent is not None:
        require_agent_folder(base, agent)
    past = open_past(base)
    number = parse_int(tick, le=LAST_TICK)
    commit = past.resolve_state(tick).commit if number is None else past.find_commit(number)
    changes = past.diff_commit(commit, agent=agent or "") if commit else StateDiff([], "")
    header = {"of": tick, "commit": COMMITS.to_json(commit) if commit else None}
    print_json("changes", {**header, **changes_to_json(changes, only_stat=only_stat)})
    if commit is None:
        print_notice(f"tick {tick} changed nothing")
        return
    commit_name = commit.short if commit.id else ""
    print_truncated(f"{commit.subject}  {commit.at}  {commit_name}".rstrip(), "bold")
    if past.reliability_note:
        print_notice(past.reliability_note)
    print_changes(changes, only_stat=only_stat)


def diff(
    context: CommandContext,
    old: Annotated[str, argument("A", _STATE_HELP)],
    new: Annotated[str, argument("B", _STATE_HELP)],
    agent: OneAgent = None,
    only_stat: OnlyStat = False,
) -> None:
    """Show file differences between two ticks. `now` means the files on disk.

    \b
    Examples:
      lemming diff 40 now --stat
      lemming diff 40 42 editor
    """
    for state in (old, new):
        if state != "now" and parse_int(state, le=LAST_TICK) is None and Path(state).expanduser().is_dir():
            hint = f"`git diff --no-index {old} {new}` compares two folders"
            raise UsageError(f"expected a tick, a commit or now, got a folder: {state}", hint=hint)
    base = context.org
    if agent is not None:
        require_agent_folder(base, agent)
    past = open_past(base)
    changes = past.changes_between(old, new, agent=agent or "")
    print_json("changes", {"from": old, "to": new, **changes_to_json(changes, only_stat=only_stat)})
    if past.reliability_note:
        print_notice(past.reliability_note)
    print_changes(changes, only_stat=only_stat)


def fork(
    context: CommandContext,
    folder: Annotated[Path, argument("DIR", "Folder for the fork: empty or new.")],
    at: Annotated[str, option("--at TICK", "Tick number, or a commit from `lemming history`.")],
    settings: Settings = None,
) -> None:
    """Create a copy that continues from a tick.

    The fork has the files and the journals up to the tick and is independent afterwards. This organisation is
    not changed. Without a history, files of turns come from the journals, and hand-written files (resumes,
    settings, shared files) are the current ones.

    \b
    Examples:
      lemming fork --at 42 ../what-if
      lemming fork --at 42 ../frugal --set agents/editor/resume.json:/model/key=fast
    """
    base = context.org
    history, target = open_past(base), folder.expanduser().resolve()
    state = history.resolve_state(at)
    changed = make_fork(history, state, target, [SettingOverride.parse(text) for text in settings or []])
    broken = {name: str(error) for name, error in survey_agents(target).broken.items()}
    facts = {"org": str(target), "from": str(base), "at": state.tick, "next_tick": state.tick + 1}
    print_json("fork", {**facts, "changed": changed, "broken": broken, "remark": history.reliability_note})
    print_data(str(target))
    if history.reliability_note:
        print_notice(history.reliability_note)
    print_notice(f"as after tick {state.tick}; `lemming -C {folder} run-once` runs tick {state.tick + 1}")
    for name, reason in broken.items():
        print_warning(f"{name}: {one_line(reason, 400)}")


def rewind(
    context: CommandContext,
    to: Annotated[str, option("--to TICK", "Tick number, or a commit from `lemming history`.")],
    is_sure: Apply = False,
) -> None:
    """Rewind this organisation to an earlier tick.

    The current files are committed to the history first, and the journals of later ticks are moved to aside/:
    nothing is lost. Without --yes, the command only lists the changes.

    \b
    Example:
      lemming rewind --to 41 --yes
    """
    base = context.org
    history = GitHistory(Path(base))
    if not is_sure:
        _print_rewind(plan_rewind(history, history.resolve_state(to)))
        print_notice(f"nothing has changed; to rewind: `lemming rewind --to {to} --yes`")
        return
    with open_org(base, command="rewind") as runtime:
        result = do_rewind(runtime, history, history.resolve_state(to))
    _print_rewind(result)
    undo = f"lemming rewind --to @{result.previous_commit[:10]} --yes"
    print_notice(f"tick {result.state.tick + 1} is next; `{undo}` undoes it")


def _print_rewind(result: RewindResult) -> None:
    print_json("rewind", result.as_json())
    for file in result.changes.files:
        print_data(f"{file.change:<8}  {file.path}")
    journal_count = format_count(len(result.journals), "journal")
    archived = f" moved to {result.archive_folder}" if result.archive_folder else " to be archived"
    journals_text = archived if result.journals or result.archive_folder else ""
    kinds = [file.change for file in result.changes.files]
    parts = [f"{kinds.count(kind)} {kind}" for kind in ("added", "modified", "deleted") if kind in kinds]
    summary = f"{format_count(len(kinds), 'file')} ({', '.join(parts)})" if parts else "no file"
    print_notice(f"to tick {result.state.tick}: {summary}, {journal_count}{journals_text}")


def changes_to_json(changes: StateDiff, *, only_stat: bool) -> dict[str, Any]:
    """Return the changed files as JSON; with `only_stat`, without the diff itself."""
    return {key: commit_row for key, commit_row in changes.as_json().items() if not (only_stat and key == "diff")}


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


def _format_line_counts(file: FileChange) -> str:
    return "not text" if file.added is None else f"+{file.added} -{file.removed}"
