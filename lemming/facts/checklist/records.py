"""What journals tell of files, for `lemming verify`, and of what agents do, for `lemming findings`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from lemming.facts.checklist.check import Check, CheckScope
from lemming.facts.findings.rules import RULES, FindingRule, found_by
from lemming.kernel.base.errors import Problem
from lemming.timeline.verify.files import PARTS

LOOKS_AT = {
    "journals": "whether each journal is whole, and follows from the one before",
    "written": "each file beside what its last turn wrote",
    "outboxes": "entries that no turn wrote",
    "ledgers": "each line of the ledgers beside the turn it is of",
    "clock": "tick.json beside the last journal",
}


def _mismatches(name: str, scope: CheckScope) -> Iterable[Problem]:
    return PARTS[name](scope.records)


def _found(rule: FindingRule, scope: CheckScope) -> Iterable[Problem]:
    return found_by(rule, scope.look)


CHECKS = tuple(Check(name, "journals", what, partial(_mismatches, name)) for name, what in LOOKS_AT.items())
FINDINGS = tuple(
    Check(rule.kind, "journals", rule.means[0].lower() + rule.means[1:].rstrip("."), partial(_found, rule))
    for rule in RULES
)
