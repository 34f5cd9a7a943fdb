"""An organisation from elsewhere: looking at it runs, writes, imports and calls nothing that it chose."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import PROGRAM, REPOSITORY, Lemming

from lemming.engine import run_once
from lemming.testing import make_org, resume

IMPORTED = ("pip", "typer", "json", "ctypes", "pydantic", "structlog")


def plant(folder: Path, *names: str) -> Path:
    """Lay modules that would be imported by their names into a folder; return the file that each makes."""
    fired = folder.parent / "fired"
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"open({str(fired)!r}, 'a').write(__name__)\n")
    return fired


@pytest.mark.crash
def test_chaos_imports_nothing_from_the_folder_it_is_typed_in(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    fired = plant(base / "shared", "lemming", *IMPORTED)
    monkeypatch.chdir(base / "shared")
    assert lemming("chaos", "--kills", "1").status == 0
    assert not fired.exists()


@pytest.mark.parametrize("words", [["status"], ["repair", "--yes"], ["run-once"]])
def test_python_m_lemming_imports_nothing_from_the_folder_it_is_typed_in(
    base: Path, words: list[str]
) -> None:
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
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "LEMMING_ROOT": str(base), **asked}
    done = subprocess.run(PROGRAM, env=environment, capture_output=True, text=True, check=True)
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
