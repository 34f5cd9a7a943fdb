"""Organisations of version 0.1.0 under this version, and those of this version under 0.1.0.

    python -m benchmarks.versions FOLDER

FOLDER gets an environment with 0.1.0, built from this repository's history, and the organisations. Those that
0.1.0 made, some of them killed in the middle of a tick, are verified, replayed, explained, gone on with and
upgraded. Prints a line for each; ends with 1 where one does not come to what is promised.
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
from lemming.kernel.journal.file import journal_ticks, read_journal
from lemming.kernel.journal.records import ModelReplied
from lemming.kernel.org.format import NEWEST_FORMAT
from lemming.testing import make_org, resume, say, tree

REPOSITORY = Path(__file__).parent.parent
RELEASE = "da8e8c367e81"
"""The commit that 0.1.0 was."""
TICKS = 6
KILLS = 20
SHARED = {"allow_read": ["./shared"], "allow_write": ["./shared"]}
GATE = {"at": "out", "then": "block"}
REMEMBERS = [{"key": "last", "value": "it"}]


def plain(base: Path, **org: Any) -> None:
    """Three agents that read each other, one of them only when something has changed."""
    quiet = {"run_every_n_ticks": 1, "wake": "changed"}
    agents = [
        resume("ada"),
        resume("bob", permissions={"read_outboxes": ["ada"]}),
        resume("cyd", schedule=quiet),
    ]
    lines: list[dict[str, Any]] = [
        {"agent": "cyd", "reply": say("heard", memory_updates=REMEMBERS)},
        {"reply": say("hello"), "delay_s": 0.02},
    ]
    make_org(base, *agents, script=lines, org=org)


def tools(base: Path, **org: Any) -> None:
    """Agents that write and read files of a shared folder, in steps."""
    may = {"read_outboxes": ["*"], "tools": ["file_write", "file_read"], "file_access": SHARED}
    calls = [
        {"tool": "file_write", "args": {"path": "shared/notes.txt", "content": "by tool"}},
        {"tool": "file_read", "args": {"path": "shared/notes.txt"}},
    ]
    lines = [
        {"step": 0, "reply": say("looking", tool_calls=calls), "delay_s": 0.02},
        {"reply": say("done", memory_updates=REMEMBERS), "delay_s": 0.02},
    ]
    make_org(
        base,
        *(resume(it, permissions=may, turn={"max_steps": 3}) for it in ("ada", "bob")),
        script=lines,
        org=org,
    )


def asked(base: Path, **org: Any) -> None:
    """A person's message, an agent that asks for something, and one that answers with a response."""
    asks = say("please look", kind="request")
    asks["outbox_entries"][0]["payload"]["target"] = "bob"
    lines = [
        {"agent": "ada", "reply": asks, "delay_s": 0.02},
        {"reply": say("looked", kind="response"), "delay_s": 0.02},
    ]
    human = resume("human", model={"key": "human"})
    make_org(
        base,
        human,
        resume("ada"),
        resume("bob"),
        script=lines,
        org=org,
        models={"human": {"provider": "human"}},
    )


MADE: dict[str, Callable[..., None]] = {"plain": plain, "tools": tools, "asked": asked}
SETTINGS: dict[str, dict[str, Any]] = {
    "": {}, ", in durability tick": {"durability": "tick"}, ", packed": {"plain_journals": 0},
}  # fmt: skip


def main(folder: Path) -> int:
    """Try all, print a line for each, and return how many did not come to what is promised."""
    folder.mkdir(parents=True, exist_ok=True)
    old = (str(_environment(folder) / "bin/lemming"),)
    wrong = 0
    for case, problems in chain(_forwards(folder, old), _killed(folder, old), _backwards(folder, old)):
        wrong += bool(problems)
        print(f"{'WRONG' if problems else 'ok':<6}{case}{''.join(f'; {it}' for it in problems)}", flush=True)
    return wrong


def _environment(folder: Path) -> Path:
    place = folder / "0.1.0"
    if not place.exists():
        packed = subprocess.run(
            ["git", "archive", RELEASE], cwd=REPOSITORY, capture_output=True, check=True
        ).stdout
        (folder / "source").mkdir()
        subprocess.run(["tar", "x", "-C", folder / "source"], input=packed, check=True)
        venv.create(place, with_pip=True)
        subprocess.run([place / "bin/pip", "install", "--quiet", folder / "source"], check=True)
    return place


def _forwards(folder: Path, old: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    for kind, make in MADE.items():
        for words, settings in SETTINGS.items():
            base = _anew(folder / "organisation")
            make(base, **settings)
            _run(old, base, "run-forever", "--max-ticks", str(TICKS), "--interval", "0")
            if kind == "asked":
                _run(old, base, "send", "Look again.")
            yield f"made by 0.1.0: {kind}{words}", _goes_on(base)


def _killed(folder: Path, old: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    moments = random.Random(0)
    for kind, make in MADE.items():
        amid, problems = 0, list[str]()
        for _ in range(KILLS):
            base = _anew(folder / "organisation")
            make(base)
            process = _start(old, base, "run-forever", "--max-ticks", "60", "--interval", "0")
            while not (base / "tick.json").exists():
                time.sleep(0.01)
            time.sleep(moments.random())
            process.kill()
            process.wait()
            amid += json.loads((base / "tick.json").read_bytes())["current_tick"] in journal_ticks(base)
            problems += _goes_on(base)
        yield f"made by 0.1.0: {kind}, killed {KILLS} times, {amid} of them amid a tick", problems


def _goes_on(base: Path) -> list[str]:
    """Return what is not as it should be when this version takes over a folder of 0.1.0."""
    before = tree(base)
    problems = [it for words in ("status", "plan", "requests", "cost") for it in _fails(base, words)]
    if tree(base) != before:
        problems.append("looking changed it")
    for words in (("run-once",), ("verify",), ("replay",), ("validate",)):
        problems += _fails(base, *words)
    for outbox in base.glob("agents/*/outbox"):
        oldest = min(outbox.iterdir()).relative_to(base)
        problems += _fails(base, "why", str(oldest))
    problems += _repeated(base)
    for command in ("upgrade --yes", "run-once", "verify", "replay"):
        problems += _fails(base, *command.split())
    return problems


def _repeated(base: Path) -> list[str]:
    """Return the calls that were answered twice: each has one answer in the journals."""
    answers = Counter(
        (tick, record.agent, record.call)
        for tick in journal_ticks(base)
        for record in read_journal(base, tick)
        if isinstance(record, ModelReplied)
    )
    return [f"call {call} was repeated" for call, count in answers.items() if count > 1]


def _backwards(folder: Path, old: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield what 0.1.0 does with a folder of this version. It knows no number of a format and runs."""
    for kind, settings in {"": {}, ", with a gate": {"gates": [GATE]}}.items():
        base = _anew(folder / "organisation")
        plain(base, format=NEWEST_FORMAT, **settings)
        problems = _fails(base, "run-once")
        before = len([*base.glob("agents/*/outbox/*.json")])
        status = _run(old, base, "run-once").returncode
        wrote = len([*base.glob("agents/*/outbox/*.json")]) - before
        case = f"made here{kind}: run-once of 0.1.0 ends with {status} and wrote {wrote} entries"
        yield case, problems + _fails(base, "verify")


def _fails(base: Path, *words: str) -> list[str]:
    """Return why a command of this version does not end well, if it does not."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as errors:
        status = run(["-C", str(base), *words])
    return [f"{' '.join(words)} ends with {status}: {errors.getvalue().strip()[-300:]}"] if status else []


def _anew(base: Path) -> Path:
    shutil.rmtree(base, ignore_errors=True)
    fs.make_root(base)
    return base


def _start(program: tuple[str, ...], base: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*program, "-C", str(base), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )


def _run(program: tuple[str, ...], base: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program, "-C", str(base), *words], capture_output=True, text=True, timeout=300, check=False
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("folder", type=Path, help="is made, or gone on with")
    sys.exit(bool(main(parser.parse_args().folder.absolute())))
