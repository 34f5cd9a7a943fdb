"""An organisation with a past that has a little of everything, and ways to tamper with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lemming.engine import run_once
from lemming.kernel.base import paths
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_parser import parse_record
from lemming.kernel.messages import entry_id
from lemming.kernel.providers import Backend, Reply, Request
from lemming.kernel.tools import Tool, ToolResult
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import SCRIPT_FILE, FrozenClock, journal_lines, make_org, resume, say

TICKS = 8
LAST_ENTRY = f"agents/ada/outbox/{TICKS:08d}_{entry_id(TICKS, 'ada', 0)}.json"


class Refusing(Backend):
    """A provider that must not be called."""

    keeps_deadline = writes_contract = True

    def complete(self, request: Request) -> Reply:
        raise AssertionError(f"a model was called: {request.agent}, tick {request.tick}")


class Bell(Tool):
    """A tool with an outside effect: it may not run again."""

    name = "bell"
    description = "Ring a bell."

    def __init__(self) -> None:
        self.rung = 0

    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        self.rung += 1
        return ToolResult(True, f"ding {self.rung}")


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def busy_org(base: Path) -> Path:
    """Make the organisation and run eight ticks of it.

    Tools, memories, several steps, corrections, failures, turns that are skipped, a person who speaks up, a
    tool that reaches outside, an agent that another one hires, entries that expire.
    """
    writes = [call("file_write", path="a.txt", content="hello"), call("memory_write", key="k", value=[1])]
    hires = [call("create_agent", name="zoe", title="Zoe", instructions="You are new.", model_key="scripted")]
    script: list[dict[str, Any]] = [
        {"agent": "ada", "tick": 1, "step": 0, "reply": say("first", tool_calls=writes)},
        {"agent": "ada", "tick": 1, "step": 1, "reply": say("", memory_updates=[{"key": "m", "value": 2}])},
        {"agent": "ada", "tick": 2, "step": 0, "reply": "this is not the contract"},
        {"agent": "ada", "tick": 3, "error": "RateLimited"},
        {"agent": "ada", "tick": 4, "reply": "never the contract"},
        {"agent": "bob", "tick": 2, "reply": say("written", tool_calls=[
            call("file_write", path="shared/out.txt", content="out"), call("bell"), call("nonsense")])},
        {"agent": "hr", "tick": 4, "reply": say("welcome", tool_calls=hires)},
        {"reply": say("hello", memory_updates=[{"key": "last", "value": "x"}]), "output_tokens": 7},
    ]  # fmt: skip
    both = {"allow_read": ["./workspace", "./shared"], "allow_write": ["./workspace", "./shared"]}
    make_org(
        base,
        resume(
            "ada",
            permissions={"read_outboxes": ["*"], "tools": ["file_write"], "file_access": both},
            turn={"max_steps": 3},
            context=[{"file": "./shared/facts.txt", "take": "next_line"}],
        ),
        resume(
            "bob",
            permissions={"read_outboxes": ["human"], "tools": ["file_write", "bell"], "file_access": both},
            schedule={"run_every_n_ticks": 1, "phase_offset": 0, "wake": "changed"},
        ),
        resume("hr", permissions={"tools": ["create_agent"]}, schedule={"run_every_n_ticks": 4}),
        resume("human", model={"key": "human"}),
        script=script,
        org={"retention_ticks": 3, "durability": "off"},
        models={
            "scripted": {"provider": "scripted", "options": {"file": SCRIPT_FILE}, "attempts": 1},
            "human": {"provider": "human"},
        },
    )
    fs.write_atomic(base, "shared/facts.txt", b"Bees dance.\nAnts march.\n")
    fs.write_atomic(base, "agents/ada/memory/given.json", _memory("ada", "given"))
    clock = FrozenClock()
    for tick in range(1, TICKS + 1):
        clock.advance(60)
        if tick in (2, 5, 7):
            speak(base, tick, clock)
        run_once(base, clock=clock)
    return base


def speak(base: Path, tick: int, clock: FrozenClock) -> str:
    """Write a person's entry and return its path."""
    at, text = timestamp(clock.now()), {"text": f"It is {tick}."}
    return write_person_entry(base, "human", tick=tick, kind="message", payload=text, tags=["t"], created_at=at).file


def refuse_models(base: Path) -> None:
    """Configure a provider that fails the test when it is called."""
    models = {"scripted": {"provider": "refusing", "attempts": 1}, "human": {"provider": "human"}}
    fs.write_atomic(base, "config/models.json", dump_pretty(models))


def rewrite_journal(base: Path, tick: int, change: Callable[[Json], Json | None]) -> None:
    """Change a journal's records (None: leave out) and make its checksums right again."""
    records = [changed for record in journal_lines(base, tick) if (changed := change(dict(record)))]
    fs.remove(base, paths.journal_file(tick))
    with Journal(base, tick, epoch=1, durability="off") as journal:
        for record in records:
            journal.append(parse_record(record))


def _memory(agent: str, key: str) -> bytes:
    return dump_pretty({"key": key, "value": "by hand", "timestamp": "2026-01-01T00:00:00.000Z", "agent": agent})


def edit(base: Path, file: str, old: str, new: str) -> None:
    """Change a file's text in one place."""
    text = (base / file).read_text()
    assert old in text
    fs.write_atomic(base, file, text.replace(old, new, 1).encode())


def cut(base: Path, file: str, size: int) -> None:
    """Leave the beginning of a file."""
    fs.write_atomic(base, file, (base / file).read_bytes()[:size])
