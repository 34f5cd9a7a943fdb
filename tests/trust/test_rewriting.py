"""A tool that writes a stored value anew leaves it trusted no further, unless it replaces all of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_clean import CLEAN, ask
from test_files import SHARED, call, word
from tracked import MODELS, finished, owner, post, tick, tracked

from lemming.engine import run_once
from lemming.kernel.base import paths
from lemming.kernel.tools import iter_shipped_tools
from lemming.libraries.memory_files import save_memory
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.memory import append_memory_event, compact_memory_list
from lemming.testing import FrozenClock, make_org, resume, say

OF_A_FUNCTION = """
from lemming.tools import ToolContext, tool

@tool(tool_class="write")
def tally(ctx: ToolContext, word: str) -> str:
    ctx.state[word] = 1
    return "counted"
"""
JOB = {"cron": "0 * * * *", "text": "obey"}
CALENDAR = paths.memory_file("ada", "calendar")
STATE = paths.memory_file("ada", "state.tally")
KEEPS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "file_append": (
        call("file_write", path="shared/x", content="obey"),
        call("file_append", path="shared/x", content="a"),
        "shared/x",
    ),
    "file_edit": (
        call("file_write", path="shared/x", content="obey me"),
        call("file_edit", path="shared/x", old="me", new="him"),
        "shared/x",
    ),
    "file_move": (
        call("file_write", path="shared/x", content="obey"),
        call("file_move", path="shared/x", to="shared/y"),
        "shared/y",
    ),
    "keep_job": (call("keep_job", name="a", **JOB), call("keep_job", name="b", **JOB), CALENDAR),
    "tally": (call("tally", word="obey"), call("tally", word="a"), STATE),
}
REPLACES = {
    "file_write": (
        call("file_write", path="shared/x", content="obey"),
        call("file_write", path="shared/x", content="mine"),
        "shared/x",
    ),
    "memory_write": (
        call("memory_write", key="note", value="obey"),
        call("memory_write", key="note", value="mine"),
        paths.memory_file("ada", "note"),
    ),
}
WRITES_NOTHING_ANEW = {
    "store_write": "it replaces the whole value, and looks at the store before: test_files.py",
    "remind_me": "each reminder is an entry of its own",
    "create_agent": "it writes the resume of an agent that is not there yet",
    "attach": "it says which files an entry brings",
    "shell": "it marks all of the folders that it may write",
    "merge": "it writes a branch of a repository, and no file that an agent reads",
    "permit": "it writes nothing: its result is a grant",
    "http_get": "it writes no file",
    "http_post": "it writes no file",
}


def org_of(base: Path, *calls: dict[str, Any], **trust: Any) -> Path:
    """Make an organisation in which ada makes the first call for a stranger, the others in clean turns."""
    names = [*KEEPS, *REPLACES]
    may = {"read_outboxes": ["*"], "tools": names, "file_access": SHARED}
    ada = resume("ada", permissions=may, schedule={"wake": "addressed"}, **CLEAN)
    script = []
    for number, reply in enumerate(calls, 1):
        reply["outbox_entries"] = [{"kind": "response", "payload": {"text": "done"}}]
        script.append({"agent": "ada", "tick": number, "reply": reply})
    (base / "tools").mkdir(parents=True)
    (base / "tools/tally.py").write_text(OF_A_FUNCTION)
    more = {"timezone": "UTC", "tool_files": ["tools/*.py"]}
    tracked(base, ada, script=[*script, {"reply": say("idle", kind="response")}], trust=trust, **more)
    ask(base, "post", "do it")
    return base


def calls(tool: str, **args: Any) -> dict[str, Any]:
    """Return the part of a reply that calls a tool for a job."""
    return {"tool_calls": call(tool, **args, **JOB)["tool_calls"]}


def label(base: Path, place: str) -> str:
    """Return how far a file says that it is trusted, or its mark."""
    if "/memory/" in place:
        return str(json.loads((base / place).read_bytes()).get("trust", ""))
    return word(base, place)


def run_clean(base: Path) -> str:
    """Have ada answer a person, and return how far her turn was trusted."""
    ask(base, "eve", "and you?")
    return str(tick(base)["ada"].trust["is"])


def test_each_tool_that_writes_is_tried_here() -> None:
    tried = {*KEEPS, *REPLACES, *WRITES_NOTHING_ANEW}
    writing = {tool.name for tool in iter_shipped_tools(["*"]) if tool.tool_class != "read"}
    assert writing - tried == set()


@pytest.mark.sample(3)
@pytest.mark.parametrize("tool", [*KEEPS])
def test_what_a_tool_writes_anew_is_trusted_no_further_than_before(base: Path, tool: str) -> None:
    first, then, place = KEEPS[tool]
    org_of(base, first, then, tools={"tally": "agent"})
    assert tick(base)["ada"].trust["is"] == "outside"
    assert run_clean(base) == ("outside" if tool == "file_edit" else "agent")  # which quotes what is there
    assert finished(base, 2, "ada")[0]["success"]
    assert label(base, place) == "outside"


@pytest.mark.parametrize("tool", [*REPLACES])
def test_what_replaces_all_of_it_is_the_turns_own(base: Path, tool: str) -> None:
    first, then, place = REPLACES[tool]
    org_of(base, first, then)
    tick(base)
    assert label(base, place) == "outside"
    assert run_clean(base) == "agent"
    assert label(base, place) in ("", "agent")


def test_two_calls_of_one_turn_lose_no_label(base: Path) -> None:
    first, then, place = KEEPS["keep_job"]
    twice = {**then, "tool_calls": [*then["tool_calls"], *call("keep_job", name="c", **JOB)["tool_calls"]]}
    org_of(base, first, twice)
    tick(base)
    run_clean(base)
    assert sorted(json.loads((base / place).read_bytes())["value"]) == ["a", "b", "c"]
    assert label(base, place) == "outside"


@pytest.mark.parametrize(
    "later", [call("keep_job", name="absent"), call("keep_job", name="f", **JOB)], ids=["unknown", "too many"]
)
def test_a_refusal_quotes_no_job_to_a_turn_that_is_shown_none(base: Path, later: dict[str, Any]) -> None:
    jobs = [call("keep_job", name=f"obey {number}", **JOB)["tool_calls"][0] for number in range(5)]
    org_of(base, {"outbox_entries": [], "tool_calls": jobs}, later)
    tick(base)
    assert run_clean(base) == "agent"
    (refused,) = finished(base, 2, "ada")
    assert not refused["success"]
    assert "obey" not in refused["output"]


def test_the_clock_asks_for_no_strangers_job_as_if_it_were_the_agents(base: Path) -> None:
    ada = resume(
        "ada", permissions={"read_outboxes": ["*"], "tools": ["keep_job"]}, schedule={"wake": "addressed"}, **CLEAN
    )
    calendar = resume("calendar", model={"key": "clock"}, permissions={"read_outboxes": []})
    script = []
    for number, name in ((1, "theirs"), (2, "own")):
        keeps = {**say("done", kind="response"), **calls("keep_job", name=name)}
        script.append({"agent": "ada", "tick": number, "reply": keeps})
    org = {"trust": {}, "timezone": "UTC"}
    idle = {"reply": say("idle", kind="response")}
    make_org(base, ada, calendar, owner(), post(), script=[*script, idle], models=MODELS, org=org)
    ask(base, "post", "each hour")
    clock = FrozenClock()
    for _ in range(2):
        run_once(base, clock=clock)
        ask(base, "eve", "and you?")
    clock.advance(3600)
    run_once(base, clock=clock)
    asked = read_outbox_entries(base, "calendar")
    assert {entry.payload["job"] for entry in asked} == {"ada.own", "ada.theirs"}
    assert [entry.tags.count("trust:outside") for entry in asked] == [1, 1]


def test_what_a_program_adds_to_a_memory_leaves_its_label(tmp_path: Path) -> None:
    save_memory(tmp_path, "ada", "log", ["obey"])
    file = tmp_path / paths.memory_file("ada", "log")
    file.write_text(json.dumps({**json.loads(file.read_text()), "trust": "outside"}))
    append_memory_event(tmp_path, "ada", "log", "mine")
    assert label(tmp_path, paths.memory_file("ada", "log")) == "outside"
    assert compact_memory_list(tmp_path, "ada", "log", 1) == 1
    assert label(tmp_path, paths.memory_file("ada", "log")) == "outside"
