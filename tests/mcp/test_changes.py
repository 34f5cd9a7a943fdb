"""What a server says otherwise than was accepted is told and not used, until a person accepts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from connected import call, configure, known, org_with, server

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.journal.engine_events import Event, ProblemFound
from lemming.testing import FrozenClock, journal_lines, make_org, resume

ONLY = {"tools": ["add", "append", "extra"]}


def ticks(base: Path, *, tick: int) -> tuple[dict[str, Any], list[str], list[str]]:
    """Run a tick; return what was found of servers, the outcomes of calls, and what was told."""
    told: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, ProblemFound):
            told.append(event.problem.message)

    run_once(base, clock=FrozenClock(), notify=hear)
    lines = journal_lines(base, tick)
    outcomes = [it["outcome"] for it in lines if it["type"] == "tool_finished"]
    return lines[0]["mcp"]["mis"], outcomes, told


@pytest.mark.long
def test_a_tool_with_another_description_is_not_offered_until_it_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = call("mcp.mis.add", a=1, b=2), call("mcp.mis.append", line="x"), call("mcp.mis.extra")
    base = org_with(tmp_path, {"mis": server(**ONLY)}, *calls)
    found, outcomes, told = ticks(base, tick=1)
    assert (list(found["tools"]), outcomes, told) == (["add", "append"], ["ok", "ok", "not_found"], [])

    configure(base, {"mis": server("other", "more", **ONLY)})
    found, outcomes, told = ticks(base, tick=2)
    assert found["withheld"] == {"add": "has changed: its description", "extra": "is new"}
    assert list(found["tools"]) == ["append"]
    assert outcomes == ["not_found", "ok", "not_found"]
    assert told == [
        'tool "add" of MCP server mis has changed: its description; it is not offered',
        'tool "extra" of MCP server mis is new; it is not offered',
    ]
    assert known(base)["mis"]["add"]["description"] == "Add two numbers."

    assert run(["-C", str(base), "mcp", "test", "--trust"]) == 1
    assert "has changed: its description" in capsys.readouterr().err
    assert run(["-C", str(base), "mcp", "accept", "mis", "--yes", "--trust"]) == 0
    shown = capsys.readouterr().out
    assert "- Add two numbers.\n" in shown
    assert "+ Add two numbers, and a third.\n" in shown
    found, outcomes, told = ticks(base, tick=3)
    assert (list(found["tools"]), told) == (["add", "append", "extra"], [])
    assert outcomes == ["ok", "ok", "failed"]
    assert run(["-C", str(base), "mcp", "test", "--trust"]) == 0


def test_a_tool_that_is_gone_is_told_and_not_offered(tmp_path: Path) -> None:
    base = org_with(tmp_path, {"mis": server("more", **ONLY)}, call("mcp.mis.extra"))
    ticks(base, tick=1)
    configure(base, {"mis": server(**ONLY)})
    found, outcomes, told = ticks(base, tick=2)
    assert found["withheld"] == {"extra": "is gone"}
    assert outcomes == ["not_found"]
    assert told == ['tool "extra" of MCP server mis is gone; it is not offered']


@pytest.mark.long
def test_the_commands_list_and_call_without_an_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = org_with(tmp_path, {"mis": server(**ONLY), "dead": server("dead")})
    assert run(["-C", str(base), "mcp", "list"]) == 0
    assert "unknown" in capsys.readouterr().out
    words = ["mcp", "test", "mis", "--call", "add", "--args", '{"a": 1, "b": 41}', "--trust"]
    assert run(["-C", str(base), *words]) == 2
    assert "add was not called: it has class" in capsys.readouterr().err
    assert run(["-C", str(base), *words, "--yes"]) == 0
    assert "42" in capsys.readouterr().out.splitlines()
    assert run(["-C", str(base), "mcp", "test", "mis", "--call", "peek", "--trust", "--yes"]) == 2
    assert 'mis offers no tool "peek" ("tools": add, append, extra)' in capsys.readouterr().err
    reads = {"mis": server(**{**ONLY, "tools": ["*"], "trust_hints": True})}
    configure(base, {**reads, "dead": server("dead")})
    (base / "calls.txt").write_text("called\n")
    assert run(["-C", str(base), "mcp", "test", "mis", "--call", "mcp.mis.peek", "--trust"]) == 0
    assert run(["-C", str(base), "mcp", "test", "dead", "--trust"]) == 1
    assert "no licence" in capsys.readouterr().err
    assert run(["-C", str(base), "mcp", "test", "mist"]) != 0
    assert 'did you mean "mis"?' in capsys.readouterr().err
    assert not (base / "config/mcp.lock.json").exists()


@pytest.mark.long
def test_a_server_that_hangs_is_named_with_its_setting_and_the_others_are_told_of(
    base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    org_with(base, {"hangs": server("listless", timeout_s=0.5), "well": server()})
    assert run(["-C", str(base), "mcp", "test", "--trust"]) == 1
    told = capfd.readouterr()
    assert "well: " in told.out
    assert " tools in " in told.out
    limit = "0.5 s (timeout_s of its line in config/mcp.json)"
    assert f"hangs: it did not list its tools within {limit}" in told.err
    assert "models.json" not in told.err
    assert "Error" not in told.err


def test_a_server_is_not_accepted_anew_where_the_file_that_says_what_was_accepted_is_gone(tmp_path: Path) -> None:
    base = org_with(tmp_path, {"mis": server(**ONLY)}, call("mcp.mis.add", a=1, b=2))
    assert ticks(base, tick=1)[1] == ["ok"]
    accepted = (base / "config/mcp.lock.json").read_bytes()
    (base / "config/mcp.lock.json").unlink()
    configure(base, {"mis": server("other", **ONLY)})
    found, outcomes, told = ticks(base, tick=2)
    assert (found["tools"], outcomes) == ({}, ["not_found"])
    assert told[0] == "the file was deleted; accepted tools were lost for mis"
    assert not (base / "config/mcp.lock.json").exists()
    (base / "config/mcp.lock.json").write_bytes(accepted)
    configure(base, {"mis": server(**ONLY)})
    assert ticks(base, tick=3)[1] == ["ok"]


def test_a_server_that_no_agent_may_use_is_agreed_to_for_one_run(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_org(base, resume("ada"))
    configure(base, {"mis": server()})
    assert run(["-C", str(base), "trust", "--yes"]) == 0
    capsys.readouterr()
    assert run(["-C", str(base), "mcp", "test"]) == 2
    told = capsys.readouterr().err
    assert "grant it for this run with `--trust`" in told
    assert "`lemming trust --yes`" not in told
