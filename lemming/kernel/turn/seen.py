"""What a turn sees beside its first messages, as plain values of which prompts are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lemming.kernel.agents import Agent
from lemming.kernel.journal.dialogue import Dialogue
from lemming.kernel.mail.inbox import Inbox
from lemming.kernel.mail.task import Task
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.labels import PLAIN, Labels

Lines = list[str]
"""The lines of a message; what stands in one may have several."""


@dataclass(kw_only=True, slots=True)  # made for every turn, and a frozen one takes three times as long
class Seen:
    """What a turn sees beside its opening, as plain values.

    `told_by`: files, and folders that end with /, from which what stands after the instructions comes, and
    by which the turn is judged; `jobs_kept`: the memories, by agent and key, in which jobs are kept.
    `dialogue`: what was said for the request in earlier turns, which stands behind the prompt.
    """

    agent: Agent
    tick: int
    inbox: Inbox
    time: Sequence[str] = ()
    jobs: Sequence[Mapping[str, Any]] = ()
    task: Task | None = None
    asked: Sequence[OutboxEntry] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)
    outside: Mapping[str, Any] = field(default_factory=dict)
    context: Sequence[tuple[str, str]] = ()
    added: Sequence[str] = ()
    results: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    memory_chars: int = 16_000
    uses_wire_form: bool = False
    calls_tools: bool = False
    payload_rules: str = ""
    left_out: int = 0
    before: Sequence[tuple[str, str]] = ()
    labels: Labels = PLAIN
    told_by: Sequence[str] = ()
    jobs_kept: Sequence[tuple[str, str]] = ()
    dialogue: Dialogue | None = None
