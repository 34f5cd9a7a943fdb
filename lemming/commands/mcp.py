"""`lemming mcp`: MCP servers whose tools agents may call, and this organisation as a server."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemming.capabilities.mcp.lock import LOCK_FILE, KnownServer, differences, keep, known_servers
from lemming.capabilities.mcp.settings import PREFIX, McpConfig, McpServer, mcp_config, require_sdk
from lemming.capabilities.mcp.tools import as_text
from lemming.commands.options import Here, Limit, Trust, argument, noun, object_typed, option
from lemming.commands.screen import counted, one_line, painted, show, show_json, show_text, tell
from lemming.commands.trust import require_agreement
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.org.organisation import Organisation

if TYPE_CHECKING:
    from lemming.capabilities.mcp.servers import Listed

app = noun("See and try MCP servers, accept what they have, and be one.")

ServerName = Annotated[str | None, argument("SERVER", "A server's name; all without one.")]

NONE = 'config/mcp.json has none, such as {"servers": {"time": {"command": ["mcp-server-time"]}}}'
COLUMNS = {
    "SERVER": "server", "REACHED BY": "reached_by",
    "TOOLS": lambda it: "not known yet" if it["tools"] is None else len(it["tools"]), "FILE": "file",
}  # fmt: skip


@app.verb("list")
def list_servers(here: Here, name: ServerName = None, limit: Limit = None) -> None:
    """List the servers of config/mcp.json and .mcp.json, and the tools that were accepted of them.

    No server is started. An agent may call a tool that a pattern in its resume allows: "mcp.files.*".

    \b
    Examples:
      lemming mcp list
      lemming mcp list files
    """
    base = here.org
    config, known = _config(base), known_servers(base).servers
    chosen = _chosen(config, name)
    if here.as_json or name is None:
        facts = [_facts(server, config, known.get(server)) for server in chosen]
        here.lists("mcp_server", facts, COLUMNS, limit, nothing=NONE)
        return
    tools = known.get(name, KnownServer()).tools
    if not tools:
        tell(f"nothing was accepted of {name}: its first use does, or `lemming mcp accept {name}`")
    for tool, it in here.few([*tools.items()], limit):
        show(f"{painted(f'{PREFIX}{name}.{tool}', 'bold')}  {one_line(it.description, 300)}")


@app.verb("test")
def try_servers(
    here: Here,
    name: ServerName = None,
    tool: Annotated[str | None, option("--call TOOL", "Call a tool of SERVER, as an agent would.")] = None,
    args: Annotated[str, option("--args JSON", "The arguments of the call, as a JSON object.")] = "{}",
    yes: Annotated[bool, option("--yes -y", "With --call: also one that may do something outside.")] = False,
    trust: Trust = False,
) -> None:
    """Start servers, or reach them, and say what they have and how long that took.

    Nothing is written. Ends with exit status 1 when a server cannot be used, or says otherwise than what was
    accepted of it. With --call a tool is called that agents may be offered ("tools" of its line); one of
    another class than read with --yes only.

    \b
    Examples:
      lemming mcp test
      lemming mcp test files --call read_file --args '{"path": "a.txt"}' --yes
    """
    base = here.org
    config = _config(base)
    chosen = _chosen(config, name)
    if tool is not None and name is None:
        raise UsageError("--call needs the name of a server", hint="lemming mcp test SERVER --call TOOL")
    arguments = object_typed(args, "--args", '{"path": "a.txt"}')
    require_agreement(base, trusts=trust, servers=chosen)
    require_sdk()
    from lemming.capabilities.mcp.servers import McpServers

    is_well = True
    with closing(base):
        all_listed = base.own(McpServers).list(chosen)  # all at once: one that hangs holds up no other
        for server in chosen:
            usable = _test(base, server, all_listed[server], as_json=here.as_json)
            is_well &= usable is not None
            if tool is not None and usable is not None:
                called = _offered(config, server, tool, usable, yes=yes)
                is_well = _call(base, server, called, arguments, as_json=here.as_json)
    raise typer.Exit(0 if is_well else 1)


@app.verb("accept")
def accept(
    here: Here,
    name: ServerName = None,
    yes: Annotated[bool, option("--yes -y", "Do not ask.")] = False,
    trust: Trust = False,
) -> None:
    """Accept what servers have now: their tools are offered to agents as they are described today.

    What differs from what was accepted before is shown first, as it would stand in a prompt. It is kept in
    config/mcp.lock.json. The first use of a server accepts what it has.

    \b
    Examples:
      lemming mcp accept
      lemming mcp accept files --yes
    """
    from lemming.capabilities.mcp.servers import McpServers

    base = here.org
    chosen = _chosen(_config(base), name)
    require_agreement(base, trusts=trust, servers=chosen)
    require_sdk()
    with closing(base):
        found = base.own(McpServers).list(chosen)
    wrong = {server: listed.problem for server, listed in found.items() if listed.problem}
    for server, problem in wrong.items():
        tell(one_line(f"{server}: {problem}", 600), style="red")
    known = known_servers(base).servers
    new = {server: it.tools for server, it in found.items() if not it.problem}
    changed = {server: it for server, it in new.items() if known.get(server) != it}
    for server, it in changed.items():
        _show_differences(server, known.get(server, KnownServer()), it, as_json=here.as_json)
    if changed and (yes or not sys.stdin.isatty() or typer.confirm("Accept?", err=True)):
        keep(base, changed, sync=True)
        tell(f"kept in {LOCK_FILE}")
    elif not changed and not wrong:
        tell("nothing has changed")
    raise typer.Exit(1 if wrong else 0)


@app.verb("serve")
def serve(
    here: Here,
    http: Annotated[
        int | None, option("--http PORT", "By HTTP on 127.0.0.1; 0: any port.", min=0, max=65535)
    ] = None,
    write: Annotated[bool, option("--write", "A client may ask, send and answer as a person, too.")] = False,
    person: Annotated[str, option("--as PERSON", "Who it speaks for, where there are several people.")] = "",
) -> None:
    """Be an MCP server: clients see status, plan, outboxes, ticks, requests, costs, and why.

    On standard input and output, for a client that starts it, or by HTTP for those who have the token: the
    variable LEMMING_MCP_TOKEN, else a new one each time, which is said. Looks and never waits: an engine may
    run beside it. With --write `ask` runs ticks where no engine does.

    \b
    Examples:
      lemming mcp serve
      claude mcp add news -- lemming -C ~/news mcp serve
      lemming mcp serve --http 8421 --write
    """
    base = here.org
    require_sdk()
    from lemming.capabilities.mcp.serve import (
        TOKEN_VARIABLE,
        make_server,
        serve_http,
        serve_stdio,
        token_for_today,
    )

    if write:
        require_agreement(base, can_ask=http is not None)
    server = make_server(base.base, writes=write, person=person)
    if http is None:
        serve_stdio(server)
        return
    token, is_new = token_for_today()

    def print_address(port: int) -> None:
        if here.as_json:
            url = f"http://127.0.0.1:{port}/mcp"
            show_json("mcp_listening", {"url": url, "token": token if is_new else None})
            return
        tell(f"http://127.0.0.1:{port}/mcp")
        tell(f"Authorization: Bearer {token}" if is_new else f"the token is that of {TOKEN_VARIABLE}")

    serve_http(server, http, token, print_address)


# --- the pieces ------------------------------------------------------------------------------------


def _config(base: Organisation) -> McpConfig:
    config = mcp_config(base)
    for problem in config.problems:
        tell(one_line(str(problem), 600), style="red" if problem.severity == "error" else "yellow")
    return config


def _chosen(config: McpConfig, name: str | None) -> list[str]:
    if name is not None:
        config.require(name)
    return list(config.servers) if name is None else [name]


def _facts(name: str, config: McpConfig, known: KnownServer | None) -> dict[str, Any]:
    server = config.servers[name]
    tools = {f"{PREFIX}{name}.{tool}": it.description for tool, it in known.tools.items()} if known else None
    return {"server": name, "file": config.files[name], "reached_by": _reached(server), "tools": tools}


def _reached(server: McpServer) -> str:
    return server.url or one_line(" ".join(server.command), 80)


def _test(base: Organisation, name: str, listed: Listed, *, as_json: bool) -> KnownServer | None:
    """Tell of one server; return what it has, if it can be used as it was accepted."""
    known = known_servers(base).servers.get(name)
    other = differences(known, listed.tools) if known and not listed.problem else {}
    if as_json:
        tools = {f"{PREFIX}{name}.{tool}": it.description for tool, it in listed.tools.tools.items()}
        facts = {"tools": tools, "problem": listed.problem, "left_out": dict(listed.left_out)}
        show_json("mcp_test", {"server": name, **facts, "differences": other, "took_ms": listed.took_ms})
        return None if listed.problem or other else listed.tools
    if listed.problem:
        tell(one_line(f"{name}: {listed.problem}", 600), style="red")
        return None
    what = f"{counted(len(listed.tools.tools), 'tool')} in {listed.took_ms} ms"
    show(f"{painted(name, 'bold')}: {what}: {one_line(', '.join(listed.tools.tools), 300)}")
    for tool, why in listed.left_out.items():
        tell(one_line(f"  {tool} is left out: {why}", 300), style="yellow")
    for tool, what in other.items():
        tell(one_line(f"  {tool} {what}; `lemming mcp accept {name}`", 300), style="yellow")
    return None if other else listed.tools


def _offered(config: McpConfig, name: str, typed: str, found: KnownServer, *, yes: bool) -> str:
    """Return the tool of a server that may be called; raise `UsageError` for one that is not offered."""
    from lemming.capabilities.mcp.tools import class_of

    server, tool = config.servers[name], typed.removeprefix(f"{PREFIX}{name}.")
    if tool not in found.tools:
        hint = nearest(tool, [*found.tools]) or f"tools: {', '.join(found.tools) or 'none'}"
        used = ", ".join(server.tools)
        raise UsageError(f'{name} offers no tool "{one_line(tool, 80)}" ("tools": {used})', hint=hint)
    tool_class = class_of(server, found.tools[tool])
    if tool_class != "read" and not yes:
        hint = "--yes calls it; a tool only reads where it says so and the server's line has trust_hints"
        raise UsageError(
            f"{tool} is of class {tool_class}, may do something outside, and was not called", hint=hint
        )
    return tool


def _call(base: Organisation, name: str, tool: str, arguments: dict[str, Any], *, as_json: bool) -> bool:
    from lemming.capabilities.mcp.servers import McpServers

    server = mcp_config(base).require(name)
    answered = base.own(McpServers).call(name, server, tool, arguments)
    text = as_text(answered.content, answered.structured)
    if as_json:
        show_json(
            "mcp_call", {"server": name, "tool": tool, "success": not answered.is_error, "output": text}
        )
    else:
        show_text(text)
    if answered.questions is not None:
        tell(f"the server asks back: {one_line(str(dict(answered.questions)), 400)}", style="yellow")
    return not answered.is_error


def _show_differences(name: str, before: KnownServer, after: KnownServer, *, as_json: bool) -> None:
    for tool, what in differences(before, after).items():
        if as_json:
            show_json("mcp_difference", {"server": name, "tool": tool, "what": what})
            continue
        show(f"{painted(f'{PREFIX}{name}.{tool}', 'bold')} {what}")
        for sign, known in (("-", before.tools.get(tool)), ("+", after.tools.get(tool))):
            if known is not None:
                show(f"  {sign} {one_line(known.description, 400)}")
