"""An agent's ledger: one line a turn in `agents/<name>/turns.jsonl`; the last line is the agent's state.

What it has read, what it has spent, and the tool results it has not been shown yet. Format: docs/formats.md.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from lemming import paths
from lemming.errors import CorruptState
from lemming.files import fs
from lemming.files.documents import value_of, why_unreadable
from lemming.files.fitting import LARGEST_AMOUNT
from lemming.files.jsontext import compact, parse
from lemming.files.refusals import require_about_one_file
from lemming.files.stamps import Identity, identity_in, identity_of, is_exact, status_of
from lemming.journal.read_mark import ReadMark

KEPT_LINES = 500
ROTATE_BYTES = 1 << 20
LINE_LIMIT_BYTES = 8 << 20
FILE_LIMIT_BYTES = 64 << 20  # it is cut back long before
_TAIL_BYTES = 4 << 10  # a line is rarely longer
STATES_REMEMBERED = 10_000
_SPENT = ("credits", "passed_on", "unpriced_calls", "input_tokens", "output_tokens")
_TICKS = re.compile(rb'^\{"tick":([0-9]{1,12}),', re.MULTILINE)
_TICK = re.compile(rb'\{"tick":(-?[0-9]+),')
_HOLE = b"\0"  # which JSON never holds, and a file's bytes that did not reach the disk are


def _amount(default: Any) -> Any:
    return field(default=default, metadata={"ge": 0, "le": LARGEST_AMOUNT})


@dataclass  # made for every turn, and a frozen one takes three times as long
class AgentState:
    """Where an agent stands after its latest turn. All numbers are totals, never differences."""

    tick: int = -1
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

    @property
    def used_up(self) -> float:
        """The credits that are gone from the agent's allowance: spent, or passed on to agents it created."""
        return round(self.credits + self.passed_on, 6)

    def as_json(self) -> dict[str, Any]:
        """Return the line of the ledger; the last two keys are left out where they are 0."""
        plain = {**vars(self), "read": self.read.as_json(), "results": list(self.results)}
        for key in ("expired_unread", "passed_on"):
            if not plain[key]:
                del plain[key]
        return plain

    def having_spent(self, other: AgentState) -> AgentState:
        """Return this state, with what another one says was spent where that is more."""
        spent = {name: max(getattr(self, name), getattr(other, name)) for name in _SPENT}
        dollars = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return replace(self, **spent, cost_usd=max(dollars, default=None))

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> AgentState:
        """Return the state that a line describes; keys of later versions are passed over.

        Raises `ValueError` when a value is of another type than the engine writes.
        """
        state: AgentState = value_of(AgentState, plain)
        return state


class _Known(NamedTuple):
    """A ledger's last line, and the file's identity if that is known to go with it."""

    line: bytes
    state: AgentState
    identity: Identity | None


_latest: dict[str, _Known] = {}
"""The newest line of each ledger that this process wrote or read, by the file's path."""


def read_state(base: Path, agent_name: str, *, before: int | None = None) -> AgentState:
    """Return an agent's state; a fresh one when it has had no turn.

    With `before`, a last line of that tick or a later one is passed over: a power cut can leave the line of
    a turn whose record is gone. What it says was spent stays spent.

    Raises `CorruptState` when the line is not one that the engine wrote, or there is no file but something
    else.
    """
    relative = paths.ledger_file(agent_name)
    file = f"{base}/{relative}"
    line, state, identity = _latest.get(file) or (b"", None, None)
    if state and before is not None and state.tick >= before:
        state = None
    if state and identity and _is_still(file, identity):
        return state
    tail = _read_tail(file, relative, 1 if before is None else 2)
    if state and _ends_with(tail, line):
        return state
    passed_over: AgentState | None = None
    for line in reversed(tail[: tail.rfind(b"\n") + 1].splitlines(keepends=True)[-2:]):
        if before is not None and _HOLE in line:
            continue
        try:
            state = AgentState.from_json(parse(line, limit_bytes=LINE_LIMIT_BYTES))
        except ValueError as error:
            raise CorruptState(
                f"the last line is not a turn: {error}",
                where=relative,
                hint="remove that line by hand; the agent then continues from the one before",
            ) from error
        if before is None or state.tick < before:
            _remember(file, line, state)
            return state.having_spent(passed_over) if passed_over else state
        passed_over = passed_over or state
    return AgentState().having_spent(passed_over) if passed_over else AgentState()


def _read_tail(file: str, relative: str, lines: int) -> bytes:
    try:
        if status_of(file).st_size > FILE_LIMIT_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than the {FILE_LIMIT_BYTES >> 20} MiB of a ledger")
        return fs.read_tail(file, _TAIL_BYTES, lines)
    except FileNotFoundError:
        return b""
    except OSError as error:
        require_about_one_file(file, error)
        raise CorruptState(
            why_unreadable(error),
            where=relative,
            hint="the ledger is a regular file; move away what stands there",
        ) from error


def _ends_with(tail: bytes, line: bytes) -> bool:
    """Return whether the last line of a file is this one, whole."""
    return tail.endswith(line) and tail[-len(line) - 1 : -len(line)] in (b"", b"\n")


def _remember(file: str, line: bytes, state: AgentState, identity: Identity | None = None) -> None:
    if len(_latest) >= STATES_REMEMBERED:
        _latest.clear()
    _latest[file] = _Known(line, state, identity if identity and is_exact(identity) else None)


def _is_still(file: str, identity: Identity) -> bool:
    try:
        return identity_of(file) == identity
    except OSError:
        return False


def ticks_kept(base: Path, agent_name: str) -> list[int]:
    """Return the ticks of which an agent's ledger has a line, in its order; none if it cannot be read."""
    try:
        raw = fs.read_bytes(f"{base}/{paths.ledger_file(agent_name)}", FILE_LIMIT_BYTES)
    except OSError:
        return []
    return list(map(int, _TICKS.findall(raw)))


def write_state(base: Path, agent_name: str, state: AgentState) -> None:
    """Add a turn's line, unless it is the last line already.

    A torn line before it is cut off, and so is one of the same tick that says something else. A ledger that
    has grown past a megabyte keeps its newest lines, at most half of that.
    """
    relative, line = paths.ledger_file(agent_name), compact(state.as_json()) + b"\n"
    path = f"{base}/{relative}"
    known = _latest.get(path)
    with fs.AppendFile(base, relative) as file:
        if not (known and known.identity == identity_in(file.opened) and known.state.tick < state.tick):
            end = file.read_tail(_TAIL_BYTES, 1)
            if _ends_with(end, line):
                _remember(path, line, state)
                return
            last = _TICK.match(end, end.rfind(b"\n", 0, -1) + 1)
            if end and not (end.endswith(b"\n") and last and int(last[1]) < state.tick):
                kept = _lines_before(file.read(), state.tick)
                file.truncate(len(kept))
        if file.size + len(line) <= ROTATE_BYTES:
            file.append(line)
            after = os.fstat(file.fileno())
            _remember(path, line, state, identity_in(after) if after.st_size == file.size else None)
            return
        kept = file.read()
    # Once a megabyte: a name that outlives a power cut must not lead to bytes that did not.
    fs.publish(base, relative, b"".join(_newest(kept.splitlines(keepends=True))) + line, sync=True)


def amend_state(base: Path, agent_name: str, state: AgentState, *, sync: bool = True) -> None:
    """Put a state in the place of the last line: what is added between two turns.

    All of it or nothing: the file is replaced. With `sync`, it survives power loss when this returns.
    """
    relative = paths.ledger_file(agent_name)
    try:
        present = fs.read_bytes(base / relative, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        present = b""
    line = compact(state.as_json()) + b"\n"
    fs.publish(base, relative, _lines_before(present, state.tick) + line, sync=sync)


def _lines_before(present: bytes, tick: int) -> bytes:
    """Return a ledger without a torn last line and without last lines of this tick or a later one.

    A line with a hole is one of them: of what was never synced, a power cut may leave any blocks.
    """
    lines = present[: present.rfind(b"\n") + 1].split(b"\n")[:-1]
    while lines and (_HOLE in lines[-1] or ((found := _TICK.match(lines[-1])) and int(found[1]) >= tick)):
        lines.pop()
    return b"".join(line + b"\n" for line in lines)


def _newest(lines: list[bytes]) -> list[bytes]:
    kept, room = 0, ROTATE_BYTES // 2
    for line in reversed(lines[-KEPT_LINES + 1 :]):
        room -= len(line)
        if room < 0:
            break
        kept += 1
    return lines[len(lines) - kept :]
