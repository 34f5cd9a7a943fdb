"""`lemming rehearse` and `lemming compare`: what would be, and what is different."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from lemming.commands.options import Here, Trust, argument, option
from lemming.commands.past import show_entry, show_file
from lemming.commands.screen import counted, in_dollars, one_line, show, show_cut, show_json, tell
from lemming.commands.stopping import stop_on_signals
from lemming.commands.trust import require_agreement
from lemming.evals.rehearsal.again import tally
from lemming.evals.rehearsal.compare import Comparison, ValueDifference
from lemming.evals.rehearsal.compare import compare as compare_orgs
from lemming.evals.rehearsal.rehearse import Rehearsed, Wanted, recorded_span
from lemming.evals.rehearsal.rehearse import rehearse as run_rehearsal
from lemming.kernel.access.code_guard import allow_code
from lemming.kernel.base.errors import NotAnOrg, UsageError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.org.format import require_known_format
from lemming.kernel.org.organisation import Organisation
from lemming.timeline.fork import Setting
from lemming.timeline.tick_spans import span_of

_VALUE_WIDTH = 200


def compare(
    here: Here,
    before: Annotated[Path, argument("DIR", "An organisation's folder.")],
    after: Annotated[Path, argument("DIR", "Another one's.")],
    ticks: Annotated[
        str | None, option("--ticks A..B", "Compare entries of these ticks only: 3..9, 3.., ..9 or 7.")
    ] = None,
) -> None:
    """Show what differs between two organisations: agents, settings, entries, files, what was spent.

    Entries are put side by side by tick, author and kind. Ledgers, logs and journals are not compared.

    Exit status: 0 nothing differs, 1 something does.

    \b
    Examples:
      lemming compare . ../what-if
      lemming compare . ../what-if --ticks 10..20 --json | jq -c 'select(.type == "entry_difference")'
    """
    span = span_of(ticks) if ticks else None
    one, other = (_org(folder) for folder in (before, after))
    found = compare_orgs(one, other, span)
    (_show_json if here.as_json else _show_comparison)(found)
    if not found.is_same:
        raise typer.Exit(1)
    if not here.as_json:
        tell("nothing differs")


def _org(folder: Path) -> Organisation:
    org = Organisation.at(folder.expanduser().resolve())
    if not (org.base / "agents").is_dir():
        raise NotAnOrg("there is no agents/ folder here", where=str(org.base), hint="name an organisation's")
    require_known_format(org.base)
    return org


def _show_json(found: Comparison) -> None:
    for name, side in found.agents.items():
        show_json("agent_difference", {"agent": name, "only_in": side})
    for value in found.values:
        show_json("value_difference", asdict(value))
    for entry in found.entries:
        show_json("entry_difference", entry.as_json())
    for file in found.files:
        show_json("file_difference", asdict(file))
    for spent in found.spent:
        show_json("spent_difference", asdict(spent))


def _show_comparison(found: Comparison) -> None:
    for name, side in found.agents.items():
        show_cut(f"agent  {name}  only {side}", "bold")
    for value in found.values:
        _show_value(value)
    for entry in found.entries:
        show_entry(entry)
    for file in found.files:
        show_file(file)
    for spent in found.spent:
        show_cut(
            f"spent  {spent.agent}  {_in_words(spent.before)} before, {_in_words(spent.after)} after", "bold"
        )


def _show_value(value: ValueDifference) -> None:
    show_cut(f"{value.file}:{value.pointer}", "bold")
    for sign, each in (("-", value.before), ("+", value.after)):
        if each is not None:
            show_cut(f"  {sign}{one_line(to_line(each), _VALUE_WIDTH)}", "red" if sign == "-" else "green")


def _in_words(spent: dict[str, Any]) -> str:
    turns, credits = counted(spent["turns"], "turn"), counted(spent["credits"], "credit")
    return f"{turns}, {credits}, {in_dollars(spent['cost_usd'])}"


NO_END = 10**12


def rehearse(
    here: Here,
    settings: Annotated[
        list[str] | None,
        option(
            "--set FILE:POINTER=VALUE",
            "Change one value of a JSON file in the rehearsal; JSON, else text. May be repeated.",
        ),
    ] = None,
    ticks: Annotated[str | None, option("--ticks A..B", "Which: 3..9, 3.., ..9 or 7. Default: all.")] = None,
    budget: Annotated[
        float | None, option("--budget USD", "Make no call by which more could be spent.", min=0)
    ] = None,
    dry_run: Annotated[
        bool, option("--dry-run", "Ask nobody: say how many questions would differ, at what cost.")
    ] = False,
    tools: Annotated[
        bool, option("--tools", "Also make calls that reach outside, where the record has none like it.")
    ] = False,
    keep: Annotated[
        Path | None, option("--keep DIR", "Keep the fork here; one that was interrupted goes on.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Run recorded ticks again with a change, and show what would have been different, entry by entry.

    It happens in a fork: this organisation is not touched. Resumes and settings are as they are now, with
    what --set changes; without it, it shows what an edit of a resume since then would have changed. What
    people and channels wrote comes in the same ticks, and the clock says what it said.

    Answers come from the record where the question is the very same; models are asked only where it differs.
    Channels send nothing; a tool that reaches outside gets its recorded result where the call is the same,
    else it is not called.

    Exit status: 0 it went to the end; else that of what stopped it: 6 the budget, 2 a model that is only a
    recording.

    \b
    Examples:
      lemming rehearse --set agents/editor/resume.json:/instructions="Be brief." --dry-run
      lemming rehearse --set agents/editor/resume.json:/model/key=fast --ticks 10..20 --budget 0.50
      lemming rehearse --keep ../what-if --json | jq -c 'select(.type == "entry_difference") | .diff'
    """
    base = here.org
    span = recorded_span(base, _ticks_meant(ticks) if ticks else None)
    wanted = Wanted(
        first=span.start,
        last=span.stop - 1,
        settings=tuple(Setting.parse(text) for text in settings or []),
        budget=budget,
        is_dry=dry_run,
        makes_calls=tools,
    )
    if keep is not None and dry_run:
        raise UsageError("--dry-run keeps nothing", hint="leave out one of --keep and --dry-run")
    require_agreement(base, trusts=trust, can_ask=not here.as_json)
    with tempfile.TemporaryDirectory(prefix="lemming-rehearsal-") as scratch, stop_on_signals() as switch:
        folder = Path(scratch, "fork") if keep is None else keep.expanduser().resolve()
        allow_code(folder)  # as to the original
        found = run_rehearsal(base, folder, wanted, stop=switch.stop)
    _show(found, wanted, as_json=here.as_json)
    if keep is not None and not here.as_json:
        tell(f"kept in {folder}")
    if found.stopped_by is not None:
        raise found.stopped_by
    if found.cannot_tell and not dry_run:
        hint = f"a model that can: --set agents/{found.scripted[0]}/resume.json:/model/key=KEY"
        raise UsageError(found.cannot_tell, hint=hint)
    if found.last < wanted.last:
        raise typer.Exit(switch.exit_status)


def _ticks_meant(text: str) -> range:
    first, last = span_of(text)
    return range(first, (NO_END if last is None else last) + 1)


def _named(first: int, last: int) -> str:
    return f"tick {first}" if first == last else f"ticks {first} to {last}"


def _show(found: Rehearsed, wanted: Wanted, *, as_json: bool) -> None:
    if as_json:
        for entry in found.entries:
            show_json("entry_difference", entry.as_json())
        show_json("rehearsed", {**found.as_json(), "dry_run": wanted.is_dry})
        return
    if found.remark:
        tell(found.remark)
    if not wanted.is_dry:
        _show_differences(found)
    for line in tally(found.not_made):
        tell(f"not made: {line}", style="yellow")
    for tick, agent in found.not_repeated:
        tell(f"tick {tick}: {agent}: not rehearsed: the engine or the disk ended that turn", style="yellow")
    (_tell_dry if wanted.is_dry else _tell_spent)(found)
    if found.caveat and (wanted.is_dry or not found.cannot_tell):
        tell(found.caveat, style="yellow")


def _show_differences(found: Rehearsed) -> None:
    for entry in found.entries:
        show_entry(entry)
    for end in found.ends:
        show_cut(f"tick {end.tick}  {end.agent}  ended {end.before or '(no turn)'}", "bold")
        show_cut(f"  now: {end.after or '(no turn)'}")
    for file in found.files:
        show_file(file)
    if found.last >= found.first and found.is_alike and not found.cannot_tell:
        show("nothing would have been different")


def _tell_spent(found: Rehearsed) -> None:
    spent = found.spending
    if found.last < found.first:
        tell(f"stopped in tick {found.first}")
        return
    changes = [entry.change for entry in found.entries]
    told = ", ".join(
        f"{changes.count(word)} {word}" for word in ("changed", "new", "gone") if word in changes
    )
    tell(f"{_named(found.first, found.last)}: entries: {told or 'none differs'}")
    answers = counted(found.reused, "answer")
    dollars = float(spent.dollars) if spent.calls > spent.unpriced else None
    price = in_dollars(dollars, calls=spent.calls, unpriced=spent.unpriced)
    cost = f": {price}" if spent.calls else ""
    tell(f"{answers} from the record, {counted(spent.calls, 'call')} made{cost}")


def _tell_dry(found: Rehearsed) -> None:
    asked = len(found.asked)
    of_all = f"{asked} of {asked + found.reused} questions"
    tell(f"{_named(found.first, found.last)}: at least {of_all} would differ")
    if not asked:
        tell("dry run: no model was asked, and none would be")
        return
    for number, spending in ((asked, found.spending), (asked + found.reused, found.whole)):
        price = float(spending.at_most) if spending.calls > spending.unpriced else None
        dollars = in_dollars(price, calls=spending.calls, unpriced=spending.unpriced)
        what = "they cost" if spending is found.spending else f"all {number}, should all differ then,"
        tell(f"{what} at most {dollars}")
    tell("dry run: no model was asked")
