"""The sessions with an organisation's MCP servers, as long as its engine has it open, and calls to them.

A server that is mute, dies, is slow or says too much fails its calls; the tick goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lemming.errors import LemmingError, TimedOut, ToolError
from lemming.llm.backends.background import SharedClient, run
from lemming.mcp.known import KnownServer, known_tool
from lemming.mcp.session import Answered, Session, SessionEnded
from lemming.mcp.settings import PREFIX, McpServer, mcp_config, require_sdk
from lemming.organisation import Organisation
from lemming.patterns import is_named

LEFT_ALONE_S = 30.0
"""A server that could not be started is not started again for so long: calls fail at once."""

LONGEST_NAME = 64
"""Longest name of a tool that the backends of models take."""

_MARGIN_S = 2.0


@dataclass(frozen=True)
class Listed:
    """What a server has now. `left_out`: tools that cannot be used, and why. `problem`: why it has none."""

    tools: KnownServer = field(default_factory=KnownServer)
    left_out: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


class ServerEnded(ToolError):
    """The server went away in the middle of a call: nobody knows whether it happened."""


class McpServers:
    """The sessions of one organisation, by server."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._sessions: dict[str, tuple[McpServer, SharedClient[Session]]] = {}
        self._failed: dict[str, tuple[float, str]] = {}

    def list(self, names: Iterable[str]) -> dict[str, Listed]:
        """Return what these servers have, asked all at once; each within its `start_timeout_s`."""
        wanted = list(names)
        config = mcp_config(self._org)
        found = {name: Listed(problem=self._left_alone(name)) for name in wanted}
        ready = {name: config.require(name) for name in wanted if not found[name].problem}
        if ready:
            try:
                require_sdk()
            except ToolError as error:
                return {name: Listed(problem=str(error)) for name in wanted}
            sessions = {name: self._session(name, server) for name, server in ready.items()}
            longest_s = max(server.start_timeout_s for server in ready.values())
            found |= run(lambda: _list_all(sessions, ready), longest_s + 2 * _MARGIN_S)
        for name in ready:
            self._failed.pop(name, None)
            if found[name].problem:
                self._failed[name] = time.monotonic(), found[name].problem
        return {name: found[name] for name in wanted}

    def call(
        self, name: str, server: McpServer, tool: str, arguments: dict[str, Any], **further: Any
    ) -> Answered:
        """Call a tool of a server. Raises `ToolError`, and `TimedOut` when it takes too long."""
        if problem := self._left_alone(name):
            raise ToolError(f"MCP server {name}: {problem}")
        require_sdk()
        session = self._session(name, server)
        limit_s = server.timeout_s + server.start_timeout_s
        try:
            return run(
                lambda: _call(session, server.timeout_s, tool, arguments, further), limit_s + _MARGIN_S
            )
        except TimedOut:
            raise TimedOut(f"MCP server {name}: no answer within {server.timeout_s:g} s") from None
        except LemmingError as error:
            kind = ServerEnded if isinstance(error, SessionEnded) else ToolError
            raise kind(f"MCP server {name}: {error.message}", hint=error.hint) from None

    def close(self) -> None:
        """End all sessions. They are begun anew when they are needed."""
        sessions = [kept.get() for _, kept in self._sessions.values()]
        self._sessions = {}
        if sessions:
            run(lambda: _close_all(sessions), 15.0)

    def _session(self, name: str, server: McpServer) -> Session:
        known = self._sessions.get(name)
        if known is None or known[0] != server:  # the settings have changed: the old one ends by itself
            base = self._org.base
            known = self._sessions[name] = server, SharedClient(lambda _: Session(name, server, base))
        return known[1].get()

    def _left_alone(self, name: str) -> str:
        since, why = self._failed.get(name, (0.0, ""))
        return why if why and time.monotonic() - since < LEFT_ALONE_S else ""


async def _list_all(sessions: Mapping[str, Session], servers: Mapping[str, McpServer]) -> dict[str, Listed]:
    import asyncio

    found = await asyncio.gather(*(_list(name, sessions[name], servers[name]) for name in sessions))
    return dict(zip(sessions, found, strict=True))


async def _list(name: str, session: Session, server: McpServer) -> Listed:
    import asyncio

    try:
        async with asyncio.timeout(server.start_timeout_s + _MARGIN_S):
            said = await session.tools()
    except TimeoutError:
        await session.close()
        return Listed(problem=f"it did not list its tools within {server.start_timeout_s:g} s")
    except LemmingError as error:
        return Listed(problem=str(error))
    return _of_what_was_said(said, name, server)


def _of_what_was_said(said: Iterable[Mapping[str, Any]], server_name: str, server: McpServer) -> Listed:
    used = [tool for tool in said if any(is_named(tool["name"], pattern) for pattern in server.tools)]
    known = {tool["name"]: _too_long(server_name, tool["name"]) or known_tool(tool) for tool in used}
    left_out = {name[:80]: why for name, why in known.items() if isinstance(why, str)}
    tools = {name: tool for name, tool in known.items() if not isinstance(tool, str)}
    return Listed(KnownServer(tools=dict(sorted(tools.items()))), left_out)


def _too_long(server_name: str, tool_name: str) -> str:
    """Return why backends take no tool of this name; empty when they do. Dots are two characters there."""
    name = f"{PREFIX}{server_name}.{tool_name}".replace(".", "__")
    return "" if len(name) <= LONGEST_NAME else f"{name[:80]} is longer than {LONGEST_NAME} characters"


async def _call(
    session: Session, timeout_s: float, tool: str, arguments: dict[str, Any], further: Mapping[str, Any]
) -> Answered:
    import asyncio

    await session.begin()
    try:
        async with asyncio.timeout(timeout_s):
            return await session.call(tool, arguments, **further)
    except TimeoutError:
        raise TimedOut("no answer in time") from None


async def _close_all(sessions: Iterable[Session]) -> None:
    import asyncio

    await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
