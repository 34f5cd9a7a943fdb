"""What servers were found not to take of a request, so that each is asked wrongly once and not again.

The only state is `.lemming/servers.json`; deleting it has every server asked for everything again.
Format: docs/formats.md.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.clock import Clock, is_timestamp, parse_timestamp, timestamp
from lemming.kernel.base.errors import DiskError, Problem, RequestRejected
from lemming.kernel.base.jsontext import parse, pretty
from lemming.kernel.files import fs
from lemming.kernel.files.documents import value_of
from lemming.kernel.providers import Request

INSTEAD = {
    "json_schema": 'is asked for JSON without a schema; `"options": {"json": "object"}` says so',
    "json_object": 'is asked for JSON in the prompt alone; `"options": {"json": "text"}` says so',
    "tools": 'is told of tools in the prompt; `"tools": "contract"` says so',
    "encrypted_content": "forgets what it thought from one step of a turn to the next",
    "stream": "is not watched: its answers come whole",
    "seed": "is asked without a seed",
    "temperature": "is asked without a temperature",
    "prompt_cache_key": "is not told which requests begin alike",
    "max_completion_tokens": "is asked with max_tokens instead",
}
"""What is done where a server does not take a part of a request."""

_KEPT = timedelta(days=7)
"""For so long a server is not asked for what it refused: its next version may take it."""
_ONE_SCHEMA = re.compile(
    r"invalid (?:json )?schema|schema is (?:not valid|invalid)|parse (?:json )?schema", re.I
)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """When a server refused a part of a request, and with what words."""

    at: str = ""
    why: str = ""

    def is_old(self, now: datetime) -> bool:
        """Return True if the refusal is so old that the server is tried again."""
        return not is_timestamp(self.at) or abs(now - parse_timestamp(self.at)) > _KEPT


Known = dict[str, dict[str, Refusal]]
"""Refusals by the part of a request, by the server and its model."""


class Servers:
    """What an organisation knows of the servers it asks. Safe to use from many threads.

    `tell` is called with a remark for a person when something new is found out.
    """

    def __init__(self, base: Path, clock: Clock, tell: Callable[[Problem], None]) -> None:
        self._base, self._clock, self._tell = base, clock, tell
        self._lock = threading.Lock()
        self._known = read_servers(base)
        self._asked_about: set[tuple[str, str]] = set()  # models and parts, since the process began

    def server(self, name: str) -> Server:
        """Return what is known of the server that `lemming.kernel.llm.circuit.circuit_name` named so."""
        return Server(self, name)

    def left_out(self, model: str) -> Collection[str]:
        """Return the parts of a request that a server does not take for a model."""
        if not (refusals := self._known.get(model)):
            return ()
        now = self._clock.now()
        return [part for part, refusal in refusals.items() if not refusal.is_old(now)]

    def may_learn(self, model: str, error: RequestRejected) -> bool:
        """Return True if the smallest question may tell more of a refusal: it is asked once a process.

        Where it is refused for what is in one schema, that says nothing of others.
        """
        if _ONE_SCHEMA.search(error.message) or error.refused in self.left_out(model):
            return False
        with self._lock:
            is_new = (model, error.refused) not in self._asked_about
            self._asked_about.add((model, error.refused))
            return is_new

    def learn(self, model: str, error: RequestRejected) -> None:
        """Take note of what was refused; not where that was for what is in one schema."""
        # This schema is wrong: that says nothing of others.
        if _ONE_SCHEMA.search(error.message) or error.refused in self.left_out(model):
            return
        with self._lock:
            refusals = self._known.get(model, {})
            found = Refusal(at=timestamp(self._clock.now()), why=error.message)
            self._keep({**self._known, model: {**refusals, error.refused: found}})
        hint = (
            f"it {INSTEAD[error.refused]}; it is tried again in {_KEPT.days} days, or once you delete "
            f"{paths.SERVERS_FILE}"
        )
        message = f"{model} does not take {error.refused}"
        self._tell(Problem(message, paths.SERVERS_FILE, hint=hint, severity="warning"))

    def forget(self, model: str) -> None:
        """Have a server asked for everything again."""
        with self._lock:
            if model in self._known:
                self._keep({name: parts for name, parts in self._known.items() if name != model})

    def _keep(self, known: Known) -> None:
        self._known = known
        plain = {
            name: {part: asdict(refusal) for part, refusal in sorted(parts.items())}
            for name, parts in sorted(known.items())
        }
        # Losing what was learned costs a refused call. A disk that refuses writes is reported by the tick.
        with contextlib.suppress(DiskError):
            fs.publish(self._base, paths.SERVERS_FILE, pretty(plain))


@dataclass(frozen=True)
class Server:
    """What is known of one server."""

    servers: Servers
    name: str

    def suited(self, request: Request) -> Request:
        """Return a request as the server takes it."""
        left_out = self.servers.left_out(self._model(request.model_name))
        if not left_out:
            return request
        return request._replace(without=tuple(sorted({*request.without, *left_out})))

    def left_out(self, model_name: str) -> Collection[str]:
        """Return the parts of a request that it does not take for a model."""
        return self.servers.left_out(self._model(model_name))

    def may_learn(self, model_name: str, error: RequestRejected) -> bool:
        """Return True if the smallest question may tell more of a refusal."""
        return self.servers.may_learn(self._model(model_name), error)

    def learn(self, model_name: str, error: RequestRejected) -> None:
        """Take note of what was refused when a model was asked."""
        self.servers.learn(self._model(model_name), error)

    def forget(self, model_name: str) -> None:
        """Have it asked for everything again."""
        self.servers.forget(self._model(model_name))

    def _model(self, model_name: str) -> str:
        return f"{self.name} {model_name}".strip()


def read_servers(base: Path) -> Known:
    """Return what is known of servers; of a file that cannot be read, nothing."""
    try:
        known: Known = value_of(Known, parse(fs.read_bytes(base / paths.SERVERS_FILE, 1 << 20)))
    except (OSError, DiskError, ValueError):
        return {}
    return {name: {p: r for p, r in parts.items() if p in INSTEAD} for name, parts in known.items()}
