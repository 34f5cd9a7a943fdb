"""Plugins: what one registers belongs to the organisations that name it, however many a process runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, reload
from itertools import count
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files import fs
from lemming.kernel.org.config import OrgSettings, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import load_plugins
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tools import SHIPPED, ToolRegistry, get_toolset
from lemming.queries.org_validation import validate_agents, validate_config
from lemming.testing import journal_lines, make_org, resume, say

NUMBERS = count()

TOOL = """
from pathlib import Path
from lemming.tools import Tool, ToolRegistry, ToolResult

class {class_name}(Tool):
    name = "{name}"
    description = "Does something custom."

    def execute(self, agent_name: str, base_path: Path, **kwargs) -> ToolResult:
        return ToolResult(True, "{says}")

ToolRegistry.register({class_name}())
"""
PROVIDER = """
from lemming.providers import LLMProvider, register_provider

class Answering(LLMProvider):
    def call(self, model_name, messages, temperature, **kwargs):
        return '{{"notes": "heard"}}'

register_provider("{name}", Answering)
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that can be imported, and has not been."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = {*ToolRegistry.names()}
    yield f"plugin_of_a_test_{next(NUMBERS)}"
    for name in {*ToolRegistry.names()} - before:
        ToolRegistry.unregister(name)


def write(tmp_path: Path, module: str, source: str) -> None:
    (tmp_path / f"plugins/{module}.py").write_text(source)


def tool(name: str = "note", says: str = "done", class_name: str = "Own") -> str:
    return TOOL.format(name=name, says=says, class_name=class_name)


def org(base: Path, *plugins: str, calls: str = "note") -> Path:
    return make_org(
        base,
        resume("ada", permissions={"tools": [calls]}),
        script=[{"reply": say("calling", tool_calls=[{"tool": calls, "args": {}}])}],
        org={"plugins": [*plugins]},
    )


def result_in(base: Path) -> str:
    run_once(base)
    (finished,) = (record for record in journal_lines(base, 1) if record["type"] == "tool_finished")
    return str(finished["output"])


def prompt_in(base: Path) -> str:
    (started,) = (record for record in journal_lines(base, 1) if record["type"] == "turn_started")
    return str(started["prompt"][0]["content"])


def test_a_tool_reaches_the_organisations_that_name_its_plugin_and_no_other(tmp_path: Path, plugin: str) -> None:
    write(tmp_path, plugin, tool())
    first, other, again = org(tmp_path / "a", plugin), org(tmp_path / "b"), org(tmp_path / "c", plugin)
    assert result_in(first) == "done"
    assert result_in(other).startswith('no tool "note" (')
    assert result_in(again) == "done"
    assert "  - note:" in prompt_in(first)
    assert "note:" not in prompt_in(other)
    problems = list(validate_agents(other, load_config(other), None))
    assert [(found.pointer, found.message) for found in problems] == [("/permissions/tools/0", 'no tool "note"')]
    assert not list(validate_agents(again, load_config(again), None))


def test_what_an_organisation_has_stays_the_very_same_while_nothing_is_registered(tmp_path: Path, plugin: str) -> None:
    write(tmp_path, plugin, tool())
    with_it, without = OrgSettings(plugins=[plugin]), OrgSettings()
    assert {*SHIPPED} <= {*get_toolset(with_it)} == {*get_toolset(without)}
    load_plugins((plugin,))
    assert {*get_toolset(with_it)} - {*get_toolset(without)} == {"note"}
    assert get_toolset(OrgSettings(plugins=[plugin])) is get_toolset(with_it)


def test_two_organisations_may_each_have_a_tool_of_one_name(tmp_path: Path, plugin: str) -> None:
    write(tmp_path, plugin, tool(says="one"))
    write(tmp_path, f"{plugin}_b", tool(says="two"))
    first, second = org(tmp_path / "a", plugin), org(tmp_path / "b", f"{plugin}_b")
    Runtime(Organisation(first)).load_config()
    assert result_in(second) == "two"
    assert result_in(first) == "one"


def test_two_plugins_of_one_organisation_with_a_tool_of_one_name_are_refused(tmp_path: Path, plugin: str) -> None:
    write(tmp_path, plugin, tool(class_name="One"))
    write(tmp_path, f"{plugin}_b", tool(class_name="Two"))
    base = org(tmp_path / "a", plugin, f"{plugin}_b")
    with pytest.raises(ConfigError, match=rf'{plugin}.One and {plugin}_b.Two both register the tool "note"'):
        run_once(base)


def test_a_plugin_has_what_a_module_registers_that_an_earlier_one_imported(tmp_path: Path, plugin: str) -> None:
    write(tmp_path, f"{plugin}_shared", tool())
    write(tmp_path, plugin, f"import {plugin}_shared")
    write(tmp_path, f"{plugin}_b", f"from {plugin}_shared import Own")
    for name, base in ((plugin, tmp_path / "a"), (f"{plugin}_b", tmp_path / "b")):
        assert result_in(org(base, name)) == "done"
    assert result_in(org(tmp_path / "c", f"{plugin}_shared")) == "done"


def test_a_plugin_that_takes_the_name_of_a_tool_that_ships_stops_the_engine_and_is_named(
    tmp_path: Path, plugin: str
) -> None:
    write(tmp_path, plugin, tool(name="shell"))
    base = org(tmp_path / "a", plugin, calls="shell")
    with pytest.raises(ConfigError, match=rf"plugin {plugin} .*{plugin}.Own cannot be the tool .shell.*Shell"):
        run_once(base)


def test_a_plugin_that_is_imported_anew_keeps_its_organisations(tmp_path: Path, plugin: str) -> None:
    write(tmp_path, plugin, tool())
    first, other = org(tmp_path / "a", plugin), org(tmp_path / "b")
    Runtime(Organisation(first)).load_config()
    reload(import_module(plugin))
    assert result_in(first) == "done"
    assert result_in(other).startswith('no tool "note"')


def test_what_is_registered_outside_of_a_plugin_is_for_the_process(tmp_path: Path, plugin: str) -> None:
    write(tmp_path, plugin, tool())
    import_module(plugin)
    assert result_in(org(tmp_path / "a")) == "done"


def test_a_provider_reaches_only_the_organisations_that_name_its_plugin(tmp_path: Path, plugin: str) -> None:
    write(tmp_path, plugin, PROVIDER.format(name=plugin))
    models = {"own": {"provider": plugin}}
    bases = [
        make_org(base, resume("ada", model={"key": "own"}), models=models, org={"plugins": plugins})
        for base, plugins in ((tmp_path / "a", [plugin]), (tmp_path / "b", []), (tmp_path / "c", [plugin]))
    ]
    turns = [run_once(base).turns[0] for base in bases]
    assert [turn.status for turn in turns] == ["done", "failed", "done"]
    assert f'provider "{plugin}" does not exist' in turns[1].reason
    (problem,) = validate_config(bases[1], load_config(bases[1]))
    assert problem.message.startswith(f'model key "own": provider "{plugin}" does not exist')


def test_no_provider_takes_the_place_of_one_that_ships(tmp_path: Path, plugin: str) -> None:
    write(tmp_path, plugin, PROVIDER.format(name="openai"))
    with pytest.raises(ConfigError, match=rf"{plugin}.Answering cannot be the provider .openai.*OpenAIProvider"):
        load_plugins((plugin,))
    assert plugin not in sys.modules


def test_an_observer_of_one_root_hears_nothing_of_another(tmp_path: Path) -> None:
    heard: list[str] = []
    roots = tmp_path / "a", tmp_path / "b"
    for root in roots:
        fs.make_root(root)
    with fs.observe_changes(lambda operation, path: heard.append(f"{operation} {path}"), only=roots[0]):
        for root in roots:
            fs.write_atomic(root, "shared/note.txt", b"text")
        fs.remove(roots[1], "shared/note.txt")
    assert heard == ["rename shared/note.txt"]


def test_what_an_installed_package_offers_is_there_for_every_organisation(base: Path, tmp_path: Path) -> None:
    package, info = tmp_path / "site", tmp_path / "site/offered-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lemming.plugins]\noffered = offered_plugin\n")
    (package / "offered_plugin.py").write_text(TOOL.format(class_name="Catalogue", name="offered", says="here"))
    call = {"tool": "offered", "args": {}}
    make_org(base, resume("ada", permissions={"tools": ["offered"]}), script=[{"reply": say("", tool_calls=[call])}])
    subprocess.run(
        [sys.executable, "-m", "lemming", "-C", str(base), "run-once", "--trust"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(package), *sys.path])},
        capture_output=True,
        check=True,
    )
    (finished,) = [record for record in journal_lines(base, 1) if record["type"] == "tool_finished"]
    assert (finished["success"], finished["output"]) == (True, "here")
