"""LangGraph side: a thread per agent, a graph with a single node, a checkpoint after each turn in SQLite.

`durability` is "exit" (a checkpoint at the end of the graph, the fastest documented mode) or "sync" (a
further checkpoint before the node runs, and the node's writes at once: the safest documented mode).
"""

from __future__ import annotations

import sqlite3
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.peers.work import SHOWN, Progress, SequentialSide, Task, main, make_prompt, parse_answer


def append_newest(messages: list[str], new: list[str]) -> list[str]:
    """Append messages and keep the newest."""
    return [*messages, *new][-SHOWN:]


class State(TypedDict):
    """Persistent state of an agent."""

    inbox: list[str]
    messages: Annotated[list[str], append_newest]
    memory: dict[str, Any]


class LangGraphSide(SequentialSide):
    """Threads of a shared graph."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._durability = task.variant
        self._interrupted: set[str] = set()
        graph = StateGraph(State)
        graph.add_node("turn", self._run_node)
        graph.add_edge(START, "turn")
        graph.add_edge("turn", END)
        connection = sqlite3.connect(self.folder / "checkpoints.sqlite", check_same_thread=False)
        self._graph = graph.compile(checkpointer=SqliteSaver(connection))
        self.load_all_progress()

    def load_progress(self, agent: str) -> Progress:
        snapshot = self._graph.get_state(_thread_config(agent))
        if snapshot.next:
            self._interrupted.add(agent)
        return Progress(snapshot.values.get("memory", {}).get("n", 0), snapshot.values.get("messages", ()))

    def run_turn(self, agent: str, number: int, inbox: list[str]) -> str:
        graph_input = {"inbox": inbox}
        if agent in self._interrupted:  # goes on from its checkpoint
            self._interrupted.remove(agent)
            graph_input = None  # type: ignore[assignment]
        state = self._graph.invoke(graph_input, _thread_config(agent), durability=self._durability)
        message: str = state["messages"][-1]
        return message

    def _run_node(self, state: State, config: RunnableConfig) -> dict[str, Any]:
        agent = config["configurable"]["thread_id"]
        number = state.get("memory", {}).get("n", 0) + 1
        text, memory = parse_answer(self.model(agent, number, make_prompt(agent, number, state["inbox"])))
        return {"messages": [text], "memory": memory}


def _thread_config(agent: str) -> Any:
    return {"configurable": {"thread_id": agent}}


if __name__ == "__main__":
    main(LangGraphSide)
