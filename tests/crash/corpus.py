"""The organisations that are crashed: small ones, each with something of its own that could go wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from approvals_corpus import approvals
from asked_corpus import asked, by_the_clock, refused, several, side_by_side, team
from broken_corpus import broken, failing, hindered, looping, mixed
from credits_corpus import hiring, spending, staff
from dropped_corpus import dropped
from files_corpus import filing, keeping
from formed_corpus import formed
from found_corpus import found
from functions_corpus import functions
from gated_corpus import gated
from goals_corpus import goals
from governed_corpus import governed
from judged_corpus import judged
from letters_corpus import idle, letters, missed, retention, wildcards
from limited_corpus import limited
from models_corpus import acting, fitting, stand_in
from native_corpus import native
from odd_corpus import odd
from parts import call, remembers
from planned_corpus import listed, planned
from served_corpus import asked_back, served
from skilled_corpus import skilled
from strategies_corpus import strategies
from tainted_corpus import clean, tainted, valued
from waited_corpus import waited

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.testing import make_org, resume, say

Build = Callable[[Path, dict[str, Any]], object]


@dataclass(frozen=True)
class Case:
    """An organisation, made by `build(base, settings)`, how many ticks it runs, and turns at once.

    `has_limits`: a call that a kill took along counts as spent, so that limits are reached earlier, and
    less is left of budgets.
    """

    build: Build
    ticks: int
    at_once: int = 1
    has_limits: bool = False

    @property
    def name(self) -> str:
        return self.build.__name__


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


def first_run(base: Path, org: dict[str, Any]) -> None:
    """The first tick there ever was, of one agent."""
    make_org(base, resume("ada"), org=org, script=[{"reply": remembers("born")}])


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


def sealed(base: Path, org: dict[str, Any]) -> None:
    """The turn of a hundred: journals are packed, and the oldest removed."""
    settings = {**org, "plain_journals": 0, "kept_journals": 0}
    make_org(base, resume("ada"), org=settings, script=[{"reply": remembers("a hundred")}])
    fs.write_atomic(base, "tick.json", dump_pretty({"current_tick": 99}))


def grown(base: Path, org: dict[str, Any]) -> None:
    """A ledger that is cut back to half a megabyte as the next line would make it more than one."""
    make_org(base, resume("ada"), org=org, script=[{"reply": remembers("long ago")}])
    turn = json.dumps({"tick": 0, "status": "done", "turns": 1, "credits": 1.0, "notes": "x" * 40_300})
    lines = [turn.replace('"tick": 0', f'"tick":{tick}').replace(", ", ",") for tick in range(1, 27)]
    fs.write_atomic(base, "agents/ada/turns.jsonl", "".join(f"{line}\n" for line in lines).encode())
    fs.write_atomic(base, "tick.json", dump_pretty({"current_tick": 27}))


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
    Case(team, 5, at_once=3, has_limits=True),
    Case(several, 6, at_once=3),
    Case(side_by_side, 6, at_once=5),
    Case(refused, 5, at_once=3, has_limits=True),
    Case(tools, 2),
    Case(staff, 2),
    Case(wildcards, 2),
    Case(idle, 3),
    Case(spending, 2),
    Case(retention, 3),
    Case(first_run, 1),
    Case(broken, 2),
    Case(failing, 2),
    Case(looping, 4),
    Case(stand_in, 2),
    Case(strategies, 4, at_once=3),
    Case(acting, 2),
    Case(fitting, 3, at_once=3),
    Case(gated, 3, at_once=2),
    Case(judged, 4, at_once=3),
    Case(goals, 4, at_once=2),
    Case(governed, 5, at_once=8),
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
    Case(odd, 2, at_once=3),
    Case(waited, 5, at_once=2),
    Case(found, 2, at_once=2),
    Case(formed, 4, at_once=3),
    Case(approvals, 6, at_once=3, has_limits=True),
    Case(tainted, 4, at_once=3),
    Case(clean, 4, at_once=2),
    Case(valued, 5, at_once=2),
]
SLOW = [Case(kept, 2)]
"""For a few trials of their own: git is started for every tick."""
BY_NAME = {case.name: case for case in [*CASES, *SLOW]}
