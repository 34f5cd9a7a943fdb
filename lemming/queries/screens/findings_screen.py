"""The screen of findings: problems in the behaviour of agents."""

from __future__ import annotations

from typing import Annotated, get_args

from lemming.journal_tools.tick_ranges import parse_tick_range
from lemming.kernel.agents import require_agent_folder
from lemming.kernel.base.entry_kinds import FindingKind
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.wording import format_count
from lemming.queries.findings.finding_rules import CHECKS, apply_rules
from lemming.queries.findings.finding_scan import FindingScan, scan_ticks
from lemming.queries.screens.screen import AnyAgentName, Column, Note, Parameter, Screen, ScreenResult

KINDS = get_args(FindingKind)
CHECKS_BY_KIND = {check.name: check for check in CHECKS}


def list_findings(
    org: OrgPath,
    agent: AnyAgentName = None,
    kind: Annotated[
        str | None, Parameter("--kind KIND", f"Show findings of this kind only: {', '.join(KINDS)}.")
    ] = None,
    ticks: Annotated[
        str | None, Parameter("--ticks A..B", "Ticks to include: 7, 3..9, 3.. or ..9. Default: the newest.")
    ] = None,
) -> ScreenResult:
    """Show problems in agent behaviour: loops, dropped requests, false claims."""
    if agent:
        require_agent_folder(org, agent)
    if kind and kind not in KINDS:
        hint = did_you_mean(kind, KINDS) or f"use one of {', '.join(KINDS)}"
        raise UsageError(f'finding kind "{kind[:80]}" does not exist', hint=hint)
    first, last = parse_tick_range(ticks) if ticks else (None, None)
    scan = scan_ticks(org, first=first, last=last)
    rows = [row for row in apply_rules(scan) if (not kind or kind == row.kind) and (not agent or agent in row.agents)]
    return ScreenResult(rows, _describe_scan(scan, len(rows)))


def _describe_scan(scan: FindingScan, count: int) -> list[Note]:
    summary = format_count(count, "finding") if count else "no findings"
    if not scan.ticks:
        scope = f"{summary}: no turn ran in these ticks"
    else:
        last = scan.ticks[-1].tick
        ticks = f"tick {last}" if last == scan.first_tick else f"ticks {scan.first_tick} to {last}"
        scope = f"{summary} in {ticks} ({format_count(len(scan.turns), 'turn')})"
    damaged = f"not read: {format_count(len(scan.damaged), 'journal')}; `lemming verify` says why"
    return [Note(scope), *([Note(damaged, is_warning=True)] if scan.damaged else [])]


FINDINGS = Screen(
    "findings",
    kind="finding",
    title="Findings of rules",
    tool="findings",
    query=list_findings,
    is_table=False,
    columns=(
        Column("kind", "KIND", "Kind of the finding.", text=lambda finding: CHECKS_BY_KIND[finding.kind].title),
        Column("agents", "AGENTS", "Agents that it is about.", list[str]),
        Column("text", "FINDING", "What the rule found.", path="message"),
        Column("since_tick", "SINCE", "First scanned tick with it.", int, path="tick", shown="tick"),
        Column("evidence", "EVIDENCE", "Turns as TICK/AGENT, and files, in time order.", list[str]),
        Column("fix", "FIX", "Suggested fix.", path="hint"),
    ),
)  # fmt: skip
