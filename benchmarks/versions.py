"""Compatibility test: organisations of earlier versions under this version, and the reverse.

    python -m benchmarks.versions FOLDER

FOLDER gets an environment for each version, built from this repository's history, and the organisations.
Organisations made by an earlier version, some killed in the middle of a tick, are verified, replayed, explained,
continued and upgraded. Prints a line for each. The exit status is 1 for any broken promise.
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
from dataclasses import dataclass
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
RELEASES = {"0.1.0": "da8e8c367e81", "0.2.0": "617b9363528f"}
"""The commits of the earlier versions."""
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
TEMPLATES = {"0.1.0": (), "0.2.0": ("desk", "game", "research", "review", "watch")}
"""Templates with recorded answers, by the version that makes an organisation of them."""


@dataclass(frozen=True)
class OldVersion:
    """An earlier version: its number, and the program to run it."""

    number: str
    program: str

    def start(self, base: Path, *command: str) -> subprocess.Popen[str]:
        """Start a command of the version in an organisation."""
        return subprocess.Popen(
            [self.program, "-C", str(base), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, base: Path, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the version in an organisation."""
        return subprocess.run(
            [self.program, *command], cwd=base, capture_output=True, text=True, timeout=300, check=False
        )


def main(folder: Path) -> int:
    """Run all cases, print a line for each, and return the number of failures."""
    folder.mkdir(parents=True, exist_ok=True)
    failures = 0
    for number, commit in RELEASES.items():
        version = OldVersion(number, str(_create_old_environment(folder, number, commit) / "bin/lemming"))
        for case, problems in chain(
            _check_forwards(folder, version), _check_killed(folder, version), _check_backwards(folder, version)
        ):
            failures += bool(problems)
            print(
                f"{'WRONG' if problems else 'ok':<6}{case}{''.join(f'; {problem}' for problem in problems)}", flush=True
            )
    return failures


def _create_old_environment(folder: Path, number: str, commit: str) -> Path:
    environment, source = folder / number, folder / f"source-{number}"
    if not environment.exists():
        archive = subprocess.run(["git", "archive", commit], cwd=REPOSITORY, capture_output=True, check=True).stdout
        source.mkdir()
        subprocess.run(["tar", "x", "-C", source], input=archive, check=True)
        venv.create(environment, with_pip=True)
        subprocess.run([environment / "bin/pip", "install", "--quiet", source], check=True)
    return environment


def _check_forwards(folder: Path, version: OldVersion) -> Iterator[tuple[str, list[str]]]:
    for kind, make in MAKERS.items():
        for label, settings in SETTINGS.items():
            base = _recreate_folder(folder / "organisation")
            make(base, **settings)
            version.run(base, "run-forever", "--max-ticks", str(TICKS), "--interval", "0")
            if kind == "asked":
                version.run(base, "send", "Look again.")
            yield f"made by {version.number}: {kind}{label}", _find_continuation_problems(base)
    for template in TEMPLATES[version.number]:
        base = _recreate_folder(folder / "organisation")
        version.run(base, "init", "--template", template)
        version.run(base, "run-forever", "--max-ticks", str(TICKS), "--interval", "0", "--trust")
        yield f"made by {version.number}: template {template}", _find_continuation_problems(base)


def _check_killed(folder: Path, version: OldVersion) -> Iterator[tuple[str, list[str]]]:
    rng = random.Random(0)
    for kind, make in MAKERS.items():
        interrupted_count, problems = 0, list[str]()
        for _ in range(KILLS):
            base = _recreate_folder(folder / "organisation")
            make(base)
            process = version.start(base, "run-forever", "--max-ticks", "60", "--interval", "0")
            while not (base / "tick.json").exists():
                time.sleep(0.01)
            time.sleep(rng.random())
            process.kill()
            process.wait()
            interrupted_count += json.loads((base / "tick.json").read_bytes())["current_tick"] in journal_ticks(base)
            problems += _find_continuation_problems(base)
        case = f"made by {version.number}: {kind}, killed {KILLS} times, {interrupted_count} of them amid a tick"
        yield case, problems


def _find_continuation_problems(base: Path) -> list[str]:
    """Return the problems of this version with a folder of an earlier one."""
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


def _check_backwards(folder: Path, version: OldVersion) -> Iterator[tuple[str, list[str]]]:
    """Yield the behaviour of an earlier version with a folder of this one: 0.1.0 knows no format number and runs."""
    for kind, settings in {"": {}, ", with a gate": {"gates": [GATE]}}.items():
        base = _recreate_folder(folder / "organisation")
        make_plain_org(base, format=NEWEST_FORMAT, **settings)
        problems = _find_failure(base, "run-once")
        old_count = len([*base.glob("agents/*/outbox/*.json")])
        status = version.run(base, "run-once").returncode
        new_count = len([*base.glob("agents/*/outbox/*.json")]) - old_count
        case = f"made here{kind}: run-once of {version.number} ends with {status} and wrote {new_count} entries"
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("folder", type=Path, help="is made, or gone on with")
    sys.exit(bool(main(parser.parse_args().folder.absolute())))
