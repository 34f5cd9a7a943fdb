"""A program as a model."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_MS, PATIENCE_S, until

from lemming.capabilities.program_models.program_provider import OUTPUT_LIMIT_BYTES, CliProvider
from lemming.kernel.base.errors import RequestRejected, TimedOut, Unavailable
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.providers import Request, make_provider


@pytest.fixture
def request_() -> Request:
    """A question with a system message, to be answered within five seconds."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]
    return Request(model_name="m", messages=messages, deadline_s=PATIENCE_S, agent="planner", tick=3)


def python(code: str, **options: object) -> CliProvider:
    """A provider that runs a line of Python."""
    provider = make_provider("cli", {"command": [sys.executable, "-c", code, "{model}"], **options})
    assert isinstance(provider, CliProvider)
    return provider


def shell(script: str) -> CliProvider:
    return CliProvider(command=["sh", "-c", script])


def test_the_prompt_is_plain_text_on_standard_input(request_: Request) -> None:
    assert call_provider(shell("cat"), request_).text == "Be brief.\n\nSay hello."


def test_the_models_own_answers_are_marked_as_such(request_: Request) -> None:
    earlier = [{"role": "assistant", "content": "{}"}, {"role": "user", "content": "Again."}]
    asked = request_._replace(messages=[*request_.messages, *earlier])
    assert call_provider(shell("cat"), asked).text == "Be brief.\n\nSay hello.\n\nYour answer was:\n{}\n\nAgain."


def test_the_command_gets_the_models_name(request_: Request) -> None:
    assert call_provider(python("import sys; print(sys.argv[1])"), request_).text == "m"


def test_a_prompt_larger_than_a_pipe_gets_through(request_: Request) -> None:
    long = request_._replace(messages=[{"role": "user", "content": "x" * 500_000}])
    assert call_provider(shell("wc -c"), long).text == "500001"


def test_a_program_that_does_not_read_its_input_is_fine(request_: Request) -> None:
    long = request_._replace(messages=[{"role": "user", "content": "x" * 500_000}])
    assert call_provider(shell("echo done"), long).text == "done"


def test_a_failing_program_is_quoted_with_its_last_line(request_: Request) -> None:
    with pytest.raises(Unavailable, match="exit status 3: out of cheese"):
        call_provider(shell("echo first >&2; echo out of cheese >&2; exit 3"), request_)
    with pytest.raises(Unavailable, match="SIGTERM: no message"):
        call_provider(shell("kill -TERM $$"), request_)


def test_a_missing_program_is_rejected_with_a_hint(request_: Request) -> None:
    with pytest.raises(RequestRejected) as caught:
        call_provider(CliProvider(command=["no-such-program"]), request_)
    assert "install no-such-program" in caught.value.hint
    with pytest.raises(RequestRejected, match="empty"):
        call_provider(CliProvider(command=[]), request_)


def test_it_runs_in_the_folder_it_is_given(request_: Request, tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    provider = make_provider("cli", {"command": ["pwd"], "cwd": "desk"}, base=tmp_path)
    assert call_provider(provider, request_).text == str(tmp_path / "desk")
    with pytest.raises(RequestRejected, match="does not exist"):
        call_provider(CliProvider(command=["pwd"], cwd="nowhere", base=tmp_path), request_)


def test_without_one_it_runs_in_an_empty_folder_of_its_own(request_: Request) -> None:
    folders = [call_provider(shell("pwd; ls -A; touch made"), request_).text for _ in range(2)]
    assert len({*folders}) == 2
    assert not [it for it in folders if "\n" in it or Path(it).exists()]


def test_nothing_is_on_standard_input_where_nothing_is_asked(request_: Request) -> None:
    assert call_provider(shell("wc -c"), request_._replace(messages=[])).text == "0"


def test_the_environment_is_small_and_holds_no_key(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("MY_TOOL_HOME", "/opt/tool")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/me/.config")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    seen = json.loads(call_provider(python(code), request_).text)
    assert seen["PATH"] == os.environ["PATH"]
    assert seen["XDG_CONFIG_HOME"] == "/home/me/.config"
    assert not {"OPENAI_API_KEY", "MY_TOOL_HOME"} & seen.keys()
    named = json.loads(call_provider(python(code, env=["OPENAI_API_KEY"]), request_).text)
    assert named["OPENAI_API_KEY"] == "secret"


def test_at_the_deadline_the_whole_process_group_is_killed(request_: Request, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = shell(f"sleep 600 & echo $! > {pids}; echo $$ >> {pids}; wait")
    started: list[str] = []
    for deadline_s in (0.5, 5, 50):  # on a busy machine the first may be over before anything runs
        with pytest.raises(TimedOut):
            call_provider(program, request_._replace(deadline_s=deadline_s))
        started = pids.read_text().split() if pids.exists() else []
        if len(started) == 2:
            break
    assert len(started) == 2
    for pid in started:
        until(lambda pid=pid: is_dead(int(pid)))  # type: ignore[misc]


def test_a_process_left_behind_does_not_hold_the_answer_up(request_: Request, tmp_path: Path) -> None:
    reply = call_provider(shell(f"sleep 60 & echo $! > {tmp_path}/pid; echo answer"), request_)
    assert reply.text == "answer"
    until(lambda: is_dead(int((tmp_path / "pid").read_text())))


DAEMON = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
for descriptor in (0, 1, 2):
    os.close(descriptor)
with open(sys.argv[1], "w") as held:
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="beyond Linux a daemon cannot be followed")
@pytest.mark.parametrize("then", ["sleep 60", "echo answer", "yes"], ids=["deadline", "end", "too much"])
def test_no_daemon_outlives_its_program(request_: Request, tmp_path: Path, then: str) -> None:
    (tmp_path / "daemon.py").write_text(DAEMON)
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    script = (
        f"{sys.executable} {tmp_path}/daemon.py {tmp_path}/held; setsid sleep 60 > {tmp_path}/held & "
        f"exec 3> {tmp_path}/held; {then}"
    )
    with contextlib.suppress(TimedOut):
        call_provider(shell(script), request_._replace(deadline_s=1))
    assert os.read(held, 1) == b"", "somebody still holds the pipe"
    os.close(held)


@pytest.mark.skipif(sys.platform != "linux", reason="beyond Linux a daemon cannot be followed")
def test_a_program_does_not_outlive_a_killed_engine(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    code = f"""
from lemming.capabilities.program_models.program_provider import CliProvider
from lemming.providers import Request
provider = CliProvider(command=["sh", "-c", "setsid sleep 60 > {tmp_path}/held & wait"])
provider.complete(Request(model_name="m", messages=[], deadline_s=60))
"""
    with subprocess.Popen([sys.executable, "-c", code]) as engine, open(tmp_path / "held", "rb") as held:
        engine.kill()
        poll = select.poll()
        poll.register(held, select.POLLHUP)
        assert poll.poll(PATIENCE_MS), "the program still holds the pipe"


def test_endless_output_is_cut(request_: Request) -> None:
    reply = call_provider(shell("yes"), request_)
    assert (len(reply.text), reply.finish) == (OUTPUT_LIMIT_BYTES - 1, "length")


def test_output_that_is_not_utf8_is_still_an_answer(request_: Request) -> None:
    assert call_provider(shell(r"printf 'caf\351'"), request_).text == "caf\ufffd"


def is_dead(pid: int) -> bool:
    """Return whether a process is gone, or dead and not yet waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
