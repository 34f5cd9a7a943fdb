"""Which MCP servers there are: `config/mcp.json`, and `.mcp.json` in the form that many programs share.

Secrets are named, never written down: a value is taken from the environment when a server is started. Format:
docs/mcp.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Literal
from urllib.parse import urlsplit

from lemming.kernel.base.errors import ConfigError, Problem, ToolError
from lemming.kernel.base.extras import install_line
from lemming.kernel.base.jsontext import DEFAULT_LIMIT_BYTES, nearest
from lemming.kernel.base.patterns import is_named
from lemming.kernel.base.redaction.secrets import holds_secret, is_secret_name, name_variables
from lemming.kernel.files.documents import Document, read_text, unreadable
from lemming.kernel.files.fitting import about, keyed
from lemming.kernel.files.unknown import Unknown
from lemming.kernel.org.organisation import Organisation, OrgPath

MCP_FILE = "config/mcp.json"
SHARED_FILE = ".mcp.json"
PREFIX = "mcp."
"""How the names of all tools of MCP servers begin: `mcp.<server>.<tool>`."""

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_AN_ENTRY = '{"command": ["program", "argument"]} or {"url": "https://host/mcp"}'


@dataclass(frozen=True, kw_only=True)
class McpServer:
    """How one MCP server is reached, and what of it is used."""

    command: list[str] = field(
        default_factory=list, metadata=about("The program that is the server, and its arguments.")
    )
    env: list[str] = field(
        default_factory=list, metadata=about("Names of variables that the program is given.")
    )
    cwd: str = field(default="", metadata=about("The program's folder; default: the organisation's."))
    url: str = field(default="", metadata=about("Address of a server that is reached by streamable HTTP."))
    headers_env: dict[str, str] = field(
        default_factory=dict,
        metadata=about('HTTP headers: each the name of a variable, or a text such as "Bearer ${NAME}".'),
    )
    tools: list[str] = field(
        default_factory=lambda: ["*"],
        metadata=about("Which of its tools are used: names, with * for any letters."),
    )
    trust_hints: bool = field(
        default=False,
        metadata=about("Believe what the server says of its tools: that one only reads, or may be repeated."),
    )
    independent: bool = field(
        default=False,
        metadata=about(
            "Its tools neither look at nor change files of the organisation: turns need not wait."
        ),
    )
    parallel: bool = field(
        default=False,
        metadata=about("Those of its tools that may be repeated (see trust_hints) may be called at once."),
    )
    timeout_s: float = field(
        default=60.0, metadata=about("Longest time of a call, and of listing the tools.", gt=0, le=86_400)
    )
    start_timeout_s: float = field(
        default=30.0, metadata=about("Longest time to start and to list its tools.", gt=0, le=600)
    )
    ask: str = field(default="human", metadata=about("The agent who is asked what the server asks back."))
    variables: dict[str, str] = field(
        default_factory=dict,
        metadata=about("Further variables of the program; ${NAME} stands for one of the engine's."),
    )


@dataclass(frozen=True, kw_only=True)
class McpSettings:
    """What `config/mcp.json` holds."""

    servers: dict[str, McpServer] = field(
        default_factory=dict, metadata=about("The servers by name: tools are called mcp.<name>.<tool>.")
    )


@dataclass(frozen=True, kw_only=True)
class SharedServer:
    """A server as other programs write it: Claude Code, Cursor, VS Code and more."""

    type: Literal["stdio", "http", "streamable-http", "sse", ""] = ""
    command: str = ""
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    disabled: bool = False


@dataclass(frozen=True, kw_only=True)
class SharedSettings:
    """What `.mcp.json` holds."""

    servers: dict[str, SharedServer] = field(
        default_factory=dict, metadata=keyed("mcpServers", "The servers by name.")
    )


@dataclass(frozen=True)
class McpConfig:
    """The servers of an organisation by name, and the file that each stands in.

    `problems` are for a person. Errors among them take out a server that another program's file has; in our
    own, and where a file cannot be read at all, they are `fatal`.
    """

    servers: Mapping[str, McpServer]
    files: Mapping[str, str]
    problems: tuple[Problem, ...] = ()
    fatal: tuple[Problem, ...] = ()

    def require_sound(self) -> None:
        """Raise `ConfigError` with what is wrong beyond one server of another program's file."""
        if self.fatal:
            raise ConfigError(str(self.fatal[0]), problems=self.fatal)

    def require(self, name: str) -> McpServer:
        """Return a server; raise `ToolError` with the nearest name."""
        if name in self.servers:
            return self.servers[name]
        hint = nearest(name, list(self.servers)) or f"servers: {', '.join(self.servers) or 'none'}"
        raise ToolError(f'no MCP server "{name}"', hint=hint)


def mcp_config(base: OrgPath) -> McpConfig:
    """Return the MCP servers of an organisation: those of which nothing is wrong, and what is wrong.

    The very same value when no file says anything new.
    """
    org = Organisation.at(base)
    found = [_read(org, MCP_FILE, McpSettings, "none"), _read(org, SHARED_FILE, SharedSettings, "kept")]
    latest = org.own(_Latest)
    if latest.config is None or not all(map(is_, latest.found, found)):
        latest.config, latest.found = _config_of(*found), found
    return latest.config


class _Latest:
    """The servers as they were last, and what the files said."""

    def __init__(self, _: Organisation) -> None:
        self.config: McpConfig | None = None
        self.found: list[Any] = []


def _read(
    org: Organisation, file: str, kind: type[Any], unknown: Unknown
) -> Document[Any] | ConfigError | None:
    def decode(raw: bytes) -> Document[Any]:
        return read_text(raw, file, kind, limit_bytes=DEFAULT_LIMIT_BYTES, unknown_keys_are=unknown)

    try:
        reading = org.files.reading(file, decode, limit_bytes=DEFAULT_LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        return unreadable(file, error)
    return reading.outcome


def _config_of(own: Any, shared: Any) -> McpConfig:
    problems: list[Problem] = []
    fatal: list[Problem] = []
    servers: dict[str, McpServer] = {}
    files: dict[str, str] = {}
    for file, found in ((MCP_FILE, own), (SHARED_FILE, shared)):
        if isinstance(found, ConfigError):
            fatal += found.problems
        if not isinstance(found, Document):
            continue
        # Other programs have keys of their own; what looks like a slip of the pen is told all the same.
        problems += [it for it in found.warnings if "did you mean" in it.hint]
        for name, entry in found.value.servers.items():
            if isinstance(entry, SharedServer) and entry.disabled:
                continue
            wrong = [*_wrong(name, entry, file)]
            if name in servers:
                wrong.append(_error(file, name, f'"{name}" stands in {files[name]} too', "keep one of them"))
            (fatal if file == MCP_FILE else problems).extend(wrong)
            if not wrong:
                servers[name] = entry if isinstance(entry, McpServer) else _as_ours(entry)
                files[name] = file
    for server in servers.values():
        name_variables({"env": variables_named(server), "url": server.url}, MCP_FILE)
    return McpConfig(dict(sorted(servers.items())), files, (*fatal, *problems), tuple(fatal))


def _as_ours(entry: SharedServer) -> McpServer:
    return McpServer(
        command=[entry.command, *entry.args] if entry.command else [],
        variables=entry.env,
        cwd=entry.cwd,
        url=entry.url,
        headers_env=entry.headers,
    )


# --- what is wrong ---------------------------------------------------------------------------------


def _wrong(name: str, entry: McpServer | SharedServer, file: str) -> Iterator[Problem]:
    """Yield what is wrong with one server beyond the types of its values."""
    key = "mcpServers" if isinstance(entry, SharedServer) else "servers"
    if not _SERVER_NAME.match(name):
        hint = "letters, digits, _ and -, at most 32"
        yield _error(file, name, f'"{name[:60]}" is no name for a server', hint, key=key)
    if bool(entry.command) == bool(entry.url):
        what = "has both a command and an address" if entry.url else "has neither a command nor an address"
        yield _error(file, name, f"the server {what}", f"write {_AN_ENTRY}", key=key)
    if entry.url and (why := _why_no_address(entry.url)):
        yield _error(file, f"{name}/url", why, 'such as "https://host/mcp"', key=key)
    if isinstance(entry, SharedServer):
        yield from _wrong_in_shared(name, entry, file)
        return
    for place, word in enumerate(entry.env):
        if not _VARIABLE.match(word):
            what = "a value stands here" if "=" in word else f'"{word[:40]}" is no name of a variable'
            hint = "write the variable's name; its value stays in the environment"
            yield _error(file, f"{name}/env/{place}", what, hint)
    for header, text in entry.headers_env.items():
        if not (_VARIABLE.match(text) or _REFERENCE.search(text)):
            hint = 'name the variable that holds it, as "NAME" or "Bearer ${NAME}"'
            yield _error(file, f"{name}/headers_env/{header}", "a value stands here", hint)
    yield from _written_down(f"{name}/variables", entry.variables, file, "servers")


def _wrong_in_shared(name: str, entry: SharedServer, file: str) -> Iterator[Problem]:
    if entry.type == "sse":
        hint = '"type": "http" with the address of its streamable HTTP; SSE alone is no longer spoken'
        yield _error(file, f"{name}/type", "the transport sse is not supported", hint, key="mcpServers")
    yield from _written_down(f"{name}/env", entry.env, file, "mcpServers")
    yield from _written_down(f"{name}/headers", entry.headers, file, "mcpServers")
    words = {str(at): word for at, word in enumerate(entry.args)}
    yield from _written_down(f"{name}/args", words, file, "mcpServers")


def _written_down(above: str, values: Mapping[str, str], file: str, key: str) -> Iterator[Problem]:
    """Yield an error for each secret that stands in the file itself."""
    for name, value in values.items():
        if _REFERENCE.search(value) or not value:
            continue
        if is_secret_name(name) or holds_secret(value):
            hint = f'put it into the environment, and write "${{{_variable_for(name)}}}" here'
            yield _error(file, f"{above}/{name}", "a secret stands here", hint, key=key)


def _variable_for(name: str) -> str:
    return re.sub(r"\W", "_", name).upper() if not name.isdigit() else "NAME"


def _why_no_address(url: str) -> str:
    try:
        parts = urlsplit(_REFERENCE.sub("x", url))
    except ValueError:
        return "no address"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "no address of a server"
    return "a user or password stands in the address" if parts.username or parts.password else ""


def _error(file: str, place: str, message: str, hint: str, *, key: str = "servers") -> Problem:
    return Problem(message, file, pointer=f"/{key}/{place}", hint=hint)


# --- values from the environment -------------------------------------------------------------------


def variables_named(server: McpServer) -> list[str]:
    """Return the variables whose values a server is given, in order."""
    return sorted({*server.env, *_named_in(server)})


def _named_in(server: McpServer) -> Iterator[str]:
    """Yield the variables that a server's texts refer to."""
    for text in (*server.command, server.url, server.cwd, *server.variables.values()):
        yield from (name for name, _ in _REFERENCE.findall(text))
    for text in server.headers_env.values():
        yield from [text] if _VARIABLE.match(text) else (name for name, _ in _REFERENCE.findall(text))


def filled_in(text: str) -> str:
    """Return a text with the values of the variables it refers to; raise `ToolError` for one not set."""
    return _REFERENCE.sub(lambda match: _value(match[1], match[2]), text)


def environment_of(server: McpServer) -> dict[str, str]:
    """Return the variables that a server's program is given besides the usual ones. Raises `ToolError`."""
    own = {name: _value(name, None) for name in server.env}
    return own | {name: filled_in(text) for name, text in server.variables.items()}


def headers_of(server: McpServer) -> dict[str, str]:
    """Return the headers that requests to a server have. Raises `ToolError`."""
    return {
        header: _value(text, None) if _VARIABLE.match(text) else filled_in(text)
        for header, text in server.headers_env.items()
    }


def require_sdk() -> None:
    """Raise `ToolError` that says what to do unless the SDK is installed."""
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise ToolError("the MCP SDK is not installed", hint=install_line("mcp"))


def _value(name: str, default: str | None) -> str:
    value = os.environ.get(name, default)
    if value is None:
        raise ToolError(f"the variable {name} is not set", hint="set it where the engine is started")
    return value


def servers_named(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the servers, out of `names`, that patterns of `permissions.tools` reach, in order.

    >>> servers_named(["mcp.files.*", "shell"], ["files", "web"]), servers_named(["mcp.*"], ["files", "web"])
    (['files'], ['files', 'web'])
    """
    wanted = [pattern.removeprefix(PREFIX) for pattern in patterns if pattern.startswith(PREFIX)]
    return [name for name in names if any(is_named(name, pattern.partition(".")[0]) for pattern in wanted)]
