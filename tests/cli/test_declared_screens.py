"""A screen is a declaration: the command, `--json`, its schema, the documentation, the page and the MCP tool follow it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from terminal import Lemming, typed_at

from docs.reference import render_columns
from lemming.capabilities.mcp.mcp_server import make_server
from lemming.commands.command_context import CommandContext
from lemming.commands.terminal import one_line, output_mode
from lemming.engine import run_once
from lemming.kernel.org.organisation import Organisation
from lemming.queries.format_schemas import get_schema
from lemming.queries.screens.cost_screen import CREDITS
from lemming.queries.screens.screen import Column, Screen
from lemming.queries.screens.screen_registry import iter_screens, load_screen
from lemming.queries.views.screen_view import table_to_json
from lemming.queries.views.view_registry import build_view

WITH_QUERY = [screen.name for screen in iter_screens() if screen.query]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation made from a template, with ticks behind it."""
    from lemming.cli import run

    base = tmp_path_factory.mktemp("screens") / "org"
    assert run(["init", str(base), "--template", "desk", "--quiet"]) == 0
    assert run(["-C", str(base), "history", "on"]) == 0
    for _ in range(3):
        run_once(base)
    return base


@pytest.fixture
def lemming(desk: Path, capsys: pytest.CaptureFixture[str]) -> Lemming:
    return typed_at(desk, capsys)


def required_values(base: Path, screen: Screen) -> dict[str, str]:
    agent = min(path.parent.name for path in base.glob("agents/*/resume.json"))
    needed = (name for name, (parameter, *_) in screen.parameters.items() if parameter.default is parameter.empty)
    return dict.fromkeys(needed, agent)


@pytest.mark.parametrize("name", WITH_QUERY)
def test_the_command_and_the_page_show_the_same_table(desk: Path, lemming: Lemming, name: str) -> None:
    screen = load_screen(name)
    values = required_values(desk, screen)
    arguments = [word for word in screen.to_arguments(values) if word != "--json"]
    printed, shown = lemming(*arguments), build_view(Organisation(desk), "screen", {"screen": name, **values})
    if not shown["rows"] and screen.empty:
        assert screen.empty in printed.err + printed.out
        return
    if not screen.is_table:
        assert all(row[0] in printed.out for row in shown["rows"])
        return
    words = [word for column in shown["columns"] for word in (column["header"] or "").split()]
    lines = printed.out.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.split() == words)
    widths = {column.header: column.width for column in screen.columns}
    cuts = [widths[column["header"]] for column in shown["columns"]]
    rows = [" ".join(" ".join(map(one_line, row, cuts)).split()) for row in shown["rows"]]
    assert [" ".join(line.split()) for line in lines[start + 1 :][: len(rows)]] == rows


@pytest.mark.parametrize("name", WITH_QUERY)
def test_each_object_follows_the_schema_of_its_screen(desk: Path, lemming: Lemming, name: str) -> None:
    screen = load_screen(name)
    objects = [
        found for found in lemming(*screen.to_arguments(required_values(desk, screen))).objects
        if found["type"] == screen.kind
    ]  # fmt: skip
    output = Draft202012Validator(get_schema("shown"))
    for found in objects:
        assert [error.message for error in output.iter_errors(found)] == []
    assert screen.schema()["properties"].keys() == {column.key for column in screen.keys}


def test_each_column_has_its_meaning_in_the_documentation() -> None:
    unexplained = [
        f"{screen.name} {column.key}" for screen in iter_screens() for column in screen.keys if not column.about
    ]
    assert unexplained == []


def test_a_new_column_is_one_line(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    column = Column("share", "SHARE", "Share of the limit that is spent.", float, value=lambda account: 0.25)
    screen = replace(CREDITS, columns=(*CREDITS.columns, column))
    org = Organisation(desk)
    result = screen.load(org, {})

    class Context(CommandContext):
        org = Organisation(desk)

    Context(None, as_json=False).print_screen(screen, result)  # type: ignore[arg-type]
    assert capsys.readouterr().out.splitlines()[0].endswith("  SHARE")
    with output_mode(as_json=True):
        Context(None, as_json=True).print_screen(screen, result)  # type: ignore[arg-type]
    assert '"share":0.25' in capsys.readouterr().out
    assert screen.schema()["properties"]["share"] == {"type": "number", "description": column.about}
    assert "| SHARE | `share` | number | Share of the limit that is spent. |" in render_columns(screen)
    table = table_to_json(screen, result)
    assert table["columns"][-1] == {
        "key": "share", "header": "SHARE", "about": column.about, "shown": "text", "is_number": True
    }  # fmt: skip
    assert {row[-1] for row in table["rows"]} == {"0.25"}


def test_the_tools_of_the_mcp_server_have_the_parameters_of_the_queries(desk: Path) -> None:
    async def list_tools() -> dict[str, Any]:
        return {tool.name: tool for tool in await make_server(desk).list_tools()}

    tools = asyncio.run(list_tools())
    for screen in iter_screens():
        if screen.tool:
            assert tools[screen.tool].input_schema["properties"].keys() == screen.parameters.keys()
