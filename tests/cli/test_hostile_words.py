"""Whatever words an organisation holds, wherever: no command writes one to a terminal that would steer it."""

from __future__ import annotations

import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming

from lemming.engine import run_once
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import FrozenClock, make_org, resume, say

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b2J\x9d0;x\x9c\x08\x7f\r\u202e\u2066\u200b\u2028\u2029\u0085\ufeff\u00ad\U000e0041"
SHOWN = [
    "status", "plan", "plans show", "plans show planner", "plans show odd", "calendar", "prompt ada",
    "inbox ada", "inbox human", "outbox ada", "outbox human", "channels", "tick 1", "tick 2",
    "tick 1 --prompts", "tick 1 --replies", "why ada", "why ada key", "logs", "logs ada", "cost",
    "cost --by agent", "requests", "waiting", "approvals", "agents list", "agents show ada",
    "agents show planner", "memory list ada", "memory get ada key", "credits show", "skills list",
    "skills show pdf", "tools list", "tools show odd", "tools call odd", "models list", "models show",
    "mcp list", "mcp list odd", "validate", "doctor", "verify", "replay", "repair", "trust",
    "service --print", "run-once --dry-run", "run-once --trust", "prune", "mcp test --trust",
    "ask ada hello --trust",
]  # fmt: skip
UNKNOWN = [
    "prompt {}", "inbox {}", "outbox {}", "why {}", "requests {}", "answer {} x", "approve {}", "deny {}",
    "cancel {}", "vouch {}", "pause {}", "agents show {}", "agents rm {}", "memory get ada {}",
    "skills show {}", "tools show {}", "tools call {}", "models use {}", "mcp list {}", "schema {}", "{}",
    "logs {}", "plans show {}", "send --to {} x", "ask {} x", "show {}", "diff {} {}", "tick {}",
    "fork {} x", "rewind {}", "export {}", "import claude {}", "restore {}", "service --name {}",
    "cost --by {}", "-C {} status", "credits grant {} 1",
]  # fmt: skip


def harmful(text: str) -> str:
    """Return what in a text is not to be written to a terminal."""
    bad = {"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"}
    return "".join(c for c in text if c not in "\n\t" and unicodedata.category(c) in bad)


def evil(word: str = "") -> str:
    return f"{word}{EVIL}\nFORGED"


@pytest.fixture
def hostile(first: Path, base: Path) -> Path:
    """A copy of an organisation that says something hostile in every file that newer parts of it read."""
    return shutil.copytree(first, base, symlinks=True)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The organisation, after two ticks."""
    base = tmp_path_factory.mktemp("hostile") / "org"
    call = {"tool": "file_write", "args": {"path": "a.txt", "content": evil()}}
    request = {"kind": "request", "payload": {"target": "human", "text": evil(), evil(): evil()}, "tags": [evil()]}
    script: list[dict[str, Any]] = [
        {"agent": "ada", "tick": 1, "reply": {
            "outbox_entries": [request], "tool_calls": [call, {"tool": "odd", "args": {evil(): evil()}}],
            "memory_updates": [{"key": "key", "value": evil()}], "notes": evil()}},
        {"agent": "ada", "tick": 2, "reply": evil()},
        {"reply": say(evil())},
    ]  # fmt: skip
    gates = [
        {"at": "call", "tool": "file_write", "then": "ask", "because": evil()},
        {"at": "out", "deny": ["nothing"], "then": "warn", "because": evil()},
    ]
    ada = resume(
        "ada", title=evil(), instructions=evil(), skills=["*"], gates=gates,
        permissions={"tools": ["file_write", "odd", "mcp.odd.*"], "read_outboxes": ["*"]},
    )  # fmt: skip
    make_org(
        base, ada, resume("planner", model={"key": "plan"}), resume("clock", model={"key": "clock"}),
        resume("human", model={"key": "human"}, title=evil()),
        resume("desk", model={"key": "desk"}), script=script,
        models={"desk": {"provider": "folder", "options": {"path": "in"}}, "plan": {"provider": "plan"},
                "far": {"provider": "openai", "options": {"base_url": f"http://far.example/{evil()}"}},
                "program": {"provider": "cli", "options": {"command": ["true", evil()]}}},
        org={"tool_files": ["tools/*.py"], "on_failure": ["true", evil()], "trust": {}, "timezone": "UTC"},
    )  # fmt: skip
    fs.write_atomic(base, "tools/odd.py", f"""
from lemming.tools import tool

@tool
def odd(word: str = "") -> str:
    {evil("Says what is odd.")!r}
    print({evil()!r})
    raise RuntimeError({evil()!r})
odd.__doc__ = {evil("Odd.")!r}
""".encode())  # fmt: skip
    fs.write_atomic(
        base, "agents/ada/skills/pdf/SKILL.md", f"---\nname: pdf\ndescription: {evil()!r}\n---\n{evil()}".encode()
    )
    fs.write_atomic(base, f"agents/ada/skills/x{EVIL.replace('/', '')}/SKILL.md", evil("---\n").encode())
    job = {"agent": "ada", "text": evil(), "cron": "0 8 * * *", "payload": {evil(): evil()}}
    fs.write_atomic(base, "config/calendar.json", dump_pretty({"jobs": {"odd": job, evil(): job}}))
    fs.write_atomic(
        base, "agents/planner/plan.json", dump_pretty({"title": evil(), "steps": [{"id": evil(), "ask": evil()}]})
    )
    server = {"command": ["sh", "-c", f"printf '{EVIL}' >&2; exit 3"], "start_timeout_s": 5}
    fs.write_atomic(base, "config/mcp.json", dump_pretty({"servers": {"odd": server}}))
    fs.write_atomic(
        base, ".mcp.json", dump_pretty({"mcpServers": {evil(): {"command": evil(), "env": {evil(): evil()}}}})
    )
    described = {"description": evil(), "hash": evil(), "parameters": {"properties": {evil(): {"description": evil()}}}}
    fs.write_atomic(base, "config/mcp.lock.json", dump_pretty({"servers": {"odd": {"tools": {evil(): described}}}}))
    fs.write_atomic(base, "shared/store/odd.json", dump_pretty({"key": "odd", "value": evil()}))
    fs.write_atomic(base, "agents/desk/in/a.txt", evil().encode())
    fs.write_atomic(base, "agents/desk/outbox/00000001_x.json", evil().encode())
    fs.write_atomic(
        base, "logs/engine.log", (b'{"event": "odd", "problem": "\\u001b[2J' + b'\\u202e"}\n' + EVIL.encode())
    )
    write_person_entry(base, "human", tick=1, kind="request", payload={"target": "ada", "text": evil()}, tags=[evil()],
         created_at="")  # fmt: skip
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    return base


@pytest.mark.sample(2)
@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "as JSON"])
def test_no_command_lets_them_steer_a_terminal(hostile: Path, lemming: Lemming, as_json: bool) -> None:
    for words in SHOWN:
        ran = lemming(*words.split(), *(["--json"] if as_json else []))
        assert (words, harmful(ran.out + ran.err)) == (words, "")
        assert ran.status not in (70, 130), (words, ran)


def test_nor_do_words_that_are_typed(hostile: Path, lemming: Lemming) -> None:
    for words in UNKNOWN:
        ran = lemming(*(word.replace("{}", evil("x")) for word in words.split()))
        assert (words, harmful(ran.out + ran.err)) == (words, "")
        assert ran.status not in (70, 130), (words, ran)


def test_what_waits_for_a_person_is_shown_whole(hostile: Path, lemming: Lemming) -> None:
    """The words are there, with a mark for each that is none: nothing is hidden from who decides."""
    (waiting,) = lemming("approvals", "--json").objects[:1]
    shown = lemming("approvals").out
    assert "FORGED" in shown
    assert "[2J" in shown
    for words in (f"approve {waiting['id']}", f"requests {waiting['id']}", f"cancel {waiting['id']}"):
        ran = lemming(*words.split())
        assert (words, harmful(ran.out + ran.err)) == (words, "")
