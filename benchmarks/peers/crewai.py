"""CrewAI: a flow for each turn, whose state is taken up and kept by its SQLite persistence under its agent.

Without one that it is handed each flow opens a memory of its own, a vector database. All share one here, and
nothing is put into it.
"""

from __future__ import annotations

from typing import Any

from crewai import Memory
from crewai.flow.flow import Flow, start
from crewai.flow.persistence import SQLiteFlowPersistence, persist
from pydantic import BaseModel

from benchmarks.peers.work import SHOWN, Kept, Model, Task, Turns, main, parsed, prompt_of


class State(BaseModel):
    """What is kept of an agent."""

    id: str = ""
    inbox: list[str] = []
    messages: list[str] = []
    memory: dict[str, Any] = {}


def flow_of(model: Model, persistence: SQLiteFlowPersistence) -> type[Flow[State]]:
    """Return the flow that is a turn."""

    @persist(persistence)
    class Turn(Flow[State]):
        """Take a turn: ask, add the message, change the memory."""

        @start()
        def turn(self) -> str:
            """Return the message written."""
            state = self.state
            number = state.memory.get("n", 0) + 1
            text, state.memory = parsed(model(state.id, number, prompt_of(state.id, number, state.inbox)))
            state.messages = [*state.messages, text][-SHOWN:]
            return text

    return Turn


class CrewAI(Turns):
    """Agents are flows that go on under their names."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._persistence = SQLiteFlowPersistence(str(self.folder / "flows.sqlite"))
        self._memory = Memory(storage=str(self.folder / "memory"))
        self._flow = flow_of(self.model, self._persistence)
        self.open()

    def kept(self, agent: str) -> Kept:
        found = self._persistence.load_state(agent)
        return Kept(found["memory"]["n"], found["messages"]) if found else Kept()

    def turn(self, agent: str, number: int, inbox: list[str]) -> str:
        flow = self._flow(suppress_flow_events=True, memory=self._memory)
        message: str = flow.kickoff(inputs={"id": agent, "inbox": inbox})
        return message


if __name__ == "__main__":
    main(CrewAI)
