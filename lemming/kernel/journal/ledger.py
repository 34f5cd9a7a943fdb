"""An agent's ledger: one line a turn in `agents/<name>/turns.jsonl`; the last line is the agent's state.

What it has read, what it has spent, and the tool results it has not been shown yet. Format: docs/formats.md.
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
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import RECORD_DEPTH, compact, parse
from lemming.kernel.base.turn_numbers import TURNS_PER_TICK
from lemming.kernel.files import fs
from lemming.kernel.files.documents import value_of, why_unreadable
from lemming.kernel.files.fitting import LARGEST_AMOUNT
from lemming.kernel.files.refusals import require_about_one_file
from lemming.kernel.files.stamps import Identity, identity_in, is_exact
from lemming.kernel.journal.begun import Begun, with_more_spent
from lemming.kernel.journal.lost_calls import NONE_LOST, Lost
from lemming.kernel.journal.read_mark import ReadMark
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capabilities import capability_here
from lemming.kernel.plugins.shipped import SHIPPED

KEPT_LINES = 500
ROTATE_BYTES = 1 << 20
LINE_LIMIT_BYTES = 8 << 20
FILE_LIMIT_BYTES = 64 << 20  # it is cut back long before
_TAIL_BYTES = 4 << 10  # a line is rarely longer
_SPENT = ("credits", "passed_on", "unpriced_calls", "input_tokens", "output_tokens")
_TICKS = re.compile(rb'^\{"tick":([0-9]{1,12}),', re.MULTILINE)
_TICK = re.compile(rb'\{"tick":(-?[0-9]+),')
_MAY_BE_EMPTY = (
    "expired_unread", "passed_on", "serving", "requests", "end", "aside", "lost", "failed", "in_vain",
    "kept", "loops", "turn",
)  # fmt: skip
_perhaps_empty = attrgetter(*_MAY_BE_EMPTY)
_holds_foreign = attrgetter("results", "requests", "kept", "in_vain", "passed_on", "aside")
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "requests": lambda requests: [begun.as_json() for begun in requests],
    "lost": Lost.as_json,
}
_TURN = re.compile(rb',"turn":([1-9][0-9]?)\}$')  # the last key, where it stands at all
_HOLE = b"\0"  # which JSON never holds, and a file's bytes that did not reach the disk are


def _amount(default: Any) -> Any:
    return field(default=default, metadata={"ge": 0, "le": LARGEST_AMOUNT})


@dataclass  # made for every turn, and a frozen one takes three times as long
class AgentState:
    """Where an agent stands after its latest turn. All numbers are totals, never differences.

    `serving`: the request that the turn was for; `requests`: those it has begun that are open. `end`: how the
    turn ended, where that is not the usual way of its status. `aside`: of the credits, what questions of
    capabilities cost, by their names. `lost`: what limits count beside `credits` and `cost_usd`. `turns`:
    those that were done, `failed`: those that failed. `in_vain`: how often calls gave the same, while
    `results` wait. `kept`: what capabilities keep for the next turn, by their names. `turn`: the number of
    the turn among the agent's in that tick. `loops`: how many turns since one came further ended in the same
    way, by what tells the ways apart.
    """

    tick: int = field(default=-1, metadata={"le": 10**12 - 2})  # after it there must be another one
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
    requests: tuple[Begun, ...] = ()
    end: str = ""
    aside: dict[str, float] = field(default_factory=dict)
    lost: Lost = NONE_LOST
    failed: int = _amount(0)
    in_vain: dict[str, int] = field(default_factory=dict)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    turn: int = field(default=0, metadata={"ge": 0, "le": TURNS_PER_TICK - 1})
    loops: dict[str, int] = field(default_factory=dict)

    written: ClassVar[tuple[dict[str, Any], bytes] | None] = None
    """Its line, as a value and as JSON, once it is in the ledger: from then on it does not change."""

    @property
    def place(self) -> tuple[int, int]:
        """Where its turn stands among all of the agent's: the tick, and the number in it."""
        return self.tick, self.turn

    @property
    def used_up(self) -> float:
        """The credits that are gone from the agent's allowance: spent, or passed on to agents it created."""
        return round(self.credits + self.passed_on, 6) if self.passed_on else self.credits

    def as_json(self) -> dict[str, Any]:
        """Return the line of the ledger, not to be changed; what may be empty is left out where it is."""
        if self.written:
            return self.written[0]
        plain = {
            "tick": self.tick,
            "status": self.status,
            "turns": self.turns,
            "credits": self.credits,
            "cost_usd": self.cost_usd,
            "unpriced_calls": self.unpriced_calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "soft_cap_warned": self.soft_cap_warned,
            "read": self.read.as_json(),
            "results": [*self.results],
            "inputs": self.inputs,
        }
        if any(values := _perhaps_empty(self)):
            for key, value in zip(_MAY_BE_EMPTY, values, strict=True):
                if value:
                    plain[key] = _PLAIN[key](value) if key in _PLAIN else value
        return plain

    def copy(self) -> AgentState:
        """Return the same state as another value, which may be changed: it is not in a ledger yet."""
        other = object.__new__(AgentState)
        vars(other).update(vars(self))
        vars(other).pop("written", None)
        return other

    def having_spent(self, other: AgentState) -> AgentState:
        """Return this state, with what another one says was spent where that is more."""
        spent = {name: max(getattr(self, name), getattr(other, name)) for name in _SPENT}
        dollars = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        lost = max(self.lost, other.lost, key=lambda it: it.calls)
        aside = {
            name: max(it.aside.get(name, 0.0) for it in (self, other)) for name in self.aside | other.aside
        }
        requests = with_more_spent(self.requests, other.requests)
        dollars_spent = max(dollars, default=None)
        return replace(self, **spent, cost_usd=dollars_spent, lost=lost, aside=aside, requests=requests)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> AgentState:
        """Return the state that a line describes; keys of later versions are passed over.

        Raises `ValueError` when a value is of another type than the engine writes.
        """
        state: AgentState = value_of(AgentState, plain)
        _require_theirs(state)
        return state


def _require_theirs(state: AgentState) -> None:
    """Raise `ValueError` for what a capability that ships did not keep: a person may have edited it."""
    for name, kept in state.kept.items():
        if name in SHIPPED and (known := capability_here(name)) is not None:
            known.require_kept(kept)
    for begun in state.requests:
        for asked in begun.asked:
            for name, held in asked.held.items():
                if name in SHIPPED and (known := capability_here(name)) is not None:
                    known.require_held(held)


def parse_state(line: bytes) -> AgentState:
    """Return the state that a line of a ledger says; raise `ValueError` for a line that says none."""
    return AgentState.from_json(parse(line, limit_bytes=LINE_LIMIT_BYTES, max_depth=RECORD_DEPTH))


def require_readable(state: AgentState) -> None:
    """Raise `ValueError` for a state whose line in a ledger no reader would take.

    A state that holds nothing from outside is bounded by its arithmetic, and not looked at.
    """
    if any(_holds_foreign(state)):
        parse_state(compact(state.as_json()))


def read_state(
    base_path: str | os.PathLike[str], agent_name: str, *, before: int | None = None
) -> AgentState:
    """Return an agent's state; a fresh one when it has had no turn.

    With `before`, a last line of that tick or a later one is passed over: a power cut can leave the line of
    a turn whose record is gone. What it says was spent stays spent.

    Raises `CorruptState` when the line is not one that the engine wrote, or there is no file but something
    else.
    """
    org, file = Organisation.at(base_path), paths.ledger_file(agent_name)
    try:
        state = org.files.value(
            file, partial(_decoded, file), limit_bytes=FILE_LIMIT_BYTES, load=_load_last_line
        )
        if before is None:
            return _sound(state)
        is_earlier = isinstance(state, AgentState) and state.tick < before
        return _sound(state) if is_earlier else _state_before(org.base, file, before)
    except FileNotFoundError:
        return AgentState()
    except OSError as error:
        require_about_one_file(f"{org.base}/{file}", error)
        hint = "the ledger is a regular file; move away what stands there"
        raise CorruptState(why_unreadable(error), where=file, hint=hint) from error


def _state_before(base: OrgPath, file: str, before: int) -> AgentState:
    """Return the state of an earlier tick, from the last two lines; a line with a hole was never synced."""
    states = _last_states(base, file, 2)
    if all(it.tick >= before for it in states) and states and states[-1].turn:  # several turns of that tick
        states = _last_states(base, file, TURNS_PER_TICK + 1)
    earlier = [state for state in states if state.tick < before] or [AgentState()]
    passed_over = [state for state in states[:1] if state.tick >= before]
    return earlier[0].having_spent(passed_over[0]) if passed_over else earlier[0]


def _last_states(base: OrgPath, file: str, count: int) -> list[AgentState]:
    """Return the states in the last lines of a ledger, the newest first."""
    tail = fs.read_tail(f"{base}/{file}", _TAIL_BYTES, count)
    lines = tail[: tail.rfind(b"\n") + 1].splitlines(keepends=True)[-count:]
    return [_sound(_decoded(file, line)) for line in reversed(lines) if _HOLE not in line]


def _load_last_line(path: str, limit_bytes: int) -> tuple[bytes, os.stat_result]:
    """Return the last whole line of a ledger, empty when there is none, and the file's status."""
    tail, status = fs.read_tail_with_status(path, _TAIL_BYTES, 1)
    if status.st_size > limit_bytes:
        raise OSError(errno.EFBIG, f"it is larger than the {limit_bytes >> 20} MiB of a ledger")
    end = tail.rfind(b"\n") + 1
    return tail[tail.rfind(b"\n", 0, max(0, end - 1)) + 1 : end], status


def _decoded(file: str, line: bytes) -> AgentState | CorruptState:
    """Return the state that a line holds, or what is wrong with it."""
    if not line:
        return AgentState()
    try:
        return parse_state(line)
    except ValueError as error:
        hint = "remove that line by hand; the agent then continues from the one before"
        return CorruptState(f"the last line is not a turn: {error}", where=file, hint=hint)


def _sound(state: AgentState | CorruptState) -> AgentState:
    # The error is kept with the file's reading and raised at every look: its traceback would grow each time.
    if isinstance(state, CorruptState):
        raise state.with_traceback(None)
    return state


def ticks_kept(base: OrgPath, agent_name: str) -> list[int]:
    """Return the ticks of which an agent's ledger has a line, in its order; none if it cannot be read."""
    try:
        raw = fs.read_bytes(f"{base}/{paths.ledger_file(agent_name)}", FILE_LIMIT_BYTES)
    except OSError:
        return []
    return list(map(int, _TICKS.findall(raw)))


class OpenLedger:
    """An agent's ledger that stays open, to add a turn's line to. Closed when it may stand elsewhere."""

    def __init__(self, org: Organisation, agent_name: str) -> None:
        self._org, self._relative = org, paths.ledger_file(agent_name)
        self._file = fs.AppendFile(org.base, self._relative)
        self._ended: Identity | None = None  # what the file was once the line of `_place` was added
        self._place = (-1, 0)

    def write(self, state: AgentState) -> None:
        """Add a turn's line, unless it is the last line already.

        A torn line before it is cut off, and so is one of the same tick that says something else. A ledger
        that has grown past a megabyte keeps its newest lines, at most half of that.
        """
        file, plain = self._file, state.as_json()
        written = compact(plain)
        object.__setattr__(state, "written", (plain, written))
        line = written + b"\n"
        # Where nobody has touched it since our own line, its end need not be read.
        place = state.place
        is_as_left = self._ended == identity_in(file.status()) and self._place < place
        if not is_as_left and self._ends_with(line, place):
            return
        if file.size + len(line) > ROTATE_BYTES:
            kept = b"".join(_newest(file.read().splitlines(keepends=True)))
            # Once a megabyte: a name that outlives a power cut must not lead to bytes that did not.
            fs.publish(self._org.base, self._relative, kept + line, sync=True)
            return
        file.append(line)
        # Else somebody has written to it at once, and its last line is not known to be this one.
        if (after := file.status()).st_size == file.size:
            self._org.files.wrote(self._relative, state, line, after)
            identity = identity_in(after)
            # With coarse stamps an edit within the same granule would not show: then the end is read each
            # time.
            self._ended, self._place = identity if is_exact(identity) else None, place

    def _ends_with(self, line: bytes, place: tuple[int, int]) -> bool:
        """Return whether this is the last line; else cut off what may not stand before it."""
        file = self._file
        file.size = file.status().st_size
        end = file.read_tail(_TAIL_BYTES, 1)
        # A whole line, not the end of a longer one.
        if end.endswith(line) and end[-len(line) - 1 : -len(line)] in (b"", b"\n"):
            return True
        last = _place_of(end[end.rfind(b"\n", 0, -1) + 1 :])
        # A line of this turn or a later one is what a power cut left of a turn whose record is gone.
        if end and not (end.endswith(b"\n") and last and last < place):
            file.truncate(len(_lines_before(file.read(), place)))
        return False

    def close(self) -> None:
        """Close the file; safe to repeat."""
        self._file.close()


def write_state(base_path: str | os.PathLike[str], agent_name: str, state: AgentState) -> None:
    """Add a turn's line to a ledger as `OpenLedger.write` does."""
    with contextlib.closing(OpenLedger(Organisation.at(base_path), agent_name)) as ledger:
        ledger.write(state)


def amend_state(
    base_path: str | os.PathLike[str], agent_name: str, state: AgentState, *, sync: bool = True
) -> None:
    """Put a state in the place of the last line: what is added between two turns.

    All of it or nothing: the file is replaced. With `sync`, it survives power loss when this returns.
    Raises `ValueError` for a state that could not be read again, and writes nothing.
    """
    base, relative = paths.as_base(base_path), paths.ledger_file(agent_name)
    require_readable(state)
    try:
        present = fs.read_bytes(base / relative, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        present = b""
    line = compact(state.as_json()) + b"\n"
    fs.publish(base, relative, _lines_before(present, state.place) + line, sync=sync)


def _place_of(line: bytes) -> tuple[int, int] | None:
    """Return the tick of a ledger's line, and which of the agent's turns in it the line is of."""
    found = _TICK.match(line)
    turn = _TURN.search(line)
    return (int(found[1]), int(turn[1]) if turn else 0) if found else None


def _lines_before(present: bytes, place: tuple[int, int]) -> bytes:
    """Return a ledger without a torn last line and without last lines of this turn or a later one.

    A line with a hole is one of them: of what was never synced, a power cut may leave any blocks.
    """
    lines = present[: present.rfind(b"\n") + 1].split(b"\n")[:-1]
    while lines and (_HOLE in lines[-1] or ((found := _place_of(lines[-1])) and found >= place)):
        lines.pop()
    return b"".join(line + b"\n" for line in lines)


def _newest(lines: list[bytes]) -> list[bytes]:
    kept, room = 0, ROTATE_BYTES // 2
    for line in reversed(lines[-KEPT_LINES + 1 :]):  # one more is about to follow
        room -= len(line)
        if room < 0:
            break
        kept += 1
    return lines[len(lines) - kept :]
