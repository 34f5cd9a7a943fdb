"""OpenAI Agents SDK side: an agent for each turn with tools as functions, and the form as output type."""

from __future__ import annotations

import asyncio

from agents import Agent, ModelSettings, RunConfig, Runner, function_tool
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from openai import AsyncOpenAI

from benchmarks.models.script import MAX_STEPS, MAX_TOKENS, Play, list_functions, main, make_form, record_answer
from benchmarks.models.turn import Outcome, Turn, describe_constant, describe_news


def make_player(server: str, model: str) -> Play:
    """Return a function to play a turn on a server."""
    settings = ModelSettings(temperature=0.0, max_tokens=MAX_TOKENS)

    async def run(turn: Turn, outcome: Outcome) -> None:
        client = AsyncOpenAI(base_url=server, api_key="none", timeout=1800, max_retries=0)
        form = make_form(turn)
        agent = Agent(
            name="clerk",
            instructions=describe_constant(turn),
            model=OpenAIChatCompletionsModel(model=model, openai_client=client),
            model_settings=settings,
            tools=[function_tool(function) for function in list_functions(turn, outcome)],
            output_type=form,
        )
        config = RunConfig(tracing_disabled=True)
        async with client:
            result = await Runner.run(agent, describe_news(turn), max_turns=MAX_STEPS, run_config=config)
        final = result.final_output
        record_answer(turn, outcome, final.model_dump() if form else final)

    return lambda turn, outcome: asyncio.run(run(turn, outcome))


if __name__ == "__main__":
    main(make_player)
