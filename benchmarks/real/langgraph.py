"""LangGraph side: a thread per agent, a graph with a single SDK call, checkpoints in SQLite.

`variant` is the durability: "exit" is the fastest, "sync" the safest.
"""

from __future__ import annotations

import json
from typing import Any, TypedDict

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from openai import AsyncOpenAI

from benchmarks.peers.work import main
from benchmarks.real.at_once import ConcurrentSide, get_address, make_messages


class State(TypedDict):
    """Persistent state of an agent."""

    number: int
    message: str
    memory: dict[str, Any]


class LangGraphSide(ConcurrentSide):
    """Threads of a shared graph."""

    async def open(self) -> None:
        self._client = AsyncOpenAI(base_url=get_address(), api_key="none")
        graph = StateGraph(State)
        graph.add_node("turn", self._run_node)
        graph.add_edge(START, "turn")
        graph.add_edge("turn", END)
        connection = await aiosqlite.connect(self.folder / "checkpoints.sqlite")
        self._graph = graph.compile(checkpointer=AsyncSqliteSaver(connection))

    async def take_turn(self, agent: str, number: int) -> str:
        thread: Any = {"configurable": {"thread_id": agent}}
        state = await self._graph.ainvoke({"number": number}, thread, durability=self.variant)
        message: str = state["message"]
        return message

    async def _run_node(self, state: State, config: RunnableConfig) -> dict[str, Any]:
        agent = config["configurable"]["thread_id"]
        answer = await self._client.chat.completions.create(
            model="m", messages=make_messages(agent, state["number"]), max_completion_tokens=2048
        )
        content = json.loads(answer.choices[0].message.content or "")
        return {"message": content["text"], "memory": content["memory"]}


if __name__ == "__main__":
    main(LangGraphSide)
