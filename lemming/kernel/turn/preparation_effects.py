"""Effects of a turn in preparation: what the turn may be shown, and the prompt made of it.

    ReceiveEntry -> LabelPrompt -> ShowEntry, ShowMemory, ShowFile, ShowEarlierResult -> SelectContext -> BuildPrompt

All are passed before the record `turn_started`, so an interceptor of these types may read files; its turn is a
`Preparation`. A type without an interceptor in the turn costs nothing: no effect is created.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from lemming.kernel.inboxes.inbox import Inbox
from lemming.kernel.inboxes.turn_agenda import RequestOutcome, Task
from lemming.kernel.memory import Memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.current_request import CurrentRequest
from lemming.kernel.tools import Tool
from lemming.kernel.turn.prompt_input import PLAIN, PromptInput, PromptLabels
from lemming.kernel.turn.reply_schemas import PayloadSchema
from lemming.kernel.turn.turn_effects import PreparationEffect

EntryPart = Literal["request", "thread", "answer", "sub-request", "unread", "earlier", "inbox-request"]


@dataclass(frozen=True, kw_only=True)
class ReceiveEntry(PreparationEffect):
    """A new entry of another agent, before the entries of a turn are chosen.

    Deferred: the entry stays unread. Rejected: the entry is passed over and never new; among the earlier entries of a prompt
    the entry is a `ShowEntry`. `is_approved`: a person has approved the entry. `labels`: of the prompt.
    """

    entry: OutboxEntry
    is_approved: bool = False
    labels: PromptLabels = PLAIN


@dataclass(frozen=True, kw_only=True)
class ShowEntry(PreparationEffect):
    """An entry chosen for the prompt. Rejected: it is left out, or shown without its content if the turn needs it.

    `outcome`: the sub-request that an entry of the part "answer" or "sub-request" belongs to, as it is recorded.
    """

    entry: OutboxEntry
    part: EntryPart
    outcome: RequestOutcome | None = None
    is_approved: bool = False
    labels: PromptLabels = PLAIN


@dataclass(frozen=True, kw_only=True)
class ShowMemory(PreparationEffect):
    """A memory of the agent for the prompt. Rejected: it is left out."""

    memory_key: str
    value: Any
    labels: PromptLabels = PLAIN


@dataclass(frozen=True, kw_only=True)
class ShowFile(PreparationEffect):
    """A context file for the prompt. Rejected: it is left out. `index`: position in `turn.agent.context`."""

    label: str
    text: str
    index: int


@dataclass(frozen=True, kw_only=True)
class ShowEarlierResult(PreparationEffect):
    """The result of a call in an earlier turn: tool, args, success, output. Rejected: it is shown without its output.

    `outcomes`: the sub-requests that the call has made, of which each may have been answered since.
    """

    result: Mapping[str, Any]
    labels: PromptLabels
    outcomes: Sequence[RequestOutcome] = ()


@dataclass(frozen=True, kw_only=True)
class LabelPrompt(PreparationEffect):
    """The labels of the prompt's parts."""

    labels: PromptLabels = PLAIN


@dataclass(frozen=True, kw_only=True)
class SelectContext(PreparationEffect):
    """The content of the prompt, of which all parts have passed the `Show` effects.

    `context`: the files, as label and text. `results`: of earlier calls, those for the turn's request last.
    `sections`: texts after the agent's instructions. `payload_schemas`: schemas of the turn's entries, for backends
    with constrained output. `tools`: tools of this agent only. `omitted_count`: number of earlier messages that are not
    shown. `leading_sections`: sections (title, text) before the conversation. `other_entries` and `other_memories`:
    entries and memory keys that another prompt of the turn shows. `pending_indexes`: indexes of results that arrive as
    the turn begins, from approved calls.
    """

    task: Task | None
    requests: list[OutboxEntry]
    inbox: Inbox
    memories: Memories
    context: list[tuple[str, str]]
    results: Sequence[Mapping[str, Any]]
    labels: PromptLabels
    sections: tuple[str, ...] = ()
    payload_schemas: Sequence[PayloadSchema] = ()
    tools: Iterable[Tool] = ()
    omitted_count: int = 0
    leading_sections: Sequence[tuple[str, str]] = ()
    other_entries: Sequence[OutboxEntry] = ()
    other_memories: Sequence[str] = ()
    pending_indexes: Collection[int] = ()


@dataclass(frozen=True, kw_only=True)
class BuildPrompt(PreparationEffect):
    """The prompt, as values of which the messages are made. `selected`: the content before the prompt was made.

    `request`: the request that the turn serves, as it is recorded; None for a turn about the inbox.
    """

    prompt: PromptInput
    selected: SelectContext
    request: CurrentRequest | None = None

    def change(self, **values: Any) -> BuildPrompt:
        """Return the effect with other fields of the prompt."""
        return replace(self, prompt=replace(self.prompt, **values))
