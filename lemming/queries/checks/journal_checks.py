"""Checks of journals against files, for `lemming verify`, and of agents' behaviour, for `lemming findings`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from lemming.journal_tools.verify.file_verification import VERIFICATIONS
from lemming.kernel.base.errors import Problem
from lemming.queries.checks.check_registry import Check, CheckScope
from lemming.queries.findings.finding_rules import RULES, FindingRule, apply_rule

DESCRIPTIONS = {
    "journals": "integrity and order of the journals",
    "written": "each file against the last turn that wrote it",
    "outboxes": "entries not written by a turn",
    "ledgers": "each ledger line against its turn",
    "clock": "tick.json against the last journal",
    "merges": "recorded merges of workers against their repositories",
}


def _check_mismatches(name: str, scope: CheckScope) -> Iterable[Problem]:
    return VERIFICATIONS[name](scope.records)


def _check_findings(rule: FindingRule, scope: CheckScope) -> Iterable[Problem]:
    return apply_rule(rule, scope.scan)


CHECKS = tuple(
    Check(name, "journals", description, partial(_check_mismatches, name)) for name, description in DESCRIPTIONS.items()
)
FINDINGS = tuple(
    Check(rule.kind, "journals", rule.meaning[0].lower() + rule.meaning[1:].rstrip("."), partial(_check_findings, rule))
    for rule in RULES
)
