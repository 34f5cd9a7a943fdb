"""OpenAI's Agents SDK: an agent and a session in SQLite for each, chat completions, no tracing.

A session grows with every turn, so each turn is shown the newest two items only.
"""

from __future__ import annotations

import json

from agents import Agent, RunConfig, Runner, SessionSettings, SQLiteSession
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from openai import AsyncOpenAI

from benchmarks.peers.work import main
from benchmarks.real.at_once import AtOnce, address, messages_of

CONFIG = RunConfig(tracing_disabled=True)


class OpenAIAgents(AtOnce):
    """Agents with a session each, all in one database."""

    async def open(self) -> None:
        client = AsyncOpenAI(base_url=address(), api_key="none")
        model = OpenAIChatCompletionsModel(model="m", openai_client=client)
        self._agents = {
            name: Agent(name=name, instructions=messages_of(name, 0)[0]["content"], model=model)
            for name in self.names
        }
        database, settings = self.folder / "sessions.sqlite", SessionSettings(limit=2)
        self._sessions = {
            name: SQLiteSession(name, database, session_settings=settings) for name in self.names
        }

    async def take_turn(self, agent: str, number: int) -> str:
        question = messages_of(agent, number)[1]["content"]
        result = await Runner.run(
            self._agents[agent], question, session=self._sessions[agent], run_config=CONFIG
        )
        text: str = json.loads(result.final_output)["text"]
        return text


if __name__ == "__main__":
    main(OpenAIAgents)
