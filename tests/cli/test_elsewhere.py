"""An organisation from elsewhere: looking at it runs, writes, imports and calls nothing that it chose."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import lemming_in
from terminal import PROGRAM, REPOSITORY, Lemming

from lemming.engine import run_once
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.testing import make_org, resume, tree

IMPORTED = ("pip", "typer", "json", "ctypes", "pydantic", "structlog")


def plant(folder: Path, *names: str) -> Path:
    """Lay modules that would be imported by their names into a folder; return the file that each makes."""
    fired = folder.parent / "fired"
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"open({str(fired)!r}, 'a').write(__name__)\n")
    return fired


@pytest.mark.long
@pytest.mark.crash
def test_chaos_imports_nothing_from_the_folder_it_is_typed_in(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    fired = plant(base / "shared", "lemming", *IMPORTED)
    monkeypatch.chdir(base / "shared")
    assert lemming("chaos", "--kills", "1", "--seed", "7").status == 0
    assert not fired.exists()


@pytest.mark.sample(3)
@pytest.mark.parametrize("words", [["status"], ["repair", "--yes"], ["run-once"]])
def test_python_m_lemming_imports_nothing_from_the_folder_it_is_typed_in(base: Path, words: list[str]) -> None:
    make_org(base, resume("ada"))
    fired = plant(base / "shared", *IMPORTED)
    done = subprocess.run(
        [sys.executable, "-m", "lemming", *words],
        cwd=base / "shared",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, fired.exists()) == (0, False), done.stderr


def test_the_shell_is_offered_no_folder_that_is_no_agents_name(base: Path) -> None:
    make_org(base, resume("ada"))
    for name in ("x$(touch fired)", "x`touch fired`", "x;y", "x y", "Xyz"):
        (base / "agents" / name).mkdir()
    asked = {"_LEMMING_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "lemming prompt "}
    done = lemming_in(LEMMING_ROOT=str(base), **asked)
    assert "ada" in done.stdout
    assert not {"x", "Xyz", "fired"} & set(re.findall(r"\w+", done.stdout))


def test_doctor_connects_to_no_address_that_the_folder_names(base: Path, lemming: Lemming) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        models = {
            "hosted": {"provider": "openai", "model": "x", "options": {"base_url": url}},
            "ollama": {"provider": "ollama", "model": "x", "options": {"host": url}},
        }
        org = {"executor": "dask", "executor_address": address}
        make_org(base, resume("ada", model={"key": "hosted"}), resume("bob", model={"key": "ollama"}),
                 models=models, org=org)  # fmt: skip
        for words in (["doctor"], ["validate"], ["status"], ["plan"], ["prompt", "ada"], ["models", "list"]):
            lemming(*words)
        found = {line["about"]: line["text"] for line in lemming("doctor", "--json").objects}
        assert "--connect" in found["executor"]
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


FAR = {"base_url": "https://me:hunter2@far.example/v1?token=hunter2"}
ASKED_ABOUT = {
    "a plugin": ({"org": {"plugins": ["fired_plugin"]}}, "imports the Python module fired_plugin"),
    "a program": (
        {"models": {"p": {"provider": "cli", "options": {"command": ["touch", "fired"], "env": ["X_KEY"]}}}},
        'runs the program: touch fired, env ["X_KEY"]',
    ),
    "a key": (
        {"models": {"p": {"provider": "openai", "options": {**FAR, "api_key_env": "OPENAI_API_KEY"}}}},
        "sends prompts, and what the variable OPENAI_API_KEY holds, to https://far.example/v1",
    ),
    "prompts": ({"models": {"p": {"provider": "openai", "options": FAR}}}, "sends prompts to https://far.example/v1"),
    "prompts to Ollama": (
        {"models": {"p": {"provider": "ollama", "options": {"host": "gpu.example:80"}}}},
        "sends prompts, and what the variable OLLAMA_API_KEY holds, to gpu.example:80",
    ),
    "a variable": (
        {"models": {"p": {"provider": "anthropic", "options": {"api_key_env": "AWS_SECRET"}}}},
        "sends what the variable AWS_SECRET holds to anthropic",
    ),
    "a server for Ollama": (
        {"models": {"p": {"provider": "ollama", "options": {"host": "far.example:11434"}}}},
        "what the variable OLLAMA_API_KEY holds, to far.example:11434",
    ),
    "no address": (
        {"models": {"p": {"provider": "openai", "options": {"base_url": "http://["}}}},
        "sends prompts to http://[",
    ),
    "a cluster": (
        {"org": {"executor": "dask", "executor_address": "tcp://far.example:8786"}},
        "made by the cluster at tcp://far.example:8786",
    ),
    "no sandbox": ({"org": {"shell": {"sandbox": "none"}}, "tools": ["shell"]}, "any command with your rights"),
    "a folder": ({"file_access": {"allow_write": ["/"]}}, "lets ada write below /"),
}


def elsewhere(base: Path, what: dict[str, Any]) -> None:
    permissions = {"tools": what.get("tools", []), "file_access": what.get("file_access", {})}
    later = {"run_every_n_ticks": 1000}  # what is said is said before anybody is due
    agent = resume("ada", permissions=permissions, schedule=later)
    make_org(base, agent, org=what.get("org"), models=what.get("models"))


WAITS = ("a plugin", "a program", "a cluster", "no sandbox", "a folder")


@pytest.mark.parametrize("name", ASKED_ABOUT)
def test_what_reaches_outside_the_folder_is_said_before_it_is_first_done(
    base: Path, lemming: Lemming, name: str
) -> None:
    what, said = ASKED_ABOUT[name]
    elsewhere(base, what)
    before = tree(base, without=())
    assert [line["is_agreed"] for line in lemming("trust", "--json").objects] == [False]
    first = lemming("run-once", "--quiet")
    assert said in first.err
    assert (first.status == 2, tree(base, without=()) == before) == (name in WAITS, name in WAITS)
    if name in WAITS:
        assert lemming("trust", "--yes").status == 0
    assert said not in lemming("run-once").err
    assert [line["is_agreed"] for line in lemming("trust", "--json").objects] == [True]
    fs.write_atomic(
        base, "config/models.json", dump_pretty({"new": {"provider": "cli", "options": {"command": ["ls"]}}})
    )
    assert "runs the program: ls" in lemming("run-once").err


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "words", [["run-once"], ["run-forever", "--max-ticks", "1"], ["chaos", "--kills", "1", "--seed", "7"]]
)
def test_on_a_terminal_it_is_asked_and_a_no_changes_nothing(base: Path, words: list[str]) -> None:
    elsewhere(base, {"file_access": {"allow_write": ["/"]}})
    before = tree(base, without=())
    for answer, is_run in ((b"n\n", False), (b"y\n", True)):
        status, screen = on_a_terminal(["-C", str(base), *words], answer)
        assert "lets ada write below /" in screen
        assert "Grant this and run it? [y/N]" in screen
        assert (status != 2, tree(base, without=()) != before) == (is_run, is_run and words[0] != "chaos")
    if words[0] != "chaos":  # which takes its time
        assert "Agree" not in on_a_terminal(["-C", str(base), *words], b"")[1]


def on_a_terminal(words: list[str], typed: bytes) -> tuple[int, str]:
    """Run a command on a terminal of its own; return its status and what the screen showed."""
    keyboard, terminal = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    os.write(keyboard, typed)
    child = subprocess.Popen([*PROGRAM, *words], stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that nobody writes any more
        while part := os.read(keyboard, 1 << 16):
            shown += part
    os.close(keyboard)
    return child.wait(), shown.decode()


def test_a_copy_elsewhere_is_another_organisation(base: Path, lemming: Lemming) -> None:
    elsewhere(base, {"file_access": {"allow_write": ["/"]}})
    assert lemming("run-once", "--trust").status == 0
    assert lemming("run-once").status == 2
    assert lemming("trust", "--yes").status == 0
    assert lemming("run-once").status == 0
    base.rename(base.parent / "other")
    assert lemming("-C", str(base.parent / "other"), "run-once").status == 2


@pytest.mark.parametrize("host", ["localhost", "localhost:11434", "127.0.0.1", "http://[::1]:11434"])
def test_ollama_on_this_machine_asks_nothing(base: Path, lemming: Lemming, host: str) -> None:
    make_org(base, resume("ada"), models={"p": {"provider": "ollama", "options": {"host": host}}})
    assert lemming("trust", "--json").objects == []


def test_an_organisation_that_stays_in_its_folder_asks_nothing(base: Path, lemming: Lemming) -> None:
    local = {"provider": "openai", "options": {"base_url": "http://127.0.0.1:9/v1"}}
    make_org(base, resume("ada", permissions={"tools": ["shell", "file_write"]}), models={"local": local})
    assert lemming("run-once").status == 0
    assert lemming("trust", "--json").objects == []


def test_an_organisation_made_here_asks_nothing_and_another_in_its_place_does(
    base: Path, lemming: Lemming, bare: Lemming
) -> None:
    assert bare("init", str(base), "--template", "empty").status == 0
    fs.write_atomic(base, "config/org.json", dump_pretty({"shell": {"sandbox": "none"}, "plugins": ["json"]}))
    assert "Running it" not in lemming("run-once").err
    shutil.rmtree(base)
    elsewhere(base, {"org": {"plugins": ["json"]}})
    fs.write_atomic(base, ".lemming/made-here", b"guessed")
    assert "imports the Python module json" in lemming("run-once").err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_an_organisation_of_somebody_elses_is_looked_at_and_not_run(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    os.chown(base, 65534, 65534)
    assert lemming("status").status == 0
    refused = lemming("run-once", "--json")
    assert refused.status == 2
    assert refused.objects[0]["code"] == "LMG-203"
    assert "who owns the folder" in refused.objects[0]["message"]
    assert lemming("trust", "--yes").status == 0
    assert lemming("run-once").status == 0


def test_a_plugin_is_not_imported_by_looking(base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch) -> None:
    make_org(base, resume("ada"), org={"plugins": ["looked_at_plugin"]})
    (base / "looked_at_plugin.py").write_text(f"open({str(base.parent / 'fired')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(base)
    for words in (["doctor"], ["validate"], ["status"], ["plan"], ["prompt", "ada"], ["run-once", "--dry-run"]):
        said = lemming(*words).err
        assert ("lemming trust" in said) == (words != ["status"])
    assert not (base.parent / "fired").exists()
    assert lemming("trust", "--yes").status == 0
    assert lemming("plan").err == ""
    assert (base.parent / "fired").exists()


def test_a_lock_of_a_terabyte_is_not_read_whole(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    (base / ".lemming").mkdir()
    with open(base / ".lemming/lock", "wb") as file:
        file.truncate(1 << 40)
    assert lemming("run-once").status == 0
