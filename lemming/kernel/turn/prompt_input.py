"""Prompt input of a turn: plain values from which prompts are built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lemming.kernel.agents import Agent
from lemming.kernel.inboxes.inbox import Inbox
from lemming.kernel.inboxes.turn_task import Task
from lemming.kernel.journal.recorded_dialogue import Dialogue
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.prompt_labels import PLAIN, PromptLabels

Lines = list[str]
"""The lines of a message; one item may have several lines."""


@dataclass(kw_only=True, slots=True)  # made for every turn, and a frozen one takes three times as long
class PromptInput:
    """Plain values of a turn's prompt, besides the prompt prefix.

    `source_paths`: files, and folders ending in /, of the sections after the instructions; the turn's trust
    depends on them. `job_memories`: memories that hold jobs, as pairs of agent and key. `dialogue`: messages
    of earlier turns for the same request, placed behind the prompt.
    """

    agent: Agent
    tick: int
    inbox: Inbox
    time: Sequence[str] = ()
    jobs: Sequence[Mapping[str, Any]] = ()
    task: Task | None = None
    requests: Sequence[OutboxEntry] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)
    extra_values: Mapping[str, Any] = field(default_factory=dict)
    context: Sequence[tuple[str, str]] = ()
    sections: Sequence[str] = ()
    results: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    memory_chars: int = 16_000
    uses_wire_form: bool = False
    calls_tools: bool = False
    payload_rules: str = ""
    omitted_count: int = 0
    leading_sections: Sequence[tuple[str, str]] = ()
    labels: PromptLabels = PLAIN
    source_paths: Sequence[str] = ()
    job_memories: Sequence[tuple[str, str]] = ()
    dialogue: Dialogue | None = None
