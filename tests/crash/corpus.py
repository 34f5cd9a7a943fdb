"""The organisations that are crashed: small ones, each with something of its own that could go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemming import fs
from lemming.jsontext import pretty
from lemming.testing import make_org, resume, say

Build = Callable[[Path, dict[str, Any]], object]


@dataclass(frozen=True)
class Case:
    """An organisation, made by `build(base, settings)`, how many ticks it runs, and turns at once."""

    build: Build
    ticks: int
    at_once: int = 1

    @property
    def name(self) -> str:
        return self.build.__name__


def remembers(text: str, **more: Any) -> dict[str, Any]:
    return say(text, memory_updates=[{"key": "last", "value": text}], **more)


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


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
    entry = {"id": "byhand", "tick": 0, "agent": "human", "kind": "request", "payload": {"text": "go"}}
    file = "agents/human/outbox/00000000_byhand.json"
    fs.publish(base, file, pretty({**entry, "tags": [], "created_at": ""}))


def idle(base: Path, org: dict[str, Any]) -> None:
    """Agents that wake only when something they read has changed."""
    make_org(
        base,
        resume("ada", schedule={"run_every_n_ticks": 2}),
        resume("bob", schedule={"wake": "changed"}, permissions={"read_outboxes": ["ada"]}),
        resume("cyd", schedule={"wake": "changed"}, permissions={"read_outboxes": []}),
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


CASES = [
    Case(plain, 2),
    Case(tools, 2),
    Case(staff, 2),
    Case(wildcards, 2),
    Case(idle, 3),
    Case(spending, 2),
    Case(retention, 3),
    Case(first_run, 1),
    Case(broken, 2),
    Case(failing, 2),
    Case(crowd, 2, at_once=3),
]
BY_NAME = {case.name: case for case in CASES}
