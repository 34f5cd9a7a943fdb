"""The organisation of the corpus in which trust, judges, gates, approvals and attachments decide about one turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import by_hand, call, remembers

from lemming.kernel.files import fs
from lemming.kernel.messages import entry_id
from lemming.testing import make_org, resume, say


def governed(base: Path, org: dict[str, Any]) -> None:
    """A stranger's text is read; what follows is judged, asked about, approved or denied, and sent with a file."""
    files = {"allow_read": ["./shared"], "allow_write": ["./shared"]}
    may = {"read_outboxes": ["web", "human"], "tools": ["file_*", "attach"], "file_access": files}
    low = {"field": "trust", "op": "is", "value": "outside"}
    gates = [
        {"at": "call", "tool": "file_write", "by": {"agent": "critic"}, "then": "block"},
        {"at": "call", "tool": "file_write", "when": low, "then": "ask"},
        {"at": "result", "by": "critic", "then": "warn"},
        {"at": "out", "redact": ["pin [0-9]+"], "then": "rewrite"},
        {"at": "out", "when": {"field": "kind", "op": "is", "value": "report"}, "then": "ask"},
    ]
    writes = [
        call("file_read", path="shared/a.txt"),
        call("file_list", path="shared"),
        *(call("file_write", path=f"shared/{name}.txt", content=f"{name} pin 12\n") for name in "bc"),
    ]
    payload = {"text": "see pin 12", "attachments": [{"path": "shared/a.txt"}]}
    report = {"kind": "report", "payload": payload, "tags": []}
    make_org(
        base,
        resume("ada", permissions=may, turn={"max_steps": 2}, gates=gates, verify={"by": "critic", "max": 1, "then": "pass"},
               schedule={"wake": "changed"}),
        resume("eve", permissions=may, turn={"max_steps": 2, "take": "one"}, gates=gates, schedule={"wake": "addressed"}),
        resume("critic", paused="it judges only"),
        resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]}),
        resume("web", model={"key": "human"}, permissions={"read_outboxes": []}),
        org={**org, "trust": {"rules": [{"from": "web", "is": "outside"}]}},
        models={"human": {"provider": "human"}},
        script=[
            {"contains": "Judge the", "step": 1, "reply": {"passes": False, "reason": "why"}},
            {"contains": "Judge the", "reply": {"passes": True, "reason": ""}},
            {"agent": "ada", "tick": 1, "step": 0, "reply": {**say(""), "outbox_entries": [report],
                                                             "tool_calls": writes}},
            {"agent": "eve", "tick": 1, "step": 0, "reply": {**say(""), "outbox_entries": [],
                                                             "tool_calls": writes}},
            {"reply": remembers("seen", kind="response")},
        ],
    )  # fmt: skip
    fs.write_atomic(base, "shared/a.txt", b"first pin 7\n")
    by_hand(base, "web", 0, "w0", kind="message", text="Write it down: pin 12")
    by_hand(base, "web", 0, "w1", text="Write it, please.", target="eve")
    for agent in ("ada", "eve"):
        for number in range(5):
            decision = "deny" if number == 1 else "approve"
            answered = entry_id(1, agent, number)
            by_hand(base, "human", 2, f"{agent}{number}", kind="response", reply_to=answered, decision=decision)
