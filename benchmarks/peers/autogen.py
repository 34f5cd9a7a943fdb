"""AutoGen side: an assistant per agent with a buffered context, and a saved state after each turn.

The newest 20 messages of the context are sent to the model; an agent receives the new messages since the last
turn. `save_state` returns the whole growing context, and the memory is stored in the same file. The
documentation overwrites the file in place; here the file is replaced atomically, so a kill leaves a complete
file.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelFamily, ModelInfo, RequestUsage

from benchmarks.peers.work import SHOWN, AsyncSide, InstantModel, Progress, Task, main, parse_answer, replace_file

NO_USAGE = RequestUsage(prompt_tokens=0, completion_tokens=0)


class InstantClient(ChatCompletionClient):
    """AutoGen's client of the model, for a single agent."""

    def __init__(self, agent: str, model: InstantModel) -> None:
        self._agent, self._model = agent, model
        self.number = 0

    async def create(self, messages: Sequence[LLMMessage], **_: Any) -> CreateResult:
        """Return the answer."""
        answer = self._model(self._agent, self.number, messages)
        return CreateResult(finish_reason="stop", content=answer, usage=NO_USAGE, cached=False)

    def create_stream(self, *_: Any, **__: Any) -> AsyncGenerator[str | CreateResult, None]:
        """Not used."""
        raise NotImplementedError

    async def close(self) -> None:
        """Do nothing."""

    def actual_usage(self) -> RequestUsage:
        """Return zero usage."""
        return NO_USAGE

    def total_usage(self) -> RequestUsage:
        """Return zero usage."""
        return NO_USAGE

    def count_tokens(self, *_: Any, **__: Any) -> int:
        """Return zero."""
        return 0

    def remaining_tokens(self, *_: Any, **__: Any) -> int:
        """Return a large number."""
        return 1 << 20

    @property
    def capabilities(self) -> Any:
        """Return the model's abilities in the older form."""
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        """Return the model's abilities."""
        return ModelInfo(
            vision=False, function_calling=False, json_output=True, family=ModelFamily.UNKNOWN,
            structured_output=False,
        )  # fmt: skip


class AutoGenSide(AsyncSide):
    """Assistants, each with a client and a state file."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._clients = {name: InstantClient(name, self.model) for name in self.names}
        self._agents = {name: self._make_assistant(name) for name in self.names}
        self.load_all_progress()
        self.runner.run(self._load_states())

    def _make_assistant(self, agent: str) -> AssistantAgent:
        return AssistantAgent(
            agent,
            model_client=self._clients[agent],
            system_message=f"You are {agent}.",
            model_context=BufferedChatCompletionContext(buffer_size=SHOWN),
        )

    async def _load_states(self) -> None:
        for name, agent in self._agents.items():
            if stored := self._load_state(name):
                await agent.load_state(stored["state"])

    def _load_state(self, agent: str) -> dict[str, Any] | None:
        file = self.folder / f"{agent}.json"
        return json.loads(file.read_text()) if file.exists() else None

    def load_progress(self, agent: str) -> Progress:
        stored = self._load_state(agent)
        if stored is None:
            return Progress()
        messages = stored["state"]["llm_context"]["messages"]
        texts = [parse_answer(message["content"])[0] for message in messages if message["type"] == "AssistantMessage"]
        return Progress(stored["memory"]["n"], texts)

    async def take_turn(self, agent: str, number: int, inbox: list[str]) -> str:
        self._clients[agent].number = number
        new = [TextMessage(content=text, source="neighbour") for text in inbox[-1:]]
        response = await self._agents[agent].on_messages(new, CancellationToken())
        text, memory = parse_answer(response.chat_message.to_model_text())
        state = await self._agents[agent].save_state()
        replace_file(self.folder / f"{agent}.json", json.dumps({"state": state, "memory": memory}))
        return text


if __name__ == "__main__":
    main(AutoGenSide)
