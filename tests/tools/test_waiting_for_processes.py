"""Waiting for a process of functions, and for its start: both are part of a turn's time, and hear a stop."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from workshop import NOW, Workshop

from lemming.capabilities.toolbox.functions.function_call import call_to_json
from lemming.capabilities.toolbox.functions.function_tool import FunctionTool
from lemming.capabilities.toolbox.functions.worker_pool import FunctionWorkers
from lemming.kernel.agents import load_agent
from lemming.kernel.base.blocking_deadline import Deadline, WorkAbandoned
from lemming.kernel.org.config import load_config
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import ToolContext

pytestmark = pytest.mark.usefixtures("untried")

ECHO = """
@tool(repeatable=True)
def echo(text: str) -> str:
    return text
"""


def call_echo(shop: Workshop, deadline: Deadline, stop: threading.Event | None, *, at_once: int = 0) -> ToolResult:
    """Call `echo` where so many processes may run at once: with 0, none will ever be free."""
    agent, settings = load_agent(shop.org, "ada"), load_config(shop.org).org
    tool = shop.toolset.require_allowed("echo", agent, settings)
    assert isinstance(tool, FunctionTool)
    assert tool.location
    about = {"now": NOW, "deadline": deadline, "stop": stop}
    context = ToolContext(agent=agent, org=shop.org, settings=settings, **about)  # type: ignore[arg-type]
    request = call_to_json(tool.location, tool.spec, {"text": "hello"}, context)
    workers = FunctionWorkers(shop.org, max_concurrent=at_once)
    workers.sources = shop.org.get_cache(FunctionWorkers).sources
    try:
        return workers.call(tool, request, context).result
    finally:
        workers.close()


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """An organisation with one function."""
    shop = Workshop(tmp_path / "org")
    shop.file(ECHO)
    return shop


def test_a_call_is_not_made_where_no_process_is_free_in_the_turns_time(shop: Workshop) -> None:
    turn = Deadline(0.05)
    result = call_echo(shop, turn.within(600.0), threading.Event())
    assert result.outcome == "skipped"
    assert result.output == "echo was not called: the turn's time was over before a process was free"


def test_a_stop_ends_the_wait_for_a_process_at_once(shop: Workshop) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(WorkAbandoned):
        call_echo(shop, Deadline(600.0), stop)


def test_a_process_may_take_no_longer_to_begin_than_the_turn_has_time(shop: Workshop) -> None:
    now = 0.0
    turn = Deadline(1.0, clock=lambda: now)
    call = turn.within(600.0)
    now = 2.0
    result = call_echo(shop, call, None, at_once=1)
    assert result.outcome == "failed"
    assert result.output.startswith("echo failed: its process did not begin within ")


def test_the_functions_own_time_begins_when_its_process_is_ready(shop: Workshop) -> None:
    now = 0.0
    call = Deadline(600.0, clock=lambda: now)
    now = 601.0  # as if the wait for a process had taken so long
    assert call_echo(shop, call, None, at_once=1).output == "hello"
