"""What is written does not depend on how many turns are taken at once, and replay needs no server."""

from __future__ import annotations

from pathlib import Path

import pytest
from connected import call, configure
from mischief import by_http
from sampling import EVERYTHING

from lemming.cli import run
from lemming.engine import run_once
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree

AT_ONCE = (1, 2, 8, 64) if EVERYTHING else (1, 8)
NAMES = ["ada", "bob", "cyd", "dan"]


def organisation(base: Path, at_once: int, **server: object) -> Path:
    calls = [call("mcp.sums.add", a=1, b=2), call("mcp.sums.add", a="x"), call("mcp.sums.fail")]
    may = {"read_outboxes": [], "tools": ["mcp.*"]}
    make_org(
        base,
        *(resume(name, permissions=may, turn={"max_steps": 2}) for name in NAMES),
        org={"max_parallel": at_once},
        script=[{"step": 0, "reply": say("calling", tool_calls=calls)}, {"reply": say("called")}],
    )
    configure(base, {"sums": {"url": by_http(), "tools": ["add", "fail"], **server}})
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    return base


def files(base: Path) -> dict[str, bytes]:
    """Return the files, but for the setting that differs; the order of turns in a journal may."""
    return {
        file: raw
        for file, raw in tree(base).items()
        if not file.startswith(("config/org.json", "logs/ticks", ".lemming", "logs/engine.log"))
    }


@pytest.mark.parametrize("settings", [{}, {"independent": True, "trust_hints": True}], ids=["apart", "at once"])
def test_one_turn_or_many_at_once_write_the_same_bytes(tmp_path: Path, settings: dict[str, object]) -> None:
    one, *others = (organisation(tmp_path / str(at_once), at_once, **settings) for at_once in AT_ONCE)
    assert len(files(one)) > len(NAMES)
    for other in others:
        assert files(other) == files(one)
    results = [it for it in journal_lines(one, 2) if it["type"] == "tool_finished"]
    assert [it["outcome"] for it in results] == ["ok", "invalid_args", "failed"] * len(NAMES)


def test_verify_and_replay_ask_no_server(tmp_path: Path) -> None:
    base = organisation(tmp_path / "org", 8)
    configure(base, {"sums": {"url": "http://127.0.0.1:9/mcp", "tools": ["add", "fail"]}})  # nobody is there
    assert run(["-C", str(base), "verify"]) == 0
    assert run(["-C", str(base), "replay"]) == 0
    assert run(["-C", str(base), "replay", "--into", str(tmp_path / "again")]) == 0
