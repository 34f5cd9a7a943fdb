"""What the trials of `make crash` came to, kept from run to run, and the tables that are made of it.

A run that was interrupted goes on with the trials that are left. What was tried belongs to the very files of
the engine and of these tests: once one of them is another, everything is tried anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from bill import Bill
from sampling import EVERYTHING

ROOT = Path(__file__).parents[2]
KEPT_IN = Path(os.environ.get("LEMMING_CRASH_RESULTS", ROOT / ".pytest_cache/crash"))


@dataclass
class Tally:
    """What a trial came to: the moments tried, the calls repeated, and what was wrong.

    `known`: how many moments left files that had been run on from before. `cpu_s`: what the trial took.
    """

    points: int = 0
    known: int = 0
    wrong: int = 0
    repeated: int = 0
    most_repeated: int = 0
    cpu_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def add(self, bill: Bill, problems: list[str]) -> None:
        self.points += 1
        self.known += bill.is_known
        self.wrong += bool(problems)
        self.repeated += len(bill.repeated)
        self.most_repeated = max(self.most_repeated, len(bill.repeated))
        self.problems += problems

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.points + other.points,
            self.known + other.known,
            self.wrong + other.wrong,
            self.repeated + other.repeated,
            max(self.most_repeated, other.most_repeated),
            self.cpu_s + other.cpu_s,
            self.problems + other.problems,
        )


def tried(case: str, label: str, trial: Callable[[], Tally]) -> Tally:
    """Return what a trial comes to, or came to in an earlier run if nothing was wrong then.

    A sample is always tried, and kept nowhere.
    """
    if not EVERYTHING:
        return trial()
    file = _folder() / f"{case}: {label}.json"
    if file.exists() and not (tally := _read(file)).problems:
        return tally
    began = time.process_time()
    tally = trial()
    tally.cpu_s = time.process_time() - began
    beside = file.with_name(f".{os.getpid()}")
    beside.write_text(json.dumps(asdict(tally)))
    beside.rename(file)
    return tally


def _read(file: Path) -> Tally:
    return Tally(**json.loads(file.read_text()))


@cache
def _folder() -> Path:
    """Return where the trials of these very files are kept; `commit` in it says of which commit they are."""
    whole = hashlib.blake2b(digest_size=6)
    for above in ("lemming", "tests/crash"):
        for file in sorted((ROOT / above).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                whole.update(f"{file.relative_to(ROOT)}\n".encode())
                whole.update(file.read_bytes())
    folder = KEPT_IN / whole.hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "commit").exists():
        (folder / "commit").write_text(_commit())
    return folder


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def tables() -> Iterator[str]:
    """Return the lines of the tables of docs/durability.md: by how the world ends, and by organisation."""
    if not EVERYTHING:
        return
    kinds: dict[str, list[Tally]] = {}
    cases: dict[str, list[Tally]] = {}
    for file in sorted(_folder().glob("*.json")):
        case, label = file.stem.split(": ", 1)
        kinds.setdefault(label, []).append(_read(file))
        cases.setdefault(case, []).append(_read(file))
    yield f"commit {(_folder() / 'commit').read_text()}, kept in {_folder()}"
    figures = "points | other files | calls repeated | at most"
    yield f"| the world ends | `durability` | organisations | {figures} |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for label, tallies in sorted(kinds.items()):
        end, durability = label.rsplit(", ", 1)
        yield f"| {end} | `{durability}` | {len(tallies)} | {_cells(tallies)} |"
    yield f"| all | | {len(cases)} | {_cells([it for tallies in kinds.values() for it in tallies])} |"
    yield ""
    yield f"| organisation | kinds of end | {figures} | CPU, s |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for case, tallies in cases.items():
        took = sum(tally.cpu_s for tally in tallies)
        yield f"| {case} | {len(tallies)} | {_cells(tallies)} | {took:.0f} |"


def _cells(tallies: list[Tally]) -> str:
    whole = sum(tallies, Tally())
    return f"{whole.points} | {whole.wrong} | {whole.repeated} | {whole.most_repeated}"
