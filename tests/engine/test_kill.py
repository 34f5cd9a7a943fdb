"""Real processes, killed while they work: the next run comes to the same files and pays nothing twice.

The instants are found by watching the journal grow. What a model call and a tool call cost outside is
counted in files that lie outside the organisation.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from lemming.engine import load_tick, run_once
from lemming.kernel.base.errors import OrgBusy
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.tools import ToolRegistry
from lemming.operations.engine_lock import load_holder
from lemming.operations.open_org import open_org
from lemming.testing import journal_lines, make_org, resume, say, tree

pytestmark = pytest.mark.crash

TICKS = 2
ANSWER_S = 0.05
REPOSITORY = Path(__file__).parents[2]
TIMES = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

PLUGIN = """
import os, time
from lemming.capabilities.scripted_models.scripted_provider import ScriptedProvider
from lemming.providers import register_provider
from lemming.tools import Tool, ToolRegistry, ToolResult

def note(line):
    with open(os.environ["LEMMING_TEST_BILL"], "a") as bill:
        bill.write(line + "\\n")

class Metered(ScriptedProvider):
    def complete(self, request):
        reply = super().complete(request)
        note(f"call {request.tick} {request.agent} {request.step}")
        return reply

class Bell(Tool):
    name = "bell"
    description = "Rings a bell."

    def execute(self, agent_name, base_path):
        note("bell")
        time.sleep(0.05)
        return ToolResult(True, "rung")

register_provider("metered", Metered)
ToolRegistry.register(Bell())
"""


@pytest.fixture(scope="module", autouse=True)
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the plugin, which this process can import too."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "metered_plugin.py").write_text(PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder
    ToolRegistry.unregister("bell")


def make(base: Path) -> Path:
    counted = {"input_tokens": 10, "output_tokens": 5, "delay_s": ANSWER_S}
    ring = say("ringing", tool_calls=[{"tool": "bell", "args": {}}])
    kept = say("news", memory_updates=[{"key": "last", "value": "news"}])
    return make_org(
        base,
        resume("ada", permissions={"tools": ["bell"]}, turn={"max_steps": 2}),
        resume("bob"),
        resume("cyd", schedule={"run_every_n_ticks": 2}, permissions={"read_outboxes": ["bob"]}),
        models={"scripted": {"provider": "metered", "options": {"file": "config/answers.jsonl"}}},
        org={"plugins": ["metered_plugin"], "tick_interval_s": 0},
        script=[{"agent": "ada", "step": 0, "reply": ring, **counted}, {"reply": kept, **counted}],
    )


def start(base: Path, plugins: Path) -> subprocess.Popen[str]:
    """Start an engine in a process of its own; it ends after the last tick of the test."""
    path = f"{REPOSITORY}:{plugins}"
    environment = {**os.environ, "PYTHONPATH": path, "LEMMING_TEST_BILL": f"{base}.bill"}
    left = str(TICKS + 1 - load_tick(base))
    command = [sys.executable, "-m", "lemming", "-C", str(base), "run-forever", "--max-ticks", left, "--trust"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def finish(base: Path) -> None:
    """Run what is left, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEMMING_TEST_BILL", f"{base}.bill")
        while load_tick(base) <= TICKS:
            run_once(base)


def await_record(process: subprocess.Popen[str], base: Path, tick: int, **wanted: Any) -> None:
    """Watch a tick's journal until it holds a record with these values."""
    ends = time.monotonic() + PATIENCE_S
    while not any(wanted.items() <= record.items() for record in journal_lines(base, tick)):
        assert process.poll() is None, f"the engine ended before {wanted}"
        assert time.monotonic() < ends, f"there was no {wanted}"
        time.sleep(0.002)


def all_records(base: Path) -> Iterator[Json]:
    for tick in journal_ticks(base):
        yield from ({**record, "tick": tick} for record in journal_lines(base, tick))


def files(base: Path) -> dict[str, bytes]:
    """Return an organisation's files without the times of day in them, and without what a crash leaves."""
    found = tree(base)
    return {path: TIMES.sub(b"-", raw) for path, raw in found.items() if not path.endswith(".tmp")}


def bill(base: Path) -> Counter[str]:
    return Counter(Path(f"{base}.bill").read_text().splitlines())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation whose engine was left in peace."""
    base = make(tmp_path_factory.mktemp("whole") / "org")
    finish(base)
    return base


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("tick", "instant"),
    [
        (1, {"type": "turn_started", "agent": "ada"}),
        (1, {"type": "model_replied", "agent": "ada", "call": 0}),
        (1, {"type": "tool_started", "agent": "ada"}),
        (1, {"type": "tick_committed"}),
        (2, {"type": "turn_started", "agent": "cyd"}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else f"tick {value}",
)
def test_a_killed_engine_is_continued_by_the_next_and_no_answer_is_paid_twice(
    base: Path, plugins: Path, whole: Path, tick: int, instant: dict[str, Any]
) -> None:
    process = start(make(base), plugins)
    await_record(process, base, tick, **instant)
    kill(process)
    finish(base)
    assert files(base) == files(whole)
    records = list(all_records(base))
    replies = Counter((r["tick"], r["agent"], r["call"]) for r in records if r["type"] == "model_replied")
    assert set(replies.values()) == {1}
    paid, ideal = bill(base), bill(whole)
    in_doubt = [r for r in records if r["type"] == "tool_finished" and r["output"].startswith("INTERRUPTED")]
    assert TICKS - len(in_doubt) <= paid["bell"] <= TICKS, "a tool that reaches outside runs once at most"
    assert paid.keys() == ideal.keys()
    assert paid.total() <= ideal.total() + 1, "the call in flight is all that a kill may cost"


@pytest.mark.long
def test_an_engine_that_is_killed_again_and_again_comes_to_the_same_files(
    base: Path, plugins: Path, whole: Path
) -> None:
    make(base)
    instants = [("model_replied", "ada"), ("turn_started", "bob")]
    for kind, agent in instants:
        process = start(base, plugins)
        await_record(process, base, 1, type=kind, agent=agent)
        kill(process)
    finish(base)
    assert files(base) == files(whole)
    assert bill(base).total() <= bill(whole).total() + len(instants)


def test_a_second_engine_is_refused_and_told_who_is_running(base: Path, plugins: Path) -> None:
    process = start(make(base), plugins)
    await_record(process, base, 1, type="turn_started", agent="ada")
    before = tree(base / "config")
    with pytest.raises(OrgBusy) as caught:
        run_once(base)
    assert f"another engine is running here: pid {process.pid} on " in str(caught.value)
    assert "since 20" in str(caught.value)
    holder = load_holder(base)
    assert holder is not None
    assert holder["pid"] == process.pid
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert tree(base / "config") == before
    assert load_holder(base) is None


def test_the_lock_of_a_killed_engine_is_free_at_once(base: Path, plugins: Path) -> None:
    process = start(make(base), plugins)
    await_record(process, base, 1, type="turn_started", agent="ada")
    kill(process)
    assert f'"pid": {process.pid}' in (base / ".lemming/lock").read_text()
    assert load_holder(base) is None


LOOKING = """
import sys
from pathlib import Path
from lemming.operations.engine_lock import load_holder
print("looking", flush=True)
while True:
    load_holder(Path(sys.argv[1]))
"""


def test_no_start_is_refused_because_somebody_looks_whether_an_engine_runs(base: Path) -> None:
    make(base)
    with open_org(base):
        pass
    looking = subprocess.Popen([sys.executable, "-c", LOOKING, str(base)], stdout=subprocess.PIPE)
    try:
        assert looking.stdout is not None
        assert looking.stdout.readline() == b"looking\n"
        for _ in range(300):
            (base / ".lemming/lock").write_text('{"pid": 4194305, "host": "gone"}')  # a killed engine's words
            assert load_holder(base) is None
            with open_org(base):
                holder = load_holder(base)
                assert holder is not None
                assert holder["pid"] == os.getpid()
        assert looking.poll() is None
    finally:
        looking.kill()
        looking.communicate()


def test_a_lock_whose_holder_does_not_say_who_it_is_names_no_dead_engine(base: Path) -> None:
    make(base)
    fs.write_atomic(base, ".lemming/lock", b'{"pid": 4194305, "host": "gone"}')
    with (base / ".lemming/lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        with pytest.raises(OrgBusy, match="an unknown process holds the lock") as refused:
            run_once(base)
    assert "fuser" in refused.value.hint
    assert "4194305" not in str(refused.value)


def test_nobody_but_the_owner_may_open_the_lock(base: Path) -> None:
    make(base)
    fs.write_atomic(base, ".lemming/lock", b"")  # as an earlier version left it
    (base / ".lemming/lock").chmod(0o644)
    for _ in range(2):
        with open_org(base):
            assert (base / ".lemming/lock").stat().st_mode & 0o777 == 0o600
        (base / ".lemming/lock").unlink()


def test_sigterm_ends_the_engine_after_the_running_turn_and_the_next_run_continues(
    base: Path, plugins: Path, whole: Path
) -> None:
    process = start(make(base), plugins)
    await_record(process, base, 1, type="turn_started", agent="ada")
    process.terminate()
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    ended = [record["agent"] for record in journal_lines(base, 1) if record["type"] == "turn_committed"]
    assert ended == ["ada"], "the running turn is finished, and no other begun"
    assert load_tick(base) == 1
    finish(base)
    assert files(base) == files(whole)
    assert bill(base) == bill(whole)
