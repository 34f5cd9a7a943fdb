"""Plain organisations that `lemming/kernel/line.py` and the engine both run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lemming.testing import make_org, resume, say

MODEL = {"provider": "scripted", "prompt": "values", "attempts": 1, "options": {"file": "config/answers.jsonl"}}
CALLS = [
    {"tool": "file_write", "args": {"path": "a.txt", "content": "one"}},
    {"tool": "file_write", "args": {"path": "a.txt", "content": "two"}},
    {"tool": "file_read", "args": {"path": "a.txt"}},
    {"tool": "file_read", "args": {"path": "../../config/org.json"}},
    {"tool": "file_wrote", "args": {}},
]


def agent(name: str, *authors: str, tools: list[str] | None = None, **blocks: Any) -> dict[str, Any]:
    return resume(name, **{"permissions": {"read_outboxes": [*authors], "tools": tools or []}, **blocks})


def every(ticks: int, offset: int = 0) -> dict[str, int]:
    return {"run_every_n_ticks": ticks, "phase_offset": offset}


def remember(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": value}


def in_order(base: Path) -> None:
    """Several agents with fire points, targets and memories."""
    script = [
        {"agent": "b", "reply": {"outbox_entries": [
            {"kind": "report", "payload": {"text": "for c", "target": ["C"]}, "tags": ["x"]},
            {"kind": "message", "payload": {"text": "for all", "target": "*"}},
            {"kind": "message", "payload": {"text": "for all", "target": "*"}},
        ]}},
        {"agent": "c", "tick": 2, "reply": {"notes": "nothing to do", "memory_updates": [remember("n", [1.5, None])]}},
        {"agent": "d", "reply": {"memory_updates": [remember("k", 1), remember("k", "caf\u00e9"), remember("l", {})]}},
        {"reply": say("hello", memory_updates=[remember("last", "hello")])},
    ]  # fmt: skip
    agents = [agent("a", "*"), agent("b", "a", schedule=every(2, 1)), agent("c", "*", schedule=every(3, 1)),
              agent("d", "b", "a", "nobody", schedule=every(2))]  # fmt: skip
    make(base, script, *agents)


def with_tools(base: Path) -> None:
    """Files that a turn writes and reads, calls that are refused, a tool that there is none of."""
    script = [
        {"agent": "ada", "tick": 1, "reply": {"tool_calls": CALLS, "memory_updates": [remember("k", 1)]}},
        {"agent": "ada", "tick": 2, "reply": {"tool_calls": [CALLS[2], {**CALLS[0], "args": {"path": "b.txt"}}]}},
        {"agent": "ada", "tick": 3, "reply": say("wrote", tool_calls=[{**CALLS[2], "args": {"path": "none.txt"}}])},
        {"agent": "bob", "tick": 1, "reply": {"tool_calls": [CALLS[0]]}},
        {"agent": "bob", "tick": 2, "reply": {"tool_calls": [*CALLS[0:1], {"tool": "list_agents", "args": {}}]}},
        {"agent": "bob", "tick": 3, "reply": {"tool_calls": [CALLS[4]], "notes": "x" * 3000}},
        {"reply": say("done", tool_calls=[{"tool": "memory_write", "args": {"key": "m", "value": "x" * 3000}}])},
    ]
    make(base, script, agent("ada", tools=["file_write", "file_read"]), agent("bob", "ada"))


def with_wrong_replies(base: Path) -> None:
    """Replies that are corrected, of which a part counts, and of which nothing does."""
    wrong = {"outbox_entries": [{"kind": "gossip", "payload": {"text": "x"}}, {"kind": "report", "payload": {"n": 1}}]}
    script = [
        {"agent": "corrected", "step": 0, "reply": "```json\nI would rather not."},
        {"agent": "partly", "reply": {**wrong, "extra": 1, "memory_updates": [{"key": "../x", "value": 1}]}},
        {"agent": "never", "tick": 1, "reply": "No."},
        {"agent": "never", "tick": 2, "reply": {}},
        {"agent": "optional", "reply": {**say("here"), "extra": 1, "tool_calls": [{"tool": 7}]}},
        {"agent": "thrice", "tick": 1, "step": 2, "reply": say("at last")},
        {"agent": "thrice", "tick": 1, "reply": "No."},
        {"reply": say("fine")},
    ]
    names = ("corrected", "partly", "never", "optional")
    make(base, script, *(agent(name, "*") for name in names), agent("thrice", "*", turn={"repairs": 3}))


def with_a_failing_model(base: Path) -> None:
    """A model that fails in one turn, and an agent that could not read its inbox meanwhile."""
    script = [
        {"agent": "bob", "tick": 1, "error": "Unavailable"},
        {"agent": "bob", "tick": 3, "step": 1, "error": "AuthenticationFailed"},
        {"agent": "bob", "tick": 3, "reply": "No."},
        {"reply": say("hello")},
    ]
    make(base, script, agent("ada", "*"), agent("bob", "*"))


def with_credits(base: Path) -> None:
    """Agents that run out of credits: before a turn, and before a correction."""
    script = [{"agent": "wrong", "reply": "No."}, {"agent": "half", "reply": {**say("x"), "outbox_entries": 7,
              "memory_updates": [remember("k", 1)]}}, {"reply": say("hello")}]  # fmt: skip
    agents = [agent("ada", credits={"max_credits": 5}), agent("wrong", credits={"max_credits": 3}),
              agent("half", credits={"max_credits": 3}), agent("none", credits={"max_credits": 0}),
              agent("more", credits={"max_credits": 1})]  # fmt: skip
    make(base, script, *agents, model={"per_call": 2.0, "per_1k_input_tokens": 0.013})
    write(base, "config/credits.json", {"more": {"max_credits": 9}})


def with_little_room(base: Path) -> None:
    """More entries than fit, written by hand too; `visibility` is "tick"; entries that are none; a broken resume."""
    script = [{"agent": "a", "reply": {"outbox_entries": say("1")["outbox_entries"] + say("2" * 90)["outbox_entries"]}},
              {"reply": say("hello")}]  # fmt: skip
    agents = [agent("a", "*"), agent("b", "*"), agent("c", "a", "pat"), agent("pat", schedule=every(99)),
              agent("rest", "*", paused="too dear"), agent("away", "*", paused="since 2026-01-01 by x")]  # fmt: skip
    settings = {"inbox_limit": 2, "inbox_chars": 150, "visibility": "tick", "max_attempts": 2}
    make(base, script, *agents, settings=settings)
    for number, name in enumerate(("pat", "pat", "pat", "rest", "b")):
        by_hand(base, name, number % 3, f"e{number}", f"by hand {number}")
    by_hand(base, "pat", 2, "f0", "x" * 200, target="C")
    (base / "agents/pat/outbox/00000000_torn.json").write_bytes(b'{"id": "torn"')
    write(base, "agents/pat/outbox/00000001_strange.json", {"id": "strange", "tick": 1, "agent": "b"})
    (base / "agents/broken").mkdir()
    (base / "agents/broken/resume.json").write_bytes(b"{")


def with_old_entries(base: Path) -> None:
    """Entries past their retention, some of which a reader that is seldom due has not seen."""
    agents = [agent("ada", "*"), agent("slow", "ada", schedule=every(4)), agent("zed", schedule=every(2))]
    make(base, [{"agent": "slow", "reply": {"notes": "read"}}, {"reply": say("x")}], *agents,
          settings={"retention_ticks": 1})  # fmt: skip
    by_hand(base, "zed", 0, "old", "an old one")


def seldom_due(base: Path) -> None:
    """Ticks in which nobody is due, and one in which a pause is the reason."""
    make(base, [{"reply": say("hello")}], agent("ada", schedule=every(3)), settings={"purpose": "to rest"})


ORGANISATIONS = [
    in_order, with_tools, with_wrong_replies, with_a_failing_model, with_credits, with_little_room, with_old_entries,
    seldom_due,
]  # fmt: skip


def make(
    base: Path,
    script: list[dict[str, Any]],
    *agents: dict[str, Any],
    settings: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    models: dict[str, Any] | None = None,
) -> None:
    # One turn after the other: the records of turns that run at once come in any order.
    org = {"executor": "serial", **(settings or {})}
    make_org(base, *agents, script=script, org=org, models={"scripted": {**MODEL, **(model or {})}, **(models or {})})


def write(base: Path, file: str, value: Any) -> None:
    (base / file).parent.mkdir(parents=True, exist_ok=True)
    (base / file).write_text(json.dumps(value))


def by_hand(base: Path, author: str, tick: int, ident: str, text: str, **payload: Any) -> None:
    entry = {"id": ident, "tick": tick, "agent": author, "kind": "message", "payload": {"text": text, **payload}}
    write(base, f"agents/{author}/outbox/{tick:08}_{ident}.json", {**entry, "tags": [], "created_at": ""})
