"""Stand-in provider for every model of an organisation, with a bill of calls: for `lemming check chaos`.

Importing this module registers the provider as `stand-in`; an engine in another process gets the provider
through `plugins` in `config/org.json`.
"""

from __future__ import annotations

from pathlib import Path

from lemming.kernel.files import fs
from lemming.kernel.providers import Backend, Reply, Request, make_provider, register_provider


class StandInProvider(Backend):
    """Answers from `file` like `scripted`, and writes a line per call into `bill`, an absolute path."""

    keeps_deadline = True
    takes_tools = True
    writes_contract = True

    def __init__(self, *, file: str, bill: str, base: Path | None = None) -> None:
        script = make_provider("scripted", {"file": file}, base=base)
        assert isinstance(script, Backend)
        self._script = script
        self._bill = Path(bill)

    def complete(self, request: Request) -> Reply:
        """Write the call on the bill, then return the answer: the call itself costs."""
        line = f"{request.tick} {request.agent} {request.step}\n"
        fs.append(self._bill.parent, self._bill.name, line.encode())
        return self._script.complete(request)


register_provider("stand-in", StandInProvider)
