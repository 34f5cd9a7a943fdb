"""OpenAI Agents SDK side: an agent and a SQLite session each, with the session's newest 20 items in the
prompt.

A session stores only messages, so the memory is the agent's last message. Tracing sends data to a service and
is off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, SessionSettings, SQLiteSession, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from benchmarks.peers import work
from benchmarks.peers.work import SHOWN, AsyncSide, Progress, Task, main, parse_answer

CONFIG = RunConfig(tracing_disabled=True)


class InstantModel(Model):
    """The SDK's model class, for a single agent."""

    def __init__(self, agent: str, model: work.InstantModel) -> None:
        self._agent, self._model = agent, model
        self.number = 0

    async def get_response(self, *_: Any, **given: Any) -> ModelResponse:
        """Return the answer."""
        answer = self._model(self._agent, self.number, given["input"])
        text = ResponseOutputText(text=answer, type="output_text", annotations=[])
        output_message = ResponseOutputMessage(
            id=f"{self._agent}-{self.number}", content=[text], role="assistant", status="completed",
            type="message",
        )  # fmt: skip
        return ModelResponse(output=[output_message], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Not used."""
        raise NotImplementedError


class OpenAIAgentsSide(AsyncSide):
    """Agents with a session each in a shared database."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._models = {name: InstantModel(name, self.model) for name in self.names}
        self._agents = {
            name: Agent(name=name, instructions=f"You are {name}.", model=self._models[name]) for name in self.names
        }
        database, settings = self.folder / "sessions.sqlite", SessionSettings(limit=SHOWN)
        self._sessions = {name: SQLiteSession(name, database, session_settings=settings) for name in self.names}
        self.load_all_progress()

    def load_progress(self, agent: str) -> Progress:
        items: list[Any] = self.runner.run(self._sessions[agent].get_items(limit=2 * SHOWN))
        answers = [item["content"][0]["text"] for item in items if item.get("role") == "assistant"]
        parsed_answers = [parse_answer(answer) for answer in answers]
        return (
            Progress(parsed_answers[-1][1]["n"], [text for text, _ in parsed_answers]) if parsed_answers else Progress()
        )

    async def take_turn(self, agent: str, number: int, inbox: list[str]) -> str:
        self._models[agent].number = number
        result = await Runner.run(
            self._agents[agent],
            inbox[-1] if inbox else "You are the first.",
            session=self._sessions[agent],
            run_config=CONFIG,
        )
        return parse_answer(result.final_output)[0]


if __name__ == "__main__":
    main(OpenAIAgentsSide)
