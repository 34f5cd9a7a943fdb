"""The sessions with an organisation's MCP servers, as long as its engine has it open, and calls to them.

A server that is mute, dies, is slow or says too much fails its calls; the tick goes on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lemming.capabilities.background.calls import SharedClient, run
from lemming.capabilities.mcp.lock import KnownServer, known_tool
from lemming.capabilities.mcp.session import Answered, Session, SessionEnded
from lemming.capabilities.mcp.settings import PREFIX, McpServer, mcp_config, require_sdk
from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import LemmingError, TimedOut, ToolError
from lemming.kernel.base.json_schema.violations import flaw_of, misfits
from lemming.kernel.base.patterns import is_named
from lemming.kernel.org.organisation import Organisation

if TYPE_CHECKING:
    import asyncio

LEFT_ALONE_S = 30.0
"""A server that could not be started is not started again for so long: calls fail at once."""

LONGEST_NAME = 64
"""Longest name of a tool that the backends of models take."""

PATIENCE_S = 5.0
"""A tick begins without a server that takes longer to list tools that are known: only its calls wait."""

LOOKED_AT_S = 3.0
"""Of the thread's own time, for the schemas of one server's tools: those after that are left out."""

_MARGIN_S, _CLOSING_TIME_S = 2.0, 15.0


@dataclass(frozen=True)
class Listed:
    """What a server has now. `left_out`: tools that cannot be used, and why. `problem`: why it has none.

    `is_starting`: it has not answered yet, and may still do so in time. `took_ms`: how long it took.
    """

    tools: KnownServer = field(default_factory=KnownServer)
    left_out: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    is_starting: bool = False
    took_ms: int = 0


class ServerEnded(ToolError):
    """The server went away in the middle of a call: nobody knows whether it happened."""


class McpServers:
    """The sessions of one organisation, by server."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._sessions: dict[str, tuple[McpServer, SharedClient[Session]]] = {}
        self._failed: dict[str, tuple[Deadline, str]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._starting: dict[str, tuple[Session, asyncio.Task[Listed]]] = {}
        self._flaws: dict[str, str] = {}

    def list(self, names: Iterable[str], *, known: Collection[str] = ()) -> Mapping[str, Listed]:
        """Return what these servers have, asked all at once; each within its `start_timeout_s`.

        Those of `known` that are slow are not waited for: they go on starting.
        """
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
            found |= run(lambda: self._list_all(sessions, ready, known), longest_s + 2 * _MARGIN_S)
        for name in ready:
            found[name] = self._without_flawed(found[name])
            self._failed.pop(name, None)
            if found[name].problem and not found[name].is_starting:
                self._failed[name] = Deadline(LEFT_ALONE_S), found[name].problem
                self._sessions.pop(name, None)
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
            found = run(
                lambda: _call(session, server.timeout_s, tool, arguments, further), limit_s + _MARGIN_S
            )
            return _as_promised(found)
        except TimedOut:
            hint = f"raise timeout_s of {name} in config/mcp.json"
            raise TimedOut(f"MCP server {name}: no answer within {server.timeout_s:g} s", hint=hint) from None
        except LemmingError as error:
            kind = ServerEnded if isinstance(error, SessionEnded) else ToolError
            raise kind(f"MCP server {name}: {error.message}", hint=error.hint) from None

    def close(self) -> None:
        """End all sessions. They are begun anew when they are needed."""
        sessions = [kept.get() for _, kept in self._sessions.values()]
        self._sessions, self._starting = {}, {}
        if sessions or self._ending:
            with contextlib.suppress(TimedOut):  # one that does not end is left to its launcher
                run(lambda: _close_all(sessions, self._ending), _CLOSING_TIME_S)

    def _session(self, name: str, server: McpServer) -> Session:
        known = self._sessions.get(name)
        if known is None or known[0] != server:  # the settings have changed: the old one ends by itself
            base = self._org.base
            known = self._sessions[name] = server, SharedClient(lambda _: Session(name, server, base))
        return known[1].get()

    def _left_alone(self, name: str) -> str:
        left_alone, why = self._failed.get(name, (None, ""))
        return "" if left_alone is None or left_alone.has_passed else why

    async def _list_all(
        self, sessions: Mapping[str, Session], servers: Mapping[str, McpServer], known: Collection[str]
    ) -> dict[str, Listed]:
        import asyncio

        asked = (self._listed(name, sessions[name], servers[name], name in known) for name in sessions)
        return dict(zip(sessions, await asyncio.gather(*asked), strict=True))

    async def _listed(self, name: str, session: Session, server: McpServer, is_known: bool) -> Listed:
        """Return what a server has; if its tools are known and it is slow, that it is starting."""
        import asyncio

        of, asked = self._starting.pop(name, (None, None))
        patience_s = 0.0  # a tick before this one has waited for it
        # What ended well meanwhile was asked for an earlier tick: what there is now is asked anew.
        if asked is None or of is not session or (asked.done() and not asked.result().problem):
            asked, patience_s = asyncio.create_task(self._list(name, session, server)), PATIENCE_S
        await asyncio.wait({asked}, timeout=patience_s if is_known else None)
        if asked.done():
            return asked.result()
        self._starting[name] = session, asked
        why = f"it has not listed its tools after {PATIENCE_S:g} s; those that were accepted are offered"
        return Listed(problem=why, is_starting=True)

    async def _list(self, name: str, session: Session, server: McpServer) -> Listed:
        import asyncio

        began, whole = time.perf_counter(), Deadline(server.start_timeout_s + _MARGIN_S)
        try:
            async with asyncio.timeout(whole.remaining()):
                await session.begin()
                async with asyncio.timeout(min(server.timeout_s, whole.remaining())):
                    said = await session.tools()
            listed = _as_listed(said, name, server)
        except TimeoutError:
            setting = "start_timeout_s" if whole.has_passed else "timeout_s"
            limit = f"{getattr(server, setting):g} s ({setting} of its line in config/mcp.json)"
            listed = Listed(problem=f"it did not list its tools within {limit}")
            ending = asyncio.create_task(session.close())  # nobody waits for it but `close`
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        except LemmingError as error:
            listed = Listed(problem=str(error))
        return replace(listed, took_ms=elapsed_ms(began))

    def _without_flawed(self, listed: Listed) -> Listed:
        """Return what a server has without tools that have a schema to which nothing can be held."""
        began = time.thread_time()  # not the wall's: a busy machine leaves none out
        flawed: dict[str, str] = {}
        for name, tool in listed.tools.tools.items():
            if tool.hash not in self._flaws:
                if time.thread_time() - began > LOOKED_AT_S:
                    flawed[name] = f"the schemas of its server take more than {LOOKED_AT_S:g} s to look at"
                    continue
                self._flaws[tool.hash] = " ".join(filter(None, reversed(flaw_of(tool.schema))))
            if flaw := self._flaws[tool.hash]:
                flawed[name] = f"the schema of its arguments: {flaw}"
        if not flawed:
            return listed
        sound = {name: tool for name, tool in listed.tools.tools.items() if name not in flawed}
        return replace(listed, tools=KnownServer(tools=sound), left_out={**listed.left_out, **flawed})


def _as_listed(said: Iterable[Mapping[str, Any]], server_name: str, server: McpServer) -> Listed:
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


def _as_promised(found: Answered) -> Answered:
    """Return what a call gave; raise `ToolError` where that is not what the tool promised."""
    wrong = [] if found.promised is None else misfits(found.promised, found.structured)
    if wrong:
        raise ToolError(f"its result is not what its output schema says: {'; '.join(wrong)}"[:1000])
    return found


async def _close_all(sessions: Iterable[Session], ending: Iterable[asyncio.Task[None]]) -> None:
    import asyncio

    await asyncio.gather(*(session.close() for session in sessions), *ending, return_exceptions=True)
