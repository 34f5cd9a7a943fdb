"""OpenAI's Agents SDK: an agent and a session in SQLite for each; the session's newest 20 items are shown.

A session keeps what was said, and nothing else; so the memory is what the agent said last. Tracing, which
sends to a service, is off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, SessionSettings, SQLiteSession, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from benchmarks.peers import work
from benchmarks.peers.work import SHOWN, AsyncTurns, Kept, Task, main, parsed

CONFIG = RunConfig(tracing_disabled=True)


class Instant(Model):
    """The model as the SDK asks one, for one agent."""

    def __init__(self, agent: str, model: work.Model) -> None:
        self._agent, self._model = agent, model
        self.number = 0

    async def get_response(self, *_: Any, **given: Any) -> ModelResponse:
        """Return the answer."""
        answer = self._model(self._agent, self.number, given["input"])
        text = ResponseOutputText(text=answer, type="output_text", annotations=[])
        said = ResponseOutputMessage(
            id=f"{self._agent}-{self.number}", content=[text], role="assistant", status="completed",
            type="message",
        )  # fmt: skip
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Not used."""
        raise NotImplementedError


class OpenAIAgents(AsyncTurns):
    """Agents with a session each, all in one database."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._models = {name: Instant(name, self.model) for name in self.names}
        self._agents = {
            name: Agent(name=name, instructions=f"You are {name}.", model=self._models[name])
            for name in self.names
        }
        database, settings = self.folder / "sessions.sqlite", SessionSettings(limit=SHOWN)
        self._sessions = {
            name: SQLiteSession(name, database, session_settings=settings) for name in self.names
        }
        self.open()

    def kept(self, agent: str) -> Kept:
        items: list[Any] = self.runner.run(self._sessions[agent].get_items(limit=2 * SHOWN))
        answers = [item["content"][0]["text"] for item in items if item.get("role") == "assistant"]
        read = [parsed(answer) for answer in answers]
        return Kept(read[-1][1]["n"], [text for text, _ in read]) if read else Kept()

    async def take_turn(self, agent: str, number: int, inbox: list[str]) -> str:
        self._models[agent].number = number
        result = await Runner.run(
            self._agents[agent],
            inbox[-1] if inbox else "You are the first.",
            session=self._sessions[agent],
            run_config=CONFIG,
        )
        return parsed(result.final_output)[0]


if __name__ == "__main__":
    main(OpenAIAgents)
