"""The organisation of the corpus whose calls wait for approval: given, edited, refused, ahead, too late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import by_hand, call, remembers

from lemming.kernel.files import fs
from lemming.kernel.messages import entry_id
from lemming.testing import make_org, resume, say

APPENDS = {"hal": ["file_append"]}
LIMIT = {"at": "spend", "then": "ask", "credits": 1, "per": "agent"}


def approvals(base: Path, org: dict[str, Any]) -> None:
    """Files that need approval, of which one changes meanwhile; two strangers, one let in; a limit, raised.

    One may append without being asked about, asks for one thing more than it may, and is blocked once; one
    writes an entry that a file goes with, which changes meanwhile.
    """
    writes = [call("file_write", path=f"shared/{name}.txt", content=f"{name}\n") for name in "abc"]
    files = {"allow_read": ["./shared"], "allow_write": ["./shared"]}
    may = {"read_outboxes": ["human"], "tools": ["file_write"], "file_access": files}
    gates = [
        {"at": "call", "then": "ask", "tool": "file_write", "when": _of("bob"), "expires": 1},
        {"at": "call", "then": "ask", "tool": "file_*", "when": {"not": _of("cyd")}, "approved": APPENDS},
        {"at": "call", "then": "block", "tool": "file_*", "deny": ["BLOCKED"]},
        {"at": "out", "then": "ask", "when": _of("ivy")},
        {"at": "in", "then": "ask", "when": {"field": "from", "op": "is", "value": "web"}},
    ]
    make_org(
        base,
        resume("ada", permissions=may),
        resume("bob", permissions=may, schedule={"wake": "addressed"}, turn={"take": "one"}),
        resume("cyd", permissions=may),
        resume("dan", permissions=may, schedule={"wake": "changed"}),
        resume("eve", permissions={"read_outboxes": ["web", "human"]}, schedule={"wake": "addressed"}),
        resume("gil", permissions={"read_outboxes": ["human"]}, gates=[LIMIT]),
        resume("hal", permissions={**may, "tools": ["file_*"]}, turn={"max_approvals": 1}),
        resume("ivy", permissions={**may, "tools": ["attach"]}),
        resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]}),
        resume("web", model={"key": "human"}, permissions={"read_outboxes": []}),
        org={**org, "gates": gates},
        models={"human": {"provider": "human"}},
        script=[
            {"agent": "ada", "tick": 1, "reply": say("writing", tool_calls=writes)},
            {"agent": "bob", "contains": "REFUSED", "reply": remembers("too late", kind="response")},
            {"agent": "bob", "reply": {**say(""), "outbox_entries": [], "tool_calls": writes[:1]}},
            {"agent": "cyd", "tick": 2, "reply": say("mine", tool_calls=[*writes[:1], _chart("second")])},
            {"agent": "cyd", "reply": say("at rest")},
            {"agent": "hal", "tick": 1, "reply": say("writing", tool_calls=_of_hal())},
            {"agent": "ivy", "tick": 1, "reply": _with_chart()},
            {"agent": "ivy", "reply": {**say(""), "outbox_entries": []}},
            {"agent": "dan", "tick": 1, "reply": say("writing", tool_calls=[_notes(), _notes()])},
            {"reply": remembers("seen")},
        ],
    )
    fs.write_atomic(base, "shared/chart.png", b"first")
    asked = [entry_id(1, "ada", number) for number in (1, 2, 3)]
    by_hand(base, "human", 0, "ask", text="write it", target="bob", conversation="")
    by_hand(base, "human", 1, "once", kind="response", target="dan", decision="approve", call=_notes())
    by_hand(base, "human", 2, "a", kind="response", reply_to=asked[0], decision="approve")
    by_hand(base, "human", 2, "b", kind="response", reply_to=asked[1], decision="deny", reason="no")
    edited = {"path": "shared/c.txt", "content": "edited\n"}
    by_hand(base, "human", 3, "c", kind="response", reply_to=asked[2], decision="approve", args=edited, binds={})
    by_hand(base, "human", 2, "h", kind="response", reply_to=entry_id(1, "hal", 1), decision="approve")
    for number, ident in enumerate(("kind", "rude")):
        by_hand(base, "web", 1, ident, kind="message", text=ident, target="eve")
        decision = "deny" if number else "approve"
        asks = entry_id(1, "eve", number)
        by_hand(base, "human", 2, f"in{number}", kind="response", reply_to=asks, decision=decision)
    by_hand(base, "human", 3, "more", kind="response", reply_to=entry_id(2, "gil", 0), decision="approve")
    for tick in (1, 2):
        asks = entry_id(tick, "ivy", 0)
        by_hand(base, "human", tick + 1, f"i{tick}", kind="response", reply_to=asks, decision="approve")
    again = entry_id(3, "ada", 0)
    by_hand(base, "human", 4, "d", kind="response", reply_to=again, decision="approve")


def _of(agent: str) -> dict[str, Any]:
    return {"field": "agent", "op": "is", "value": agent}


def _notes() -> dict[str, Any]:
    return call("file_write", path="shared/dan.txt", content="dan\n")


def _chart(content: str) -> dict[str, Any]:
    return call("file_write", path="shared/chart.png", content=content)


def _with_chart() -> dict[str, Any]:
    payload = {"text": "see", "attachments": [{"path": "shared/chart.png"}]}
    return {**say(""), "outbox_entries": [{"kind": "report", "payload": payload, "tags": []}]}


def _of_hal() -> list[dict[str, Any]]:
    return [
        call("file_append", path="shared/hal.txt", content="hal\n"),
        call("file_append", path="shared/hal.txt", content="BLOCKED\n"),
        call("file_write", path="shared/h.txt", content="h\n"),
        call("file_write", path="shared/i.txt", content="i\n"),
    ]
