"""Hook table of a turn: the interceptors' overrides of each hook, in call order (`turn.turn_hooks`).

A `strategy.Turn` or `draft.TurnState` is built on this table, so the table treats both as any value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from lemming.kernel.base.contract import NewEntry, ToolCall, TurnReply
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.turn_report import End, Status
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.plugins.capability_loader import find_tool_entry, get_capability
from lemming.kernel.plugins.capability_table import REQUESTS
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.effect_chain import EffectChain
from lemming.kernel.turn.guards import PayloadWithDigests
from lemming.kernel.turn.turn_context import Drive, Rejected
from lemming.kernel.turn.turn_values import Steps, TurnInputs

ValidateEntries = Callable[[list[NewEntry]], list[NewEntry | list[str]]]
Files = dict[str, FileEffect]
StrategyHook = Callable[[Any, tuple[str, ...] | None], Steps | None]
CompleteEntry = Callable[..., NewEntry | Rejected]
AfterReply = Callable[..., None]


class HookTable:
    """Overridden hooks of a turn's interceptors, in call order. A hook without an override costs no call."""

    on_turn_start: tuple[Callable[[], End | None], ...] = ()
    strategy: tuple[StrategyHook, ...] = ()
    wrap_run: tuple[Callable[[Any, Drive, Steps], End], ...] = ()
    validate_entries: tuple[ValidateEntries, ...] = ()
    validate_reply: tuple[Callable[[TurnReply], None], ...] = ()
    attach_digests: tuple[Callable[[Sequence[Json], str], Sequence[PayloadWithDigests]], ...] = ()
    after_reply: tuple[AfterReply, ...] = ()
    render_result: tuple[Callable[[Json], Json], ...] = ()
    trust_label: tuple[Callable[[], str], ...] = ()
    handle_call: tuple[Callable[[ToolCall, str], bool], ...] = ()
    before_write: tuple[Callable[[Files], Files], ...] = ()
    after_call: tuple[Callable[[int, ToolCall, ToolResult], None], ...] = ()
    complete_entry: tuple[CompleteEntry, ...] = ()
    is_answered: tuple[Callable[[], bool], ...] = ()
    on_limit_reached: tuple[Callable[[Json], None], ...] = ()
    on_turn_end: tuple[Callable[[End, LemmingError | None], End], ...] = ()
    finalize: tuple[Callable[[], None], ...] = ()
    can_skip_response: tuple[Callable[[], bool], ...] = ()
    wait_reason: tuple[Callable[[], str], ...] = ()
    update_agent_state: tuple[Callable[[AgentState, Status, End], None], ...] = ()

    def __init__(self, interceptors: Mapping[str, Any], turn_state: Any = None) -> None:
        self.interceptors = interceptors
        self.chain: EffectChain | None = None
        links = [item.as_link() for item in interceptors.values()]
        if any(link.handles for link in links):
            self.chain = EffectChain(links, turn_state.perform, turn_state.events.append)
        for interceptor in interceptors.values():
            interceptor_class: Any = type(interceptor)
            # Only overridden hooks: most turns pass most hooks without a single call.
            for hook in _overridden_hooks(interceptor_class):
                setattr(self, hook, (*getattr(self, hook), getattr(interceptor, hook)))

    def make_extra_entries(self, first: int, room: int) -> list[OutboxEntry]:
        """Return the extra requests that interceptors append after the turn's first `first` entries, at most
        `room`.
        """
        entries: list[OutboxEntry] = []
        for interceptor in self.interceptors.values():
            if payloads := interceptor.extra_requests():
                inputs, at = interceptor.turn_state.inputs, str(interceptor.snapshot["at"])
                tick, name, start = inputs.tick, inputs.agent.name, first + len(entries)
                requests = [
                    OutboxEntry(inputs.entry_id(number), tick, name, "request", payload, [], at)
                    for number, payload in enumerate(payloads[: room - len(entries)], start)
                ]
                interceptor.on_requests_added(requests)
                entries += requests
        return entries

    def payloads_with_digests(self, payloads: Sequence[Json], at: str) -> Sequence[PayloadWithDigests]:
        """Return payloads with the digests of their attached files, as for every call."""
        for attach_digests in self.attach_digests:  # of one capability
            return attach_digests(payloads, at)
        return [PayloadWithDigests(payload) for payload in payloads]

    def label_staged_files(self, files: Files) -> Files:
        """Return the staged files as they are written before a call with side effects."""
        for before_write in self.before_write:
            files = before_write(files)
        return files

    def collect_states(self, *, is_applied: bool, holds_all: bool) -> dict[str, Json]:
        """Return the capabilities' states for the ledger after the turn.

        A capability without interceptor keeps the state.
        """
        old_states = next(iter(self.interceptors.values())).turn_state.inputs.state.kept
        new_states = {
            name: interceptor.reduce_state(
                interceptor.save_state(is_applied=is_applied, holds_all=holds_all), holds_all
            )
            for name, interceptor in self.interceptors.items()
        }
        return {name: value for name, value in {**old_states, **new_states}.items() if value}


@cache
def _overridden_hooks(interceptor_class: type[Any]) -> Sequence[str]:
    """Return the hooks that a class overrides.

    The base of all interceptors is the last class in the MRO with hooks.
    """
    base = next(item for item in reversed(interceptor_class.__mro__) if "on_turn_start" in vars(item))
    return [item for item in HookTable.__annotations__ if getattr(interceptor_class, item) is not getattr(base, item)]


NO_HOOKS = HookTable({})
"""The hooks of a turn without capabilities."""


def with_request_hooks(turn_state: Any) -> HookTable:
    """Return the hooks of a turn in which a tool asks a person, with the hooks of requests added."""
    seams: HookTable = turn_state.hooks
    if REQUESTS in seams.interceptors:
        return seams
    added = {REQUESTS: get_capability(REQUESTS).interceptor(turn_state, {}), **seams.interceptors}
    return HookTable(added, turn_state)


def entries_from_call(call: ToolCall) -> Sequence[NewEntry]:
    """Return the entries that a successful call of a capability's tool writes."""
    build_entry = find_tool_entry(call.tool)
    return [build_entry(call)] if build_entry else ()


def next_entry_id(inputs: TurnInputs, number: int, used_ids: Sequence[str]) -> str:
    """Return the id of the turn's next entry from `number` on.

    Ids of withdrawn entries are skipped if used.
    """
    while (identity := inputs.entry_id(number)) in used_ids:
        number += 1
    return identity
