"""A capability of an installed package provides a tool, a model provider, a strategy, a command and a fact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forked import lemming_in, python_in
from package import PACKAGE

from lemming.kernel.plugins.plugin_registry import EVERYBODY, capture_registrations
from lemming.kernel.turn.turn_hooks import Capability
from lemming.libraries.capability_registration import register_capability
from lemming.testing import make_org, resume, say

MODULE = '''
import typer

from lemming.commands.command_context import CommandContext
from lemming.commands.terminal import print_data
from lemming.ext import Capability, find_fact, register_capability
from lemming.providers import LLMProvider
from lemming.tools import Tool, ToolResult


class CountEntries(Tool):
    name = "count_entries"
    description = "Count the entries that an agent has written."
    tool_class = "read"

    def execute(self, agent_name, base_path, agent=None, **_):
        return ToolResult(True, f"{agent or agent_name} wrote {count_entries(base_path, agent or agent_name)}")


class Parrot(LLMProvider):
    def call(self, model_name, messages, temperature, **_):
        return '{"outbox_entries": [{"kind": "message", "payload": {"text": "pretty bird"}}]}'


def once(turn):
    answer = yield from turn.ask()
    return answer


def entries(context: CommandContext, agent: str) -> None:
    """Show how many entries an agent has written."""
    count = find_fact("counts.entries")(context.org.base, agent)
    if not context.print_as_json("entries", {"count": count}):
        print_data(f"{agent} wrote {count}")


def count_entries(base_path, agent):
    return len(list(base_path.glob(f"agents/{agent}/outbox/*.json")))


@register_capability
class Counts(Capability):
    name = "counts"
    provides = {
        "tools": {"count_entries": CountEntries},
        "model_providers": {"parrot": Parrot},
        "strategies": {"once": once},
        "commands": {"entries": ".:entries", "counts-app": ".:app"},
        "screens": {"tallies": "org_counts.tallies:TALLIES"},
        "facts": {"counts.entries": ".:count_entries"},
    }


app = typer.Typer()


@app.command()
def total() -> None:
    """Say a fixed word."""
    typer.echo("counted")
'''


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with what an installer puts there for the package `org_counts`."""
    folder = tmp_path / "site"
    (folder / "org_counts").mkdir(parents=True)
    (folder / "org_counts/__init__.py").write_text(MODULE.replace('".:', '"org_counts:'))
    facts = folder / "org_counts-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.3\nName: org-counts\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[lemming.plugins]\ncounts = org_counts\n")
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    call = {"tool_calls": [{"tool": "count_entries", "args": {"agent": "bob"}}]}
    script = [{"agent": "ada", "reply": call}, {"agent": "ada", "reply": say("done")}, {"reply": say("hello")}]
    agents = [resume("ada", permissions={"tools": ["count_entries"]}), resume("bob", model={"key": "bird"})]
    return make_org(tmp_path / "org", *agents, models={"bird": {"provider": "parrot"}}, script=script)


def environment(site: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{site}:{PACKAGE.parent}", "NO_COLOR": "1"}


def lemming(base: Path, site: Path, *words: str) -> Any:
    done = lemming_in("-C", str(base), *words, **environment(site))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_agents_call_its_tool_and_its_model(base: Path, site: Path) -> None:
    lemming(base, site, "run-once")
    journal = next(base.glob("logs/ticks/*")).read_text()
    assert "bob wrote 0" in journal
    assert "pretty bird" in next(base.glob("agents/bob/outbox/*.json")).read_text()


def test_its_command_asks_its_fact(base: Path, site: Path) -> None:
    lemming(base, site, "run-once")
    assert lemming(base, site, "entries", "bob") == "bob wrote 1\n"
    assert json.loads(lemming(base, site, "entries", "bob", "--json"))["count"] == 1
    assert lemming(base, site, "counts-app") == "counted\n"


def test_a_program_asks_its_fact_and_none_is_there_without_it(base: Path, site: Path) -> None:
    code = """
import sys
from pathlib import Path
from lemming.ext import find_fact
count = find_fact("counts.entries")
print(count and count(Path(sys.argv[1]), "ada"))
"""
    assert python_in(code, str(base), **environment(site)).stdout == "0\n"
    assert python_in(code, str(base)).stdout == "None\n"


def test_its_strategy_is_one_of_all(base: Path, site: Path) -> None:
    path = base / "agents/ada/resume.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "turn": {"strategy": "once"}}))
    lemming(base, site, "validate")
    without_it = lemming_in("-C", str(base), "validate")
    assert without_it.returncode != 0
    assert "once" in without_it.stderr


def test_a_list_whose_module_is_missing_names_the_plugin_the_module_and_a_fix(base: Path, site: Path) -> None:
    done = lemming_in("-C", str(base), "tallies", **environment(site))
    assert done.returncode == 3
    first, second = done.stderr.splitlines()
    assert first.startswith("error[LMG-302]: org_counts.tallies:TALLIES: ")
    assert 'the command "tallies" of the plugin org_counts cannot be loaded' in first
    assert first.endswith("No module named 'org_counts.tallies'")
    assert second.startswith("  fix: install org_counts again, or correct ")


def test_its_command_is_unknown_without_the_package(base: Path) -> None:
    done = lemming_in("-C", str(base), "entries", "bob")
    assert (done.returncode, 'there is no command "entries"' in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("provides", "message"),
    [
        ({"tool": {"x": object}}, 'a plugin cannot provide "tool"; did you mean "tools"'),
        ({"records": {"x": "a:b"}}, 'a plugin cannot provide "records"; use one of tools, model_providers'),
        ({"checks": {"agents": object}}, 'a plugin has no checks of the scope "agents"; did you mean "agent"'),
        ({"facts": {"other.x": print}}, 'the name of a fact must be "mine.NAME", got "other.x"'),
        ({"commands": {"gates": print}}, 'cannot be the command "gates": that name is taken'),
    ],
)
def test_what_it_cannot_provide_is_refused(provides: Any, message: str) -> None:
    kind = type("Mine", (Capability,), {"name": "mine", "provides": provides})
    with pytest.raises(ValueError, match=message):
        capture_registrations(lambda: register_capability(kind))


def test_items_belong_to_the_plugin_that_is_loading() -> None:
    kind = type("Mine", (Capability,), {"name": "mine", "provides": {"facts": {"mine.x": print}}})
    made = capture_registrations(lambda: register_capability(kind))
    assert [(it.kind, it.name, it.plugin) for it in made] == [
        ("capability", "mine", EVERYBODY),
        ("fact", "mine.x", EVERYBODY),
    ]
