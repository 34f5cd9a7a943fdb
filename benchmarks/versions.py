"""Compatibility test: organisations of version 0.1.0 under this version, and the reverse.

    python -m benchmarks.versions FOLDER

FOLDER gets an environment with 0.1.0, built from this repository's history, and the organisations.
Organisations made by 0.1.0, some killed in the middle of a tick, are verified, replayed, explained, continued
and upgraded. Prints a line for each. The exit status is 1 for any broken promise.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

from lemming.cli import run
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks, read_journal
from lemming.kernel.journal.journal_records import ModelReplied
from lemming.kernel.org.organisation import NEWEST_FORMAT
from lemming.testing import make_org, resume, say, tree

REPOSITORY = Path(__file__).parent.parent
RELEASE = "da8e8c367e81"
"""The commit that 0.1.0 was."""
TICKS = 6
KILLS = 20
SHARED = {"allow_read": ["./shared"], "allow_write": ["./shared"]}
GATE = {"at": "out", "then": "block"}
MEMORY_UPDATES = [{"key": "last", "value": "it"}]


def make_plain_org(base: Path, **org: Any) -> None:
    """Make three agents that read each other; the third wakes on changes only."""
    wake_on_change = {"run_every_n_ticks": 1, "wake": "changed"}
    agents = [
        resume("ada"),
        resume("bob", permissions={"read_outboxes": ["ada"]}),
        resume("cyd", schedule=wake_on_change),
    ]
    lines: list[dict[str, Any]] = [
        {"agent": "cyd", "reply": say("heard", memory_updates=MEMORY_UPDATES)},
        {"reply": say("hello"), "delay_s": 0.02},
    ]
    make_org(base, *agents, script=lines, org=org)


def make_tools_org(base: Path, **org: Any) -> None:
    """Make agents with tools that write and read files of a shared folder, in several steps."""
    permissions = {"read_outboxes": ["*"], "tools": ["file_write", "file_read"], "file_access": SHARED}
    calls = [
        {"tool": "file_write", "args": {"path": "shared/notes.txt", "content": "by tool"}},
        {"tool": "file_read", "args": {"path": "shared/notes.txt"}},
    ]
    lines = [
        {"step": 0, "reply": say("looking", tool_calls=calls), "delay_s": 0.02},
        {"reply": say("done", memory_updates=MEMORY_UPDATES), "delay_s": 0.02},
    ]
    make_org(
        base,
        *(resume(name, permissions=permissions, turn={"max_steps": 3}) for name in ("ada", "bob")),
        script=lines,
        org=org,
    )


def make_requests_org(base: Path, **org: Any) -> None:
    """Make a person, an agent that sends a request, and an agent that answers with a response."""
    request_reply = say("please look", kind="request")
    request_reply["outbox_entries"][0]["payload"]["target"] = "bob"
    lines = [
        {"agent": "ada", "reply": request_reply, "delay_s": 0.02},
        {"reply": say("looked", kind="response"), "delay_s": 0.02},
    ]
    human = resume("human", model={"key": "human"})
    make_org(base, human, resume("ada"), resume("bob"), script=lines, org=org, models={"human": {"provider": "human"}})


MAKERS: dict[str, Callable[..., None]] = {"plain": make_plain_org, "tools": make_tools_org, "asked": make_requests_org}
SETTINGS: dict[str, dict[str, Any]] = {
    "": {}, ", in durability tick": {"durability": "tick"}, ", packed": {"plain_journals": 0},
}  # fmt: skip


def main(folder: Path) -> int:
    """Run all cases, print a line for each, and return the number of failures."""
    folder.mkdir(parents=True, exist_ok=True)
    old_program = (str(_create_old_environment(folder) / "bin/lemming"),)
    failures = 0
    for case, problems in chain(
        _check_forwards(folder, old_program), _check_killed(folder, old_program), _check_backwards(folder, old_program)
    ):
        failures += bool(problems)
        print(f"{'WRONG' if problems else 'ok':<6}{case}{''.join(f'; {problem}' for problem in problems)}", flush=True)
    return failures


def _create_old_environment(folder: Path) -> Path:
    environment = folder / "0.1.0"
    if not environment.exists():
        archive = subprocess.run(["git", "archive", RELEASE], cwd=REPOSITORY, capture_output=True, check=True).stdout
        (folder / "source").mkdir()
        subprocess.run(["tar", "x", "-C", folder / "source"], input=archive, check=True)
        venv.create(environment, with_pip=True)
        subprocess.run([environment / "bin/pip", "install", "--quiet", folder / "source"], check=True)
    return environment


def _check_forwards(folder: Path, old_program: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    for kind, make in MAKERS.items():
        for label, settings in SETTINGS.items():
            base = _recreate_folder(folder / "organisation")
            make(base, **settings)
            _run_program(old_program, base, "run-forever", "--max-ticks", str(TICKS), "--interval", "0")
            if kind == "asked":
                _run_program(old_program, base, "send", "Look again.")
            yield f"made by 0.1.0: {kind}{label}", _find_continuation_problems(base)


def _check_killed(folder: Path, old_program: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    rng = random.Random(0)
    for kind, make in MAKERS.items():
        interrupted_count, problems = 0, list[str]()
        for _ in range(KILLS):
            base = _recreate_folder(folder / "organisation")
            make(base)
            process = _start_program(old_program, base, "run-forever", "--max-ticks", "60", "--interval", "0")
            while not (base / "tick.json").exists():
                time.sleep(0.01)
            time.sleep(rng.random())
            process.kill()
            process.wait()
            interrupted_count += json.loads((base / "tick.json").read_bytes())["current_tick"] in journal_ticks(base)
            problems += _find_continuation_problems(base)
        yield (f"made by 0.1.0: {kind}, killed {KILLS} times, {interrupted_count} of them amid a tick", problems)


def _find_continuation_problems(base: Path) -> list[str]:
    """Return the problems of this version with a folder of 0.1.0."""
    old_tree = tree(base)
    problems = [
        problem for arguments in ("status", "plan", "requests", "cost") for problem in _find_failure(base, arguments)
    ]
    if tree(base) != old_tree:
        problems.append("looking changed it")
    for arguments in (("run-once",), ("verify",), ("replay",), ("validate",)):
        problems += _find_failure(base, *arguments)
    for outbox in base.glob("agents/*/outbox"):
        oldest = min(outbox.iterdir()).relative_to(base)
        problems += _find_failure(base, "why", str(oldest))
    problems += _find_repeated_calls(base)
    for command in ("upgrade --yes", "run-once", "verify", "replay"):
        problems += _find_failure(base, *command.split())
    return problems


def _find_repeated_calls(base: Path) -> list[str]:
    """Return the calls with more than a single answer in the journals."""
    answers = Counter(
        (tick, record.agent, record.call)
        for tick in journal_ticks(base)
        for record in read_journal(base, tick)
        if isinstance(record, ModelReplied)
    )
    return [f"call {call} was repeated" for call, count in answers.items() if count > 1]


def _check_backwards(folder: Path, old_program: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield the behaviour of 0.1.0 with a folder of this version: 0.1.0 knows no format number and runs."""
    for kind, settings in {"": {}, ", with a gate": {"gates": [GATE]}}.items():
        base = _recreate_folder(folder / "organisation")
        make_plain_org(base, format=NEWEST_FORMAT, **settings)
        problems = _find_failure(base, "run-once")
        old_count = len([*base.glob("agents/*/outbox/*.json")])
        status = _run_program(old_program, base, "run-once").returncode
        new_count = len([*base.glob("agents/*/outbox/*.json")]) - old_count
        case = f"made here{kind}: run-once of 0.1.0 ends with {status} and wrote {new_count} entries"
        yield case, problems + _find_failure(base, "verify")


def _find_failure(base: Path, *command: str) -> list[str]:
    """Return the problem of a failed command of this version, or an empty list."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as errors:
        status = run(["-C", str(base), *command])
    return [f"{' '.join(command)} ends with {status}: {errors.getvalue().strip()[-300:]}"] if status else []


def _recreate_folder(base: Path) -> Path:
    shutil.rmtree(base, ignore_errors=True)
    fs.make_root(base)
    return base


def _start_program(program: tuple[str, ...], base: Path, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*program, "-C", str(base), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )


def _run_program(program: tuple[str, ...], base: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program, "-C", str(base), *command], capture_output=True, text=True, timeout=300, check=False
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("folder", type=Path, help="is made, or gone on with")
    sys.exit(bool(main(parser.parse_args().folder.absolute())))
