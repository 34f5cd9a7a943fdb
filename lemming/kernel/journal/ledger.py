"""An agent's ledger: one line per turn in `agents/<name>/turns.jsonl`; the last line is the agent's state.

The state holds the read mark, the spending, and the tool results not yet shown to the agent. Format:
docs/formats.md.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar

from lemming.kernel.base import paths
from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import RECORD_DEPTH, dump_compact, parse
from lemming.kernel.base.turn_numbers import TURNS_PER_TICK
from lemming.kernel.files import fs
from lemming.kernel.files.disk_errors import require_about_one_file, suggest_repair
from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.files.json_documents import to_value, unreadable_reason
from lemming.kernel.files.stat_cache import Identity, has_exact_mtime, to_identity
from lemming.kernel.journal.open_requests import OpenRequest, with_more_spent
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.journal.write_offs import NO_WRITE_OFF, WriteOff
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_table import DECISION_RULES

KEPT_LINES = 500
ROTATE_BYTES = 1 << 20
LINE_LIMIT_BYTES = 8 << 20
FILE_LIMIT_BYTES = 64 << 20  # it is cut back long before
_TAIL_BYTES = 4 << 10  # a line is rarely longer
_SPENDING_KEYS = ("credits", "passed_on", "unpriced_calls", "input_tokens", "output_tokens")
_TICK = re.compile(rb'\{"tick":(-?[0-9]+),')
_KEYS = (
    "tick", "status", "turns", "credits", "cost_usd", "unpriced_calls", "input_tokens", "output_tokens",
    "soft_cap_warned", "read", "results", "inputs",
)  # fmt: skip
_SPARSE_KEYS = (
    "expired_unread", "passed_on", "serving", "requests", "end", "aside", "lost", "failed", "in_vain",
    "kept", "loops", "turn",
)  # fmt: skip
_get_values, _get_sparse_values = attrgetter(*_KEYS), attrgetter(*_SPARSE_KEYS)
_get_external_values = attrgetter("results", "requests", "kept", "in_vain", "passed_on", "aside")
_TO_JSON: dict[str, Callable[[Any], Any]] = {
    "requests": lambda requests: [begun.as_json() for begun in requests],
    "lost": WriteOff.as_json,
}
_TURN = re.compile(rb',"turn":([1-9][0-9]?)\}$')  # the last key, if present
_HOLE = b"\0"  # never in JSON; blocks that a power cut lost read as zeros


def _amount(default: Any) -> Any:
    return field(default=default, metadata={"ge": 0, "le": MAX_AMOUNT})


@accept_old_names
@dataclass  # made for every turn, and a frozen one takes three times as long
class AgentState:
    """State of an agent after its latest turn. All numbers are totals, never differences.

    `serving`: the request of the turn. `requests`: the started requests still open. `end`: the turn's end, if
    it is not the usual end of its status. `aside`: credits spent on auxiliary calls, by capability name.
    `lost`: write-offs counted by limits in addition to `credits` and `cost_usd`. `turns`: number of completed
    turns. `failed`: number of failed turns. `in_vain`: number of repeated results per call, while `results`
    wait. `kept`: state of capabilities for the next turn, by capability name. `turn`: number of the turn
    among the agent's turns in the tick. `loops`: number of turns with the same end since the last progress,
    by the key of the end.
    """

    tick: int = field(default=-1, metadata={"le": 10**12 - 2})  # the next tick must still fit
    status: str = ""
    turns: int = _amount(0)
    credits: float = _amount(0.0)
    cost_usd: float | None = _amount(None)
    unpriced_calls: int = _amount(0)
    input_tokens: int = _amount(0)
    output_tokens: int = _amount(0)
    soft_cap_warned: bool = False
    read: ReadMark = field(default_factory=ReadMark)
    results: tuple[dict[str, Any], ...] = ()
    inputs: dict[str, Any] | None = None
    expired_unread: int = 0
    passed_on: float = _amount(0.0)
    serving: str = ""
    requests: tuple[OpenRequest, ...] = ()
    end: str = ""
    aside: dict[str, float] = field(default_factory=dict)
    lost: WriteOff = NO_WRITE_OFF
    failed: int = _amount(0)
    in_vain: dict[str, int] = field(default_factory=dict)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    turn: int = field(default=0, metadata={"ge": 0, "le": TURNS_PER_TICK - 1})
    loops: dict[str, int] = field(default_factory=dict)

    written: ClassVar[tuple[dict[str, Any], bytes] | None] = None
    """The line as a value and as JSON, once it is in the ledger; the state does not change from then on."""

    @property
    def position(self) -> tuple[int, int]:
        """Position of the turn among all of the agent's turns: the tick, and the turn number in the tick."""
        return self.tick, self.turn

    @property
    def consumed_credits(self) -> float:
        """Credits consumed from the agent's allowance: spent, or transferred to agents it created."""
        return round(self.credits + self.passed_on, 6) if self.passed_on else self.credits

    def as_json(self) -> dict[str, Any]:
        """Return the ledger line as JSON, not to be modified; empty sparse keys are left out."""
        if self.written:
            return self.written[0]
        line_values = dict(zip(_KEYS, _get_values(self), strict=True))
        line_values |= {"read": self.read.as_json(), "results": [*self.results]}
        if any(values := _get_sparse_values(self)):
            for key, value in zip(_SPARSE_KEYS, values, strict=True):
                if value:
                    line_values[key] = _TO_JSON[key](value) if key in _TO_JSON else value
        return line_values

    def copy(self) -> AgentState:
        """Return a copy of the state without a ledger line, which may be modified."""
        other = object.__new__(AgentState)
        vars(other).update(vars(self))
        vars(other).pop("written", None)
        return other

    def with_spending(self, other: AgentState) -> AgentState:
        """Return this state with each spending total raised to the value in `other` if larger."""
        # The larger total wins: a call that was paid counts even if a power cut took its record.
        spending = {name: max(getattr(self, name), getattr(other, name)) for name in _SPENDING_KEYS}
        dollars = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        write_off = max(self.lost, other.lost, key=lambda item: item.calls)
        auxiliary_costs = {
            name: max(item.aside.get(name, 0.0) for item in (self, other)) for name in self.aside | other.aside
        }
        requests = with_more_spent(self.requests, other.requests)
        dollars_spent = max(dollars, default=None)
        return replace(
            self, **spending, cost_usd=dollars_spent, lost=write_off, aside=auxiliary_costs, requests=requests
        )

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> AgentState:
        """Return the state described by a line; keys of later versions are ignored.

        Raises `ValueError` if a value has a different type than the engine writes.
        """
        state: AgentState = to_value(AgentState, plain)
        if state.requests or DECISION_RULES in state.kept:
            _validate_decisions(state)
        return state


def _validate_decisions(state: AgentState) -> None:
    """Raise `ValueError` for an invalid pending action or decision, which a person may have edited."""
    from lemming.kernel.journal.open_requests import validate_decisions, validate_pending_action  # most wait for none

    validate_decisions(state.kept)
    for open_request in state.requests:
        for sub_request in open_request.asked:
            if DECISION_RULES in sub_request.held:
                validate_pending_action(sub_request.held[DECISION_RULES])


def parse_state(line: bytes) -> AgentState:
    """Return the state in a line of a ledger. Raise `ValueError` for an invalid line."""
    return AgentState.from_json(parse(line, limit_bytes=LINE_LIMIT_BYTES, max_depth=RECORD_DEPTH))


def require_readable(state: AgentState) -> None:
    """Raise `ValueError` for a state whose ledger line could not be read back.

    A state without external values is bounded by its arithmetic and is not checked.
    """
    if any(_get_external_values(state)):
        parse_state(dump_compact(state.as_json()))


def read_state(base_path: str | os.PathLike[str], agent_name: str, *, before_tick: int | None = None) -> AgentState:
    """Return an agent's state; a new state if the agent has had no turn.

    With `before_tick`, a last line of this tick or a later tick is skipped: a power cut can leave the line of
    a turn whose record is gone. The spending in the skipped line still counts.

    Raises `CorruptState` if the engine did not write the line, or the path is not a regular file.
    """
    org, file = Organisation.from_path(base_path), paths.ledger_file(agent_name)
    try:
        state = org.files.get_value(
            file, partial(_decode_line, file), limit_bytes=FILE_LIMIT_BYTES, load=_load_last_line
        )
        if before_tick is None:
            return _require_valid(state)
        is_earlier = isinstance(state, AgentState) and state.tick < before_tick
        return _require_valid(state) if is_earlier else _load_earlier_state(org.base, file, before_tick)
    except FileNotFoundError:
        return AgentState()
    except OSError as error:
        require_about_one_file(f"{org.base}/{file}", error)
        hint = suggest_repair(error, "move it away; the ledger must be a regular file")
        raise CorruptState(unreadable_reason(error), where=file, hint=hint) from error


def _load_earlier_state(base: OrgPath, file: str, before_tick: int) -> AgentState:
    """Return the state of an earlier tick from the last two lines. A line with a hole was never synced."""
    states = _last_states(base, file, 2)
    if all(item.tick >= before_tick for item in states) and states and states[-1].turn:  # several turns of that tick
        states = _last_states(base, file, TURNS_PER_TICK + 1)
    earlier = [state for state in states if state.tick < before_tick] or [AgentState()]
    skipped = [state for state in states[:1] if state.tick >= before_tick]
    return earlier[0].with_spending(skipped[0]) if skipped else earlier[0]


def _last_states(base: OrgPath, file: str, count: int) -> list[AgentState]:
    """Return the states in the last lines of a ledger, newest first."""
    tail = fs.read_tail(f"{base}/{file}", _TAIL_BYTES, count)
    lines = tail[: tail.rfind(b"\n") + 1].splitlines(keepends=True)[-count:]
    return [_require_valid(_decode_line(file, line)) for line in reversed(lines) if _HOLE not in line]


def _load_last_line(path: str, limit_bytes: int) -> tuple[bytes, os.stat_result]:
    """Return the last whole line of a ledger, empty if there is none, and the file's status."""
    tail, status = fs.read_tail_with_status(path, _TAIL_BYTES, 1)
    if status.st_size > limit_bytes:
        raise OSError(errno.EFBIG, f"the file is larger than the limit of {limit_bytes >> 20} MiB for a ledger")
    end = tail.rfind(b"\n") + 1
    return tail[tail.rfind(b"\n", 0, max(0, end - 1)) + 1 : end], status


def _decode_line(file: str, line: bytes) -> AgentState | CorruptState:
    """Return the state in a line, or the error for an invalid line."""
    if not line:
        return AgentState()
    try:
        return parse_state(line)
    except ValueError as error:
        hint = "remove the line by hand; the agent then continues from the line before"
        return CorruptState(f"the last line must be a turn: {error}", where=file, hint=hint)


def _require_valid(state: AgentState | CorruptState) -> AgentState:
    # The cached error is raised again at every read: its traceback would grow each time.
    if isinstance(state, CorruptState):
        raise state.with_traceback(None)
    return state


class OpenLedger:
    """An agent's ledger, open for appending. Close it before the file may move."""

    def __init__(self, org: Organisation, agent_name: str) -> None:
        self._org, self._relative = org, paths.ledger_file(agent_name)
        self._file = fs.AppendFile(org.base, self._relative)
        self._identity: Identity | None = None  # of the file after our last line
        self._position = (-1, 0)

    def write(self, state: AgentState) -> None:
        """Append a turn's line, unless it already is the last line.

        A torn last line is cut off first, and so is a different line of the same turn. A ledger larger than a
        megabyte is cut to the newest lines, at most half a megabyte.
        """
        file, values = self._file, state.as_json()
        written = dump_compact(values)
        object.__setattr__(state, "written", (values, written))
        line = written + b"\n"
        # If the file is as our last line left it, its end need not be read.
        position = state.position
        is_as_left = self._identity == to_identity(file.status()) and self._position < position
        if not is_as_left and self._has_last_line(line, position):
            return
        if file.size + len(line) > ROTATE_BYTES:
            newest_lines = b"".join(_newest_lines(file.read().splitlines(keepends=True)))
            # Synced, once a megabyte: after a power cut the name must not lead to lost bytes.
            fs.write_atomic(self._org.base, self._relative, newest_lines + line, sync=True)
            return
        file.append(line)
        # Otherwise another process has appended too, and the last line may not be ours.
        if (status := file.status()).st_size == file.size:
            self._org.files.record_write(self._relative, state, line, status)
            identity = to_identity(status)
            # Coarse stamps hide an edit within the same granule: then the end is read each time.
            self._identity, self._position = identity if has_exact_mtime(identity) else None, position

    def _has_last_line(self, line: bytes, position: tuple[int, int]) -> bool:
        """Return True if `line` is the last line; otherwise cut off lines not allowed before it."""
        file = self._file
        file.size = file.status().st_size
        end = file.read_tail(_TAIL_BYTES, 1)
        # A whole line, not the end of a longer one.
        if end.endswith(line) and end[-len(line) - 1 : -len(line)] in (b"", b"\n"):
            return True
        last = _parse_position(end[end.rfind(b"\n", 0, -1) + 1 :])
        # A line of this turn or a later one is what a power cut left of a turn whose record is gone.
        if end and not (end.endswith(b"\n") and last and last < position):
            file.truncate(len(_drop_later_lines(file.read(), position)))
        return False

    def close(self) -> None:
        """Close the file; safe to repeat."""
        self._file.close()


def write_state(base_path: str | os.PathLike[str], agent_name: str, state: AgentState) -> None:
    """Add a turn's line to a ledger as `OpenLedger.write` does."""
    with contextlib.closing(OpenLedger(Organisation.from_path(base_path), agent_name)) as ledger:
        ledger.write(state)


def amend_state(base_path: str | os.PathLike[str], agent_name: str, state: AgentState, *, sync: bool = True) -> None:
    """Replace the last line of a ledger with a state: an amendment between two turns.

    The file is replaced atomically. With `sync`, the change survives power loss when the function returns.
    Raises `ValueError` for a state that could not be read back, and writes nothing.
    """
    base, relative = paths.as_base(base_path), paths.ledger_file(agent_name)
    require_readable(state)
    try:
        content = fs.read_bytes(base / relative, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        content = b""
    line = dump_compact(state.as_json()) + b"\n"
    fs.write_atomic(base, relative, _drop_later_lines(content, state.position) + line, sync=sync)


def _parse_position(line: bytes) -> tuple[int, int] | None:
    """Return the tick and turn number of a ledger line, or None."""
    match = _TICK.match(line)
    turn_match = _TURN.search(line)
    return (int(match[1]), int(turn_match[1]) if turn_match else 0) if match else None


def _drop_later_lines(content: bytes, position: tuple[int, int]) -> bytes:
    """Return a ledger without a torn last line and without last lines at or after `position`.

    A line with a hole is dropped too: of unsynced data, a power cut may leave any blocks.
    """
    lines = content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]
    while lines and (
        _HOLE in lines[-1] or ((line_position := _parse_position(lines[-1])) and line_position >= position)
    ):
        lines.pop()
    return b"".join(line + b"\n" for line in lines)


def _newest_lines(lines: list[bytes]) -> list[bytes]:
    count, remaining_bytes = 0, ROTATE_BYTES // 2
    for line in reversed(lines[-KEPT_LINES + 1 :]):  # the new line follows
        remaining_bytes -= len(line)
        if remaining_bytes < 0:
            break
        count += 1
    return lines[len(lines) - count :]
