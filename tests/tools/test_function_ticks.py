"""Functions in ticks: the same files however many turns at once, in a replay, and after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from workshop import Workshop, call

from lemming.capabilities.toolbox.functions import worker_pool
from lemming.cli import run
from lemming.engine import run_forever, run_once
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.tools import ToolResult
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree

pytestmark = pytest.mark.usefixtures("untried")

EVERYTHING = os.environ.get("LEMMING_CRASH_POINTS") == "all"
CODE = """
from lemming.tools import ToolContext, tool

@tool(repeatable=True, independent=True)
def count(ctx: ToolContext, step: int = 1) -> dict:
    ctx.state["n"] = ctx.state.get("n", 0) + step
    ctx.emit("report", {"text": f"{ctx.agent.name} is at {ctx.state['n']}"})
    return {"n": ctx.state["n"], "key": ctx.idempotency_key}

@tool(tool_class="write", repeatable=True, reads=["shared"], writes=["shared"], process=False)
def sign(ctx: ToolContext) -> str:
    file = ctx.base / "shared" / "names.txt"
    before = file.read_text() if file.exists() else ""
    if ctx.agent.name not in before:
        file.write_text(before + ctx.agent.name + " ")
    return before

@tool(tool_class="send")
def send_away(ctx: ToolContext) -> str:
    (ctx.workspace / "sent.txt").open("a").write("x")
    return "sent"
"""
NAMES = ["ada", "bob", "cyd"]


def org_of_three(base: Path, at_once: int) -> Path:
    calls = [call("count", step=2), call("sign"), call("send_away"), call("count"), call("nothing")]
    may = {"read_outboxes": ["*"], "tools": ["count", "sign", "send_away"]}
    agents = [resume(name, permissions=may, turn={"max_steps": 2}) for name in NAMES]
    script = [{"step": 0, "reply": say("calling", tool_calls=calls)}, {"reply": say("called")}]
    make_org(base, *agents, script=script, org={"tool_files": ["tools/*.py"], "max_parallel": at_once})
    (base / "tools").mkdir()
    (base / "tools/mine.py").write_text(CODE)
    (base / "shared").mkdir()
    return base


def files_after(base: Path, ticks: int = 2) -> dict[str, bytes]:
    run_forever(base, interval_s=0, max_ticks=ticks, clock=FrozenClock())
    return tree(base, without=(".lemming", "logs", "config"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of open files here")
def test_what_a_function_says_leaves_no_file_open(base: Path) -> None:
    org_of_three(base, 1)
    (base / "tools/mine.py").write_text(
        f'{CODE}\n@tool\ndef nothing(ctx: ToolContext) -> None:\n    ctx.log.info("x")\n'
    )
    for name in NAMES:
        plain = json.loads((base / f"agents/{name}/resume.json").read_text())
        plain["permissions"]["tools"] += ["nothing"]
        (base / f"agents/{name}/resume.json").write_text(json.dumps(plain))
    files_after(base)
    assert "tool_said" in (base / "logs/engine.log").read_text()
    assert [file for file in open_files() if file.startswith(f"{base}/")] == []


def open_files() -> list[str]:
    """Return the paths of what this process holds open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the list itself
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


@pytest.mark.long
@pytest.mark.crash
def test_files_are_the_same_however_many_turns_are_taken_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "MAX_CONCURRENT", 2)  # so that a third one waits for a process
    alone = files_after(org_of_three(tmp_path / "1", 1))
    assert alone["shared/names.txt"] == b"ada bob cyd "
    for at_once in (2, 8) if EVERYTHING else (8,):
        assert files_after(org_of_three(tmp_path / str(at_once), at_once)) == alone


@pytest.mark.long
def test_a_replay_calls_no_function_and_agrees(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    base = org_of_three(tmp_path / "org", 8)
    files_after(base, ticks=1)
    sent = (base / "agents/ada/workspace/sent.txt").read_text()
    (base / "tools/mine.py").unlink()
    assert run(["-C", str(base), "verify"]) == 0
    assert run(["-C", str(base), "replay"]) == 0, capfd.readouterr()
    assert (base / "agents/ada/workspace/sent.txt").read_text() == sent


ENGINE = """
import sys
from pathlib import Path
from lemming.testing import FrozenClock
from lemming.engine import run_once
from lemming.kernel.journal.ledger import read_state
run_once(Path(sys.argv[1]), clock=FrozenClock())
"""


@pytest.mark.long
def test_a_kill_ends_the_processes_of_functions_and_the_call_is_unknown(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    shop.file(
        f"""
        @tool
        def hold() -> str:
            line = open({str(pipe)!r}, "w")
            line.write(str(os.getpid()))
            line.close()
            import threading
            threading.Event().wait()
        """
    )
    script = [{"agent": "ada", "reply": say("x", tool_calls=[call("hold")])}]
    make_org(shop.base, shop.resume(), script=script, org=shop.settings)
    engine = subprocess.Popen([sys.executable, "-c", ENGINE, str(shop.base)])
    worker = int(pipe.read_text())
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    _wait_for_the_end_of(worker)
    run_once(shop.base, clock=FrozenClock())
    (record,) = shop.finished()
    assert (record["outcome"], record["success"]) == ("interrupted", False)


@pytest.mark.long
def test_a_call_that_a_person_has_run_again_has_the_same_key(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org")
    shop.file(
        """
        @tool
        def pay(ctx: ToolContext) -> str:
            with (ctx.base / "shared.txt").open("a") as file:
                file.write(f"{ctx.call_id} {ctx.idempotency_key} ")
            if not (ctx.base / "online.txt").exists():
                import threading
                os.kill(int((ctx.base / "engine.txt").read_text()), 9)
                threading.Event().wait()
            ctx.emit("report", {"text": "paid"})
            return "paid"
        """
    )
    script = [{"agent": "ada", "reply": say("x", tool_calls=[call("pay")])}]
    make_org(shop.base, shop.resume(), script=script, org=shop.settings)
    note = "import os, sys; open(sys.argv[1] + '/engine.txt', 'w').write(str(os.getpid()))" + ENGINE
    assert subprocess.run([sys.executable, "-c", note, str(shop.base)]).returncode == -signal.SIGKILL
    run_once(shop.base, clock=FrozenClock())
    (shop.base / "online.txt").touch()
    assert run(["-C", str(shop.base), "trust", "--yes"]) == 0
    assert run(["-C", str(shop.base), "repair", "--retry", "1/ada/0", "--yes"]) == 0
    first, key, again, same = (shop.base / "shared.txt").read_text().split()
    assert (first, key) == (again, same) == ("1/ada/0", key)
    assert "paid" in "".join(path.read_text() for path in (shop.base / "agents/ada/outbox").iterdir())


def _wait_for_the_end_of(process: int) -> None:
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([descriptor], [], [], PATIENCE_S)
    finally:
        os.close(descriptor)
    assert ended


def test_an_edit_counts_from_the_next_tick_and_a_broken_one_leaves_the_tools_as_they_were(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org")
    said: list[str] = []
    versions = ['return "one"', 'return "two"', "return (", 'return "four"']

    def write(number: int) -> None:
        shop.file(f"@tool(repeatable=True)\ndef version() -> str:\n    {versions[number]}\n")

    def hear(event: Any) -> None:
        if event.kind == "tool_finished":
            said.append(event.output)
        if event.kind == "tick_committed" and event.tick < len(versions):
            write(event.tick)

    write(0)
    script = [{"agent": "ada", "reply": say("x", tool_calls=[call("version")])}]
    make_org(shop.base, shop.resume(), script=script, org=shop.settings)
    run_forever(shop.base, interval_s=0, until_tick=4, clock=FrozenClock(), notify=hear)
    assert said == ["one", "two", "two", "four"]
    log = (shop.base / "logs/engine.log").read_text()
    assert "the earlier tools stay in use until the file is fixed" in log
    assert "tools/mine.py:6" in log


FAILS = """
@tool(on_error="{on_error}", repeatable={repeatable})
def {on_error}{repeatable:d}() -> str:
    raise ValueError("no")
"""
WORKS = """
@tool(repeatable=True)
def works() -> str:
    return "worked"
"""


def test_a_failure_is_told_to_the_model_unless_the_tool_says_that_it_is_not(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org")
    ways = [(on_error, repeatable) for on_error in ("return", "skip") for repeatable in (True, False)]
    failing = [f"{on_error}{repeatable:d}" for on_error, repeatable in ways]
    code = [FAILS.format(on_error=on_error, repeatable=repeatable) for on_error, repeatable in ways]
    shop.file("".join([*code, WORKS]))
    (turn,) = shop.run(*map(call, failing), call("works")).turns
    assert [used["tool"] for used in turn.tools] == [*failing, "works"]
    told = [result["tool"] for result in read_state(shop.base, "ada").results]
    assert told == ["return1", "return0", "works"]
    assert [record["index"] for record in shop.finished()] == [0, 1, 2, 3, 4]
    assert run(["-C", str(shop.base), "verify"]) == 0


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_tool_may_end_the_turn_when_it_fails(tmp_path: Path, repeatable: bool) -> None:
    shop = Workshop(tmp_path / "org")
    shop.file(FAILS.format(on_error="stop", repeatable=repeatable) + WORKS)
    failing = f"stop{repeatable:d}"
    (turn,) = shop.run(call("works"), call(failing), call("works")).turns
    assert (turn.status, turn.entries) == ("failed", [])
    assert f"{failing} ends the turn when it fails: {failing} failed: ValueError: no" in turn.reason
    assert len(shop.finished()) == 2
    assert run(["-C", str(shop.base), "verify"]) == 0


def test_two_organisations_in_one_process_have_each_its_own_tools(tmp_path: Path) -> None:
    shops = [Workshop(tmp_path / name) for name in ("one", "two")]
    for shop in shops:
        shop.file(f'@tool\ndef which() -> str:\n    return "{shop.base.name}"\n')
    assert [shop.call("which").output for shop in shops] == ["one", "two"]
    for shop in shops:
        shop.org.close()


@pytest.mark.long
def test_an_organisation_without_tool_files_imports_nothing_of_it(tmp_path: Path) -> None:
    make_org(tmp_path, resume("ada"), script=[{"reply": say("hello")}])
    look = "print([name for name in sys.modules if 'functions' in name or name == 'docstring_parser'])"
    code = textwrap.dedent(ENGINE) + look
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
    (started,) = [line for line in journal_lines(tmp_path, 1) if line["type"] == "turn_started"]
    assert "deadline_s" not in str(started["resume"]["turn"])


def test_a_result_with_entries_and_attempts_is_what_a_record_gives_back(tmp_path: Path) -> None:
    from lemming.kernel.journal.journal_records import ToolFinished
    from lemming.kernel.tick.recorded_answers import restore_result

    plain = {"agent": "ada", "index": 0, "tool": "x", "success": True, "output": "", "effects": []}
    assert restore_result(ToolFinished.from_json(plain)) == ToolResult(True)
