"""A call that a gate asks about: what is kept while it waits, and what a person sees (docs/approvals.md).

Nothing is run here that could not be run again: of a tool whose writing the engine does, its plan, for what
the request shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import Any

from lemming.capabilities.approvals.binding import binds_of, changed, changed_since, changed_text
from lemming.capabilities.approvals.waiting import NAME, Waiting, digest_of, too_many
from lemming.capabilities.gates.keys import whom_to_ask
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.same_json import is_same
from lemming.kernel.files import fs
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.refusals import OF_A_FILE
from lemming.kernel.journal.records import ToolFinished
from lemming.kernel.messages import ENTRY_LIMIT_BYTES
from lemming.kernel.tools import Tool, ToolResult, toolset_of
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.places import Asking, Held
from lemming.kernel.turn.values import TurnInputs

Json = dict[str, Any]
MOST_BYTES = ENTRY_LIMIT_BYTES // 2


class CallApprovals:
    """Says of the calls of one turn whether they may be made, where a gate asks about them.

    `finished`: the records of the turn's calls so far.
    """

    def __init__(self, now: Surroundings, inputs: TurnInputs, finished: Mapping[int, ToolFinished]) -> None:
        self._now, self._inputs, self._finished = now, inputs, finished
        self._given = inputs.given[NAME]

    def hold(
        self, call: ToolCall, asking: Asking, context: ToolContext, plan: Callable[[], ToolResult]
    ) -> Held:
        """Return that a call may be made which gates ask about, or the result that it has until it may.

        `plan` makes the call of a tool that only tells the engine what to write.
        """
        tool = _callable(call, context)
        if tool is None:
            return Held(None)  # it fails, and says why
        planned = plan() if tool.is_planned else None
        if planned is not None and not planned.success:
            return Held(planned)
        agent, files = context.agent, (context.staged, context.removed)
        if len(compact(call.args)) > MOST_BYTES:
            return Held(_too_long())
        binds, unbound = binds_of(agent, context.base, tool.tool_class, call.args, *files)
        persons, agents, named = self._now.mail.persons, self._now.mail.resumes, asking.persons
        people = [] if named == frozenset() else whom_to_ask(persons, agents, agent.name, named or ())
        if grant := _grant_for(call, binds, people, self._ahead()):
            return Held(None, {NAME: grant})
        if not people:
            why = _why_nobody(sorted(persons), agent.name, asking)
            return Held(ToolResult(False, why, outcome="refused"))
        identity = (call.approved or {}).get("id") or context.call_id
        held = Waiting.of_call(identity, call, asking.line, asking.why, binds, unbound)
        for other in self._waiting():
            if (other["sha256"], other["binds"]) == (held.sha256, binds):
                why = f"WAITS: this very call waits for approval already ({other['id']}); it is made once"
                return Held(ToolResult(False, why, outcome="deferred"))
        if call.approved is None and (before := self._denied(held.sha256, binds)):
            return Held(ToolResult(False, _format_denial(before), outcome="refused"))
        most = agent.turn.max_approvals
        if call.approved is None and self._asked_now() >= most:
            return Held(ToolResult(False, too_many(most), outcome="deferred"))
        since = [] if call.approved is None else changed(binds, call.approved["binds"])
        return Held(_asked(held, asking, people, context, planned, since))

    def _denied(self, sha256: str, binds: Json) -> Mapping[str, Any] | None:
        """Return the very same call for the same request that a person denied; None where nobody did."""
        request = self._inputs.task.begun.request if self._inputs.task else ""
        meant = (request, sha256, binds)
        denied = self._given.get("denied", ()) if request else ()
        return next((it for it in denied if (it["request"], it["sha256"], it["binds"]) == meant), None)

    def _asked_now(self) -> int:
        """Return about how many calls this turn asks persons who were not asked about them before."""
        own = f"{self._inputs.tick}/"
        asked = (it.entries[0]["payload"]["call"] for it in self._finished.values() if it.entries_by == NAME)
        return sum(call["id"].startswith(own) for call in asked)

    def _waiting(self) -> Iterator[Mapping[str, Any]]:
        """Yield the calls that wait for approval: of this turn, and of others for something else."""
        task = self._inputs.task
        for begun in self._inputs.state.requests:
            if task is None or begun.key != task.begun.key:
                yield from (it.held[NAME] for it in begun.open if NAME in it.held)
        for record in self._finished.values():
            if record.entries_by == NAME:
                yield from (entry["payload"]["call"] for entry in record.entries)

    def _ahead(self) -> Iterator[Mapping[str, Any]]:
        """Yield what was approved in advance and no call of this turn was made with."""
        used = {it.kept[NAME]["entry"] for it in self._finished.values() if NAME in it.kept}
        yield from (it for it in self._given.get("ahead", ()) if it["entry"] not in used)


def _callable(call: ToolCall, context: ToolContext) -> Tool | None:
    """Return the tool of a call that may be made; None for one that fails before it is."""
    with suppress(*OF_A_FILE):  # whatever else says nothing of it: the call would be made without a word
        tools = toolset_of(context.settings, context.org)
        tool = tools.require(call.tool, context.agent, context.settings)
        if isinstance(call.args, dict):
            tool.check(call.args)
            return tool
    return None


def _format_denial(before: Mapping[str, Any]) -> str:
    why = f": {before['reason']}" if before["reason"] else ""
    return (
        f"DENIED by {before['by']}{why} ({before['id']}); this very call is not asked about again for this "
        "request: do something else, or answer without it"
    )


def _why_nobody(people: Sequence[str], agent: str, asking: Asking) -> str:
    lines = " and ".join((asking.line, *asking.further))
    if asking.persons == frozenset():
        return f"REFUSED: it needs approval ({lines}), and no person is named by all of these gates"
    wanted = sorted(name for name in asking.persons or () if name in people) or sorted(people)
    if not wanted:
        return f"REFUSED: it needs approval ({lines}), and there is no person here who could approve it"
    return (
        f"REFUSED: it needs approval ({lines}), and {' and '.join(wanted)} cannot be asked: each of them "
        f"and {agent} must read the other (permissions.read_outboxes)"
    )


def _grant_for(
    call: ToolCall, binds: Json, people: Collection[str], ahead: Iterable[Mapping[str, Any]]
) -> Json | None:
    """Return by whose word a call may be made as it is now; None: it has to be asked for."""
    given = call.approved
    if given is not None and given["by"] in people and _is_for(given, call, binds):
        return {key: given[key] for key in ("id", "by", "entry")}
    for each in ahead:
        is_meant = is_same([each["tool"], each["args"]], [call.tool, call.args])
        if is_meant and each["by"] in people and (each.get("binds") is None or each["binds"] == binds):
            return {key: each[key] for key in ("id", "by", "entry")}
    return None


def _is_for(given: Mapping[str, Any], call: ToolCall, binds: Json) -> bool:
    """Return whether a word is for a call as it is now; who edited it may have named other files."""
    return given["sha256"] == digest_of(call.tool, call.args) and not changed_since(given, binds)


def _asked(
    held: Waiting,
    asking: Asking,
    people: list[str],
    context: ToolContext,
    planned: ToolResult | None,
    changed: list[str],
) -> ToolResult:
    """Return the result of a call that waits, with the request to a person."""
    diff = diff_of(context.base, planned.effects, context.staged) if planned else ""
    payload = held.request(people, asking.expires, context.now, diff=diff, further=changed_text(changed))
    if len(compact(payload)) > MOST_BYTES:
        return _too_long()
    whom = " or ".join(people)
    output = f"WAITS: {whom} is asked to approve it first; the result comes in a later turn"
    request = NewEntry("request", payload, [])
    return ToolResult(False, output, outcome="pending", entries=(request,), entries_by=NAME)


def _too_long() -> ToolResult:
    why = f"REFUSED: it needs approval, and is longer than the {MOST_BYTES} bytes that can be asked for"
    return ToolResult(False, why, outcome="refused")


def diff_of(base: Path, effects: Iterable[FileEffect], staged: Mapping[str, bytes]) -> str:
    """Return what a call would change in files, as a unified diff."""
    return "\n".join(line for effect in effects for line in _diff(base, effect, staged))


def _diff(base: Path, effect: FileEffect, staged: Mapping[str, bytes]) -> Iterator[str]:
    before = staged.get(effect.place)
    if before is None:
        root = Path(effect.root) if effect.root else base
        with suppress(OSError):
            before = fs.read_bytes(f"{root}/{effect.path}", ENTRY_LIMIT_BYTES)
    old = (before or b"").decode("utf-8", "replace").splitlines()
    new = effect.content.decode("utf-8", "replace").splitlines()  # none, of a file that is taken away
    names = ("/dev/null" if before is None else effect.place, "/dev/null" if effect.removes else effect.place)
    yield from unified_diff(old, new, *names, lineterm="")
