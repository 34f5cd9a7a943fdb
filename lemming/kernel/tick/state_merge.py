"""Concurrent turns of an agent: check the preconditions and merge the states. Pure.

Each turn starts from the inputs of the agent's first turn in the tick. Writes happen in the order of the turn
numbers, once all turns have their answers. The turns may therefore run in any order or concurrently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.llm.call_cost import to_decimal
from lemming.kernel.plugins.capability_table import NO_MODELS
from lemming.kernel.tools import EngineTool, Tool
from lemming.kernel.turn.turn_values import TurnInputs, TurnOutcome

HARMLESS = frozenset({"requests", "answers"})
"""Capabilities that may have inputs in concurrent turns: no turn changes these inputs for the next."""
REPLACES_A_MEMORY = "memory_write"
_COUNTS = ("turns", "unpriced_calls", "input_tokens", "output_tokens", "failed")
_AMOUNTS = ("credits", "passed_on")


class TurnRow(NamedTuple):
    """Turns to run concurrently in any order, and a final step after all of them."""

    turns: Sequence[Callable[[], None]]
    finish: Callable[[], None]


def can_run_concurrently(inputs: TurnInputs, tools: Iterable[Tool], max_turns: int) -> bool:
    """Return True if an agent's turns of a tick cannot affect each other.

    Required: only tools that read, or the tool that replaces a memory; no gate, approval, judge, trust or
    window; a request without a budget; no wake-up by files; and enough credits for any cost of `max_turns`
    turns.
    """
    if inputs.task is None or inputs.task.has_budget:  # spending by sub-requests counts against it too
        return False
    if inputs.fingerprint is not None or inputs.agent.turn.strategy:
        return False
    if inputs.model.provider in NO_MODELS or not inputs.given.keys() <= HARMLESS:
        return False
    if any(not isinstance(tool, EngineTool) or not _is_read_only(tool) for tool in tools):
        return False
    return inputs.allocation.max_credits is None or _can_afford(inputs, max_turns)


def _is_read_only(tool: Tool) -> bool:
    return tool.tool_class == "read" or tool.name == REPLACES_A_MEMORY


def _can_afford(inputs: TurnInputs, max_turns: int) -> bool:
    """Return True if the remaining credits cover all calls of `max_turns` turns."""
    entry, limit = inputs.model, inputs.allocation.max_credits
    if entry.per_1k_input_tokens or entry.per_1k_output_tokens or inputs.agent.model.fallback:
        return False  # the cost is known only after the call
    calls = max_turns * inputs.max_steps * (1 + inputs.repairs)
    return limit is not None and to_decimal(inputs.state.consumed_credits) + calls * to_decimal(
        entry.per_call
    ) <= to_decimal(limit)


def to_further_state(state: AgentState, request: str) -> AgentState:
    """Return the start state for the further turns of a row, without content shown to one turn only.

    `request`: the request of the first turn, so an older inbox entry ends the row.
    """
    return replace(state, results=(), in_vain={}, expired_unread=0, serving=request or state.serving)


def join_outcome(inputs: TurnInputs, outcome: TurnOutcome, current: AgentState) -> TurnOutcome:
    """Return an outcome merged into the agent's `current` state after other turns."""
    base = inputs.state
    if current.as_json() == base.as_json():
        return outcome
    return replace(
        outcome,
        state=merge_states(base, current, outcome.state),
        state_if_unwritten=lambda: merge_states(base, current, outcome.state_if_unwritten()),
    )


def merge_states(base: AgentState, current: AgentState, final: AgentState) -> AgentState:
    """Return the `current` state with the changes of a turn from `base` to `final` applied.

    Numbers are added. For every other field with a change, the turn's value is used.
    """
    state = current.copy()
    state.tick, state.turn, state.status, state.end = final.tick, final.turn, final.status, final.end
    for key in _COUNTS:
        setattr(state, key, getattr(current, key) + getattr(final, key) - getattr(base, key))
    for key in _AMOUNTS:
        amount = getattr(current, key) + getattr(final, key) - getattr(base, key)
        setattr(state, key, round(min(amount, MAX_AMOUNT), 6))
    if final.cost_usd is not None:
        spent = final.cost_usd - (base.cost_usd or 0.0)
        state.cost_usd = min((current.cost_usd or 0.0) + spent, MAX_AMOUNT)
    if final.aside != base.aside:
        names = current.aside | final.aside
        deltas = {entry_key: final.aside.get(entry_key, 0.0) - base.aside.get(entry_key, 0.0) for entry_key in names}
        auxiliary = {entry_key: current.aside.get(entry_key, 0.0) + deltas[entry_key] for entry_key in names}
        state.aside = {name: round(credits, 6) for name, credits in auxiliary.items()}
    if final.lost != base.lost:
        state.lost = current.lost.add(_subtract(final.lost, base.lost))
    if final.read != base.read:
        state.read = _merge_marks(current.read, final.read)
    state.requests = _merge_requests(base.requests, current.requests, final.requests)
    state.results = (*current.results, *final.results)
    state.in_vain = {**current.in_vain, **final.in_vain} if state.results else {}
    state.soft_cap_warned = current.soft_cap_warned or final.soft_cap_warned
    if final.loops != base.loops:  # progress of one turn ends the loops of the others
        counts = {
            entry_key: current.loops.get(entry_key, 0) - base.loops.get(entry_key, 0) for entry_key in final.loops
        }
        state.loops = {entry_key: count + max(counts[entry_key], 0) for entry_key, count in final.loops.items()}
    if final.serving != base.serving:
        state.serving = final.serving
    return state


def _subtract(total: WriteOff, base: WriteOff) -> WriteOff:
    cost_usd = None if total.cost_usd is None else total.cost_usd - (base.cost_usd or 0.0)
    return WriteOff(total.calls - base.calls, total.credits - base.credits, cost_usd, total.tokens - base.tokens)


def _merge_marks(first: ReadMark, second: ReadMark) -> ReadMark:
    """Return the read mark of a reader that has seen the entries of both marks."""
    authors = {**first.through, **second.through}
    through = {author: max(mark.through.get(author, -1) for mark in (first, second)) for author in authors}
    return ReadMark(through, first.also | second.also, first.unusable | second.unusable)


def _merge_requests(
    base: Sequence[OpenRequest], current: Sequence[OpenRequest], final: Sequence[OpenRequest]
) -> tuple[OpenRequest, ...]:
    base_by_key, final_keys = {request.key: request for request in base}, {request.key for request in final}
    changed = {request.key: request for request in final if base_by_key.get(request.key) != request}
    removed_keys = base_by_key.keys() - final_keys
    return (
        *(request for request in current if request.key not in removed_keys and request.key not in changed),
        *changed.values(),
    )
