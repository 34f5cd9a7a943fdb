"""A provider that stands in for every model of an organisation and keeps a bill: for `lemming chaos`.

Importing this module registers it as `stand-in`; `plugins` in `config/org.json` is how an engine in another
process gets it.
"""

from __future__ import annotations

from pathlib import Path

from lemming.capabilities.scripted.scripted import ScriptedProvider
from lemming.kernel.files import fs
from lemming.kernel.providers import Reply, Request, register_provider


class StandIn(ScriptedProvider):
    """Answers from `file` like `scripted`, and writes one line a call into `bill`, an absolute path."""

    def __init__(self, *, file: str, bill: str, base: Path | None = None) -> None:
        super().__init__(file=file, base=base)
        self._bill = Path(bill)

    def complete(self, request: Request) -> Reply:
        """Return the answer once the call is on the bill: asking is what costs."""
        line = f"{request.tick} {request.agent} {request.step}\n"
        fs.append(self._bill.parent, self._bill.name, line.encode())
        return super().complete(request)


register_provider("stand-in", StandIn)
