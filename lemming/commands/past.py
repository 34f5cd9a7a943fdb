"""The past: `lemming history`, `show`, `diff`, `fork`, `rewind` and `bisect`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from lemming.commands.options import Here, argument, option, require_folder
from lemming.commands.screen import (
    Style,
    counted,
    in_dollars,
    one_line,
    painted,
    show,
    show_columns,
    show_cut,
    show_json,
    tell,
)
from lemming.history.bisect import CommitTrial
from lemming.history.bisect import bisect as find_first_bad
from lemming.history.read import Changes, FileChange, History
from lemming.history.rewind import Rewind, plan_rewind
from lemming.history.rewind import rewind as do_rewind
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import OrgBusy
from lemming.kernel.base.integers import LAST_TICK, read_int
from lemming.kernel.base.jsontext import parse, pretty
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.config import ORG_FILE, load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.runtime import open_org
from lemming.timeline.fork import Setting
from lemming.timeline.fork import fork as make_fork
from lemming.timeline.unkept import past_states

if TYPE_CHECKING:
    from lemming.evals.rehearsal.compare import EntryDifference


_STYLES: dict[str, Style] = {"+": "green", "-": "red", "@": "dim"}
_HEAD = re.compile(r"(diff --git |index |--- |\+\+\+ |(new|deleted) file |(old|new) mode )")

OneAgent = Annotated[str | None, argument("[AGENT]", "Only this agent's files.", of_agents=True)]
OnlyStat = Annotated[bool, option("--stat", "Only the files and how many lines, no text.")]


def show_changes(changes: Changes, *, only_stat: bool) -> None:
    """Print the files that changed and, unless `only_stat`, how."""
    show_columns([[file.change, file.path, _lines(file)] for file in changes.files])
    if not changes.files:
        show("no file differs")
    elif not only_stat:
        show()
        for line in changes.diff.splitlines():
            show_cut(line, "bold" if _HEAD.match(line) else _STYLES.get(line[:1], "plain"))


def show_entry(entry: EntryDifference) -> None:
    """Print an entry that differs, and how."""
    show_cut(f"tick {entry.tick}  {entry.agent}  {entry.kind}  {entry.change}", "bold")
    for line in entry.diff.splitlines():
        show_cut(f"  {line}", _STYLES.get(line[:1], "plain"))


def show_file(file: FileChange) -> None:
    """Print that a file differs, and by how much."""
    show_cut(f"file  {file.path}  {file.change}  {_lines(file)}", "bold")


def files_in_short(files: list[FileChange]) -> str:
    """Return in one line how many files changed, by kind."""
    kinds = [file.change for file in files]
    parts = [f"{kinds.count(kind)} {kind}" for kind in ("added", "modified", "deleted") if kind in kinds]
    return f"{counted(len(files), 'file')} ({', '.join(parts)})" if parts else "no file"


def _lines(file: FileChange) -> str:
    return "not text" if file.added is None else f"+{file.added} -{file.removed}"


COLUMNS = {
    "COMMIT": "short",
    "WHEN (UTC)": lambda it: it["at"][:16].replace("T", " "),
    "WHAT": "subject",
    "AGENTS": lambda it: ", ".join(it["agents"]),
    "SPENT": lambda it: (
        f"{counted(it['credits'], 'credit')}, {in_dollars(it['cost_usd'])}" if it["calls"] else ""
    ),
}


def history(
    here: Here,
    what: Annotated[
        str | None,
        argument(
            "[AGENT|on|off]",
            "Only commits that changed this agent's files; or turn the history on or off.",
            of_agents=True,
        ),
    ] = None,
    number: Annotated[int, option("-n --limit N", "How many of the newest; 0 shows all.", min=0)] = 20,
) -> None:
    """Show what has been kept: a line for each tick that changed something, and for edits by hand.

    With `on`, every tick is a commit in .lemming/history.git: those to come, and those that the journals
    tell of already (not while an engine runs). With `off` no more are added; what is there can still be read.
    Both change one value in config/org.json.

    \b
    Examples:
      lemming history on
      lemming history editor -n 5
      lemming history --json | jq -s 'map(.credits) | add'
    """
    base = here.org
    if what in ("on", "off"):
        _switch(base, is_on=what == "on", as_json=here.as_json)
        return
    if what is not None:
        require_folder(base, what, words=("on", "off"))
    from lemming.history.read import History

    commits = History(Path(base)).commits(agent=what or "", limit=number or None)[::-1]
    facts = [commit if here.as_json else {**commit.as_json(), "short": commit.short} for commit in commits]
    here.lists("commit", facts, COLUMNS, nothing="nothing kept yet")


def _switch(base: OrgPath, *, is_on: bool, as_json: bool) -> None:
    """Write one value into config/org.json, and leave the rest of it."""
    from lemming.history.git import FOLDER, require_git

    if is_on:
        require_git()
    value, before = "git" if is_on else "off", load_config(base).org.history
    if value != before:
        with changing_file(base, ORG_FILE) as opened:
            opened.publish(pretty({**parse(opened.raw, allow_bom=True), "history": value}))
    rebuilt = _rebuild(base) if is_on else 0
    if as_json:
        show_json("history", {"history": value, "before": before, "rebuilt": rebuilt})
    elif is_on:
        tell(f"the history is on: every tick that changes something is kept in {FOLDER}")
        if rebuilt:
            tell(
                f"{counted(rebuilt, 'tick')} of the past made from the journals; `lemming history` shows them"
            )
        else:
            tell("`lemming history` lists them, `lemming show TICK` shows what one changed")
    else:
        tell("the history is off; what has been kept can still be read")


def _rebuild(base: OrgPath) -> int:
    """Make the history of the ticks so far where there is none; return how many. Not beside an engine."""
    from lemming.history.recorder import Recorder
    from lemming.kernel.tick.runtime import open_org
    from lemming.timeline.rebuild import rebuild
    from lemming.timeline.tick_spans import journals_of

    try:
        with open_org(base, command="history") as runtime:
            if not journals_of(base, None):
                return 0
            recorder = Recorder(runtime)
            repository = recorder.open()
            if not repository.head() and (rebuilt := rebuild(base, repository)):
                recorder.keep_pending(load_tick(base))
                return rebuilt
            return 0
    except OrgBusy:
        tell("an engine is running: the history begins with its next tick", style="yellow")
        return 0


def show_tick(
    here: Here,
    tick: Annotated[str, argument("TICK", "A tick, or a commit as `lemming history` shows it.")],
    agent: OneAgent = None,
    only_stat: OnlyStat = False,
) -> None:
    """Show which files a tick changed, and how. A terminal gets lines of its width; `| less` all of them.

    \b
    Examples:
      lemming show 42 --stat
      lemming show 42 editor
      lemming show @3fa9c1d2e0
    """
    base = here.org
    if agent is not None:
        require_folder(base, agent)
    past = past_states(base)
    number = read_int(tick, le=LAST_TICK)
    commit = past.state(tick).commit if number is None else past.commit_of(number)
    changes = past.changes_of(commit, agent=agent or "") if commit else Changes([], "")
    of = {"of": tick, "commit": commit.as_json() if commit else None}
    if here.shows("changes", {**of, **_as_json(changes, only_stat=only_stat)}):
        return
    if commit is None:
        tell(f"tick {tick} changed nothing")
        return
    named = commit.short if commit.id else ""
    show_cut(f"{commit.subject}  {commit.at}  {named}".rstrip(), "bold")
    if past.remark:
        tell(past.remark)
    show_changes(changes, only_stat=only_stat)


_PLACE = "A tick, a commit of `lemming history`, or `now`."


def diff(
    here: Here,
    old: Annotated[str, argument("A", _PLACE)],
    new: Annotated[str, argument("B", _PLACE)],
    agent: OneAgent = None,
    only_stat: OnlyStat = False,
) -> None:
    """Show how the files after tick B differ from those after tick A. `now` is what is on disk.

    \b
    Examples:
      lemming diff 40 now --stat
      lemming diff 40 42 editor
    """
    base = here.org
    if agent is not None:
        require_folder(base, agent)
    past = past_states(base)
    changes = past.changes_between(old, new, agent=agent or "")
    if here.shows("changes", {"from": old, "to": new, **_as_json(changes, only_stat=only_stat)}):
        return
    if past.remark:
        tell(past.remark)
    show_changes(changes, only_stat=only_stat)


def _as_json(changes: Changes, *, only_stat: bool) -> dict[str, Any]:
    return {key: it for key, it in changes.as_json().items() if not (only_stat and key == "diff")}


def fork(
    here: Here,
    folder: Annotated[Path, argument("DIR", "Where; empty, or made if need be.")],
    at: Annotated[str, option("--at TICK", "A tick, or a commit of `lemming history`.")],
    settings: Annotated[
        list[str] | None,
        option(
            "--set FILE:POINTER=VALUE",
            "Change one value of a JSON file in the fork; JSON, else text. May be repeated.",
        ),
    ] = None,
) -> None:
    """Make an organisation in a folder that goes on from where this one was after a tick.

    It has the files, and the journals up to that tick; from there on it lives on its own. This organisation
    is not touched. Where no history is kept, what turns wrote comes from the journals, and what people wrote
    (resumes, settings, shared files) is as it is now.

    \b
    Examples:
      lemming fork --at 42 ../what-if
      lemming fork --at 42 ../frugal --set agents/editor/resume.json:/model/key=fast
    """
    base = here.org
    past, place = past_states(base), folder.expanduser().resolve()
    state = past.state(at)
    changed = make_fork(past, state, place, [Setting.parse(text) for text in settings or []])
    broken = {name: str(error) for name, error in survey_agents(place).broken.items()}
    if here.as_json:
        facts = {"org": str(place), "from": str(base), "at": state.tick, "next_tick": state.tick + 1}
        show_json("fork", {**facts, "changed": changed, "broken": broken, "remark": past.remark})
        return
    show(str(place))
    if past.remark:
        tell(past.remark)
    tell(f"as after tick {state.tick}; `lemming -C {folder} run-once` runs tick {state.tick + 1}")
    for name, why in broken.items():
        tell(f"{name}: {one_line(why, 400)}", style="yellow")


def rewind(
    here: Here,
    to: Annotated[str, option("--to TICK", "A tick, or a commit of `lemming history`.")],
    is_sure: Annotated[bool, option("--yes -y", "Do it; without this, only show it.")] = False,
) -> None:
    """Bring this organisation back to where it was after a tick.

    The files as they are now are kept in the history first, and the journals of later ticks are moved to
    aside/: nothing is lost. Without --yes it only shows what it would do.

    \b
    Example:
      lemming rewind --to 41 --yes
    """
    base = here.org
    past = History(Path(base))
    if not is_sure:
        planned = plan_rewind(past, past.state(to))
        _show(planned, as_json=here.as_json)
        if not here.as_json:
            tell(f"nothing has been changed; `lemming rewind --to {to} --yes` does it")
        return
    with open_org(base, command="rewind") as runtime:
        done = do_rewind(runtime, past, past.state(to))
    _show(done, as_json=here.as_json)
    if not here.as_json:
        tell(f"tick {done.state.tick + 1} is next; `lemming rewind --to @{done.kept[:10]} --yes` undoes it")


def _show(rewound: Rewind, *, as_json: bool) -> None:
    if as_json:
        show_json("rewind", rewound.as_json())
        return
    for file in rewound.changes.files:
        show(f"{file.change:<8}  {file.path}")
    later = counted(len(rewound.journals), "journal")
    where = (
        f" moved to {rewound.aside}" if rewound.aside else " to be moved aside" if rewound.journals else ""
    )
    tell(f"to tick {rewound.state.tick}: {files_in_short(rewound.changes.files)}, {later}{where}")


def bisect(
    here: Here,
    command: Annotated[str, argument("COMMAND", "A shell command; exit status 0 means good.")],
    good: Annotated[str, option("--good A", "A tick after which it succeeds.")],
    bad: Annotated[str, option("--bad B", "A later tick after which it fails.")],
) -> None:
    """Find the first tick whose files make a command fail. No model is asked.

    The command runs in a temporary folder that holds the organisation's files as they were; half of what is
    left is ruled out each time.

    \b
    Example:
      lemming bisect --good 1 --bad 500 'grep -q Paris agents/editor/memory/capital.json'
    """
    past = History(Path(here.org))
    trials: list[CommitTrial] = []

    def hear(trial: CommitTrial) -> None:
        trials.append(trial)
        if not here.as_json:
            verdict = painted("good", "green") if trial.is_good else painted("bad ", "red")
            tell(f"  {verdict}  {trial.commit.short}  {trial.commit.subject}")

    first_bad = find_first_bad(past, past.state(good), past.state(bad), command, hear)
    if here.as_json:
        tried = [
            {"commit": trial.commit.id, "tick": trial.commit.tick, "is_good": trial.is_good}
            for trial in trials
        ]
        facts = {"first_bad": first_bad.as_json(), "is_by_hand": first_bad.is_by_hand, "tried": tried}
        show_json("bisect", facts)
        return
    show(f"first bad: {first_bad.subject}  {first_bad.short}")
    name = first_bad.short if first_bad.is_by_hand else str(first_bad.tick)
    tell(f"found with {counted(len(trials), 'run')}; `lemming show {name}` shows what it changed")
