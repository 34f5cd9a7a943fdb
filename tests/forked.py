"""Python in a process of its own, forked from one that has imported the engine: no start is paid for.

For what a test asks of a process, not of how it starts: nothing that an earlier test left is in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from package import MODULES

import lemming.cli

_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["lemming.cli", "lemming.engine", "lemming.errors", "lemming.testing", "lemming.journal_tools.verify.state_root"]
    + ["lemming.operations.turns.agent_turns"]
    + [f"lemming.commands.{name}" for name in ("run", "check", "status", "replay")]
    + [f"lemming.{name}" for name in sorted(MODULES) if name.startswith(("capabilities.", "facts.", "llm."))]
    + ["importlib.metadata", "pydantic.fields", "pydantic.type_adapter", "pydantic.types"]
)


def lemming_in(*words: str, **how: str) -> subprocess.CompletedProcess[str]:
    """Type a command, with these variables of the environment besides this process's own."""
    return _in_a_process(lemming.cli.main, ("lemming", *words), how)


def python_in(code: str, *words: str, **how: str) -> subprocess.CompletedProcess[str]:
    """Run code, with these variables of the environment besides this process's own."""
    return _in_a_process(_Code(code), ("-c", *words), how)


class _Code:
    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self) -> None:
        exec(compile(self.text, "<string>", "exec"), {"__name__": "__main__"})


def _in_a_process(
    work: Callable[[], object], words: tuple[str, ...], more: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    with TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("out", "err")]
        environment = {**os.environ, **more}
        process = _FORKS.Process(target=_begin, args=(work, words, environment, os.getcwd(), streams))
        process.start()
        process.join()
        out, err = (stream.read_text() for stream in streams)
    assert process.exitcode is not None
    return subprocess.CompletedProcess(words, process.exitcode, out, err)


def _begin(
    work: Callable[[], object], words: tuple[str, ...], environment: dict[str, str], folder: str, streams: list[Path]
) -> None:
    """Be a process that has just begun: its environment, its folder, its words, where it writes, its path."""
    for number, stream in enumerate(streams, 1):
        os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = list(words)
    sys.path[:0] = [it for it in environment.get("PYTHONPATH", "").split(os.pathsep) if it]
    work()
