"""Tool calls of which nobody knows whether they happened, and what a person found out about them.

What a person says is added to the agent's waiting results, those of the request that the call was made for
while it is open: the ledger's last line is replaced by one with one more result. The agent reads it in its
next prompt for that request, and the journal keeps it from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.base.jsontext import compact
from lemming.kernel.journal.begun import Begun
from lemming.kernel.journal.file import journal_ticks, last_record, read_journal
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.journal.records import TickCommitted
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tools import interrupted
from lemming.timeline.record import RecordedTick, is_unknown

CALL = "call"
"""The key that marks a result as a person's word on an earlier call; its value is the call's id."""

RETRY = "retry"
"""The key of a result whose call a person had run again: "started", and "finished" once its end is known."""

Result = dict[str, Any]


@dataclass(frozen=True)
class UnknownCall:
    """A tool call that was begun and of which nobody knows how it ended.

    `was_retried`: a person has had it run again, and no end of that was recorded either. `request`: the
    identity of the request that its turn was for, empty for none. `why`: how it came that nobody knows.
    """

    tick: int
    agent: str
    index: int
    tool: str
    args: Any
    was_retried: bool = False
    request: str = ""
    why: str = ""

    @property
    def id(self) -> str:
        """`TICK/AGENT/INDEX`, as `lemming repair --mark` takes it."""
        return f"{self.tick}/{self.agent}/{self.index}"

    @property
    def text(self) -> str:
        """The tool and its arguments on one line."""
        return f"{self.tool} {compact(self.args).decode()}"

    def as_json(self) -> dict[str, Any]:
        """Return the call as JSON values."""
        return {"id": self.id, **vars(self)}


def find_unknown_calls(base: OrgPath, ticks: Iterable[int]) -> list[UnknownCall]:
    """Return the calls of these ticks whose outcome no person has settled, oldest first."""
    calls: list[UnknownCall] = []
    words: dict[str, Result] = {}  # the last word on each call: what waits in a ledger is the latest
    for tick in ticks:
        try:
            recorded = RecordedTick(tick, read_journal(base, tick))
        except CorruptState:
            continue
        calls += _unknown_calls(recorded)
        states = (started.state for started in recorded.started.values())
        words.update(_words(result for state in states for result in _results_in(state)))
    words.update(_words(_waiting_results(base)))
    return [
        replace(call, was_retried=call.id in words)
        for call in calls
        if call.id not in words or words[call.id].get(RETRY) == "started"
    ]


def unknown_call(base: OrgPath, call_id: str) -> UnknownCall:
    """Return an unknown call that a person may settle now; the organisation must be held.

    Raises `UsageError` for an id that names no unknown call, and while a tick is unfinished: finishing it
    would write the agent's state anew.
    """
    calls = {call.id: call for call in find_unknown_calls(base, journal_ticks(base))}
    if call_id not in calls:
        known = f"unknown calls: {', '.join(calls)}" if calls else "there is no such call"
        raise UsageError(f'"{call_id}" is no call whose outcome is unknown', hint=known)
    record = last_record(base, tick := load_tick(base))
    if record is not None and not isinstance(record, TickCommitted):
        raise UsageError(f"tick {tick} is unfinished", hint="finish it first: `lemming run-once`")
    if calls[call_id].agent not in agent_folders(base):
        raise UsageError(f"there is no agent {calls[call_id].agent} any more")
    return calls[call_id]


def mark_call(base: OrgPath, call_id: str, *, happened: bool) -> UnknownCall:
    """Let an agent know what a person found out about one of its calls, and return the call.

    Raises what `unknown_call` does.
    """
    call = unknown_call(base, call_id)
    outcome = "it did happen" if happened else "it did not happen"
    text = f"A person has found out about this call of tick {call.tick}: {outcome}."
    tell_agent(base, call, success=happened, output=text)
    return call


def tell_agent(base: OrgPath, call: UnknownCall, *, success: bool, output: str, **more: Any) -> None:
    """Add a person's word on a call to what its agent is shown next, in place of an earlier one.

    Survives power loss when this returns.
    """
    word = {"tool": call.tool, "args": call.args, "success": success, "output": output, CALL: call.id, **more}
    state = read_state(base, call.agent, before=load_tick(base))
    requests = tuple(
        replace(begun, results=(*_others(begun.results, call), word)) if _is_for(begun, call) else begun
        for begun in state.requests
    )
    if requests != state.requests:
        amend_state(base, call.agent, replace(state, requests=requests))
    else:
        amend_state(base, call.agent, replace(state, results=(*_others(state.results, call), word)))


def _is_for(begun: Begun, call: UnknownCall) -> bool:
    return bool(call.request) and begun.request == call.request


def _others(results: Iterable[Result], call: UnknownCall) -> Iterator[Result]:
    return (result for result in results if result.get(CALL) != call.id)


def _results_in(state: Mapping[str, Any]) -> Iterator[Result]:
    """Yield the results that an agent was not shown yet, of all that it has begun."""
    yield from state["results"]
    for begun in state.get("requests", ()):
        yield from begun.get("results", ())


def without_words(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state as the agent's own turns left it, without what people added to its results."""
    own = {**state, "results": _own(state["results"])}
    if state.get("requests"):
        own["requests"] = [
            {
                key: value
                for key, value in ({**begun, "results": _own(begun.get("results", ()))}).items()
                if value
            }
            for begun in state["requests"]
        ]
    return own


def _own(results: Iterable[Result]) -> list[Result]:
    return [result for result in results if CALL not in result]


def _unknown_calls(recorded: RecordedTick) -> Iterator[UnknownCall]:
    for place, finished in recorded.tools.items():
        if is_unknown(finished):
            begun, started = recorded.announced.get(place), recorded.started.get(place[0])
            request = started.task["request"] if started and started.task else ""
            args, why = begun.args if begun else None, _why(finished.output)
            yield UnknownCall(recorded.tick, *place, finished.tool, args, request=request, why=why)


def _why(output: str) -> str:
    """Return why nobody knows, as the output of such a call tells."""
    begins, _, ends = interrupted("|").output.partition("|")
    return output.removeprefix(begins).removesuffix(ends)


def _words(results: Iterable[Result]) -> Iterator[tuple[str, Result]]:
    return ((result[CALL], result) for result in results if CALL in result)


def _waiting_results(base: OrgPath) -> Iterator[Result]:
    for name in agent_folders(base):
        if not paths.AGENT_NAME.match(name):
            continue
        try:
            yield from _results_in(read_state(base, name).as_json())
        except CorruptState:
            continue
