"""A served side: runs ticks on request, while counted or traced from outside."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measurement import Timing
from benchmarks.peers.work import SWEEP
from benchmarks.processes import child_environment, run_measured

WRITES = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
FLUSHES = ("fsync", "fdatasync", "syncfs", "sync", "sync_file_range", "msync")
CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--instr-atstart=no")
CALLED = re.compile(r"(\w+)\(\d+<([^>]*)>.*\) += (\d+)")


class ServedSide:
    """Process of a side that runs ticks on request."""

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        with errors.open("w") as stderr:
            self._process = subprocess.Popen(
                [*command, "--serve"], text=True, env=child_environment(),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
            )  # fmt: skip
        self.pid = self._process.pid
        self._errors = errors
        self._receive_line()  # prepared

    def __enter__(self) -> ServedSide:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # standard input ends, and so does the side

    def sweep(self) -> None:
        """Collect garbage in the process."""
        self._send_request(SWEEP)

    def tick(self, count: int) -> Timing:
        """Run some ticks and return the timing."""
        return Timing(**json.loads(self._send_request(f"{count}\n")))

    def _send_request(self, line: str) -> str:
        assert self._process.stdin is not None, "opened as a pipe"
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return self._receive_line()

    def _receive_line(self) -> str:
        assert self._process.stdout is not None, "opened as a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a side ended: {self._errors.read_text()[-2000:]}")
        return line


def count_side_instructions(command: Sequence[str], ticks: int, folder: Path) -> int:
    """Return the instructions of a side for some ticks, including the request handling."""
    report = folder / "valgrind.txt"
    valgrind = (*CALLGRIND, f"--log-file={report}")
    with ServedSide(["env", "PYTHONHASHSEED=0", *valgrind, *command], folder / "errors.txt") as side:
        side.sweep()
        run_measured(["callgrind_control", "-i", "on", str(side.pid)])
        side.tick(ticks)
        run_measured(["callgrind_control", "-i", "off", str(side.pid)])
    match = re.search(r"Collected : (\d+)", report.read_text())
    assert match, "valgrind says at its end how many instructions it collected"
    return int(match.group(1))


def count_side_writes(command: Sequence[str], folder: Path, reports: Path) -> Counter[str]:
    """Return the writes of a side below a folder: "bytes" and "flushes"."""
    reports.mkdir()
    calls = f"trace={','.join(WRITES + FLUSHES)}"
    run_measured(["strace", "-ff", "-y", "-s0", "--seccomp-bpf", "-e", calls, "-o", str(reports / "of"), *command])
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
