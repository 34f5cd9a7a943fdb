"""`lemming compare`: two organisations side by side."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from lemming.base.errors import NotAnOrg
from lemming.base.jsontext import to_line
from lemming.commands.changes import show_entry, show_file
from lemming.commands.options import AsJson, argument, option
from lemming.commands.screen import counted, in_dollars, one_line, show_cut, show_json, tell
from lemming.evals.rehearsal.compare import Comparison, ValueDifference
from lemming.evals.rehearsal.compare import compare as compare_orgs
from lemming.org.format import require_known_format
from lemming.org.organisation import Organisation
from lemming.timeline import span_of

_VALUE_WIDTH = 200


def compare(
    before: Annotated[Path, argument("DIR", "An organisation's folder.")],
    after: Annotated[Path, argument("DIR", "Another one's.")],
    ticks: Annotated[
        str | None, option("--ticks A..B", "Compare entries of these ticks only: 3..9, 3.., ..9 or 7.")
    ] = None,
    as_json: AsJson = False,
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
    (_show_json if as_json else _show)(found)
    if not found.is_same:
        raise typer.Exit(1)
    if not as_json:
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


def _show(found: Comparison) -> None:
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
