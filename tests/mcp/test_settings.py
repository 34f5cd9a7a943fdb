"""`config/mcp.json` and `.mcp.json`: what they may say, and what is said of mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from connected import configure, org_with

from lemming.capabilities.mcp.mcp_settings import build_environment, build_headers, load_mcp_config
from lemming.cli import run
from lemming.testing import make_org, resume


def problems(base: Path, servers: dict[str, Any], file: str = "config/mcp.json") -> list[str]:
    """Return what is said of servers, without the place of the file."""
    (base / "config").mkdir(exist_ok=True)
    key = "servers" if file.startswith("config") else "mcpServers"
    (base / file).write_text(json.dumps({key: servers}))
    return [f"{it.pointer}: {it.message}{f' ({it.hint})' if it.hint else ''}" for it in load_mcp_config(base).problems]


PROGRAM = {"command": ["server"]}


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ({"a": {}}, "/servers/a: the server has neither a command nor an address"),
        ({"a": {**PROGRAM, "url": "http://x/mcp"}}, "has both a command and an address"),
        ({"a b": PROGRAM}, '"a b" is not a valid name for a server'),
        ({"a": {"url": "ftp://x"}}, "/servers/a/url: expected the address of a server"),
        ({"a": {"url": "https://me:word@x/mcp"}}, "the address must not contain a user or password"),
        (
            {"a": {**PROGRAM, "env": ["KEY=sk-12345678"]}},
            "/servers/a/env/0: expected the name of an environment variable, got a value",
        ),
        (
            {"a": {"url": "http://x", "headers_env": {"X-Key": "a b"}}},
            "headers_env/X-Key: expected the name of an environment variable",
        ),
        (
            {"a": {**PROGRAM, "variables": {"API_KEY": "abc"}}},
            "variables/API_KEY: expected a reference to an environment variable, got a secret",
        ),
        ({"a": {**PROGRAM, "comand": 1}}, '/servers/a/comand: unknown key "comand" (did you mean "command"?)'),
        ({"a": {"command": "server"}}, '/servers/a/command: expected a list, got "server"'),
        ({"a": {**PROGRAM, "timeout_s": 0}}, "/servers/a/timeout_s: expected a number above 0"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, servers: dict[str, Any], said: str) -> None:
    assert [it for it in problems(tmp_path, servers) if said in it]


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ({"a": {"command": "npx", "env": {"GITHUB_TOKEN": "ghp_0123456789"}}}, 'write "${GITHUB_TOKEN}" here'),
        ({"a": {"url": "http://x", "headers": {"Authorization": "Bearer abc"}}}, "/mcpServers/a/headers"),
        ({"a": {"command": "npx", "args": ["--key=sk-0123456789ab"]}}, "/mcpServers/a/args/0: expected a reference"),
        ({"a": {"type": "sse", "url": "http://x"}}, "the transport sse is not supported"),
        ({"a": {"type": "websocket", "url": "http://x"}}, "/mcpServers/a/type: expected 'stdio'"),
    ],
)
def test_a_mistake_in_the_common_form_is_named_too(tmp_path: Path, servers: dict[str, Any], said: str) -> None:
    assert [it for it in problems(tmp_path, servers, ".mcp.json") if said in it]


def test_the_common_form_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILES_TOKEN", "correct-horse")
    servers = {
        "files": {
            "type": "stdio",
            "command": "npx",
            "args": ["-y", "server-files", "${FOLDER:-/tmp}"],
            "env": {"FILES_TOKEN": "${FILES_TOKEN}", "LOG_LEVEL": "debug"},
            "alwaysAllow": ["read"],
        },
        "web": {"type": "http", "url": "https://x/mcp", "headers": {"Authorization": "Bearer ${FILES_TOKEN}"}},
        "off": {"command": "npx", "disabled": True},
    }
    assert problems(tmp_path, servers, ".mcp.json") == []
    found = load_mcp_config(tmp_path).servers
    assert list(found) == ["files", "web"]
    assert found["files"].command == ["npx", "-y", "server-files", "${FOLDER:-/tmp}"]
    assert build_environment(found["files"]) == {"FILES_TOKEN": "correct-horse", "LOG_LEVEL": "debug"}
    assert build_headers(found["web"]) == {"Authorization": "Bearer correct-horse"}


def test_two_servers_of_one_name_are_an_error_that_names_both_files(tmp_path: Path) -> None:
    problems(tmp_path, {"a": PROGRAM})
    said = problems(tmp_path, {"a": {"command": "npx"}}, ".mcp.json")
    assert said == ['/servers/a: "a" is also in config/mcp.json (keep one of them)']


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("mcp.fils.*", 'there is no MCP server "fils"'), ("mcp.files", "is the server itself"), ("mcp.files.*", "")],
)
def test_validate_says_which_pattern_reaches_no_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pattern: str, said: str
) -> None:
    base = org_with(tmp_path, {"files": PROGRAM}, tools=[pattern])
    status = run(["-C", str(base), "validate"])
    shown = capsys.readouterr()
    assert status == (3 if said else 0), shown
    assert said in shown.out + shown.err


@pytest.mark.parametrize(
    ("ask", "human_reads", "ada_reads", "said"),
    [
        ("human", ["ada"], ["human"], ""),
        ("human", [], ["human"], 'human may not read ada: add "ada"'),
        ("human", ["ada"], [], 'ada may not read human: add "human"'),
        ("hilda", ["ada"], ["human"], 'there is no agent "hilda" to ask'),
    ],
)
def test_validate_says_whose_questions_nobody_gets(
    base: Path, capsys: pytest.CaptureFixture[str], ask: str, human_reads: list[str], ada_reads: list[str], said: str
) -> None:
    make_org(
        base,
        resume("ada", permissions={"read_outboxes": ada_reads, "tools": ["mcp.desk.*"]}),
        resume("bob", permissions={"read_outboxes": [], "tools": []}),
        resume("human", model={"key": "human"}, permissions={"read_outboxes": human_reads}),
        models={"human": {"provider": "human"}},
    )
    configure(base, {"desk": {**PROGRAM, "ask": ask}})
    assert run(["-C", str(base), "validate"]) == 0
    shown = "".join(capsys.readouterr())
    assert ("/servers/desk/ask: questions of MCP server desk to ada" in shown) == bool(said), shown
    assert said in shown


def test_trust_says_which_servers_are_started_and_what_they_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    web = {"url": "https://x.example/mcp", "headers_env": {"Authorization": "Bearer ${WEB_KEY}"}}
    base = org_with(tmp_path, {"files": {**PROGRAM, "env": ["FILES_KEY"]}, "web": web, "unused": PROGRAM})
    resume = base / "agents/ada/resume.json"
    resume.write_text(resume.read_text().replace('"mcp.*"', '"mcp.files.*", "mcp.web.*"'))
    run(["-C", str(base), "trust"])
    shown = capsys.readouterr().out
    assert "runs the program: server, the MCP server files, and what the variables FILES_KEY hold" in shown
    assert "sends calls, and what the variables WEB_KEY hold, to https://x.example/mcp" in shown
    assert "unused" not in shown
