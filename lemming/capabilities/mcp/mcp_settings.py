"""Settings of MCP servers: `config/mcp.json`, and `.mcp.json` in the form shared by many programs.

Secrets are referenced by name: values come from the environment when a server is started. Format: docs/tools.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Literal
from urllib.parse import urlsplit

from lemming.ext import ConfigError, Problem
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import DEFAULT_LIMIT_BYTES, did_you_mean
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.base.redaction.secrets import has_secret_shape, is_secret_name, register_secret_variables
from lemming.kernel.files.fast_decoder import make_field
from lemming.kernel.files.json_documents import Document, parse_document, unreadable_error
from lemming.kernel.files.unknown_keys import UnknownKeyPolicy
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.libraries.optional_packages import install_command

MCP_FILE = "config/mcp.json"
SHARED_FILE = ".mcp.json"
PREFIX = "mcp."
"""Prefix of every MCP tool name: `mcp.<server>.<tool>`."""

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_IS_VALUE = "expected the name of an environment variable, got a value"
_ENTRY_EXAMPLE = '{"command": ["program", "argument"]} or {"url": "https://host/mcp"}'


@dataclass(frozen=True, kw_only=True)
class McpServerSettings:
    """Settings of one MCP server: connection and tools in use."""

    command: list[str] = make_field(list, "The server's program and its arguments.")
    env: list[str] = make_field(list, "Environment variables passed on to the program.")
    cwd: str = make_field("", "Working folder of the program; default: the organisation's.")
    url: str = make_field("", "Address of a server that uses streamable HTTP.")
    headers_env: dict[str, str] = make_field(
        dict, 'HTTP headers: each the name of an environment variable, or a text such as "Bearer ${NAME}".'
    )
    tools: list[str] = make_field(lambda: ["*"], "Tools to use: names, with * as a wildcard.")
    trust_hints: bool = make_field(False, "Trust the server's hints that a tool only reads, or may be repeated.")
    independent: bool = make_field(
        False, "Its tools neither read nor change files of the organisation, so turns need not wait for each other."
    )
    parallel: bool = make_field(False, "Tools that may be repeated (see trust_hints) may run in parallel.")
    timeout_s: float = make_field(60.0, "Timeout of a call, and of listing the tools, in seconds.", gt=0, le=86_400)
    start_timeout_s: float = make_field(
        30.0, "Timeout of starting the server and listing its tools, in seconds.", gt=0, le=600
    )
    ask: str = make_field("human", "The agent that answers questions of the server.")
    variables: dict[str, str] = make_field(
        dict, "Further environment variables of the program; ${NAME} stands for one of the engine's."
    )


@dataclass(frozen=True, kw_only=True)
class McpSettings:
    """Content of `config/mcp.json`."""

    servers: dict[str, McpServerSettings] = make_field(dict, "Servers by name; tools are called mcp.<name>.<tool>.")


@dataclass(frozen=True, kw_only=True)
class SharedMcpServer:
    """Server in the form of other programs: Claude Code, Cursor, VS Code and more."""

    type: Literal["stdio", "http", "streamable-http", "sse", ""] = ""
    command: str = ""
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    disabled: bool = False


@dataclass(frozen=True, kw_only=True)
class SharedMcpSettings:
    """Content of `.mcp.json`."""

    servers: dict[str, SharedMcpServer] = make_field(dict, "The servers by name.", key="mcpServers")


@dataclass(frozen=True)
class McpConfig:
    """Servers of an organisation by name, with the file of each.

    `problems` are for a person. An error in another program's file excludes its server; errors in our own
    file, and unreadable files, are `fatal`.
    """

    servers: Mapping[str, McpServerSettings]
    files: Mapping[str, str]
    problems: tuple[Problem, ...] = ()
    fatal: tuple[Problem, ...] = ()

    def require_valid(self) -> None:
        """Raise `ConfigError` with all fatal problems."""
        if self.fatal:
            raise ConfigError(str(self.fatal[0]), problems=self.fatal)

    def get_server(self, name: str) -> McpServerSettings:
        """Return a server by name. Raises: ToolError with the nearest name."""
        if name in self.servers:
            return self.servers[name]
        hint = did_you_mean(name, list(self.servers)) or f"servers: {', '.join(self.servers) or 'none'}"
        raise ToolError(f'no MCP server "{name}"', hint=hint)


def load_mcp_config(base: OrgPath) -> McpConfig:
    """Return the valid MCP servers of an organisation, and all problems. Unchanged files give the same object."""
    org = Organisation.from_path(base)
    documents = [
        _load_settings(org, MCP_FILE, McpSettings, "none"),
        _load_settings(org, SHARED_FILE, SharedMcpSettings, "kept"),
    ]
    cache = org.get_cache(_McpConfigCache)
    if cache.config is None or not all(map(is_, cache.documents, documents)):
        cache.config, cache.documents = _merge_settings(*documents), documents
    return cache.config


class _McpConfigCache:
    def __init__(self, _: Organisation) -> None:
        self.config: McpConfig | None = None
        self.documents: list[Any] = []


def _load_settings(
    org: Organisation, file: str, kind: type[Any], unknown: UnknownKeyPolicy
) -> Document[Any] | ConfigError | None:
    def decode(raw: bytes) -> Document[Any]:
        return parse_document(raw, file, kind, limit_bytes=DEFAULT_LIMIT_BYTES, unknown_key_policy=unknown)

    try:
        reading = org.files.get_reading(file, decode, limit_bytes=DEFAULT_LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        return unreadable_error(file, error)
    return reading.outcome


def _merge_settings(settings: Any, shared_settings: Any) -> McpConfig:
    problems: list[Problem] = []
    fatal: list[Problem] = []
    servers: dict[str, McpServerSettings] = {}
    files: dict[str, str] = {}
    for file, document in ((MCP_FILE, settings), (SHARED_FILE, shared_settings)):
        if isinstance(document, ConfigError):
            fatal += document.problems
        if not isinstance(document, Document):
            continue
        # Other programs have keys of their own; likely typos are reported all the same.
        problems += [problem for problem in document.warnings if "did you mean" in problem.hint]
        for name, entry in document.value.servers.items():
            if isinstance(entry, SharedMcpServer) and entry.disabled:
                continue
            entry_problems = [*_validate_server(name, entry, file)]
            if name in servers:
                entry_problems.append(_make_error(file, name, f'"{name}" is also in {files[name]}', "keep one of them"))
            (fatal if file == MCP_FILE else problems).extend(entry_problems)
            if not entry_problems:
                servers[name] = entry if isinstance(entry, McpServerSettings) else _from_shared(entry)
                files[name] = file
    for server in servers.values():
        register_secret_variables({"env": referenced_variables(server), "url": server.url}, MCP_FILE)
    return McpConfig(dict(sorted(servers.items())), files, (*fatal, *problems), tuple(fatal))


def _from_shared(entry: SharedMcpServer) -> McpServerSettings:
    return McpServerSettings(
        command=[entry.command, *entry.args] if entry.command else [],
        variables=entry.env,
        cwd=entry.cwd,
        url=entry.url,
        headers_env=entry.headers,
    )


def _validate_server(name: str, entry: McpServerSettings | SharedMcpServer, file: str) -> Iterator[Problem]:
    key = "mcpServers" if isinstance(entry, SharedMcpServer) else "servers"
    if not _SERVER_NAME.match(name):
        hint = "use letters, digits, _ and -, at most 32 characters"
        yield _make_error(file, name, f'"{name[:60]}" is not a valid name for a server', hint, key=key)
    if bool(entry.command) == bool(entry.url):
        description = "has both a command and an address" if entry.url else "has neither a command nor an address"
        yield _make_error(file, name, f"the server {description}", f"write {_ENTRY_EXAMPLE}", key=key)
    if entry.url and (url_error := _url_error(entry.url)):
        yield _make_error(file, f"{name}/url", url_error, 'write "https://host/mcp", for example', key=key)
    if isinstance(entry, SharedMcpServer):
        yield from _validate_shared(name, entry, file)
        return
    for index, variable in enumerate(entry.env):
        if not _VARIABLE.match(variable):
            message = _IS_VALUE if "=" in variable else f'"{variable[:40]}" is not a valid name for a variable'
            hint = "write the variable's name; its value stays in the environment"
            yield _make_error(file, f"{name}/env/{index}", message, hint)
    for header, text in entry.headers_env.items():
        if not (_VARIABLE.match(text) or _REFERENCE.search(text)):
            hint = 'write the name of its environment variable, as "NAME" or "Bearer ${NAME}"'
            yield _make_error(file, f"{name}/headers_env/{header}", _IS_VALUE, hint)
    yield from _find_plain_secrets(f"{name}/variables", entry.variables, file, "servers")


def _validate_shared(name: str, entry: SharedMcpServer, file: str) -> Iterator[Problem]:
    if entry.type == "sse":
        hint = 'write "type": "http" with the address for streamable HTTP'
        yield _make_error(file, f"{name}/type", "the transport sse is not supported", hint, key="mcpServers")
    yield from _find_plain_secrets(f"{name}/env", entry.env, file, "mcpServers")
    yield from _find_plain_secrets(f"{name}/headers", entry.headers, file, "mcpServers")
    arguments = {str(position): argument for position, argument in enumerate(entry.args)}
    yield from _find_plain_secrets(f"{name}/args", arguments, file, "mcpServers")


def _find_plain_secrets(base_pointer: str, values: Mapping[str, str], file: str, key: str) -> Iterator[Problem]:
    for name, value in values.items():
        if _REFERENCE.search(value) or not value:
            continue
        if is_secret_name(name) or has_secret_shape(value):
            variable = "NAME" if name.isdigit() else re.sub(r"\W", "_", name).upper()
            hint = f'put the secret into the environment, and write "${{{variable}}}" here'
            message = "expected a reference to an environment variable, got a secret"
            yield _make_error(file, f"{base_pointer}/{name}", message, hint, key=key)


def _url_error(url: str) -> str:
    try:
        parts = urlsplit(_REFERENCE.sub("x", url))
    except ValueError:
        return "expected an address"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "expected the address of a server"
    return "the address must not contain a user or password" if parts.username or parts.password else ""


def _make_error(file: str, pointer: str, message: str, hint: str, *, key: str = "servers") -> Problem:
    return Problem(message, file, pointer=f"/{key}/{pointer}", hint=hint)


def referenced_variables(server: McpServerSettings) -> list[str]:
    """Return the variables passed to a server, in order."""
    names = {*server.env, *filter(_VARIABLE.match, server.headers_env.values())}
    texts = (*server.command, server.url, server.cwd, *server.variables.values(), *server.headers_env.values())
    return sorted(names.union(name for text in texts for name, _ in _REFERENCE.findall(text)))


def expand_variables(text: str) -> str:
    """Return a text with its variables expanded. Raises: ToolError for an unset variable."""
    return _REFERENCE.sub(lambda match: _get_variable(match[1], match[2]), text)


def build_environment(server: McpServerSettings) -> dict[str, str]:
    """Return the extra environment variables of a server's program. Raises: ToolError for an unset variable."""
    inherited = {name: _get_variable(name, None) for name in server.env}
    return inherited | {name: expand_variables(text) for name, text in server.variables.items()}


def build_headers(server: McpServerSettings) -> dict[str, str]:
    """Return the headers of requests to a server. Raises: ToolError for an unset variable."""
    return {
        header: _get_variable(text, None) if _VARIABLE.match(text) else expand_variables(text)
        for header, text in server.headers_env.items()
    }


def require_sdk() -> None:
    """Raise `ToolError` with a hint if the SDK is not installed."""
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise ToolError("the MCP SDK is not installed", hint=install_command("mcp"))


def _get_variable(name: str, default: str | None) -> str:
    value = os.environ.get(name, default)
    if value is None:
        raise ToolError(f"the variable {name} is not set", hint="set it where the engine is started")
    return value


def match_servers(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the servers in `names` matched by patterns of `permissions.tools`, in order.

    >>> match_servers(["mcp.files.*", "shell"], ["files", "web"]), match_servers(["mcp.*"], ["files", "web"])
    (['files'], ['files', 'web'])
    """
    server_patterns = [pattern.removeprefix(PREFIX) for pattern in patterns if pattern.startswith(PREFIX)]
    return [name for name in names if any(is_match(name, pattern.partition(".")[0]) for pattern in server_patterns)]
