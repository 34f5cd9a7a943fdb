"""Stand-in provider for every model of an organisation, with a bill of calls: for `lemming chaos`.

Importing this module registers the provider as `stand-in`; an engine in another process gets the provider
through `plugins` in `config/org.json`.
"""

from __future__ import annotations

from pathlib import Path

from lemming.capabilities.scripted_models.scripted_provider import ScriptedProvider
from lemming.kernel.files import fs
from lemming.kernel.providers import Reply, Request, register_provider


class StandInProvider(ScriptedProvider):
    """Answers from `file` like `scripted`, and writes a line per call into `bill`, an absolute path."""

    def __init__(self, *, file: str, bill: str, base: Path | None = None) -> None:
        super().__init__(file=file, base=base)
        self._bill = Path(bill)

    def complete(self, request: Request) -> Reply:
        """Write the call on the bill, then return the answer: the call itself costs."""
        line = f"{request.tick} {request.agent} {request.step}\n"
        fs.append(self._bill.parent, self._bill.name, line.encode())
        return super().complete(request)


register_provider("stand-in", StandInProvider)
