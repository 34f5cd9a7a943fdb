"""pydantic-ai side: an agent per name, with the messages in a JSON file, because pydantic-ai stores nothing."""

from __future__ import annotations

import json

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from benchmarks.peers.work import main
from benchmarks.real.at_once import ConcurrentSide, get_address, make_messages


class PydanticAiSide(ConcurrentSide):
    """An agent for each name."""

    async def open(self) -> None:
        model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=get_address(), api_key="none"))
        self._agents = {name: Agent(model, instructions=make_messages(name, 0)[0]["content"]) for name in self.names}

    async def take_turn(self, agent: str, number: int) -> str:
        result = await self._agents[agent].run(make_messages(agent, number)[1]["content"])
        temporary = self.folder / f"{agent}.tmp"
        temporary.write_bytes(ModelMessagesTypeAdapter.dump_json(result.new_messages()))
        temporary.replace(self.folder / f"{agent}.json")
        text: str = json.loads(result.output)["text"]
        return text


if __name__ == "__main__":
    main(PydanticAiSide)
