"""A capability of a plugin that does what it must not, and an agent with a turn under it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lemming
from lemming.engine import run_once
from lemming.kernel.journal.turn_report import TurnReport
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.testing import FrozenClock, make_org, resume, say

HEAD = """
from dataclasses import dataclass, replace
from lemming.ext import *

@register_capability
class Evil(Capability):
    name, asks_persons = "evil", True
"""
FILES = {"allow_read": ["./workspace"], "allow_write": ["./workspace"]}
CALLS = [
    {"tool": "memory_write", "args": {"key": "k", "value": 1}},
    {"tool": "file_write", "args": {"path": "a.txt", "content": "a"}},
]
Take = Callable[..., TurnReport]
SAYS_HELLO = "if effect.payload.get('text') != 'hello': return None\n"
ONLY = {
    "WriteEntry": SAYS_HELLO,
    "CallTool": "if effect.tool != 'memory_write': return None\n",
    "RunTool": "if effect.call.tool != 'memory_write': return None\n",
}


def make_take(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Take:
    """Return a function that takes a turn of ada, who says hello, makes two calls and notes a memory."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def take_turn(
        body: str, handles: str = "WriteEntry", hook: str = "intercept", after: str = "", members: str = "", **org: Any
    ) -> TurnReport:
        if not (base / "agents").exists():
            parameters = {"intercept": "self, effect, turn", "wrap_turn": "self, turn, run"}.get(hook, "self, turn")
            handled = f"    handles = ({handles},)\n    after = {(after,) if after else ()}\n"
            code = f"    def {hook}({parameters}):\n{textwrap.indent(textwrap.dedent(body).strip(), ' ' * 8)}\n"
            more = "" if hook == "intercept" else "    def intercept(self, effect, turn): return None\n"
            module = f"evil_{base.parent.name}".replace("-", "_")
            (tmp_path / f"{module}.py").write_text(HEAD + handled + code + more + textwrap.indent(members, "    "))
            people = [
                resume(name, model={"key": "human"}, permissions={"read_outboxes": ["ada"]})
                for name in ("ann", "bob", "cid")
            ]
            may = {"read_outboxes": ["*"], "tools": ["memory_write", "file_write"], "file_access": FILES}
            reply = say("hello", tool_calls=CALLS, memory_updates=[{"key": "u", "value": 2}])
            make_org(
                base,
                resume("ada", permissions=may),
                resume("zoe", permissions={"read_outboxes": ["ann"]}),
                *people,
                org={"plugins": [module], "capabilities": {"evil": {}}, **org},
                models={"human": {"provider": "human"}},
                script=[{"agent": "ada", "tick": 1, "reply": reply}, {"reply": say("quiet")}],
            )
            memory = {"key": "m", "value": ["v"], "timestamp": "", "agent": "ada"}
            (base / "agents/ada/memory").mkdir(exist_ok=True)
            (base / "agents/ada/memory/m.json").write_text(json.dumps(memory))
            at, payload = "2026-01-01T00:00:00Z", {"text": "good news"}
            write_person_entry(base, "ann", tick=0, kind="message", payload=payload, tags=[], created_at=at)
        return next(turn for turn in run_once(base, clock=FrozenClock()).turns if turn.agent == "ada")

    return take_turn


def texts(base: Path) -> list[Any]:
    return [entry.payload.get("text") for entry in read_outbox_entries(base, "ada") if entry.kind == "message"]


def values(base: Path) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_bytes())["value"] for path in base.glob("agents/ada/memory/*.json")}


def decide(base: Path, person: str) -> None:
    for item in {item.id: item for item in lemming.list_person_inbox(base)}.values():
        lemming.approve(base, item, person=person)
