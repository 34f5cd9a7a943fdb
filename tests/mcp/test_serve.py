"""An organisation as an MCP server: in memory, over standard input and output, and over HTTP with a token."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from connected import call, org_with

from lemming.capabilities.mcp.mcp_server import make_server
from lemming.cli import run
from lemming.engine import run_once
from lemming.libraries.outbox_files import write_person_entry
from lemming.queries.screens.screen_registry import iter_screens
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation with one tick behind it, and a person in it."""
    base = tmp_path_factory.mktemp("org")
    make_org(
        base,
        resume("ada", permissions={"read_outboxes": ["human"], "tools": []}),
        resume("human", model={"key": "human"}, permissions={"read_outboxes": ["ada"]}),
        models={"human": {"provider": "human"}},
        script=[{"contains": "Which colour?", "reply": say("Blue.", kind="response")}, {"reply": say("Good morning.")}],
    )
    run_once(base, clock=FrozenClock())
    return base


def talking(server: Any, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Return what the work with a client of the server returns."""
    from mcp import Client

    async def talk() -> Any:
        async with Client(server, read_timeout_seconds=60) as client:
            return await work(client)

    return asyncio.run(talk())


async def told(client: Any, tool: str, **arguments: Any) -> tuple[bool, str]:
    result = await client.call_tool(tool, arguments)
    return bool(result.is_error), result.content[0].text


def test_who_may_only_look_has_no_tool_that_writes(base: Path) -> None:
    async def names(client: Any) -> dict[str, Any]:
        return {it.name: it.annotations.read_only_hint for it in (await client.list_tools()).tools}

    declared = [screen.tool for screen in iter_screens() if screen.tool]
    looking = dict.fromkeys(["status", "plan", "why", *declared], True)
    assert talking(make_server(base), names) == looking
    writing = dict.fromkeys(["ask", "send", "answer"], False)
    assert talking(make_server(base, writes=True), names) == looking | writing


@pytest.mark.long
def test_a_client_sees_what_the_commands_print(base: Path) -> None:
    async def look(client: Any) -> list[Any]:
        outbox = await told(client, "outbox", agent="ada", number=1)
        entry = json.loads(outbox[1])
        return [
            entry,
            json.loads((await told(client, "why", target=entry["id"]))[1]),
            json.loads((await client.read_resource("org://status")).contents[0].text),
            (await client.read_resource("org://agents/ada/outbox")).contents[0].text,
            json.loads((await client.read_resource("org://ticks/1")).contents[0].text),
            await told(client, "outbox", agent="adda"),
        ]

    entry, why, status, outbox, tick, wrong = talking(make_server(base), look)
    assert entry["payload"]["text"] == "Good morning."
    assert why["type"] == "why"
    assert why["target"]["turn"]["tick"] == 1
    assert (status["type"], [it["agent"] for it in status["agents"]]) == ("status", ["ada", "human"])
    assert json.loads(outbox)["id"] == entry["id"]
    assert (tick["type"], tick["tick"]) == ("tick", 1)
    assert wrong[0]
    assert wrong[1].endswith('agent "adda" does not exist (did you mean "ada"?)')


@pytest.mark.long
def test_a_client_that_may_write_asks_sends_and_answers_as_a_person(base: Path) -> None:
    request = write_person_entry(
        base, "ada", tick=1, kind="request", payload={"text": "May I?", "target": "human"}, tags=[],
        created_at="2026-01-01T00:00:00.000Z",
    )  # fmt: skip

    async def write(client: Any) -> list[Any]:
        return [
            await told(client, "send", text="Hello, all."),
            await told(client, "answer", request=request.id, text="Yes."),
            await told(client, "ask", agent="ada", text="Which colour?"),
        ]

    sent, answered, asked = talking(make_server(base, writes=True), write)
    assert json.loads(sent[1])["payload"]["text"] == "Hello, all."
    assert json.loads(answered[1])["payload"]["reply_to"].endswith(request.id)
    assert json.loads(asked[1])["answer"] == "Blue."


@pytest.mark.long
def test_another_organisation_calls_its_tools_over_http_with_a_token(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = [sys.executable, "-m", "lemming", "-C", str(base), "mcp", "serve", "--http", "0"]
    with subprocess.Popen(serving, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        url, said = server.stderr.readline().strip(), server.stderr.readline()
        token = re.sub("Authorization: Bearer ", "", said).strip()
        try:
            monkeypatch.setenv("NEWS_TOKEN", token)
            news = {"url": url, "headers_env": {"Authorization": "Bearer ${NEWS_TOKEN}"}}
            other = org_with(tmp_path, {"news": news}, call("mcp.news.outbox", agent="ada", number=1))
            run_once(other, clock=FrozenClock())
            monkeypatch.setenv("NEWS_TOKEN", "another-token")
            run_once(other, clock=FrozenClock())
        finally:
            server.terminate()
    first, second = (next(it for it in journal_lines(other, tick) if it["type"] == "tool_finished") for tick in (1, 2))
    assert json.loads(first["output"])["agent"] == "ada"
    assert second["outcome"] == "failed"
    assert "it refuses with HTTP status 401; check headers_env" in second["output"]


def test_it_speaks_over_standard_input_and_output(base: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lemming", "-C", str(base), "mcp", "serve"]
    other = org_with(tmp_path, {"news": {"command": command}})
    assert run(["-C", str(other), "mcp", "test", "--call", "status", "news", "--trust", "--yes"]) == 0
