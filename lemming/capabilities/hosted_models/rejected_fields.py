"""Request parts rejected by servers, so each server rejects a part only once.

The only state is `.lemming/servers.json`. After deleting the file, every part is tried again. Format: docs/formats.md.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from lemming.ext import Capability, Problem
from lemming.kernel.base import paths
from lemming.kernel.base.clock import Clock, is_timestamp, parse_timestamp, timestamp
from lemming.kernel.base.errors import DiskError, RequestRejected
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.providers import Request
from lemming.libraries.compatible_servers import FALLBACKS

_RETENTION = timedelta(days=7)
"""Seconds for which a rejected field is left out; the server's next version may accept the field."""
_ONE_SCHEMA = re.compile(r"invalid (?:json )?schema|schema is (?:not valid|invalid)|parse (?:json )?schema", re.I)


@dataclass(frozen=True, kw_only=True)
class PartRejection:
    """Rejection of a request part by a server, with time and message."""

    at: str = ""
    why: str = ""


RejectionTable = dict[str, dict[str, PartRejection]]
"""Refusals by the part of a request, by the server and its model."""


class HostedModelsCapability(Capability):
    """Hosted models: entries of `config/models.json` with a hosted provider."""

    name = "hosted"


class ServerProfiles:
    """Learned server profiles of an organisation. Thread-safe. `report` gets a notice for each new rejection."""

    def __init__(self, base: Path, clock: Clock, report: Callable[[Problem], None]) -> None:
        self._base, self.clock, self.report = base, clock, report
        self.lock = threading.Lock()
        self.rejections = _load_rejections(base)
        self.probed: set[tuple[str, str]] = set()  # models and parts, since the process began

    def get_profile(self, name: str) -> LearnedServerProfile:
        """Return the profile of the server named by `lemming.kernel.llm.circuit_breaker.circuit_name`."""
        return LearnedServerProfile(self, name)

    def rejected_parts(self, key: str) -> Collection[str]:
        """Return the request parts rejected for the key of server and model. Expired rejections are tried again."""
        if not (rejections := self.rejections.get(key)):
            return ()
        current_time = self.clock.now()
        return [
            part
            for part, rejection in rejections.items()
            if is_timestamp(rejection.at) and abs(current_time - parse_timestamp(rejection.at)) <= _RETENTION
        ]

    def save(self, rejections: RejectionTable) -> None:
        """Replace the rejections, also in the file. The caller holds the lock."""
        self.rejections = rejections
        plain = {
            key: {part: asdict(rejection) for part, rejection in sorted(parts.items())}
            for key, parts in sorted(rejections.items())
        }
        # Losing what was learned costs a refused call. A disk that refuses writes is reported by the tick.
        with contextlib.suppress(DiskError):
            fs.write_atomic(self._base, paths.SERVERS_FILE, dump_pretty(plain))


@dataclass(frozen=True)
class LearnedServerProfile:
    """Learned profile of a server."""

    servers: ServerProfiles
    name: str

    def adapt_request(self, request: Request) -> Request:
        """Return a request without the rejected parts."""
        parts = self.rejected_parts(request.model_name)
        return request._replace(without=tuple(sorted({*request.without, *parts}))) if parts else request

    def rejected_parts(self, model_name: str) -> Collection[str]:
        """Return the request parts rejected by the server for a model."""
        return self.servers.rejected_parts(self._key(model_name))

    def may_learn(self, model_name: str, error: RequestRejected) -> bool:
        """Return True if a minimal probe request may confirm a rejection. Each probe is sent once per process."""
        probe = (self._key(model_name), error.refused)
        with self.servers.lock:
            is_new = self._is_unknown(model_name, error) and probe not in self.servers.probed
            self.servers.probed |= {probe} if is_new else set()
            return is_new

    def learn_rejection(self, model_name: str, error: RequestRejected) -> None:
        """Record a rejected part of a request to a model, unless the reason is the content of one schema."""
        if not self._is_unknown(model_name, error):
            return
        servers, key = self.servers, self._key(model_name)
        with servers.lock:
            rejection = PartRejection(at=timestamp(servers.clock.now()), why=error.message)
            rejections = servers.rejections.get(key, {})
            servers.save({**servers.rejections, key: {**rejections, error.refused: rejection}})
        hint = (
            f"the server {FALLBACKS[error.refused]}; to retry before {_RETENTION.days} days have passed, delete "
            f"{paths.SERVERS_FILE}"
        )
        message = f"{key} does not accept {error.refused}"
        servers.report(Problem(message, paths.SERVERS_FILE, hint=hint, severity="warning"))

    def forget(self, model_name: str) -> None:
        """Forget the rejections for a model, so every part is tried again."""
        with self.servers.lock:
            rejections = {**self.servers.rejections}
            if rejections.pop(self._key(model_name), None):
                self.servers.save(rejections)

    def _is_unknown(self, model_name: str, error: RequestRejected) -> bool:
        # A schema that is wrong says nothing of others.
        return not _ONE_SCHEMA.search(error.message) and error.refused not in self.rejected_parts(model_name)

    def _key(self, model_name: str) -> str:
        return f"{self.name} {model_name}".strip()


def _load_rejections(base: Path) -> RejectionTable:
    """Return the recorded rejections, or an empty table if the file cannot be read."""
    try:
        rejections: RejectionTable = to_value(RejectionTable, parse(fs.read_bytes(base / paths.SERVERS_FILE, 1 << 20)))
    except (OSError, DiskError, ValueError):
        return {}
    return {name: {p: r for p, r in parts.items() if p in FALLBACKS} for name, parts in rejections.items()}
