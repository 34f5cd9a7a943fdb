"""Faults from outside the process: the real command, ended or refused by something that is no code of ours.

A library loaded before the C library (`shim.c`, built here) counts the calls that change the organisation's
folder and kills, fails or cuts short the one it is told to; `strace` kills at calls that it counts itself.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from bill import Bill, overpaid
from corpus import BY_NAME
from fault_injection import take_image
from results import Tally, tried
from sampling import EVERYTHING
from trial import torn_files

from lemming.engine import load_tick, run_once
from lemming.kernel.base.jsontext import dump_pretty
from lemming.testing import tree

pytestmark = pytest.mark.crash

HERE = Path(__file__).parent
TIMES = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
DISK_REFUSED = 8  # docs/TROUBLESHOOTING.md
KILLS, ERRORS = ("kill", "torn"), ("ENOSPC", "EIO")
TRIALS = [(does, "tools") for does in (*KILLS, *ERRORS)]
if EVERYTHING:
    TRIALS += [(does, name) for does in KILLS for name in ("first_run", "retention")]
CHANGES = ("openat", "write", "ftruncate", "renameat", "linkat", "unlinkat", "mkdirat", "fsync", "fdatasync", "syncfs")
STRACED = ("write", "ftruncate", "renameat", "fsync", "fdatasync", "syncfs")


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler, and Linux")
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, HERE / "shim.c", "-ldl"], check=True)
    return library


def require_strace() -> None:
    command = ["strace", "-qq", "-o", "/dev/null", "true"]
    if shutil.which("strace") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs strace, and to be allowed to trace")


def make(base: Path, name: str) -> Path:
    """Make an organisation whose last tick is still to run; its bill lies beside it."""
    case = BY_NAME[name]
    case.build(base, {"plugins": ["lemming.testing.stand_in_provider"], "max_parallel": case.at_once})
    models = json.loads((base / "config/models.json").read_text())
    for entry in models.values():
        entry["provider"] = "stand-in"
        entry["options"]["bill"] = f"{base}.bill"
    (base / "config/models.json").write_bytes(dump_pretty(models))
    finish(base, case.ticks - 1)
    return base


def finish(base: Path, ticks: int) -> None:
    """Run what is left, in this process."""
    while load_tick(base) <= ticks:
        run_once(base)


def run_command(base: Path, *before: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the next tick with the real command, in a process of its own."""
    return subprocess.run(
        [*before, sys.executable, "-m", "lemming", "-C", base, "run-once", "--quiet"],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1]), **environment},
        capture_output=True,
        text=True,
    )


def shimmed(base: Path, shim: Path, does: str = "count", at: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the next tick with the library loaded; `does` may also be the name of an error."""
    number = getattr(errno, does, 0)
    return run_command(
        base,
        LD_PRELOAD=str(shim),
        SHIM_BELOW=str(base),
        SHIM_LOG=f"{base}.calls",
        SHIM_DOES="error" if number else does,
        SHIM_ERRNO=str(number),
        SHIM_AT=str(at),
    )


def changes(base: Path) -> list[str]:
    """Return the calls that the library counted, in order."""
    return [line.split()[1].removesuffix("64") for line in Path(f"{base}.calls").read_text().splitlines()]


def files(base: Path) -> dict[str, bytes]:
    """Return an organisation's files without the times of day, settings and what a crash leaves."""
    found = tree(base, without=(".lemming", "logs", "config"))
    return {path: TIMES.sub(b"-", raw) for path, raw in found.items() if not path.endswith(".tmp")}


def bill(base: Path) -> Bill:
    file = Path(f"{base}.bill")
    return Bill(file.read_text().splitlines() if file.exists() else [])


@dataclass(frozen=True)
class Peace:
    """What a run in peace came to, and the changes of the disk that its last tick made."""

    files: dict[str, bytes]
    calls: frozenset[str]
    changes: list[str]


@pytest.fixture(scope="module")
def in_peace(shim: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Peace]:
    """What becomes of a case when nothing goes wrong; each is run once."""

    @cache
    def run(name: str) -> Peace:
        base = make(tmp_path_factory.mktemp("peace") / "org", name)
        assert shimmed(base, shim).returncode == 0
        assert load_tick(base) == BY_NAME[name].ticks + 1
        return Peace(files(base), frozenset(bill(base).calls), changes(base))

    return run


def after(base: Path, name: str, peace: Peace) -> tuple[Bill, list[str]]:
    """Run on after a fault, and return what was paid and what is not as in peace."""
    problems = [] if (torn := torn_files(take_image(base))) == [] else torn
    finish(base, BY_NAME[name].ticks)
    found, paid = files(base), bill(base)
    paths = sorted(found.keys() | peace.files.keys())
    problems += [f"{path} differs" for path in paths if found.get(path) != peace.files.get(path)]
    if set(paid.calls) != peace.calls:
        problems.append(f"other calls: {sorted(set(paid.calls) ^ peace.calls)}")
    return paid, problems + overpaid(paid, 1)


def points(peace: Peace, does: str) -> list[int]:
    """Return the calls at which a fault is tried: all that it can meet, or one or two of them."""
    met = [number for number, change in enumerate(peace.changes, 1) if does != "torn" or change == "write"]
    third = len(met) // 3
    return met if EVERYTHING else met[third::third][:2] if does == "kill" else [met[third]]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("does", "name"), TRIALS)
def test_whatever_a_process_meets_the_next_one_comes_to_the_same_files(
    shim: Path, in_peace: Callable[[str], Peace], tmp_path: Path, does: str, name: str
) -> None:
    label = {"kill": "killed", "torn": "killed half-way through a write"}.get(does, f"{does} once")
    folder = tmp_path / "organisations"
    tally = tried(name, f"{label}, from outside, turn", lambda: survives(shim, in_peace(name), folder, does, name))
    assert tally.points
    assert not tally.problems, "\n".join(tally.problems[:5])


def survives(shim: Path, peace: Peace, folder: Path, does: str, name: str) -> Tally:
    """Let processes meet a fault, each at another call, run on, and compare."""
    tally = Tally()
    for number in points(peace, does):
        base = make(folder / f"{number}", name)
        ran = shimmed(base, shim, does, number)
        ended = {-signal.SIGKILL} if does in KILLS else {0, DISK_REFUSED}
        paid, problems = after(base, name, peace)
        if ran.returncode not in ended:
            problems.append(f"ended with {ran.returncode}: {ran.stderr}")
        where = f"{name}, {does} at {number}, {peace.changes[number - 1]}"
        tally.add(paid, [f"{where}: {problem}" for problem in problems])
    return tally


def test_a_system_that_takes_half_of_every_write_gets_them_all(
    shim: Path, in_peace: Callable[[str], Peace], tmp_path: Path
) -> None:
    base = make(tmp_path / "org", "tools")
    assert shimmed(base, shim, "short", 1).returncode == 0
    assert changes(base).count("write") > 2 * in_peace("tools").changes.count("write")
    assert after(base, "tools", in_peace("tools"))[1] == []


def traced(log: Path) -> Counter[str]:
    """Return how often each call that changes the disk was made."""
    lines = log.read_text().splitlines()
    found = Counter(name for line in lines if (name := line.split("(")[0].split()[-1]) in CHANGES)
    found["openat"] = sum("O_CREAT" in line for line in lines)
    return found


def test_the_library_sees_every_change_that_the_kernel_sees(in_peace: Callable[[str], Peace], tmp_path: Path) -> None:
    require_strace()
    base, log = make(tmp_path / "org", "tools"), tmp_path / "log"
    before = len(bill(base).calls)
    run_command(base, "strace", "-f", "-qq", "-o", log, "-e", f"trace={','.join(CHANGES)}")
    paid = len(bill(base).calls) - before  # the bill lies outside the folder
    assert +traced(log) == Counter(in_peace("tools").changes) + Counter(write=paid)


@pytest.mark.parametrize("call", STRACED if EVERYTHING else ["renameat"])
def test_a_process_that_strace_kills_is_continued_by_the_next(
    in_peace: Callable[[str], Peace], tmp_path: Path, call: str
) -> None:
    require_strace()
    peace, kills = in_peace("tools"), 0
    count = peace.changes.count(call)
    for number in range(1, count + 1) if EVERYTHING else [count // 2]:
        base = make(tmp_path / f"{number}", "tools")
        fault = f"inject={call}:signal=KILL:when={number}"
        kills += run_command(base, "strace", "-f", "-qq", "-o", "/dev/null", "-e", fault).returncode != 0
        assert after(base, "tools", peace)[1] == [], number
    assert kills == (count if EVERYTHING else 1) > 0
