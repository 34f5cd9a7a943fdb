"""Request parts rejected by servers, so each server rejects a part only once.

The only state is `.lemming/servers.json`. After deleting the file, every part is tried again. Format: docs/formats.md.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

from lemming.ext import Problem
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

    def is_old(self, current_time: datetime) -> bool:
        """Return True if the rejection has expired, so the part is tried again."""
        return not is_timestamp(self.at) or abs(current_time - parse_timestamp(self.at)) > _RETENTION


RejectionTable = dict[str, dict[str, PartRejection]]
"""Refusals by the part of a request, by the server and its model."""


class ServerProfiles:
    """Learned server profiles of an organisation. Thread-safe. `report` gets a notice for each new rejection."""

    def __init__(self, base: Path, clock: Clock, report: Callable[[Problem], None]) -> None:
        self._base, self._clock, self._report = base, clock, report
        self._lock = threading.Lock()
        self._rejections = load_profiles(base)
        self._probed: set[tuple[str, str]] = set()  # models and parts, since the process began

    def get_profile(self, name: str) -> LearnedServerProfile:
        """Return the profile of the server named by `lemming.kernel.llm.circuit_breaker.circuit_name`."""
        return LearnedServerProfile(self, name)

    def rejected_parts(self, model: str) -> Collection[str]:
        """Return the request parts rejected by a server for a model."""
        if not (refusals := self._rejections.get(model)):
            return ()
        current_time = self._clock.now()
        return [part for part, refusal in refusals.items() if not refusal.is_old(current_time)]

    def may_learn(self, model: str, error: RequestRejected) -> bool:
        """Return True if a minimal probe request may confirm a rejection.

        Each probe is sent once per process. A rejection for the content of one schema says nothing about other schemas
        and is not probed.
        """
        if _ONE_SCHEMA.search(error.message) or error.refused in self.rejected_parts(model):
            return False
        with self._lock:
            is_new = (model, error.refused) not in self._probed
            self._probed.add((model, error.refused))
            return is_new

    def learn_rejection(self, model: str, error: RequestRejected) -> None:
        """Record a rejection, unless the reason is the content of one schema."""
        # This schema is wrong: that says nothing of others.
        if _ONE_SCHEMA.search(error.message) or error.refused in self.rejected_parts(model):
            return
        with self._lock:
            refusals = self._rejections.get(model, {})
            rejection = PartRejection(at=timestamp(self._clock.now()), why=error.message)
            self._save({**self._rejections, model: {**refusals, error.refused: rejection}})
        hint = (
            f"the server {FALLBACKS[error.refused]}; to retry before {_RETENTION.days} days have passed, delete "
            f"{paths.SERVERS_FILE}"
        )
        message = f"{model} does not accept {error.refused}"
        self._report(Problem(message, paths.SERVERS_FILE, hint=hint, severity="warning"))

    def forget(self, model: str) -> None:
        """Forget the rejections of a server, so every part is tried again."""
        with self._lock:
            if model in self._rejections:
                self._save({name: parts for name, parts in self._rejections.items() if name != model})

    def _save(self, rejections: RejectionTable) -> None:
        self._rejections = rejections
        plain = {
            name: {part: asdict(refusal) for part, refusal in sorted(parts.items())}
            for name, parts in sorted(rejections.items())
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
        parts = self.servers.rejected_parts(self._model_key(request.model_name))
        if not parts:
            return request
        return request._replace(without=tuple(sorted({*request.without, *parts})))

    def rejected_parts(self, model_name: str) -> Collection[str]:
        """Return the request parts rejected by the server for a model."""
        return self.servers.rejected_parts(self._model_key(model_name))

    def may_learn(self, model_name: str, error: RequestRejected) -> bool:
        """Return True if a minimal probe request may confirm a rejection."""
        return self.servers.may_learn(self._model_key(model_name), error)

    def learn_rejection(self, model_name: str, error: RequestRejected) -> None:
        """Record a rejected part of a request to a model."""
        self.servers.learn_rejection(self._model_key(model_name), error)

    def forget(self, model_name: str) -> None:
        """Forget the rejections for a model."""
        self.servers.forget(self._model_key(model_name))

    def _model_key(self, model_name: str) -> str:
        return f"{self.name} {model_name}".strip()


def load_profiles(base: Path) -> RejectionTable:
    """Return the recorded rejections, or an empty table if the file cannot be read."""
    try:
        rejections: RejectionTable = to_value(RejectionTable, parse(fs.read_bytes(base / paths.SERVERS_FILE, 1 << 20)))
    except (OSError, DiskError, ValueError):
        return {}
    return {name: {p: r for p, r in parts.items() if p in FALLBACKS} for name, parts in rejections.items()}
