"""LangGraph: a thread for each agent, a graph of one node, a checkpoint after each turn in SQLite.

`durability` is "exit" (one checkpoint when the graph ends, the quickest that its documentation has) or "sync"
(one before the node runs too, and what it wrote as soon as it has: what is documented as the safest).
"""

from __future__ import annotations

import sqlite3
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.peers.work import SHOWN, Kept, Task, Turns, main, parsed, prompt_of


def newest(before: list[str], new: list[str]) -> list[str]:
    """Add messages to those that are there, and keep the newest."""
    return [*before, *new][-SHOWN:]


class State(TypedDict):
    """What is kept of an agent."""

    inbox: list[str]
    messages: Annotated[list[str], newest]
    memory: dict[str, Any]


class LangGraph(Turns):
    """Agents are threads of one graph."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._durability = task.variant
        self._interrupted: set[str] = set()
        graph = StateGraph(State)
        graph.add_node("turn", self._node)
        graph.add_edge(START, "turn")
        graph.add_edge("turn", END)
        connection = sqlite3.connect(self.folder / "checkpoints.sqlite", check_same_thread=False)
        self._graph = graph.compile(checkpointer=SqliteSaver(connection))
        self.open()

    def kept(self, agent: str) -> Kept:
        found = self._graph.get_state(_thread(agent))
        if found.next:
            self._interrupted.add(agent)
        return Kept(found.values.get("memory", {}).get("n", 0), found.values.get("messages", ()))

    def turn(self, agent: str, number: int, inbox: list[str]) -> str:
        given = {"inbox": inbox}
        if agent in self._interrupted:  # goes on from its checkpoint
            self._interrupted.remove(agent)
            given = None  # type: ignore[assignment]
        state = self._graph.invoke(given, _thread(agent), durability=self._durability)
        message: str = state["messages"][-1]
        return message

    def _node(self, state: State, config: RunnableConfig) -> dict[str, Any]:
        agent = config["configurable"]["thread_id"]
        number = state.get("memory", {}).get("n", 0) + 1
        text, memory = parsed(self.model(agent, number, prompt_of(agent, number, state["inbox"])))
        return {"messages": [text], "memory": memory}


def _thread(agent: str) -> Any:
    return {"configurable": {"thread_id": agent}}


if __name__ == "__main__":
    main(LangGraph)
