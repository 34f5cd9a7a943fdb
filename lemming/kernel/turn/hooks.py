"""The hooks of one turn's parts, moment by moment, as a turn asks them; `turn.seams` says when.

The turn itself, a `strategy.Turn` or a `draft.Draft`, is built on these, so here it is any value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from lemming.kernel.base.contract import NewEntry, ToolCall, TurnReply
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.report import End, Status
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.plugins.capabilities import capability
from lemming.kernel.plugins.shipped import REQUESTS, WRITERS
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.moments import Drive, No
from lemming.kernel.turn.places import Asking, Carried, Lookout
from lemming.kernel.turn.values import Steps, TurnInputs

Fits = Callable[[list[NewEntry]], list[NewEntry | list[str]]]
Files = dict[str, FileEffect]
StepsOf = Callable[[Any, tuple[str, ...] | None], Steps | None]
Fills = Callable[..., NewEntry | No]
Replied = Callable[..., None]


class Seams:
    """The parts of one turn, moment by moment, in their order; who does not override a hook is not asked."""

    opens: tuple[Callable[[], End | None], ...] = ()
    watches: tuple[Callable[[], Lookout | None], ...] = ()
    steps: tuple[StepsOf, ...] = ()
    drives: tuple[Callable[[Any, Drive, Steps], End], ...] = ()
    fits: tuple[Fits, ...] = ()
    reads: tuple[Callable[[TurnReply], None], ...] = ()
    carries: tuple[Callable[[Sequence[Json], str], Sequence[Carried]], ...] = ()
    replied: tuple[Replied, ...] = ()
    shown_result: tuple[Callable[[Json], Json], ...] = ()
    trust: tuple[Callable[[], str], ...] = ()
    before_call: tuple[Callable[[ToolCall], ToolCall | No], ...] = ()
    takes: tuple[Callable[[ToolCall, str], bool], ...] = ()
    writes: tuple[Callable[[Files], Files], ...] = ()
    after_call: tuple[Callable[[int, ToolCall, ToolResult], None], ...] = ()
    fills: tuple[Fills, ...] = ()
    is_answered: tuple[Callable[[], bool], ...] = ()
    leaving: tuple[Callable[[NewEntry, str], NewEntry | No], ...] = ()
    asks: tuple[Callable[[NewEntry, Asking, str], None], ...] = ()
    stopped: tuple[Callable[[Json], None], ...] = ()
    concludes: tuple[Callable[[End, LemmingError | None], End], ...] = ()
    seals: tuple[Callable[[], None], ...] = ()
    may_rest: tuple[Callable[[], bool], ...] = ()
    waits_for: tuple[Callable[[], str], ...] = ()
    amends: tuple[Callable[[AgentState, Status, End], None], ...] = ()

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts = parts
        for part in parts.values():
            kind: Any = type(part)
            # Only what a class overrides: most turns pass most seams without a single call.
            for hook in _hooks_of(kind):
                setattr(self, hook, (*getattr(self, hook), getattr(part, hook)))
        self.watch = next((found for watches in self.watches if (found := watches())), None)

    def adds(self, first: int, room: int) -> list[OutboxEntry]:
        """Return the entries that parts write after a turn's own, which are `first`, in so much room."""
        entries: list[OutboxEntry] = []
        for part in self.parts.values():
            if payloads := part.adds():
                inputs, at = part.draft.inputs, str(part.given["at"])
                tick, name, start = inputs.tick, inputs.agent.name, first + len(entries)
                made = [
                    OutboxEntry(inputs.entry_id(number), tick, name, "request", payload, [], at)
                    for number, payload in enumerate(payloads[: room - len(entries)], start)
                ]
                part.added(made)
                entries += made
        return entries

    def carried(self, payloads: Sequence[Json], at: str) -> Sequence[Carried]:
        """Return payloads with what is known of the files that go with them, as all calls are made."""
        for carries in self.carries:  # of one capability
            return carries(payloads, at)
        return [Carried(payload) for payload in payloads]

    def written(self, files: Files) -> Files:
        """Return staged files as a call that reaches outside has them written."""
        for writes in self.writes:
            files = writes(files)
        return files

    def kept_after(self, *, is_applied: bool, holds_all: bool) -> dict[str, Json]:
        """Return what ledgers keep of capabilities after the turn; of those without a part, what they had."""
        before = next(iter(self.parts.values())).draft.inputs.state.kept
        kept = {
            name: part.closes(is_applied=is_applied, holds_all=holds_all) for name, part in self.parts.items()
        }
        return {name: value for name, value in {**before, **kept}.items() if value}


@cache
def _hooks_of(kind: type[Any]) -> Sequence[str]:
    """Return the hooks that a class has of its own; the base of all parts is the last that brings any."""
    base = next(it for it in reversed(kind.__mro__) if "opens" in vars(it))
    return [it for it in Seams.__annotations__ if getattr(kind, it) is not getattr(base, it)]


PLAIN_LINE = Seams({})
"""Those of a turn in which no capability takes part."""


def asking(draft: Any) -> Seams:
    """Return the hooks of a draft in which a tool asks somebody: from now on those of requests too."""
    seams: Seams = draft.seams
    if REQUESTS in seams.parts:
        return seams
    return Seams({REQUESTS: capability(REQUESTS).part(draft, {}), **seams.parts})


def entries_of(call: ToolCall) -> Sequence[NewEntry]:
    """Return what a successful call of a capability's tool has the turn write."""
    by = WRITERS.get(call.tool)
    entries: Sequence[NewEntry] = capability(by).entries_of(call) if by else ()
    return entries


def next_entry_id(inputs: TurnInputs, number: int, taken: Sequence[str]) -> str:
    """Return the id of a turn's next entry, from a number on: the ids of withdrawn entries are free."""
    while (identity := inputs.entry_id(number)) in taken:
        number += 1
    return identity
