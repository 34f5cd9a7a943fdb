"""Runs of harnesses: prompt, output, limits and ends, with a scripted harness in the sandbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from model_servers import ModelServer
from worker_runs import KEY, PRICES, REQUEST, make_run

from lemming.capabilities.workers.harnesses.harness_table import load_harness
from lemming.capabilities.workers.harnesses.harness_types import Progress
from lemming.capabilities.workers.harnesses.json_fields import RunTokens
from lemming.capabilities.workers.running.harness_process import end_processes
from lemming.capabilities.workers.running.worker_run import run_harness
from lemming.capabilities.workers.running.worker_sandbox import get_worker_sandbox
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.errors import DiskError, Unusable

pytestmark = pytest.mark.skipif(not get_worker_sandbox()[0], reason=get_worker_sandbox()[1])
ASK = f"{Path(sys.executable).resolve()} -I client.py '{json.dumps(REQUEST)}'"
"""A line of a script that sends a request to the model and prints the answer."""


def test_the_output_is_the_reply_and_the_prompt_is_no_argument(tmp_path: Path) -> None:
    steps: list[Progress] = []
    end = run_harness(
        make_run(tmp_path, "echo edited > file; echo done; cat /proc/*/cmdline", on_progress=steps.append)
    )
    assert end.text.splitlines()[0] == "done"
    assert "edited" not in end.text
    assert (end.exit_status, end.ended_by, end.error) == (0, "", "")
    assert (tmp_path / "clone" / "file").read_text() == "edited\n"
    assert steps[0] == Progress(kind="text", text="done")
    first = json.loads((tmp_path / "progress.jsonl").read_text().splitlines()[0])
    assert {name: first[name] for name in ("kind", "text", "path")} == {"kind": "text", "text": "done", "path": ""}


def test_a_failure_is_told_with_the_last_lines(tmp_path: Path) -> None:
    end = run_harness(make_run(tmp_path, "echo no luck >&2; exit 3"))
    assert (end.exit_status, end.error, end.message) == (3, "exit", "no luck")


def test_a_harness_that_kills_itself_is_told_by_its_signal(tmp_path: Path) -> None:
    assert run_harness(make_run(tmp_path, "kill -9 $$")).exit_status == -9


def test_requests_go_through_the_gateway_with_the_real_key(tmp_path: Path) -> None:
    with ModelServer([{"say": "Hello.", "usage": [1000, 50]}]) as server:
        run = make_run(tmp_path, f"{ASK}; {ASK}", api="anthropic", base_url=server.url, prices=PRICES)
        end = run_harness(run)
        assert [request.key for request in server.requests] == [KEY, KEY]
    assert end.text.count("Hello.") == 2
    assert (end.requests, end.gateway_tokens, end.gateway_usd) == (
        2,
        RunTokens(input=2000, output=100),
        pytest.approx(2.1),
    )


def test_the_key_appears_nowhere_in_the_sandbox(tmp_path: Path) -> None:
    look = "cat /proc/*/environ /proc/*/cmdline; env; grep -r the-real-key . $HOME /tmp /run /etc 2>/dev/null"
    with ModelServer([]) as server:
        end = run_harness(make_run(tmp_path, f"{look}; true", api="anthropic", base_url=server.url))
    assert "MODEL_KEY=lemming-" in end.text
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY in path.read_text(errors="replace")]
    assert KEY not in end.text


@pytest.mark.parametrize("changes", [{"prompt": f"use {KEY}"}, {"environment": {"MY_KEY": KEY}}], ids=["prompt", "env"])
def test_a_key_that_would_reach_the_sandbox_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(Unusable, match="must not be given to a harness") as caught:
        run_harness(make_run(tmp_path, **changes))
    assert KEY not in str(caught.value)


def test_a_missing_package_is_named_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)
    run = make_run(tmp_path, "touch started")
    with pytest.raises(Unusable, match="needs the package agent-client-protocol") as caught:
        run_harness(replace(run, harness=replace(run.harness, output="acp")))
    assert "lemming-engine[workers]" in caught.value.hint
    assert not (tmp_path / "clone/started").exists()


def test_an_agent_by_acp_that_cannot_be_started_leaves_no_conversation(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/no/such/shell\n")
    program.chmod(0o755)
    run = make_run(tmp_path)
    with pytest.raises(Unusable, match="cannot be started"):
        run_harness(replace(run, harness=replace(run.harness, program=(str(program),), arguments=(), output="acp")))


def test_an_agent_by_acp_saves_its_session_once_its_input_has_ended(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    agent = tmp_path / "clone/agent.py"
    agent.write_text(Path(__file__).with_name("acp_agent.py").read_text())
    agent.with_name("script.json").write_text(json.dumps({"at_end": "saved.txt"}))
    program = (str(Path(sys.executable).resolve()), "-I", "agent.py", "script.json")
    end = run_harness(replace(run, harness=replace(run.harness, program=program, arguments=(), output="acp")))
    assert (end.error, end.session) == ("", "s1")
    assert (tmp_path / "clone/saved.txt").read_text() == "saved"


@pytest.mark.long
def test_a_short_key_of_a_local_server_is_no_secret(tmp_path: Path) -> None:
    with ModelServer([{"say": "none of it"}]) as server:
        end = run_harness(make_run(tmp_path, f"echo none; {ASK}", api="anthropic", base_url=server.url, key="none"))
        assert server.requests[0].key == "none"
    assert end.text.startswith("none\n")
    assert "none of it" in end.text


def test_progress_has_no_secrets_and_is_short(tmp_path: Path) -> None:
    steps: list[Progress] = []
    script = "echo sk-the-'real'-key-0123456789; echo ghp_0123456789abcdefghij0123456789abcdef; printf '%900d' 1"
    run_harness(make_run(tmp_path, script, on_progress=steps.append))
    assert [step.text for step in steps[:2]] == ["[redacted key]", "[redacted key]"]
    assert len(steps[2].text) == 500
    assert "real-key" not in (tmp_path / "progress.jsonl").read_text()


def test_paths_of_progress_are_relative_to_the_clone(tmp_path: Path) -> None:
    block = '{"type":"tool_use","name":"Write","input":{"file_path":"\'$PWD\'/src/a.txt"}}'
    run = make_run(tmp_path, f"""echo '{{"type":"assistant","message":{{"content":[{block}]}}}}'""")
    run_harness(replace(run, harness=replace(run.harness, output="claude", events=load_harness("claude-code").events)))
    (line,) = (tmp_path / "progress.jsonl").read_text().splitlines()
    step = json.loads(line)
    assert (step["kind"], step["path"]) == ("file", "src/a.txt")


def test_the_cost_limit_ends_a_run_before_the_next_request(tmp_path: Path) -> None:
    with ModelServer([{"say": "Hello.", "usage": [1000, 200]}]) as server:
        run = make_run(tmp_path, f"{ASK}; {ASK}", api="anthropic", base_url=server.url, prices=PRICES, max_cost_usd=1.0)
        end = run_harness(run)
        assert len(server.requests) == 1
    assert (end.ended_by, end.error) == ("budget", "budget")
    assert end.message == "the run must cost at most $1"
    assert end.gateway_usd == pytest.approx(1.2)


def test_a_harness_that_is_refused_and_goes_on_is_ended(tmp_path: Path) -> None:
    with ModelServer([]) as server:
        limits = {"prices": PRICES, "max_cost_usd": 1.0, "spent_usd": 2.0, "budget_grace_s": 0.1}
        run = make_run(tmp_path, f"{ASK}; exec sleep 60", api="anthropic", base_url=server.url, **limits)
        end = run_harness(run)
    assert (end.ended_by, end.exit_status) == ("budget", -15)


@pytest.mark.long
def test_the_deadline_ends_a_run(tmp_path: Path) -> None:
    end = run_harness(make_run(tmp_path, "while true; do echo busy; done | head -n 3; exec sleep 60", deadline_s=1.0))
    assert (end.ended_by, end.error, end.exit_status) == ("deadline", "stopped", -15)
    assert end.text == "busy\nbusy\nbusy"
    assert end.message.startswith("the run must end within 1 s")


@pytest.mark.long
def test_silence_ends_a_run_whose_server_hangs(tmp_path: Path) -> None:
    with ModelServer([{"say": "Hello.", "hang": True}]) as server:
        ask = ASK.replace('"max_tokens"', '"stream": true, "max_tokens"')
        run = make_run(tmp_path, ask, api="anthropic", base_url=server.url, silence_s=3.0)
        end = run_harness(run)
    assert (end.ended_by, end.error) == ("silence", "stopped")
    assert (end.requests, end.gateway_tokens) == (1, RunTokens(input=100, output=1))


def test_the_engine_s_stop_ends_a_run(tmp_path: Path) -> None:
    stop = threading.Event()
    end = run_harness(make_run(tmp_path, "echo up; exec sleep 60", stop=stop, on_progress=lambda _: stop.set()))
    assert (end.ended_by, end.text, end.exit_status) == ("stop", "up", -15)


@pytest.mark.long
def test_a_harness_that_ignores_its_stop_signal_is_killed(tmp_path: Path) -> None:
    end = run_harness(make_run(tmp_path, "trap '' TERM; sleep 60; sleep 60", deadline_s=0.3))
    assert (end.ended_by, end.exit_status) == ("deadline", -9)


def test_a_program_that_is_not_installed_is_unusable(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run = replace(run, harness=replace(run.harness, program=("no-such-program",)))
    with pytest.raises(Unusable, match=r"no-such-program cannot be started: it is not installed \(install a shell\)"):
        run_harness(run)


def test_files_of_home_are_written_and_a_link_in_home_is_not_followed(tmp_path: Path) -> None:
    run = make_run(tmp_path, "cat $HOME/.config/tool; ln -s .. $HOME/.other")
    run = replace(run, harness=replace(run.harness, home_files={".config/tool": "model {model}"}))
    assert run_harness(run).text == "model claude-sonnet-4-5"
    run = replace(run, harness=replace(run.harness, home_files={".other/evil": "x"}))
    with pytest.raises(DiskError, match=r"\.other"):
        run_harness(run)
    assert not (tmp_path / "evil").exists()


ENGINE = """
import sys
from pathlib import Path
from worker_runs import make_run
from lemming.capabilities.workers.running.worker_run import run_harness
script = "setsid sleep 300 & (trap '' TERM HUP INT; sleep 300) & echo up; sleep 300"
run_harness(make_run(Path(sys.argv[1]), script, is_confined=sys.argv[2] == "True", on_progress=lambda _: print("up", flush=True)))
"""


@pytest.mark.parametrize("is_confined", [True, False], ids=["confined", "unconfined"])
def test_no_process_of_a_worker_outlives_a_killed_engine(tmp_path: Path, is_confined: bool) -> None:
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(tmp_path), str(is_confined)], stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    with engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == b"up\n"
        assert len(list_processes(tmp_path / "home")) >= 3
        engine.send_signal(signal.SIGKILL)
    deadline = Deadline(20.0)
    while (
        list_processes(tmp_path / "home") and not deadline.has_passed
    ):  # the reaper sees the engine's end and ends them
        pass
    assert end_processes(tmp_path / "home") == 0


def list_processes(home: Path) -> list[str]:
    """Return the ids of running processes whose environment has a HOME."""
    ids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={home}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                ids.append(entry.name)
        except OSError:
            continue
    return ids
