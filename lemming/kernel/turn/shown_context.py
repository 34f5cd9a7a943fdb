"""Content of a turn's prompt that capabilities let through, part by part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lemming.kernel.inboxes.turn_agenda import RequestOutcome, Task
from lemming.kernel.memory import Memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.preparation_chain import PreparationChain
from lemming.kernel.turn.preparation_effects import (
    EntryPart,
    SelectContext,
    ShowEarlierResult,
    ShowEntry,
    ShowFile,
    ShowMemory,
)

WITHHELD = "withheld"
"""Key of a payload with the reason why the rest is withheld."""


def withhold_payload(entry: OutboxEntry, reason: str) -> OutboxEntry:
    """Return an entry with the reason in place of its content. The tags are text of the author too."""
    address: dict[str, Any] = {key: entry.payload[key] for key in ("target", "reply_to") if key in entry.payload}
    return replace(entry, payload={**address, WITHHELD: reason}, tags=[])


def withhold_value(reason: str) -> str:
    """Return the text in place of a value that is withheld."""
    return f"[{WITHHELD}: {reason}]"


def select_context(chain: PreparationChain, selected: SelectContext) -> SelectContext:
    """Return the content of the turn that all capabilities let through, as they changed it.

    Order of the effects: entries of the request, of the inbox, requests, memories, files, results.
    """
    task, memories = selected.task, selected.memories
    if ShowEntry in chain:
        selected = _show_entries(chain, selected)
    if ShowMemory in chain:
        selected = replace(selected, memories=memories._replace(values=dict(_show_memories(chain, memories))))
    if ShowFile in chain:
        effects = (ShowFile(label=label, text=text, index=i) for i, (label, text) in enumerate(selected.context))
        passed = map(chain.decide, effects)
        files = [(shown.label, shown.text) for shown in passed if isinstance(shown, ShowFile)]
        selected = replace(selected, context=files)
    if ShowEarlierResult in chain and selected.results:
        selected = replace(selected, results=_show_results(chain, selected, _outcomes_by_call(task, selected.task)))
    return chain.complete(selected)


def _show_entries(chain: PreparationChain, candidates: SelectContext) -> SelectContext:
    def show(entry: OutboxEntry, part: EntryPart, outcome: RequestOutcome | None = None) -> OutboxEntry | None:
        decision = chain.decide(ShowEntry(entry=entry, part=part, outcome=outcome))
        if isinstance(decision, ShowEntry):
            return decision.entry
        return withhold_payload(entry, decision.reason) if part in ("request", "answer", "sub-request") else None

    def show_all(entries: Iterable[OutboxEntry], part: EntryPart) -> list[OutboxEntry]:
        return [shown for entry in entries if (shown := show(entry, part)) is not None]

    def show_request(entry: OutboxEntry) -> OutboxEntry | None:
        if (index := next((index for index, other in enumerate(candidates.inbox.unread) if other is entry), -1)) < 0:
            return show(entry, "inbox-request")
        return unread[index]  # the prompt tells the requests from the other entries by the object

    def show_outcome(outcome: RequestOutcome) -> RequestOutcome:
        answer = show(outcome.answer, "answer", outcome) if outcome.answer else None
        entry = show(outcome.entry, "sub-request", outcome) if outcome.entry else None
        return outcome._replace(answer=answer, entry=entry)

    task, inbox = candidates.task, candidates.inbox
    if task:
        request = show(task.request, "request") if task.request else None
        thread = show_all(task.thread, "thread")
        task = task._replace(request=request, thread=thread, outcomes=[*map(show_outcome, task.outcomes)])
    unread = [show(entry, "unread") for entry in inbox.unread]
    inbox = replace(inbox, unread=[*filter(None, unread)], earlier=show_all(inbox.earlier, "earlier"))
    requests = [*filter(None, map(show_request, candidates.requests))]
    return replace(candidates, task=task, inbox=inbox, requests=requests)


def _show_memories(chain: PreparationChain, memories: Memories) -> Iterable[tuple[str, Any]]:
    for key, value in memories.values.items():
        shown = chain.decide(ShowMemory(memory_key=key, value=value))
        if isinstance(shown, ShowMemory):
            yield key, shown.value


def _outcomes_by_call(task: Task | None, shown_task: Task | None) -> Mapping[int, list[RequestOutcome]]:
    """Return the outcomes of calls as shown, by number of the call. Outcomes with pending state are as recorded."""
    by_call: dict[int, list[RequestOutcome]] = {}
    if task and shown_task:
        for recorded, shown in zip(task.outcomes, shown_task.outcomes, strict=True):
            if call := recorded.sub_request.call:
                by_call.setdefault(call, []).append(recorded if recorded.sub_request.held else shown)
    return by_call


def _show_results(
    chain: PreparationChain, candidates: SelectContext, outcomes: Mapping[int, list[RequestOutcome]]
) -> list[Mapping[str, Any]]:
    task, results = candidates.task, []
    first = len(candidates.results) - len(task.open_request.results) if task else 0
    for index, result in enumerate(candidates.results):
        own_outcomes = outcomes.get(index - first + 1, ())
        shown = chain.decide(ShowEarlierResult(result=result, labels=candidates.labels, outcomes=own_outcomes))
        if isinstance(shown, ShowEarlierResult):
            results.append(shown.result)
        else:  # results are counted: each stays in its place
            results.append({**result, "output": withhold_value(shown.reason)})
    return results
