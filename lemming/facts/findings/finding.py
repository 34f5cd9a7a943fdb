"""A finding: what it says, of whom, since when, what shows it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lemming.kernel.base.errors import Problem
from lemming.kernel.base.kinds import FindingKind
from lemming.timeline.record import TurnRecord

EVIDENCE_NAMED, TEXT_CHARS = 12, 80


@dataclass(frozen=True, kw_only=True)
class Finding(Problem):
    """Something that an organisation does and that a person should look at.

    `since`: the first tick of it that was looked at. `evidence`: turns as TICK/AGENT, and files, in order of
    time; where they are many, the first and the newest. `hint`: what may help.
    """

    kind: FindingKind
    agents: tuple[str, ...]
    since: int
    evidence: tuple[str, ...]
    severity: str = "warning"

    def as_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {
            "kind": self.kind,
            "agents": list(self.agents),
            "text": self.message,
            "since_tick": self.since,
            "evidence": list(self.evidence),
            "fix": self.hint,
        }


def named(turns: Iterable[TurnRecord]) -> tuple[str, ...]:
    """Return turns as evidence: TICK/AGENT, as `lemming why` and `lemming tick` are told them."""
    return few(f"{turn.tick}/{turn.agent}" for turn in turns)


def few(evidence: Iterable[str]) -> tuple[str, ...]:
    """Return evidence, of much of it the first and the newest.

    >>> few(str(number) for number in range(20))[-2:], len(few("x" * 20))
    (('18', '19'), 12)
    """
    found = list(evidence)
    return tuple(found if len(found) <= EVIDENCE_NAMED else [found[0], *found[1 - EVIDENCE_NAMED :]])


def quoted(text: str) -> str:
    """Return the beginning of an agent's text, on a line, in quotation marks."""
    line = " ".join(text.split())
    return f'"{line if len(line) <= TEXT_CHARS else line[: TEXT_CHARS - 1].rstrip() + "…"}"'
