"""A person, who answers with `lemming send` and is never called."""

from __future__ import annotations

from lemming.kernel.base.errors import RequestRejected
from lemming.kernel.providers import Backend, Reply, Request


class HumanProvider(Backend):
    """Placeholder for a person in `config/models.json`."""

    is_person = True
    keeps_deadline = True

    def complete(self, request: Request) -> Reply:
        """Raise `RequestRejected`: a person cannot be called through this interface."""
        hint = "write a person's entries with `lemming send`"
        raise RequestRejected("a person cannot be called like a model", where=request.agent, hint=hint)
