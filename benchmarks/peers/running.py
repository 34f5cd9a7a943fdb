"""A side that works while it is measured: ticks when it is told to, counted or traced from outside."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measurement import Timing
from benchmarks.peers.work import SWEEP
from benchmarks.processes import environment, run

WRITES = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
FLUSHES = ("fsync", "fdatasync", "syncfs", "sync", "sync_file_range", "msync")
CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--instr-atstart=no")
CALLED = re.compile(r"(\w+)\(\d+<([^>]*)>.*\) += (\d+)")


class Served:
    """A process of a side that waits to be told how many ticks to do."""

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        with errors.open("w") as said:
            self._process = subprocess.Popen(
                [*command, "--serve"], text=True, env=environment(),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
            )  # fmt: skip
        self.pid = self._process.pid
        self._errors = errors
        self._read()  # prepared

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # standard input ends, and so does the side

    def sweep(self) -> None:
        """Have the garbage of what came before swept away."""
        self._ask(SWEEP)

    def tick(self, count: int) -> Timing:
        """Do so many ticks, and return what they took."""
        return Timing(**json.loads(self._ask(f"{count}\n")))

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None, "opened as a pipe"
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None, "opened as a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a side ended: {self._errors.read_text()[-2000:]}")
        return line


def instructions(command: Sequence[str], ticks: int, place: Path) -> int:
    """Return how many instructions a side takes for so many ticks, and for being told to do them."""
    report = place / "valgrind.txt"
    valgrind = (*CALLGRIND, f"--log-file={report}")
    with Served(["env", "PYTHONHASHSEED=0", *valgrind, *command], place / "errors.txt") as side:
        side.sweep()
        run(["callgrind_control", "-i", "on", str(side.pid)])
        side.tick(ticks)
        run(["callgrind_control", "-i", "off", str(side.pid)])
    found = re.search(r"Collected : (\d+)", report.read_text())
    assert found, "valgrind says at its end how many instructions it collected"
    return int(found.group(1))


def writing(command: Sequence[str], folder: Path, reports: Path) -> Counter[str]:
    """Return what a side does to the files below a folder: "bytes" written, and "flushes"."""
    reports.mkdir()
    calls = f"trace={','.join(WRITES + FLUSHES)}"
    run(["strace", "-ff", "-y", "-s0", "--seccomp-bpf", "-e", calls, "-o", str(reports / "of"), *command])
    counts: Counter[str] = Counter()
    for report in reports.iterdir():  # one for each thread
        for name, path, result in CALLED.findall(report.read_text()):
            if not Path(path).is_relative_to(folder):
                continue
            if name in WRITES:
                counts["bytes"] += int(result)
            else:
                counts["flushes"] += 1
    return counts
