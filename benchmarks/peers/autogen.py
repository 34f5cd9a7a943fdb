"""AutoGen: an assistant agent for each, whose context is shown to the model; its state saved after each turn.

The newest 20 messages of the context are sent to the model; an agent is handed what is new since its last
turn. `save_state` gives the whole context, which grows, and the memory goes into the same file. The
documentation writes that file in place; here it is written beside and renamed, so that a kill leaves a whole
one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    RequestUsage,
)

from benchmarks.peers.work import SHOWN, AsyncTurns, Kept, Model, Task, main, parsed, replace_file

NOTHING = RequestUsage(prompt_tokens=0, completion_tokens=0)


class Client(ChatCompletionClient):
    """The model as AutoGen asks one, for one agent."""

    def __init__(self, agent: str, model: Model) -> None:
        self._agent, self._model = agent, model
        self.number = 0

    async def create(self, messages: Sequence[LLMMessage], **_: Any) -> CreateResult:
        """Return the answer."""
        answer = self._model(self._agent, self.number, messages)
        return CreateResult(finish_reason="stop", content=answer, usage=NOTHING, cached=False)

    def create_stream(self, *_: Any, **__: Any) -> AsyncGenerator[str | CreateResult, None]:
        """Not used."""
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""

    def actual_usage(self) -> RequestUsage:
        """Return nothing used."""
        return NOTHING

    def total_usage(self) -> RequestUsage:
        """Return nothing used."""
        return NOTHING

    def count_tokens(self, *_: Any, **__: Any) -> int:
        """Return nothing used."""
        return 0

    def remaining_tokens(self, *_: Any, **__: Any) -> int:
        """Return room enough."""
        return 1 << 20

    @property
    def capabilities(self) -> Any:
        """Return what it can do, in the older form."""
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        """Return what it can do."""
        return ModelInfo(
            vision=False, function_calling=False, json_output=True, family=ModelFamily.UNKNOWN,
            structured_output=False,
        )  # fmt: skip


class AutoGen(AsyncTurns):
    """Agents are assistants, each with a client and a file."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._clients = {name: Client(name, self.model) for name in self.names}
        self._agents = {name: self._assistant(name) for name in self.names}
        self.open()
        self.runner.run(self._load())

    def _assistant(self, agent: str) -> AssistantAgent:
        return AssistantAgent(
            agent,
            model_client=self._clients[agent],
            system_message=f"You are {agent}.",
            model_context=BufferedChatCompletionContext(buffer_size=SHOWN),
        )

    async def _load(self) -> None:
        for name, agent in self._agents.items():
            if found := self._saved(name):
                await agent.load_state(found["state"])

    def _saved(self, agent: str) -> dict[str, Any] | None:
        file = self.folder / f"{agent}.json"
        return json.loads(file.read_text()) if file.exists() else None

    def kept(self, agent: str) -> Kept:
        found = self._saved(agent)
        if found is None:
            return Kept()
        messages = found["state"]["llm_context"]["messages"]
        texts = [parsed(each["content"])[0] for each in messages if each["type"] == "AssistantMessage"]
        return Kept(found["memory"]["n"], texts)

    async def take_turn(self, agent: str, number: int, inbox: list[str]) -> str:
        self._clients[agent].number = number
        new = [TextMessage(content=text, source="neighbour") for text in inbox[-1:]]
        response = await self._agents[agent].on_messages(new, CancellationToken())
        text, memory = parsed(response.chat_message.to_model_text())
        state = await self._agents[agent].save_state()
        replace_file(self.folder / f"{agent}.json", json.dumps({"state": state, "memory": memory}))
        return text


if __name__ == "__main__":
    main(AutoGen)
