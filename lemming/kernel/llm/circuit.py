"""Circuit breakers: a backend that keeps failing is left alone for a while, across restarts too.

A circuit opens after 5 failures in a row. When its time is up, one call goes through as a probe: if it
succeeds the circuit closes, if it fails the circuit opens for twice as long, at most 15 minutes.
The only state is `.lemming/circuits.json`; deleting it closes every circuit. Format: docs/formats.md.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.clock import Clock, parse_timestamp, timestamp
from lemming.kernel.base.errors import CircuitOpen, DiskError, ProviderError, TimedOut, Unavailable
from lemming.kernel.base.jsontext import compact, parse, pretty
from lemming.kernel.base.redaction.secrets import without_userinfo
from lemming.kernel.files import fs
from lemming.kernel.files.documents import value_of
from lemming.kernel.org.organisation import OrgPath

FAILURES_TO_OPEN = 5
FIRST_OPEN_S = 60.0
LONGEST_OPEN_S = 900.0


@dataclass(frozen=True, kw_only=True)
class CircuitState:
    """One circuit in the file. `open_until` is empty while fewer than 5 failures have come in a row."""

    failures: int = 0
    openings: int = 0
    open_until: str = ""
    reason: str = ""

    def is_open(self, now: datetime) -> bool:
        """Return whether calls are refused."""
        try:
            until = parse_timestamp(self.open_until)
        except ValueError:
            return False
        # A clock that was set back must not hold the circuit open for longer than it ever may be.
        return now < until <= now + timedelta(seconds=LONGEST_OPEN_S)


_CLOSED = CircuitState()

Change = Callable[[CircuitState, datetime], CircuitState]
"""From a circuit's state and the time to its new state."""


class Circuits:
    """All circuits of an organisation. Their file is the only state; safe to use from many threads."""

    way_out = f"wait, or delete {paths.CIRCUITS_FILE} to try at once"

    def __init__(self, base: Path, clock: Clock) -> None:
        self._base, self._clock = base, clock
        self._file = str(base / paths.CIRCUITS_FILE)
        self._lock = threading.Lock()

    def circuit(self, name: str) -> Circuit:
        """Return the circuit of a name that `circuit_name` gives."""
        return Circuit(self, name)

    def update(self, name: str, change: Change) -> CircuitState:
        """Put a circuit into another state, and return the one it was in."""
        with self._lock:
            states = self._read()
            before = states.get(name, _CLOSED)
            # Read and written under one lock: of two failures at once, neither may be lost.
            after = change(before, self._clock.now())
            if after != before:
                self._write({**states, name: after})
            return before

    def close(self, name: str) -> None:
        """Close a circuit: its backend has answered."""
        self.update(name, lambda *_: _CLOSED)

    def _read(self) -> dict[str, CircuitState]:
        return _read_circuits(self._file)

    def _write(self, states: dict[str, CircuitState]) -> None:
        kept = {name: asdict(state) for name, state in sorted(states.items()) if state != _CLOSED}
        # Losing a circuit's state costs a few failing calls. A disk that refuses writes is reported by
        # the tick, whose files matter.
        with contextlib.suppress(DiskError):
            fs.publish(self._base, paths.CIRCUITS_FILE, pretty(kept))


class CircuitsInMemory(Circuits):
    """Circuits of a provider that no organisation has; they are gone with it."""

    way_out = "wait"

    def __init__(self, clock: Clock) -> None:
        super().__init__(Path(), clock)
        self._states: dict[str, CircuitState] = {}

    def _read(self) -> dict[str, CircuitState]:
        return self._states

    def _write(self, states: dict[str, CircuitState]) -> None:
        self._states = states


def open_circuits(base: OrgPath, now: datetime) -> dict[str, CircuitState]:
    """Return the circuits that let no call through, by name."""
    states = _read_circuits(f"{base}/{paths.CIRCUITS_FILE}")
    return {name: state for name, state in states.items() if state.is_open(now)}


def _read_circuits(file: str) -> dict[str, CircuitState]:
    """Return the states in the file; one that cannot be read means that all circuits are closed."""
    try:
        plain = parse(fs.read_bytes(file, 1 << 20))
        states: dict[str, CircuitState] = value_of(dict[str, CircuitState], plain)
    except (OSError, DiskError, ValueError):
        return {}
    return states


class Circuit:
    """The breaker of one backend."""

    def __init__(self, circuits: Circuits, name: str) -> None:
        self._circuits, self._name = circuits, name

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Run one call in the block; raise `CircuitOpen` instead when the backend is to be left alone.

        `Unavailable` and `TimedOut` count as failures of the backend, unless they are not its own
        (`is_of_backend`). Other errors say nothing about its health.
        """
        before = self._circuits.update(self._name, self._let_in)
        is_probe = before.open_until != ""
        try:
            yield
        except BaseException as error:
            if isinstance(error, (Unavailable, TimedOut)) and error.is_of_backend:
                failure = error
                self._circuits.update(self._name, lambda now_is, now: _failed(now_is, now, failure, is_probe))
            elif is_probe:  # it has shown nothing: the next call is the probe
                self._circuits.update(self._name, lambda *_: before)
            raise
        self._circuits.update(self._name, lambda *_: _CLOSED)

    def _let_in(self, state: CircuitState, now: datetime) -> CircuitState:
        if not state.open_until:
            return state
        if not state.is_open(now):  # nobody else gets through while this probe is under way
            return replace(state, open_until=_end_of_opening(now, state.openings))
        message = f"left alone until {state.open_until} after {state.failures} failures in a row"
        why = f"{message}; the last: {state.reason}"
        raise CircuitOpen(why, where=self._name, hint=self._circuits.way_out)


def _failed(state: CircuitState, now: datetime, error: ProviderError, is_probe: bool) -> CircuitState:
    if state.open_until and not is_probe:
        return state  # the call was under way when the circuit opened, and tells nothing new
    failures, reason = state.failures + 1, f"{type(error).__name__}: {error.message}"
    if failures < FAILURES_TO_OPEN:
        return CircuitState(failures=failures, reason=reason)
    openings = state.openings + 1
    until = _end_of_opening(now, openings)
    return CircuitState(failures=failures, openings=openings, open_until=until, reason=reason)


def circuit_name(provider: str, options: Mapping[str, Any]) -> str:
    """Return what shares a fate: the provider and the address it talks to, without user and password.

    Of a program with arguments, which may hold secrets, the digest tells it from others of its name.

    >>> circuit_name("openai", {"base_url": "https://me:secret@api.example.org/v1?key=1"})
    'openai https://api.example.org/v1'
    >>> circuit_name("cli", {"command": ["python3", "echo.py"]})
    'cli python3 (10e5e04e)'
    """
    program, *arguments = options.get("command") or [""]
    if arguments:
        program = f"{program} ({blake2b(compact(arguments), digest_size=4).hexdigest()})"
    address = str(options.get("base_url") or options.get("host") or "").partition("?")[0]
    return f"{provider} {without_userinfo(address) or program}".strip()


def _end_of_opening(now: datetime, number: int) -> str:
    """Return when the opening of that number ends: 60 s for the first, twice as long for each further one."""
    seconds = min(LONGEST_OPEN_S, FIRST_OPEN_S * 2.0 ** min(number - 1, 10))
    return timestamp(now + timedelta(seconds=seconds))
