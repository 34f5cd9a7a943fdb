"""OpenAI's SDK alone: a call per turn without storage. `variant`: "httpx2" or "aiohttp"."""

from __future__ import annotations

import json

from openai import AsyncOpenAI, DefaultAioHttpClient

from benchmarks.peers.work import main
from benchmarks.real.at_once import ConcurrentSide, get_address, make_messages


class SdkSide(ConcurrentSide):
    """The SDK used as in its documentation."""

    async def open(self) -> None:
        client = DefaultAioHttpClient() if self.variant == "aiohttp" else None
        self._client = AsyncOpenAI(base_url=get_address(), api_key="none", http_client=client)

    async def take_turn(self, agent: str, number: int) -> str:
        answer = await self._client.chat.completions.create(
            model="m", messages=make_messages(agent, number), max_completion_tokens=2048
        )
        text: str = json.loads(answer.choices[0].message.content or "")["text"]
        return text


if __name__ == "__main__":
    main(SdkSide)
