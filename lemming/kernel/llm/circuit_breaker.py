"""Circuit breakers: a repeatedly failing backend is not called for a while, across restarts too.

A circuit opens after 5 consecutive failures. When the open time ends, one call passes as a probe: success
closes the circuit, failure opens it for twice as long, at most 15 minutes. The only state is
`.lemming/circuits.json`; deleting the file closes every circuit. Format: docs/formats.md.
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
from lemming.kernel.base.jsontext import dump_compact, dump_pretty, parse
from lemming.kernel.base.redaction.secrets import strip_userinfo
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.org.organisation import OrgPath

FAILURES_TO_OPEN = 5
FIRST_OPEN_S = 60.0
MAX_OPEN_S = 900.0


@dataclass(frozen=True, kw_only=True)
class CircuitState:
    """One circuit in the file. `open_until` is empty until 5 consecutive failures."""

    failures: int = 0
    openings: int = 0
    open_until: str = ""
    reason: str = ""

    def is_open(self, current_time: datetime) -> bool:
        """Return True if calls are refused."""
        try:
            until = parse_timestamp(self.open_until)
        except ValueError:
            return False
        # A clock that was set back must not hold the circuit open for longer than it ever may be.
        return current_time < until <= current_time + timedelta(seconds=MAX_OPEN_S)


_CLOSED = CircuitState()

StateChange = Callable[[CircuitState, datetime], CircuitState]
"""From a circuit's state and the time to its new state."""


class Circuits:
    """All circuits of an organisation; safe to use from many threads. Their file is the only state.

    Without an organisation, as for a provider of a program, they are kept in memory.
    """

    def __init__(self, base: Path | None, clock: Clock) -> None:
        self._base, self._clock, self._lock = base, clock, threading.Lock()
        self._states: dict[str, CircuitState] = {}
        self.hint = f"wait, or delete {paths.CIRCUITS_FILE} to try now" if base else "wait"

    def get_circuit(self, name: str) -> Circuit:
        """Return the circuit with a name from `circuit_name`."""
        return Circuit(self, name)

    def change_state(self, name: str, change: StateChange) -> CircuitState:
        """Change the state of a circuit, and return the previous state."""
        with self._lock:
            states = _load_circuits(f"{self._base}/{paths.CIRCUITS_FILE}") if self._base else self._states
            old_state = states.get(name, _CLOSED)
            # Read and written under one lock: of two failures at once, neither may be lost.
            new_state = change(old_state, self._clock.now())
            if new_state != old_state:
                self._save_states({**states, name: new_state})
            return old_state

    def close(self, name: str) -> None:
        """Close the circuit of a backend that has answered."""
        self.change_state(name, lambda *_: _CLOSED)

    def _save_states(self, states: dict[str, CircuitState]) -> None:
        if self._base is None:
            self._states = states
            return
        open_states = {name: asdict(state) for name, state in sorted(states.items()) if state != _CLOSED}
        # Losing a circuit's state costs a few failing calls. A disk that refuses writes is reported by
        # the tick, whose files matter.
        with contextlib.suppress(DiskError):
            fs.write_atomic(self._base, paths.CIRCUITS_FILE, dump_pretty(open_states))


def open_circuits(base: OrgPath, current_time: datetime) -> dict[str, CircuitState]:
    """Return the open circuits by name."""
    states = _load_circuits(f"{base}/{paths.CIRCUITS_FILE}")
    return {name: state for name, state in states.items() if state.is_open(current_time)}


def _load_circuits(file: str) -> dict[str, CircuitState]:
    """Return the states in the file. An unreadable file means that all circuits are closed."""
    try:
        states_json = parse(fs.read_bytes(file, 1 << 20))
        states: dict[str, CircuitState] = to_value(dict[str, CircuitState], states_json)
    except (OSError, DiskError, ValueError):
        return {}
    return states


class Circuit:
    """The circuit breaker of a backend."""

    def __init__(self, circuits: Circuits, name: str) -> None:
        self._circuits, self._name = circuits, name

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Run one call in the block, or raise `CircuitOpen` if the circuit is open.

        `Unavailable` and `TimedOut` count as failures of the backend, unless `is_of_backend` is false. Other
        errors are unrelated to the backend's health.
        """
        old_state = self._circuits.change_state(self._name, self._admit_call)
        is_probe = old_state.open_until != ""
        try:
            yield
        except BaseException as error:
            if isinstance(error, (Unavailable, TimedOut)) and error.is_of_backend:
                failure = error
                self._circuits.change_state(
                    self._name, lambda state, current_time: _record_failure(state, current_time, failure, is_probe)
                )
            elif is_probe:  # it has shown nothing: the next call is the probe
                self._circuits.change_state(self._name, lambda *_: old_state)
            raise
        self._circuits.change_state(self._name, lambda *_: _CLOSED)

    def _admit_call(self, state: CircuitState, current_time: datetime) -> CircuitState:
        if not state.open_until:
            return state
        if not state.is_open(current_time):  # no other call passes while this probe runs
            return replace(state, open_until=_reopen_time(current_time, state.openings))
        summary = f"not called until {state.open_until} after {state.failures} failures in a row"
        message = f"{summary}; the last: {state.reason}"
        raise CircuitOpen(message, where=self._name, hint=self._circuits.hint)


def _record_failure(state: CircuitState, current_time: datetime, error: ProviderError, is_probe: bool) -> CircuitState:
    if state.open_until and not is_probe:
        return state  # the call was under way when the circuit opened, and tells nothing new
    failures, reason = state.failures + 1, f"{type(error).__name__}: {error.message}"
    if failures < FAILURES_TO_OPEN:
        return CircuitState(failures=failures, reason=reason)
    openings = state.openings + 1
    open_until = _reopen_time(current_time, openings)
    return CircuitState(failures=failures, openings=openings, open_until=open_until, reason=reason)


def circuit_name(provider: str, options: Mapping[str, Any]) -> str:
    """Return the name shared by all users of a backend: provider and address, without user and password.

    For a program with arguments, which may contain secrets, a digest distinguishes it from others with the
    same name.

    >>> circuit_name("openai", {"base_url": "https://me:secret@api.example.org/v1?key=1"})
    'openai https://api.example.org/v1'
    >>> circuit_name("cli", {"command": ["python3", "echo.py"]})
    'cli python3 (10e5e04e)'
    """
    program, *arguments = options.get("command") or [""]
    if arguments:
        program = f"{program} ({blake2b(dump_compact(arguments), digest_size=4).hexdigest()})"
    address = str(options.get("base_url") or options.get("host") or "").partition("?")[0]
    return f"{provider} {strip_userinfo(address) or program}".strip()


def _reopen_time(current_time: datetime, number: int) -> str:
    """Return the end of the n-th opening: 60 s for the first, twice as long for each further opening."""
    seconds = min(MAX_OPEN_S, FIRST_OPEN_S * 2.0 ** min(number - 1, 10))
    return timestamp(current_time + timedelta(seconds=seconds))
