"""What goes wrong in what an organisation does, for every screen. It looks, and writes nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence

from lemming.facts.findings.finding import Finding
from lemming.facts.findings.look import Look, look_at
from lemming.facts.findings.rules import RULES, FindingRule
from lemming.journal.file import begun_journals, journal_bytes
from lemming.org.config import Config
from lemming.org.organisation import OrgPath

CHEAP_BYTES = 512 << 10
"""Journals of so many bytes together are looked through in a tenth of a second."""


def findings_of(
    base_path: str | os.PathLike[str], *, first: int | None = None, last: int | None = None
) -> list[Finding]:
    """Return what is found in the newest ticks, as many as `findings.window` of `config/org.json` says.

    With `first` or `last`, in all ticks from and to these. In the order of the kinds, the oldest first; the
    same files give the same. Raises `ConfigError` and `CorruptState` as `look_at`.
    """
    return findings_in(look_at(base_path, first=first, last=last))


def findings_in(look: Look) -> list[Finding]:
    """Return what is found in what was looked at."""
    return [found for rule in RULES for found in found_by(rule, look)]


def found_by(rule: FindingRule, look: Look) -> list[Finding]:
    """Return what one rule finds, the oldest first; nothing where the settings turn it off."""
    return [] if rule.kind in look.settings.off else sorted(rule.find(look), key=_order)


def _order(finding: Finding) -> tuple[int, Sequence[str], str]:
    return finding.since, finding.agents, finding.message


def count_findings(base: OrgPath, config: Config) -> int | None:
    """Return how much would be found; None where to look would take longer than all else."""
    window = begun_journals(base, config.org.findings.window)
    if sum(journal_bytes(base, tick) for tick in window) > CHEAP_BYTES:
        return None
    return len(findings_of(base))
