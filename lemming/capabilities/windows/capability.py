"""What windows do in a turn: show less of what was said before, and ask first for a summary of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from lemming.capabilities.windows.prompt_shortening import (
    PREFIX,
    newest,
    recap_message,
    shortened_conversation,
    shortened_inbox,
    summary_key,
    summary_section,
)
from lemming.capabilities.windows.settings import MemoryWindow
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ContractError, OutOfCredits, Problem, ProviderError
from lemming.kernel.files.fields import Json
from lemming.kernel.org.config import Config
from lemming.kernel.providers import Message, require_reply
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.seams import Capability, Moment, Preparation, Showing, TurnPart

KEY = "memory"
WHOLE_PROMPTS = (None, "fit", "full")
"""The prompts that have room for a summary."""


class Windows(Capability):
    """Windows and summaries, which the key `memory` of a resume asks for."""

    name = "windows"

    def prepare(self, moment: Moment) -> Preparation:
        """Return what it has of what a turn starts from."""
        return WindowPreparation(moment)

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return its part in a turn whose conversation is to be summed up first."""
        return SummingUp(self.name, draft, given)

    def questions(self, given: Json) -> Mapping[str, Sequence[Message]]:
        """Return the question for a summary."""
        return {"summary": given["messages"]}

    def problems(self, agent: Agent, config: Config) -> Iterator[Problem]:
        """Yield a warning where a summary is asked of a model that is not asked for any."""
        window: MemoryWindow | None = agent.further.get(KEY)
        entry = config.models.get(agent.model.key)
        is_summed_up = window and window.strategy == "summary"
        if is_summed_up and entry is not None and entry.prompt not in WHOLE_PROMPTS:
            what = f'model "{agent.model.key}" has "prompt": "{entry.prompt}" and sums up nothing'
            hint = 'it is a window then: "strategy": "window" says so'
            resume = paths.resume_file(agent.name)
            yield Problem(what, resume, pointer=f"/{KEY}/strategy", hint=hint, severity="warning")


class WindowPreparation(Preparation):
    """Shows the newest that fits; has the rest of a conversation summed up, where the resume says so."""

    def __init__(self, moment: Moment) -> None:
        super().__init__(moment)
        self._window: MemoryWindow = moment.agent.further[KEY]
        self._recap: Json = {}

    def shows(self, shown: Showing) -> Showing:
        """Return what the turn is shown, with what stands for the rest."""
        room, task = self._window.max_tokens, shown.task
        is_summed_up = self._window.strategy == "summary"
        if is_summed_up:  # the one that counts is shown beside them
            values = {key: it for key, it in shown.memories.values.items() if not key.startswith(PREFIX)}
            memories, shown = shown.memories, replace(shown, memories=shown.memories._replace(values=values))
        if task is None:
            inbox, left_out = shortened_inbox(shown.inbox, room)
            return replace(shown, inbox=inbox, left_out=left_out)
        key = summary_key(task) if is_summed_up and self.moment.model.prompt in WHOLE_PROMPTS else ""
        # a summary that cannot be read is for a person to mend: nothing is written over it
        if not key or key in {PurePosixPath(it.file).name.removesuffix(".json") for it in memories.problems}:
            kept = newest(task.thread, room)
            return replace(shown, task=task._replace(thread=kept), left_out=len(task.thread) - len(kept))
        value = memories.values.get(key)
        found = shortened_conversation(self.moment.agent, task.thread, key, value, room, shown.labels)
        self._recap = dict(found.recap)
        return replace(
            shown,
            task=task._replace(thread=found.thread),
            left_out=found.left_out,
            before=[summary_section(found.summary)] if found.summary else [],
            also=found.fallen,
            also_memories=[*shown.also_memories, *([key] if found.summary or found.recap else ())],
        )

    def given(self) -> Json:
        """Return the question that is to be asked first; empty where all of it is shown."""
        return self._recap


class SummingUp(TurnPart):
    """Asks for the summary of what the prompt leaves out, keeps and shows it; without one, goes on."""

    def opens(self) -> None:
        """Ask before all else. After a crash the recorded answer is the summary."""
        draft, text = self.draft, self.given["before"]
        prompt = draft.inputs.prompt
        try:
            answer = draft.ask(self.given["messages"], schema={}, by=self.name)
            require_reply(answer.finish, answer.text)
            if not (said := answer.text.strip()):
                raise ContractError("the answer is empty")
        except (OutOfCredits, ProviderError, ContractError) as error:
            draft.remarks.append(f"what was said before is not summed up: {error}"[:500])
        else:
            text = said[: 4 * self.given["most"]]  # characters: about so many tokens
            draft.stage_memory(self.given["key"], {"through": self.given["through"], "text": text}, answer.at)
        if text:
            draft.show([*prompt[:-1], recap_message(text), prompt[-1]])
