"""Gates about paths see the place that is opened, however a call, or the gate itself, spells it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lemming.capabilities.gates.call_gates import CallGates
from lemming.capabilities.gates.gate_format import Gate
from lemming.engine import run_once
from lemming.ext import ToolCall
from lemming.kernel.agents import load_agent, survey_agents
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.tick.validation.agent_validation import validate_survey
from lemming.kernel.tools import SHIPPED, ToolRegistry
from lemming.kernel.tools.tool_context import ToolContext
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

Json = dict[str, Any]
OWN = "agents/ada/workspace"
CALLS: dict[tuple[str, str], Json] = {
    ("file_read", "path"): {},
    ("file_write", "path"): {"content": "x"},
    ("file_list", "path"): {},
    ("file_edit", "path"): {"old": "a", "new": "b"},
    ("file_append", "path"): {"content": "x"},
    ("file_move", "path"): {"to": "elsewhere"},
    ("file_move", "to"): {"path": "elsewhere"},
    ("file_search", "path"): {"text": "x"},
    ("search", "in"): {"query": "x"},
    ("read_document", "path"): {},
    ("attach", "files"): {},
}


def spellings(base: Path, link: Path) -> dict[str, list[str]]:
    """Return by place eight paths and more that lead there."""
    return {
        "shared/plans/x": [
            "shared/plans/x", "./shared/plans/x", "shared//plans/x", "shared/./plans/x",
            f"{base}/shared/plans/x", f"//{base}/./shared/plans//x", f"{link}/plans/x", "shared/plans/y/../x",
            f"{base}/{OWN}/../../../shared/plans/x",
        ],
        f"{OWN}/plans/x": [
            "plans/x", "./plans/x", "workspace/plans/x", "workspace//plans/x", "plans/./x", "plans/y/../x",
            f"{base}/{OWN}/plans/x", f"{link}/../{OWN}/plans/x",
        ],
    }  # fmt: skip


def gates_about(tool: str, argument: str, place: str, written: list[str]) -> list[Json]:
    """Return gates that each say something about a place, in the words that there are for that."""
    field = "args.files.0" if argument == "files" else f"args.{argument}"
    folder = place.rpartition("/")[0]
    told: list[tuple[str, Any]] = [("is", path) for path in written if ".." not in path]
    told += [("in", [place]), ("starts_with", f"{folder}/")]
    told += [("matches", f"^{folder}/x$"), ("ends_with", "plans/x")]
    of_schema: Json = {"pattern": f"^{folder}/"}
    of_schema = {"items": of_schema} if argument == "files" else of_schema
    gates: list[Json] = [{"when": {"field": field, "op": op, "value": value}} for op, value in told]
    gates += [{"deny": [f"^{folder}/"]}, {"redact": [f"^{folder}/"]}]
    gates += [{"schema": {"not": {"properties": {argument: of_schema}}}}]
    if tool not in ("file_read", "attach"):  # one sentence is as good as all, once they say the same
        gates = gates[:1]
    return [{"at": "call", "tool": tool, "then": "warn", **gate} for gate in gates]


def org_at(base: Path, link: Path, **more: Any) -> None:
    access = {"allow_read": ["./workspace", "./shared", str(link), str(base)], "allow_write": ["./shared"]}
    tools = sorted({tool for tool, _ in CALLS})
    permissions = {"read_outboxes": [], "tools": tools, "file_access": access}
    make_org(base, resume("ada", permissions=permissions), **more)
    fs.write_atomic(base, "shared/plans/y/z", b"")
    fs.write_atomic(base, f"{OWN}/plans/y/z", b"")
    link.symlink_to(base / "shared")


def test_no_spelling_of_a_path_slips_through_a_gate(base: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    org_at(base, link)
    org, said = Organisation(base), 0
    config, ada = load_config(org), load_agent(org, "ada")
    now = "2026-01-01T00:00:00Z"
    for (tool, argument), rest in CALLS.items():
        for place, paths in spellings(base, link).items():
            gates = [to_value(Gate, it) for it in gates_about(tool, argument, place, paths)]
            settings = replace(config.org, extensions={"gates": gates})
            context = ToolContext(agent=ada, org=org, settings=settings, now=now, tick=1, began_at=now)
            at_calls = CallGates.for_agent(ada, settings, 1)
            assert at_calls
            for path in [*paths, "shared/z"]:
                args = {argument: [path] if argument == "files" else path, **rest}
                told = at_calls.evaluate_call(ToolCall(tool, args), ToolRegistry.get(tool), context)
                wanted = [] if path == "shared/z" else [rule.line for rule in at_calls.calls]
                assert [verdict.line for verdict in told.verdicts] == wanted, (tool, path)
                said += len(at_calls.calls)
    assert said > 600


def test_every_tool_that_takes_a_path_says_so() -> None:
    for name in SHIPPED:
        tool = ToolRegistry.get(name)
        told = tool.parameters.get("properties", {}).items()
        named = {key for key, it in told if key in ("path", "to", "in", "folder") or it.get("type") == "array"}
        named -= {"tools", "skills", "read_outboxes", "paths", "command"}  # of a repository: `paths` of a merge
        assert named == {*tool.place_arguments}, name
    assert {name for name, _ in CALLS} == {it for it in SHIPPED if ToolRegistry.get(it).place_arguments}


FUNCTIONS = """
from lemming.capabilities.gates.gate_evaluation import CheckFinding, check
from lemming.tools import ToolContext, tool


@tool(places=["where"], process=False)
def print_out(ctx: ToolContext, where: str = "drafts/today") -> str:
    "Print a file."
    return f"printed {ctx.resolve_path(where).relative_to(ctx.base)}"


@check
def shorter(seen):
    return CheckFinding("too long", {**seen["args"], "content": "short"})
"""


def matching(op: str, value: str) -> Json:
    return {"when": {"field": "args.path", "op": op, "value": value}}


def test_what_a_function_says_of_paths_holds_too(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "placed_plugin.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    calls = [
        ("print_out", {"where": f"{base}/shared/a"}), ("print_out", {"where": "shared/b"}), ("print_out", {}),
        ("file_write", {"path": "./x.txt", "content": "too long"}), ("file_list", {}),
    ]  # fmt: skip
    gates = [
        {"at": "call", "tool": "print_out", "args": {"where": ["./shared/*", "drafts/*"]}, "then": "block"},
        {"at": "result", "when": {"field": "args.where", "op": "is", "value": "shared/b"}, "then": "block"},
        {"at": "call", "tool": "file_write", "check": "shorter", "then": "rewrite"},
        {"at": "call", "tool": "file_list", "then": "block", **matching("is", "workspace")},
    ]  # fmt: skip
    reply = say("x", tool_calls=[{"tool": tool, "args": args} for tool, args in calls])
    permissions = {"read_outboxes": [], "tools": ["print_out", "file_write", "file_list"]}
    ada = resume("ada", permissions=permissions)
    make_org(base, ada, script=[{"reply": reply}], org={"gates": gates, "plugins": ["placed_plugin"]})
    run_once(base, clock=FrozenClock())
    unregister("check", "shorter")
    unregister("tool", "print_out")
    done = [it for it in journal_lines(base, 1) if it["type"] == "tool_finished"]
    assert [it["outcome"] for it in done] == ["ok", "ok", "refused", "ok", "refused"]
    assert done[0]["output"] == "printed shared/a"
    assert done[1]["output"].startswith("[withheld")
    assert (base / OWN / "x.txt").read_text() == "short"


@pytest.mark.parametrize(
    ("gate", "at", "says"),
    [
        (matching("matches", "^workspace/"), "/when/value", "no place begins with workspace/"),
        (matching("matches", "^\\./shared/x"), "/when/value", "no place begins with ./shared/"),
        (matching("matches", "^BASE/shared/"), "/when/value", "it lies in the organisation"),
        (matching("starts_with", "BASE/"), "/when/value", "no place begins so"),
        ({"args": {"path": ["BASE/*"]}}, "/args/path/0", "no place begins so"),
        (matching("matches", "^shared/|^workspace/"), "", ""),
        (matching("matches", "^/etc/"), "", ""),
        (matching("starts_with", "BASE/shared/"), "", ""),
        (matching("starts_with", "BASEs/"), "", ""),
    ],
)
def test_a_path_that_no_place_has_stops_the_run(base: Path, tmp_path: Path, gate: Json, at: str, says: str) -> None:
    told = str({"at": "call", "tool": "file_*", "then": "block", **gate}).replace("BASE", str(base))
    org_at(base, tmp_path / "link", org={"gates": [eval(told)]})
    org = Organisation(base)
    found = validate_survey(org, load_config(org), survey_agents(org)).settings_problems
    assert [it.pointer for it in found] == ([f"/gates/0{at}"] if at else [])
    assert all(says in it.message and it.hint for it in found)


@pytest.mark.parametrize(
    ("source", "to", "outcome"),
    [
        ("workspace/a", "workspace/b", "ok"),
        ("workspace/a", "shared/b", "refused"),
        ("shared/a", "workspace/b", "refused"),
    ],
)
def test_a_call_changes_its_agents_own_files_only_if_all_of_them_are(
    base: Path, source: str, to: str, outcome: str
) -> None:
    gate = {"at": "call", "when": {"field": "own", "op": "is", "value": False}, "then": "block"}
    access = {"allow_read": ["./shared", "./workspace"], "allow_write": ["./shared", "./workspace"]}
    may = {"read_outboxes": [], "tools": ["file_move"], "file_access": access}
    moves = say("", tool_calls=[{"tool": "file_move", "args": {"path": source, "to": to}}])
    make_org(base, resume("ada", permissions=may), script=[{"reply": moves}], org={"gates": [gate]})
    for folder in ("shared", OWN):
        (base / folder).mkdir(parents=True, exist_ok=True)
        (base / folder / "a").write_text("x")
    run_once(base, clock=FrozenClock())
    ends = [it["outcome"] for it in journal_lines(base, 1) if it["type"] == "tool_finished"]
    assert ends == [outcome]
