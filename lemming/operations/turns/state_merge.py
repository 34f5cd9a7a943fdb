"""Merge the states of an agent's concurrent turns. Pure.

Each turn starts from the inputs of the agent's first turn in the tick. Writes happen in the order of the turn
numbers, once all turns have their answers. The turns may therefore run in any order or concurrently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.turn.turn_values import TurnInputs, TurnOutcome

_COUNTS = ("turns", "unpriced_calls", "input_tokens", "output_tokens", "failed")
_AMOUNTS = ("credits", "passed_on")


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
    unchanged = [item for item in current if item.key not in removed_keys and item.key not in changed]
    return (*unchanged, *changed.values())
