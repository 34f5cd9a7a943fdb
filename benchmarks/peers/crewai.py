"""CrewAI side: a flow per turn, with the state in SQLite persistence under the agent's name.

Without an explicit memory each flow would open a vector database of its own. Here all flows share an empty
memory.
"""

from __future__ import annotations

from typing import Any

from crewai import Memory
from crewai.flow.flow import Flow, start
from crewai.flow.persistence import SQLiteFlowPersistence, persist
from pydantic import BaseModel

from benchmarks.peers.work import SHOWN, InstantModel, Progress, SequentialSide, Task, main, make_prompt, parse_answer


class State(BaseModel):
    """Persistent state of an agent."""

    id: str = ""
    inbox: list[str] = []
    messages: list[str] = []
    memory: dict[str, Any] = {}


def make_flow(model: InstantModel, persistence: SQLiteFlowPersistence) -> type[Flow[State]]:
    """Return the flow class of a turn."""

    @persist(persistence)
    class Turn(Flow[State]):
        """Take a turn: ask, add the message, change the memory."""

        @start()
        def turn(self) -> str:
            """Return the message written."""
            state = self.state
            number = state.memory.get("n", 0) + 1
            text, state.memory = parse_answer(model(state.id, number, make_prompt(state.id, number, state.inbox)))
            state.messages = [*state.messages, text][-SHOWN:]
            return text

    return Turn


class CrewAISide(SequentialSide):
    """Flows continued under the agents' names."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._persistence = SQLiteFlowPersistence(str(self.folder / "flows.sqlite"))
        self._memory = Memory(storage=str(self.folder / "memory"))
        self._flow = make_flow(self.model, self._persistence)
        self.load_all_progress()

    def load_progress(self, agent: str) -> Progress:
        stored = self._persistence.load_state(agent)
        return Progress(stored["memory"]["n"], stored["messages"]) if stored else Progress()

    def run_turn(self, agent: str, number: int, inbox: list[str]) -> str:
        flow = self._flow(suppress_flow_events=True, memory=self._memory)
        message: str = flow.kickoff(inputs={"id": agent, "inbox": inbox})
        return message


if __name__ == "__main__":
    main(CrewAISide)
