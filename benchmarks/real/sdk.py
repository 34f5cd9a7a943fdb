"""OpenAI's SDK alone: each turn is a call, and nothing is kept. `variant`: "httpx2" or "aiohttp"."""

from __future__ import annotations

import json

from openai import AsyncOpenAI, DefaultAioHttpClient

from benchmarks.peers.work import main
from benchmarks.real.at_once import AtOnce, address, messages_of


class Sdk(AtOnce):
    """The SDK as its documentation has it."""

    async def open(self) -> None:
        client = DefaultAioHttpClient() if self.variant == "aiohttp" else None
        self._client = AsyncOpenAI(base_url=address(), api_key="none", http_client=client)

    async def take_turn(self, agent: str, number: int) -> str:
        answer = await self._client.chat.completions.create(
            model="m", messages=messages_of(agent, number), max_completion_tokens=2048
        )
        text: str = json.loads(answer.choices[0].message.content or "")["text"]
        return text


if __name__ == "__main__":
    main(Sdk)
