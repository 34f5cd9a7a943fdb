"""The organisations that are crashed: small ones, each with something of its own that could go wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from asked_corpus import asked, by_the_clock, refused, team
from dropped_corpus import dropped
from files_corpus import filing, keeping
from formed_corpus import formed
from functions_corpus import functions
from gated_corpus import gated
from judged_corpus import judged
from leave_corpus import leave
from limited_corpus import limited
from models_corpus import acting, stand_in
from native_corpus import native
from parts import by_hand, call, remembers
from planned_corpus import listed, planned
from served_corpus import asked_back, served
from skilled_corpus import skilled
from strategies_corpus import strategies
from tainted_corpus import clean, tainted

from lemming.base.jsontext import pretty
from lemming.files import fs
from lemming.testing import make_org, resume, say
from lemming.tools import Tool, ToolRegistry, ToolResult

Build = Callable[[Path, dict[str, Any]], object]


@dataclass(frozen=True)
class Case:
    """An organisation, made by `build(base, settings)`, how many ticks it runs, and turns at once.

    `has_limits`: a call that a kill took along counts as spent, so that limits are reached earlier.
    """

    build: Build
    ticks: int
    at_once: int = 1
    has_limits: bool = False

    @property
    def name(self) -> str:
        return self.build.__name__


class Hangs(Tool):
    """Takes longer than it may, each time, and may be run again."""

    name = "hangs"
    description = "Hangs."
    repeatable = True
    timeout_s = 0.001
    last: ClassVar[threading.Event] = threading.Event()

    def execute(self, agent_name: str, base_path: Path) -> ToolResult:
        """Wait until the next call, so that one thread is left at most."""
        Hangs.last.set()
        mine = Hangs.last = threading.Event()
        mine.wait()
        return ToolResult(True, "late")


ToolRegistry.register(Hangs())


def plain(base: Path, org: dict[str, Any]) -> None:
    agents = resume("ada"), resume("bob", permissions={"read_outboxes": ["ada"]})
    make_org(base, *agents, org=org, script=[{"reply": remembers("news")}])


def tools(base: Path, org: dict[str, Any]) -> None:
    """Files read and then changed, in one reply, over two steps, and left for the next turn."""
    first = [
        call("file_read", path="notes/today.txt"),
        call("file_write", path="notes/today.txt", content="first\n"),
        call("memory_write", key="plan", value=["a", "b"]),
    ]
    second = [
        call("file_read", path="notes/today.txt"),
        call("file_write", path="notes/today.txt", content="second\n"),
        call("memory_read", key="plan"),
    ]
    may = {"read_outboxes": ["*"], "tools": ["file_write", "file_read"]}
    make_org(
        base,
        resume("ada", permissions=may, turn={"max_steps": 2}),
        resume("bob", permissions=may),
        org=org,
        script=[
            {"agent": "ada", "step": 0, "reply": say("writing", tool_calls=first)},
            {"agent": "ada", "step": 1, "reply": remembers("again", tool_calls=second)},
            {"agent": "bob", "reply": say("notes", tool_calls=second)},
        ],
    )


def staff(base: Path, org: dict[str, Any]) -> None:
    """An agent that makes another out of its credits, which takes its turns from the next tick on."""
    new = call("create_agent", name="eve", title="Eve", instructions="You are eve.", model_key="scripted")
    make_org(
        base,
        resume(
            "hr",
            permissions={"read_outboxes": ["*"], "tools": ["create_agent"]},
            credits={"max_credits": 9},
        ),
        org=org,
        script=[{"agent": "hr", "reply": say("hiring", tool_calls=[new])}, {"reply": remembers("I am new")}],
    )


def wildcards(base: Path, org: dict[str, Any]) -> None:
    """Everybody reads everybody, in an order that is not that of the names; a person has written too."""
    every_second = {"run_every_n_ticks": 2, "phase_offset": 1}
    make_org(
        base,
        resume("ada", schedule=every_second),
        resume("bob"),
        resume("human", model={"key": "human"}),
        org=org,
        script=[{"agent": "bob", "contains": "from ada", "reply": say("ada spoke")}, {"reply": say("hello")}],
    )
    by_hand(base, "human", 0, "byhand", text="go")


def idle(base: Path, org: dict[str, Any]) -> None:
    """Agents that wake only when something they read has changed."""
    make_org(
        base,
        resume("ada", schedule={"run_every_n_ticks": 2}),
        resume("bob", schedule={"wake": "changed"}, permissions={"read_outboxes": ["ada"]}),
        resume("cyd", schedule={"wake": "changed"}, permissions={"read_memories": ["ada/*", "bob/last"]}),
        org=org,
        script=[{"reply": remembers("seen")}],
    )


def spending(base: Path, org: dict[str, Any]) -> None:
    """Credits that run out, a soft cap that is passed, an allocation that overrides the resume."""
    make_org(
        base,
        resume("ada", credits={"max_credits": 1}),
        resume("bob", credits={"soft_cap": 1}),
        resume("cyd", credits={"max_credits": 9}, turn={"max_steps": 3}),
        org=org,
        script=[
            {"agent": "cyd", "reply": say("more", tool_calls=[call("list_agents")])},
            {"reply": say("paid")},
        ],
    )
    fs.publish(base, "config/credits.json", pretty({"cyd": {"max_credits": 2}}))


def retention(base: Path, org: dict[str, Any]) -> None:
    """Entries that are past their retention at the end of a tick."""
    agents = resume("ada"), resume("bob")
    make_org(base, *agents, org={**org, "retention_ticks": 1}, script=[{"reply": say("old news")}])


def first_run(base: Path, org: dict[str, Any]) -> None:
    """The first tick there ever was, of one agent."""
    make_org(base, resume("ada"), org=org, script=[{"reply": remembers("born")}])


def broken(base: Path, org: dict[str, Any]) -> None:
    """Resumes that are no resumes, a damaged memory, and an agent beside them that is well."""
    make_org(base, resume("ada"), {"name": "odd"}, org=org, script=[{"reply": remembers("well")}])
    fs.publish(base, "agents/torn/resume.json", b'{"name": "to')
    fs.publish(base, "agents/ada/memory/plan.json", b'{"key": "pl')


def failing(base: Path, org: dict[str, Any]) -> None:
    """A backend that refuses, one that is away, a model that never answers as it should."""
    away = {"provider": "scripted", "attempts": 1, "options": {"file": "config/answers.jsonl"}}
    make_org(
        base,
        resume("ada"),
        resume("bob", model={"key": "away"}),
        resume("cyd"),
        resume("dan"),
        org=org,
        models={"away": away},
        script=[
            {"agent": "ada", "tick": 1, "error": "AuthenticationFailed"},
            {"agent": "bob", "error": "Unavailable"},
            {"agent": "cyd", "step": 0, "reply": "not the contract"},
            {"agent": "dan", "reply": "never the contract"},
            {"reply": remembers("at last")},
        ],
    )


def crowd(base: Path, org: dict[str, Any]) -> None:
    """Agents who have nothing to do with each other, and one who reads them."""
    names = ["ada", "bob", "cyd"]
    make_org(
        base,
        *(resume(name, permissions={"tools": ["file_write"]}, turn={"max_steps": 2}) for name in names),
        resume("zed", permissions={"read_outboxes": names}),
        org=org,
        script=[
            {"agent": "zed", "reply": remembers("read")},
            {"step": 0, "reply": say("one", tool_calls=[call("file_write", path="n.txt", content="1")])},
            {"reply": remembers("two")},
        ],
    )


def letters(base: Path, org: dict[str, Any]) -> None:
    """Entries for one, for two, for all; an id used three times; more than is shown at once."""
    quiet = {"run_every_n_ticks": 1, "wake": "changed"}
    ask = {"kind": "request", "payload": {"text": "please", "target": ["bob"]}, "tags": []}
    make_org(
        base,
        resume("ada", permissions={"read_outboxes": ["human", "pat"]}),
        resume("bob", schedule=quiet),
        resume("cyd", schedule=quiet, permissions={"read_outboxes": ["human", "ada"]}),
        resume("human", model={"key": "human"}),
        resume("pat", model={"key": "human"}),
        org={**org, "inbox_limit": 3},
        models={"human": {"provider": "human"}},
        script=[
            {"agent": "ada", "reply": say("all hear this", outbox_entries=[ask])},
            {"agent": "bob", "contains": "for bob", "reply": remembers("it is mine")},
            {"reply": remembers("not for me")},
        ],
    )
    by_hand(base, "human", 0, "same", text="for all")
    by_hand(base, "human", 1, "same", text="for bob", target="bob")
    by_hand(base, "pat", 0, "same", text="for two", target=["bob", "ada"])
    for number in range(3):
        by_hand(base, "human", 0, f"more{number}", text=f"and {number}")


def missed(base: Path, org: dict[str, Any]) -> None:
    """Entries that wait for a reader, and go unread when it fails too long; it is told when it is back."""
    make_org(
        base,
        resume("ada", permissions={}),
        resume("bob", permissions={"read_outboxes": ["ada"]}),
        org={**org, "retention_ticks": 1},
        script=[
            {"agent": "ada", "reply": say("news")},
            {"agent": "bob", "contains": "expired unread", "reply": remembers("I have missed some")},
            *({"agent": "bob", "tick": tick, "error": "AuthenticationFailed"} for tick in range(1, 6)),
            {"agent": "bob", "reply": say("back")},
        ],
    )


def mixed(base: Path, org: dict[str, Any]) -> None:
    """Replies with a part that is wrong for good; a memory written by tool and reply; large integers."""
    entry = {"kind": "message", "payload": {"text": "many", "number": 2**63 - 1}, "tags": []}
    reply = {
        "outbox_entries": [entry, {"kind": "shout", "payload": {}}],
        "tool_calls": [
            call("memory_write", key="last", value=1),
            call("file_write", path="a.txt", content="a"),
        ],
        "memory_updates": [{"key": "../bad", "value": 1}, {"key": "last", "value": 2**64 + 1}],
        "notes": "",
    }
    make_org(
        base,
        resume(
            "ada", schedule={"wake": "changed"}, permissions={"read_outboxes": [], "tools": ["file_write"]}
        ),
        resume("bob", permissions={"read_outboxes": ["ada"]}),
        org=org,
        script=[
            {"agent": "ada", "reply": json.dumps(reply)},
            {"agent": "bob", "reply": remembers("read", actions=[])},
        ],
    )


def hindered(base: Path, org: dict[str, Any]) -> None:
    """A tool that takes too long, a full workspace, a backend that answers at the second try, no time."""
    calls = [
        call("file_write", path="first.txt", content="1" * 5000),
        call("hangs"),
        call("file_write", path="second.txt", content="2" * 100_000),
        call("file_write", path="third.txt", content="3" * 3000),
    ]
    make_org(
        base,
        resume("ada", permissions={"tools": ["file_write", "hangs"]}, turn={"max_steps": 2}),
        resume("bob", model={"key": "second"}),
        resume("cyd", turn={"deadline_s": 1e-9}),
        org={**org, "quota": {"max_bytes": 1 << 20}},
        models={"second": {"provider": "second_try"}},
        script=[
            {"agent": "ada", "step": 0, "reply": say("working", tool_calls=calls)},
            {"reply": remembers("worked")},
        ],
    )
    fs.publish(base, "agents/ada/workspace/large.bin", b"0" * 1_000_000)


def sealed(base: Path, org: dict[str, Any]) -> None:
    """The turn of a hundred: journals are packed, and the oldest removed."""
    settings = {**org, "plain_journals": 0, "kept_journals": 0}
    make_org(base, resume("ada"), org=settings, script=[{"reply": remembers("a hundred")}])
    fs.publish(base, "tick.json", pretty({"current_tick": 99}))


def hiring(base: Path, org: dict[str, Any]) -> None:
    """Agents made out of their creator's credits, half of what is left and a sum, until there are none."""
    new = [
        call("create_agent", name=name, title=name, instructions="Work.", model_key="scripted", **credits)
        for name, credits in (("eve", {}), ("fay", {"max_credits": 1}), ("gus", {"max_credits": 90}))
    ]
    make_org(
        base,
        resume("hr", permissions={"tools": ["create_agent"]}, credits={"max_credits": 5}),
        org=org,
        script=[{"agent": "hr", "reply": remembers("hiring", tool_calls=new)}, {"reply": say("I am new")}],
    )


def grown(base: Path, org: dict[str, Any]) -> None:
    """A ledger that is cut back to half a megabyte as the next line would make it more than one."""
    make_org(base, resume("ada"), org=org, script=[{"reply": remembers("long ago")}])
    turn = json.dumps({"tick": 0, "status": "done", "turns": 1, "credits": 1.0, "notes": "x" * 40_300})
    lines = [turn.replace('"tick": 0', f'"tick":{tick}').replace(", ", ",") for tick in range(1, 27)]
    fs.publish(base, "agents/ada/turns.jsonl", "".join(f"{line}\n" for line in lines).encode())
    fs.publish(base, "tick.json", pretty({"current_tick": 27}))


def kept(base: Path, org: dict[str, Any]) -> None:
    """Every tick is a commit; what a crash kept from being one is made up for."""
    agents = resume("ada"), resume("bob", permissions={"read_outboxes": ["ada"]})
    make_org(base, *agents, org={**org, "history": "git"}, script=[{"reply": remembers("for the record")}])


def paused(base: Path, org: dict[str, Any]) -> None:
    """An agent that is paused between one who writes and one who reads both."""
    make_org(
        base,
        resume("ada"),
        resume("bob", paused="since Monday by eve"),
        resume("cyd", permissions={"read_outboxes": ["ada", "bob"]}),
        org=org,
        script=[{"reply": remembers("at work")}],
    )


CASES = [
    Case(plain, 2),
    Case(planned, 14, at_once=3),
    Case(listed, 7, at_once=2),
    Case(team, 5, at_once=3),
    Case(refused, 5, at_once=3),
    Case(tools, 2),
    Case(staff, 2),
    Case(wildcards, 2),
    Case(idle, 3),
    Case(spending, 2),
    Case(retention, 3),
    Case(first_run, 1),
    Case(broken, 2),
    Case(failing, 2),
    Case(stand_in, 2),
    Case(strategies, 4, at_once=3),
    Case(acting, 2),
    Case(gated, 3, at_once=2),
    Case(judged, 4, at_once=3),
    Case(limited, 6, at_once=3, has_limits=True),
    Case(crowd, 2, at_once=3),
    Case(letters, 3),
    Case(missed, 6),
    Case(mixed, 2),
    Case(hindered, 2),
    Case(sealed, 100),
    Case(hiring, 2),
    Case(grown, 28),
    Case(paused, 2),
    Case(dropped, 3),
    Case(asked, 4),
    Case(by_the_clock, 5),
    Case(filing, 2, at_once=2),
    Case(skilled, 3, at_once=3),
    Case(keeping, 2, at_once=2),
    Case(functions, 2, at_once=2),
    *([Case(served, 2, at_once=2), Case(asked_back, 2)] if find_spec("mcp") else ()),
    Case(native, 2, at_once=2),
    Case(formed, 4, at_once=3),
    Case(leave, 6, at_once=3, has_limits=True),
    Case(tainted, 4, at_once=3),
    Case(clean, 4, at_once=2),
]
SLOW = [Case(kept, 2)]
"""For a few trials of their own: git is started for every tick."""
BY_NAME = {case.name: case for case in [*CASES, *SLOW]}
