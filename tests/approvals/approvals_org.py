"""An organisation in which calls need approval, and what its tests look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.tools import Tool, ToolResult
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

ASK = {"at": "call", "tool": ["ring", "file_*", "create_agent"], "then": "ask", "because": "it is loud"}
LINE = "config/org.json#/gates/0"


class Ring(Tool):
    """A bell outside: what was rung cannot be taken back."""

    name = "ring"
    description = "Rings a bell."
    rung: ClassVar[list[str]] = []

    def execute(self, agent_name: str, base_path: Path, text: str, file: Any = "") -> ToolResult:
        Ring.rung.append(text)
        return ToolResult(True, f"rang {text}")


def ring(text: str = "once", **more: Any) -> dict[str, Any]:
    return {"tool": "ring", "args": {"text": text, **more}}


def person(name: str, *reads: str) -> dict[str, Any]:
    return resume(name, model={"key": "human"}, permissions={"read_outboxes": [*reads] or ["ada"]})


def make(
    base: Path,
    *calls: dict[str, Any],
    gates: list[dict[str, Any]] | None = None,
    people: tuple[str, ...] = ("human",),
    script: list[dict[str, Any]] | None = None,
    org: dict[str, Any] | None = None,
    **blocks: Any,
) -> Path:
    """Make an organisation in which ada makes these calls in the first tick."""
    may = {"read_outboxes": [*people], "tools": ["ring", "file_read", "file_write", "file_append", "shell"]}
    lines = script or [{"tick": 1, "step": 0, "reply": say("calling", tool_calls=[*calls])}, {"reply": say("seen")}]
    return make_org(
        base,
        resume("ada", **{"permissions": may, "schedule": {"wake": "changed"}, **blocks}),
        *(person(name) for name in people),
        org={"gates": gates if gates is not None else [ASK], **(org or {})},
        models={"human": {"provider": "human"}},
        script=lines,
    )


def tick(base: Path) -> TurnReport | None:
    """Run a tick, and return ada's turn in it; None when the tick is quiet or she took none."""
    report = run_once(base, clock=FrozenClock())
    turns = [turn for turn in report.turns if turn.agent == "ada" and turn.status != "skipped"]
    return turns[0] if turns else None


def requests(base: Path, agent: str = "ada") -> list[Any]:
    return [it for it in read_outbox_entries(base, agent) if it.kind == "request"]


def finished(base: Path, number: int) -> list[tuple[str, str]]:
    lines = journal_lines(base, number)
    return [(it["outcome"], it["output"]) for it in lines if it["type"] == "tool_finished"]


def started(base: Path, number: int) -> list[dict[str, Any]]:
    return [it for it in journal_lines(base, number) if it["type"] == "tool_started"]


def shown(base: Path, number: int) -> str:
    """Return what ada's model was shown first in a tick, results of calls made before it included."""
    (start,) = [it for it in journal_lines(base, number) if it["type"] == "turn_started"]
    return "\n".join(message["content"] for message in (*start["prompt"], *start.get("dialogue", ())))


def lemming(base: Path, *words: str) -> int:
    return run(["-C", str(base), *words])


def by_hand(base: Path, author: str, number: int, ident: str, *, kind: str = "response", **payload: Any) -> None:
    """Put an entry into an outbox as a person with an editor would."""
    entry = {"id": ident, "tick": number, "agent": author, "kind": kind, "payload": payload}
    file = f"agents/{author}/outbox/{number:08d}_{ident}.json"
    fs.write_atomic(base, file, dump_pretty({**entry, "tags": [], "created_at": ""}))


def edit(base: Path, file: str, **keys: Any) -> None:
    """Change keys of a JSON file as a person with an editor would."""
    path = base / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


def kept_calls(base: Path) -> list[dict[str, Any]]:
    """Return the calls that wait for approval, as ada's ledger keeps them."""
    begun = read_state(base, "ada").requests
    return [asked.held["approvals"] for it in begun for asked in it.open_sub_requests if asked.held]
