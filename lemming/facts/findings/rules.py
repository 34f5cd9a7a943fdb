"""The rules: for each kind of finding what it means, what finds it, and asking all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from lemming.facts.findings import asked, claims, repeating
from lemming.facts.findings.finding import Finding
from lemming.facts.findings.look import Look, look_at
from lemming.kernel.base.kinds import FindingKind
from lemming.kernel.journal.file import begun_journals, journal_bytes
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath


class FindingRule(NamedTuple):
    """A kind of finding: its name for people, what it means, what is no such thing, and what finds it."""

    kind: FindingKind
    title: str
    means: str
    spares: str
    find: Callable[[Look], Iterator[Finding]]


RULES = (
    FindingRule(
        "repeats",
        "repeats itself",
        "An agent writes the same text, or makes the same call and is given the same, again and again.",
        "polling that is given something else; a question that was answered; the same answer to several "
        "requests; what comes round rarely",
        repeating.repeats,
    ),
    FindingRule(
        "ping_pong",
        "ping-pong",
        "Two agents are shown nothing but each other's entries and do nothing but answer them.",
        "exchanges that leave a file or a memory, call a tool, or hear of somebody else on the way",
        repeating.ping_pong,
    ),
    FindingRule(
        "works_on",
        "works on after the end",
        "An agent has answered, is shown nothing new, and takes turns that cost credits and leave nothing.",
        "turns that leave something, or that follow from something new",
        repeating.works_on,
    ),
    FindingRule(
        "dropped",
        "dropped request",
        "Nobody works on a request, though its holder may read it; or it expired without an answer.",
        "requests to people (`lemming waiting`), for a time to come, whose holder waits for others or has "
        "let the asker know of something",
        asked.dropped,
    ),
    FindingRule(
        "unread",
        "unread",
        "An agent is not shown what is addressed to it, turn after turn; or it was removed before.",
        "requests, which have turns of their own; readers that take no turns",
        asked.unread,
    ),
    FindingRule(
        "claims",
        "says, but does not do",
        "A text says that a file was written, or a tool called, and no turn of the agent up to then did.",
        "what others did, what is still to be done, files that are there",
        claims.claims,
    ),
    FindingRule(
        "unverified",
        "not verified",
        "What an agent wrote left though its judge did not pass it, or a request that says `expect` or "
        "`verify` was answered and nobody judged that.",
        "what did not leave",
        asked.unverified,
    ),
    FindingRule(
        "no_progress",
        "spends without progress",
        "Turns in a row cost credits and leave no entry, file or memory, and no call gives anything new.",
        "turns that wait for others; what costs nothing",
        repeating.no_progress,
    ),
)


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
