"""The rules for findings: a check for each kind, and the functions that apply the rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from lemming.kernel.base.entry_kinds import FindingKind
from lemming.kernel.base.errors import Problem
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.validation.checks import Check
from lemming.queries.findings import false_claims, neglected_work, repetition
from lemming.queries.findings.finding_scan import FindingScan, scan_ticks
from lemming.read_model.journal_ticks import journal_bytes, started_journals

Find = Callable[[FindingScan], Iterator[Problem]]


def _rule(kind: FindingKind, title: str, meaning: str, exclusions: str, find: Find) -> Check:
    def apply(scan: FindingScan) -> list[Problem]:
        """Return the findings of the rule, oldest first, or an empty list if the settings disable the rule."""
        findings = [] if kind in scan.settings.off else [replace(finding, kind=kind) for finding in find(scan)]
        return sorted(findings, key=lambda finding: (finding.tick or 0, finding.agents, finding.message))

    description = meaning[0].lower() + meaning[1:].rstrip(".")
    return Check(kind, "journals", "behaviour", description, apply, title=title, exclusions=exclusions)


CHECKS = (
    _rule(
        "repeats",
        "repeats itself",
        "An agent repeats the same text, or the same call with the same result.",
        "polling with changing results; answered questions; the same answer to several requests; rare repetitions",
        repetition.find_repetition,
    ),
    _rule(
        "ping_pong",
        "ping-pong",
        "Two agents see only each other's entries and do nothing but answer them.",
        "exchanges that write a file or a memory, call a tool, or involve another agent",
        repetition.find_ping_pong,
    ),
    _rule(
        "works_on",
        "continues after the end",
        "An agent has answered, sees nothing new, and takes turns that cost credits and produce nothing.",
        "turns that produce something, or follow from something new",
        repetition.find_idle_work,
    ),
    _rule(
        "dropped",
        "dropped request",
        "Nobody works on a request that its assignee can read, or it expired without an answer.",
        "requests to people (`lemming waiting`); requests for later; requests whose assignee waits for "
        "others or has reported to the asker",
        neglected_work.find_dropped_requests,
    ),
    _rule(
        "unread",
        "unread",
        "An agent is not shown an entry that is addressed to it for many turns, or it expires before.",
        "requests, which have turns of their own; readers that take no turns",
        neglected_work.find_unread_entries,
    ),
    _rule(
        "claims",
        "claims without doing",
        "A text claims that a file was written or a tool called, and no earlier turn of the agent did so.",
        "work of others, future work, files that exist",
        false_claims.find_false_claims,
    ),
    _rule(
        "unverified",
        "not verified",
        "An entry was sent although its judge rejected it, or a request with `expect` or `verify` was "
        "answered without a judge.",
        "entries that were not sent",
        neglected_work.find_unverified_work,
    ),
    _rule(
        "no_progress",
        "spends without progress",
        "Turns in a row cost credits and write no entry, file or memory, and no call returns anything new.",
        "turns that wait for others; turns that cost nothing",
        repetition.find_stalled_agents,
    ),
    _rule(
        "failing_calls",
        "calls that fail",
        "An agent calls a tool in turns in a row, and each call fails with the same kind of error.",
        "calls that wait for a person or are made again later; calls that `repeats` reports",
        repetition.find_failing_calls,
    ),
)
"""The selection of `lemming findings`."""


CHEAP_BYTES = 512 << 10
"""Journals of so many bytes together are looked through in a tenth of a second."""


def find_findings(
    base_path: str | os.PathLike[str], *, first: int | None = None, last: int | None = None
) -> list[Problem]:
    """Return the findings in the newest ticks, for the window set by `findings.window` in `config/org.json`.

    `first` and `last` replace the window by a range of ticks. Findings are sorted by kind, then by age, oldest first;
    equal files give equal findings. Raises `ConfigError` and `CorruptState` as `scan_ticks` does.
    """
    return apply_rules(scan_ticks(base_path, first=first, last=last))


def apply_rules(scan: FindingScan) -> list[Problem]:
    """Return the findings of all rules in a scan."""
    return [finding for check in CHECKS for finding in check.find(scan)]


def count_findings(base: OrgPath, config: Config) -> int | None:
    """Return the number of findings, or None if the scan would take too long."""
    window = started_journals(base, config.org.findings.window)
    if sum(journal_bytes(base, tick) for tick in window) > CHEAP_BYTES:
        return None
    return len(find_findings(base))
