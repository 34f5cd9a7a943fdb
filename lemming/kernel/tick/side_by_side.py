"""Turns of one agent that are taken at once: when they may be, and how their states are put together. Pure.

Each starts from what the agent's first turn in the tick found, and what they write is written in the order of
their numbers, once all of them have their answers. So they may run in any order, or at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from lemming.kernel.files.fitting import LARGEST_AMOUNT
from lemming.kernel.journal.begun import Begun
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.lost_calls import Lost
from lemming.kernel.journal.read_mark import ReadMark
from lemming.kernel.llm.credits import exact
from lemming.kernel.plugins.shipped import NO_MODELS
from lemming.kernel.tools import EngineTool, Tool
from lemming.kernel.turn.values import TurnInputs, TurnOutcome

HARMLESS = frozenset({"requests", "answers"})
"""The capabilities that may start from something in such turns: of theirs, none changes for the next turn."""
REPLACES_A_MEMORY = "memory_write"
_COUNTS = ("turns", "unpriced_calls", "input_tokens", "output_tokens", "failed")
_AMOUNTS = ("credits", "passed_on")


class Row(NamedTuple):
    """Turns to be taken at once, in any order; then what is done, in one go, once all of them are over."""

    turns: Sequence[Callable[[], None]]
    finish: Callable[[], None]


def may_be_at_once(inputs: TurnInputs, tools: Iterable[Tool], most: int) -> bool:
    """Return True if an agent's turns of a tick, `most` at most, depend on nothing that one of them changes.

    That is: no tool but those that read, and the one that replaces a memory; no gate, approval, judge, trust
    or window takes part; the request has no budget; nothing wakes the agent by its files; and its credits
    suffice whatever they cost.
    """
    if inputs.task is None or inputs.task.has_budget:  # what others spend below it counts against it
        return False
    if inputs.fingerprint is not None or inputs.agent.turn.strategy:
        return False
    if inputs.model.provider in NO_MODELS or not inputs.given.keys() <= HARMLESS:
        return False
    if any(not isinstance(it, EngineTool) or not _only_reads(it) for it in tools):
        return False
    return inputs.allocation.max_credits is None or _can_afford(inputs, most)


def _only_reads(tool: Tool) -> bool:
    return tool.tool_class == "read" or tool.name == REPLACES_A_MEMORY


def _can_afford(inputs: TurnInputs, most: int) -> bool:
    """Return True if the credits that are left suffice for all calls that so many turns may make."""
    entry, limit = inputs.model, inputs.allocation.max_credits
    if entry.per_1k_input_tokens or entry.per_1k_output_tokens or inputs.agent.model.fallback:
        return False  # what a call costs is known once it was made
    calls = most * inputs.max_steps * (1 + inputs.repairs)
    return limit is not None and exact(inputs.state.used_up) + calls * exact(entry.per_call) <= exact(limit)


def start_of_further(state: AgentState, request: str) -> AgentState:
    """Return the state from which the further turns of a row start, without what only one turn is shown.

    `request`: that of the first turn; so an older entry for the inbox ends the row.
    """
    return replace(state, results=(), in_vain={}, expired_unread=0, serving=request or state.serving)


def joined(inputs: TurnInputs, outcome: TurnOutcome, current: AgentState) -> TurnOutcome:
    """Return an outcome with the state of an agent that stands at `current` by now, after other turns."""
    base = inputs.state
    if current.as_json() == base.as_json():
        return outcome
    return replace(
        outcome,
        state=merged(base, current, outcome.state),
        state_if_unwritten=lambda: merged(base, current, outcome.state_if_unwritten()),
    )


def merged(base: AgentState, current: AgentState, after: AgentState) -> AgentState:
    """Return a state to which is done what a turn did that went from `base` to `after`.

    Numbers add up; of everything else, what the turn changed is taken from it.
    """
    state = current.copy()
    state.tick, state.turn, state.status, state.end = after.tick, after.turn, after.status, after.end
    for key in _COUNTS:
        setattr(state, key, getattr(current, key) + getattr(after, key) - getattr(base, key))
    for key in _AMOUNTS:
        amount = getattr(current, key) + getattr(after, key) - getattr(base, key)
        setattr(state, key, round(min(amount, LARGEST_AMOUNT), 6))
    if after.cost_usd is not None:
        spent = after.cost_usd - (base.cost_usd or 0.0)
        state.cost_usd = min((current.cost_usd or 0.0) + spent, LARGEST_AMOUNT)
    if after.aside != base.aside:
        names = current.aside | after.aside
        more = {it: after.aside.get(it, 0.0) - base.aside.get(it, 0.0) for it in names}
        aside = {it: current.aside.get(it, 0.0) + more[it] for it in names}
        state.aside = {name: round(credits, 6) for name, credits in aside.items()}
    if after.lost != base.lost:
        state.lost = current.lost.plus(_less(after.lost, base.lost))
    if after.read != base.read:
        state.read = _both(current.read, after.read)
    state.requests = _requests(base.requests, current.requests, after.requests)
    state.results = (*current.results, *after.results)
    state.in_vain = {**current.in_vain, **after.in_vain} if state.results else {}
    state.soft_cap_warned = current.soft_cap_warned or after.soft_cap_warned
    if after.loops != base.loops:  # one that came further ends what others repeat
        counts = {it: current.loops.get(it, 0) - base.loops.get(it, 0) for it in after.loops}
        state.loops = {it: count + max(counts[it], 0) for it, count in after.loops.items()}
    if after.serving != base.serving:
        state.serving = after.serving
    return state


def _less(more: Lost, base: Lost) -> Lost:
    known = None if more.cost_usd is None else more.cost_usd - (base.cost_usd or 0.0)
    return Lost(more.calls - base.calls, more.credits - base.credits, known, more.tokens - base.tokens)


def _both(one: ReadMark, other: ReadMark) -> ReadMark:
    """Return the mark of a reader that was shown what either mark says."""
    authors = {**one.through, **other.through}
    through = {it: max(mark.through.get(it, -1) for mark in (one, other)) for it in authors}
    return ReadMark(through, one.also | other.also, one.unusable | other.unusable)


def _requests(base: Sequence[Begun], current: Sequence[Begun], after: Sequence[Begun]) -> tuple[Begun, ...]:
    before, left = {it.key: it for it in base}, {it.key for it in after}
    changed = {it.key: it for it in after if before.get(it.key) != it}
    gone = before.keys() - left
    return (*(it for it in current if it.key not in gone and it.key not in changed), *changed.values())
