"""`lemming findings`: what goes wrong in what the agents do."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from lemming.commands.options import AnyAgentName, Here, Limit, option, require_folder
from lemming.commands.screen import counted, one_line, painted, show, tell
from lemming.facts.findings.finding import Finding
from lemming.facts.findings.look import Look, look_at
from lemming.facts.findings.rules import RULES, findings_in
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.kinds import FindingKind
from lemming.timeline.tick_spans import span_of

KINDS = get_args(FindingKind)
_TITLES = {rule.kind: rule.title for rule in RULES}


def findings(
    here: Here,
    agent: AnyAgentName = None,
    kind: Annotated[str | None, option("--kind KIND", f"Only one of {', '.join(KINDS)}.")] = None,
    ticks: Annotated[
        str | None, option("--ticks A..B", "Which: 3..9, 3.., ..9 or 7. Default: the newest.")
    ] = None,
    check: Annotated[
        bool, option("--check", "End with exit status 1 when there are any: for monitors.")
    ] = False,
    limit: Limit = None,
) -> None:
    """Show what goes wrong in what the agents do: who goes round in circles, what is asked and dropped.

    Found by rules over journals and outboxes; no model is asked, nothing is written. docs/checks.md says
    what each kind means; from when on something is told, and what never is, stands under "findings" in
    config/org.json.

    \b
    Examples:
      lemming findings
      lemming findings editor --kind repeats
      lemming findings --ticks 100..200 --json | jq -r '.kind + " " + .text'
      lemming findings --check || mail -s "lemmings" me
    """
    base = here.org
    if agent is not None:
        require_folder(base, agent)
    if kind is not None and kind not in KINDS:
        raise UsageError(
            f'there is no kind of finding "{kind}"', hint=nearest(kind, KINDS) or f"one of {', '.join(KINDS)}"
        )
    first, last = span_of(ticks) if ticks is not None else (None, None)
    look = look_at(base, first=first, last=last)
    found = [
        it for it in findings_in(look) if kind in (None, it.kind) and (agent is None or agent in it.agents)
    ]
    for finding in here.few(found, limit):
        if not here.shows("finding", finding.as_json()):
            _show(finding)
    if not here.as_json:
        _tell_what_was_looked_at(look, len(found))
    raise typer.Exit(1 if check and found else 0)


def _show(finding: Finding) -> None:
    head = painted(_TITLES[finding.kind], "yellow")
    show(f"{head}  {', '.join(finding.agents)}  since tick {finding.since}")
    show(f"  {one_line(finding.message, 400)}")
    show(painted(f"  see  {one_line(' '.join(finding.evidence), 1000)}", "dim"))
    show(f"  fix  {one_line(finding.hint, 400)}")


def _tell_what_was_looked_at(look: Look, number: int) -> None:
    what = counted(number, "finding") if number else "nothing found"
    if look.ticks:
        last = look.ticks[-1].tick
        ticks = f"tick {last}" if last == look.first else f"ticks {look.first} to {last}"
        tell(f"{what} in {ticks} ({counted(len(look.turns), 'turn')})")
    else:
        tell(f"{what}: no turn has been taken in these ticks")
    if look.damaged:
        tell(f"not read: {counted(len(look.damaged), 'journal')}; `lemming verify` says why", style="yellow")
