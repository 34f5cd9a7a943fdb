"""An agent whose brain is a file: `agents/<name>/plan.json` answers, and no model is asked."""

from __future__ import annotations

from pathlib import Path

from lemming.errors import RequestRejected
from lemming.providers import Backend, Reply, Request


class PlanProvider(Backend):
    """Takes the values of a turn and says what the plan does next."""

    keeps_deadline = True
    can_be_down = False

    def __init__(self, *, base: Path | None = None) -> None:
        self._base = base or Path()

    def complete(self, request: Request) -> Reply:
        """Return what the plan does next."""
        raise RequestRejected("plans are not run yet", where=request.agent)
