"""`lemming findings`: what goes wrong in what the agents do."""

from __future__ import annotations

import re
from typing import Annotated, get_args

import typer

from lemming.commands.options import AnyAgentName, AsJson
from lemming.commands.org import find_org, require_folder
from lemming.commands.screen import counted, one_line, painted, show, show_json, tell
from lemming.errors import UsageError
from lemming.files.jsontext import nearest
from lemming.findings.find import findings_in
from lemming.findings.finding import Finding
from lemming.findings.look import Look, look_at
from lemming.findings.rules import RULES
from lemming.kinds import FindingKind

KINDS = get_args(FindingKind)
_TICKS = re.compile(r"(?P<first>[0-9]{0,12})\.\.(?P<last>[0-9]{0,12})|(?P<one>[0-9]{1,12})", re.ASCII)
_TITLES = {rule.kind: rule.title for rule in RULES}


def findings(
    ctx: typer.Context,
    agent: AnyAgentName = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help=f"Only one of {', '.join(KINDS)}.")
    ] = None,
    ticks: Annotated[
        str | None,
        typer.Option(
            "--ticks", metavar="A..B", help="Which ticks; A.. and ..B are open. Default: the newest."
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="End with exit status 1 when there are any: for monitors.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what goes wrong in what the agents do: who goes round in circles, what is asked and dropped.

    Found by rules over journals and outboxes; no model is asked, nothing is written. docs/findings.md says
    what each kind means; from when on something is told, and what never is, stands under "findings" in
    config/org.json.

    \b
    Examples:
      lemming findings
      lemming findings editor --kind repeats
      lemming findings --ticks 100..200 --json | jq -r '.kind + " " + .text'
      lemming findings --check || mail -s "lemmings" me
    """
    base = find_org(ctx)
    if agent is not None:
        require_folder(base, agent)
    if kind is not None and kind not in KINDS:
        raise UsageError(
            f'--kind "{kind}" is none', hint=nearest(kind, KINDS) or f"one of {', '.join(KINDS)}"
        )
    first, last = _range(ticks) if ticks is not None else (None, None)
    look = look_at(base, first=first, last=last)
    found = [
        it for it in findings_in(look) if kind in (None, it.kind) and (agent is None or agent in it.agents)
    ]
    for finding in found:
        if as_json:
            show_json("finding", finding.as_json())
        else:
            _show(finding)
    if not as_json:
        _tell_what_was_looked_at(look, len(found))
    raise typer.Exit(1 if check and found else 0)


def _range(text: str) -> tuple[int | None, int | None]:
    """Return the first and the last of the ticks that were typed; None where an end is open."""
    typed = _TICKS.fullmatch(text.strip())
    if typed is None or not any(typed.groups()):
        raise UsageError(f'--ticks "{text}" is no range of ticks', hint="--ticks 100..200, 100.. or ..200")
    if typed["one"]:
        return int(typed["one"]), int(typed["one"])
    first, last = (int(typed[name]) if typed[name] else None for name in ("first", "last"))
    if first is not None and last is not None and first > last:
        raise UsageError(f"--ticks {text}: it ends before it begins", hint=f"--ticks {last}..{first}")
    return 0 if first is None else first, last


def _show(finding: Finding) -> None:
    head = painted(_TITLES[finding.kind], "yellow")
    show(f"{head}  {', '.join(finding.agents)}  since tick {finding.since}")
    show(f"  {one_line(finding.text, 400)}")
    show(painted(f"  see  {one_line(' '.join(finding.evidence), 1000)}", "dim"))
    show(f"  fix  {one_line(finding.fix, 400)}")


def _tell_what_was_looked_at(look: Look, number: int) -> None:
    what = counted(number, "finding") if number else "nothing found"
    if look.ticks:
        tell(f"{what} in ticks {look.first} to {look.ticks[-1].tick} ({counted(len(look.turns), 'turn')})")
    else:
        tell(f"{what}: no turn has been taken in these ticks")
    if look.damaged:
        tell(f"not read: {counted(len(look.damaged), 'journal')}; `lemming verify` says why", style="yellow")
