"""The steps on which an item lost trust, as screens show them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lemming.journal_tools.provenance.write_log import WriteLog
from lemming.kernel.plugins.capability_loader import find_fact


@dataclass(frozen=True, kw_only=True)
class TrustStep:
    """A step of a trust trace: an item with trust label `trust`, because its turn read `because`.

    Without a tick no turn wrote the item, which is then the origin. `vouched`: the entries of people who
    endorsed the item.
    """

    what: str
    trust: str
    tick: int | None = None
    agent: str = ""
    because: str = ""
    vouched: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the step as JSON values."""
        return {**asdict(self), "vouched": [*self.vouched]}


def load_trust_steps(write_log: WriteLog, path: str) -> list[TrustStep]:
    """Return the trust trace of a file, a memory or an entry, beginning with the item.

    The trace is empty if no turn lowered the trust, and if the capability of trust is not installed.
    """
    trace_trust = find_fact("trust.trace")
    steps: list[TrustStep] = trace_trust(write_log, path) if trace_trust else []
    return steps
