"""The `Finding` type: message, agents, first tick and evidence. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lemming.journal_tools.recorded_tick import TurnRecord
from lemming.kernel.base.entry_kinds import FindingKind
from lemming.kernel.base.errors import Problem

MAX_EVIDENCE, MAX_TEXT_CHARS = 12, 80


@dataclass(frozen=True, kw_only=True)
class Finding(Problem):
    """Behaviour of an organisation that a person should inspect.

    `since`: the first scanned tick with the behaviour. `evidence`: turns as TICK/AGENT, and files, in time
    order; long lists keep the first and the newest items. `hint`: a suggested fix.
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


def format_evidence(turns: Iterable[TurnRecord]) -> tuple[str, ...]:
    """Return turns as evidence in the form TICK/AGENT, the argument form of `lemming why` and `lemming tick`."""
    return limit_evidence(f"{turn.tick}/{turn.agent}" for turn in turns)


def limit_evidence(evidence: Iterable[str]) -> tuple[str, ...]:
    """Return at most 12 items of evidence: the first and the newest.

    >>> limit_evidence(str(number) for number in range(20))[-2:], len(limit_evidence("x" * 20))
    (('18', '19'), 12)
    """
    items = list(evidence)
    return tuple(items if len(items) <= MAX_EVIDENCE else [items[0], *items[1 - MAX_EVIDENCE :]])


def quote_text(text: str) -> str:
    """Return the start of an agent's text as a single quoted line."""
    line = " ".join(text.split())
    return f'"{line if len(line) <= MAX_TEXT_CHARS else line[: MAX_TEXT_CHARS - 1].rstrip() + "…"}"'
