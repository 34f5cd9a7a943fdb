"""pydantic-ai: an agent for each name; it keeps nothing, so the messages of each go into a JSON file."""

from __future__ import annotations

import json

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from benchmarks.peers.work import main
from benchmarks.real.at_once import AtOnce, address, messages_of


class PydanticAi(AtOnce):
    """One agent for each name."""

    async def open(self) -> None:
        model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=address(), api_key="none"))
        self._agents = {
            name: Agent(model, instructions=messages_of(name, 0)[0]["content"]) for name in self.names
        }

    async def take_turn(self, agent: str, number: int) -> str:
        result = await self._agents[agent].run(messages_of(agent, number)[1]["content"])
        beside = self.folder / f"{agent}.tmp"
        beside.write_bytes(ModelMessagesTypeAdapter.dump_json(result.new_messages()))
        beside.replace(self.folder / f"{agent}.json")
        text: str = json.loads(result.output)["text"]
        return text


if __name__ == "__main__":
    main(PydanticAi)
