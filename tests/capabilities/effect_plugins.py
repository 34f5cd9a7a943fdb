"""Plugins whose capabilities intercept effects, and an organisation that uses them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lemming.engine import run_once
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, make_org, resume, say

HEAD = """
from dataclasses import replace
from lemming.ext import (
    Allowed, AskModel, AskPerson, CallTool, Capability, Deferred, EffectFinished, EffectPerformed, NewEntry, Rejected,
    Suspended, TakeReply, WriteEntry, WriteMemory, register_capability,
)
from lemming.strategies import Act, ToolCall, TurnReply
from lemming.tools import Tool, ToolContext, ToolRegistry, ToolResult, tool

SEEN = []

class Bell(Tool):
    name = "bell"
    description = "Rings a bell."

    def execute(self, agent_name, base_path, text):
        with open(base_path / "rung.txt", "a") as file:
            file.write(text + "\\n")
        return ToolResult(True, f"rang {text}")

ToolRegistry.register(Bell())

@tool(repeatable=True, process=False, independent=True)
def shout(ctx: ToolContext, text: str) -> str:
    ctx.emit("report", {"text": text})
    return "shouted"

def acting(turn):
    yield from turn.ask_reply(turn.prompt)
    entry, call = NewEntry("message", {"text": "acted"}, []), ToolCall("bell", {"text": "acted"})
    yield Act(TurnReply(outbox_entries=(entry,), tool_calls=(call,)))
    return "done"

class Here(Capability):
    def prepare(self, turn):
        return {"is": "here"}

@register_capability
class Watch(Here):
    name, handles = "watch", (WriteEntry, CallTool)
    provides = {"strategies": {"acting": acting}}

    def intercept(self, effect, turn):
        is_call = isinstance(effect, CallTool)
        SEEN.append((type(effect).__name__, effect.tool if is_call else effect.payload.get("text")))
"""
NAMES = ("watch", "closed", "speaker", "rule", "second", "third")


class Plugin:
    """A plugin's module, written for one test."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def write(self, code: str) -> None:
        (self.folder / f"{self.name}.py").write_text(HEAD + code)

    @property
    def seen(self) -> list[Any]:
        """What its capabilities have noted since the last look."""
        noted: list[Any] = sys.modules[self.name].SEEN
        copy = [*noted]
        noted.clear()
        return copy

    def unload(self) -> None:
        """Forget the module and all that it registered."""
        for capability in NAMES:
            unregister("capability", capability)
        for tool in ("bell", "shout"):
            unregister("tool", tool)
        unregister("strategy", "acting")
        sys.modules.pop(self.name, None)


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def calling(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**say(""), "outbox_entries": [], "tool_calls": [*calls], **more}


MAY = {"tools": ["bell", "shout", "remind_me", "file_write"], "read_outboxes": ["*"]}


def make(
    base: Path, plugin: Plugin, *names: str, reply: Any = None, script: Any = None, org: Any = None, **ada: Any
) -> Path:
    """Return an organisation in which ada, who may use all tools, gives one reply under the plugin's capabilities."""
    settings = {"plugins": [plugin.name], "capabilities": {name: {} for name in names}, **(org or {})}
    people = [resume("human", model={"key": "human"}), resume("bob", schedule={"wake": "addressed"})]
    blocks = {"permissions": MAY, "turn": {"max_steps": 1}, **ada}
    models = {"human": {"provider": "human"}}
    lines = script or [{"agent": "ada", "reply": reply or say("hello")}, {"reply": say("seen")}]
    return make_org(base, resume("ada", **blocks), *people, org=settings, models=models, script=lines)


def tick(base: Path, name: str = "ada") -> TurnReport:
    """Run a tick and return the report of an agent's turn."""
    return next(turn for turn in run_once(base, clock=FrozenClock()).turns if turn.agent == name)


def texts(base: Path, name: str = "ada") -> list[str]:
    return [entry.payload.get("text", "") for entry in read_outbox_entries(base, name)]


def rung(base: Path) -> list[str]:
    file = base / "rung.txt"
    return file.read_text().split() if file.exists() else []


def rule(handles: str, *lines: str, head: str = 'name = "rule"') -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"""
@register_capability
class {head.partition('"')[2].partition('"')[0].title()}(Here):
    {head}
    handles = ({handles},)

    def intercept(self, effect, turn):
{body}"""
