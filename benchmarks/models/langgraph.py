"""LangGraph side: an agent of LangChain with tools, and the form as the response format."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy
from langchain_openai import ChatOpenAI

from benchmarks.models.script import MAX_STEPS, MAX_TOKENS, Play, list_functions, main, make_form, record_answer
from benchmarks.models.turn import Outcome, Turn, describe_constant, describe_news


def make_player(server: str, model: str) -> Play:
    """Return a function to play a turn on a server."""

    def play(turn: Turn, outcome: Outcome) -> None:
        chat = ChatOpenAI(
            base_url=server, model=model, api_key="none", temperature=0.0, max_tokens=MAX_TOKENS,
            timeout=1800, max_retries=0,
        )  # fmt: skip
        form = make_form(turn)
        graph = create_agent(
            chat,
            list_functions(turn, outcome),
            system_prompt=describe_constant(turn),
            response_format=ProviderStrategy(form) if form else None,
        )
        news = {"messages": [{"role": "user", "content": describe_news(turn)}]}
        state = graph.invoke(news, {"recursion_limit": 2 * MAX_STEPS})
        answer = state["structured_response"].model_dump() if form else state["messages"][-1].text
        record_answer(turn, outcome, answer if form else str(answer))

    return play


if __name__ == "__main__":
    main(make_player)
