"""Windows as a capability: limits on earlier messages in a prompt, and a summary of the omitted ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from lemming.capabilities.context_window.prompt_shortening import (
    PREFIX,
    build_summary_message,
    shorten_conversation,
    shorten_inbox,
    summary_key,
    summary_section,
    take_newest,
)
from lemming.capabilities.context_window.windows_settings import MemoryWindowSettings
from lemming.ext import (
    AgentCheck,
    AuxiliaryPrompt,
    Capability,
    CheckSubject,
    ContractError,
    DescribeQuery,
    Interception,
    Preparation,
    Problem,
    RunTurn,
    SelectContext,
    StateQuery,
    TurnView,
    has_model_turns,
)
from lemming.kernel.base import paths
from lemming.kernel.base.errors import OutOfCredits, ProviderError
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.providers import require_usable_finish

KEY = "memory"
SUMMARY_PROMPTS = (None, "fit", "full")
"""The prompts that have room for a summary."""


class WindowsCapability(Capability):
    """Windows and summaries, requested by the key `memory` of a resume."""

    name = "windows"
    handles = (SelectContext,)
    can_begin = True
    describes = (AuxiliaryPrompt,)

    def intercept(self, effect: SelectContext, turn: Preparation) -> Interception:
        """Show the newest messages that fit, and the summary of the rest if configured."""
        return (yield turn.get_cache(_Window).shorten(effect))

    def prepare(self, turn: Preparation) -> Json:
        """Return the prompt for a new summary, or {} if everything is visible."""
        return turn.get_cache(_Window).recap

    def wrap_turn(self, turn: TurnView, run: RunTurn) -> End:
        """Ask for a summary of omitted messages before anything else, store and show it. On failure go on without.

        After a crash the recorded answer is the summary.
        """
        snapshot, text = turn.snapshot, turn.snapshot["before"]
        try:
            answer = turn.ask(snapshot["messages"], schema={})
            require_usable_finish(answer.finish, answer.text)
            if not (summary := answer.text.strip()):
                raise ContractError("the answer is empty")
        except (OutOfCredits, ProviderError, ContractError) as error:
            turn.remark(f"what was said before is not summed up: {error}")
        else:
            text = summary[: 4 * snapshot["most"]]  # characters per token, about
            turn.remember(snapshot["key"], {"through": snapshot["through"], "text": text}, answer.at)
        if text:
            turn.insert_message(build_summary_message(text))
        return run()

    def describe(self, query: DescribeQuery) -> Iterator[AuxiliaryPrompt]:
        """Yield the prompt for a summary."""
        assert isinstance(query, StateQuery), "a prompt is of a snapshot"
        yield AuxiliaryPrompt("summary", query.state["messages"])

    def check(self, subject: CheckSubject) -> Iterator[Problem]:
        """Yield a warning if a summary is configured for a model without summaries."""
        if not isinstance(subject, AgentCheck) or not has_model_turns(subject.agent, subject.config):
            return
        agent = subject.agent
        window: MemoryWindowSettings | None = agent.extensions.get(KEY)
        entry = subject.config.models.get(agent.model.key)
        is_summed_up = window and window.strategy == "summary"
        if is_summed_up and entry is not None and entry.prompt not in SUMMARY_PROMPTS:
            message = f'model "{agent.model.key}" must have "prompt": "full" to write summaries, got "{entry.prompt}"'
            hint = 'set "strategy": "window", or use another model key'
            resume = paths.resume_file(agent.name)
            yield Problem(message, resume, pointer=f"/{KEY}/strategy", hint=hint, severity="warning")


class _Window:
    """The window of one turn. `recap`: the prompt for a new summary, or {}."""

    def __init__(self, turn: Preparation) -> None:
        self._window: MemoryWindowSettings = turn.agent.extensions[KEY]
        self._agent, self._model, self.recap = turn.agent, turn.model, dict[str, Any]()

    def shorten(self, visible: SelectContext) -> SelectContext:
        """Return the content with the newest messages and the summary of the rest."""
        room, task = self._window.max_tokens, visible.task
        has_summary = self._window.strategy == "summary"
        if has_summary:  # the latest summary is shown beside them
            values = {key: item for key, item in visible.memories.values.items() if not key.startswith(PREFIX)}
            memories, visible = (visible.memories, replace(visible, memories=visible.memories._replace(values=values)))
        if task is None:
            inbox, omitted_count = shorten_inbox(visible.inbox, room)
            return replace(visible, inbox=inbox, omitted_count=omitted_count)
        key = summary_key(task) if has_summary and self._model.prompt in SUMMARY_PROMPTS else ""
        # a summary that cannot be read is for a person to mend: nothing is written over it
        if not key or key in {PurePosixPath(item.file).name.removesuffix(".json") for item in memories.problems}:
            newest_entries = take_newest(task.thread, room)
            return replace(
                visible, task=task._replace(thread=newest_entries), omitted_count=len(task.thread) - len(newest_entries)
            )
        value = memories.values.get(key)
        conversation = shorten_conversation(self._agent, task.thread, key, value, room, visible.labels)
        self.recap = dict(conversation.recap)
        return replace(
            visible,
            task=task._replace(thread=conversation.thread),
            omitted_count=conversation.omitted_count,
            leading_sections=[summary_section(conversation.summary)] if conversation.summary else [],
            other_entries=conversation.fallen,
            other_memories=[*visible.other_memories, *([key] if conversation.summary or conversation.recap else ())],
        )
