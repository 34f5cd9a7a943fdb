"""OpenAI Agents SDK side: an agent and a SQLite session each, chat completions, no tracing.

A session grows with every turn, so each prompt contains only the newest two items.
"""

from __future__ import annotations

import json

from agents import Agent, RunConfig, Runner, SessionSettings, SQLiteSession
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from openai import AsyncOpenAI

from benchmarks.peers.work import main
from benchmarks.real.at_once import ConcurrentSide, get_address, make_messages

CONFIG = RunConfig(tracing_disabled=True)


class OpenAIAgentsSide(ConcurrentSide):
    """Agents with a session each in a shared database."""

    async def open(self) -> None:
        client = AsyncOpenAI(base_url=get_address(), api_key="none")
        model = OpenAIChatCompletionsModel(model="m", openai_client=client)
        self._agents = {
            name: Agent(name=name, instructions=make_messages(name, 0)[0]["content"], model=model)
            for name in self.names
        }
        database, settings = self.folder / "sessions.sqlite", SessionSettings(limit=2)
        self._sessions = {name: SQLiteSession(name, database, session_settings=settings) for name in self.names}

    async def take_turn(self, agent: str, number: int) -> str:
        question = make_messages(agent, number)[1]["content"]
        result = await Runner.run(self._agents[agent], question, session=self._sessions[agent], run_config=CONFIG)
        text: str = json.loads(result.final_output)["text"]
        return text


if __name__ == "__main__":
    main(OpenAIAgentsSide)
