"""Run all benchmarks and print their tables; `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.overhead import measure_overhead
from benchmarks.startup import measure_startup


def main() -> None:
    """Measure on a memory file system if there is one, and on the disk of this folder."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[10, 100, 1000], help="numbers of agents")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds; the median counts")
    parser.add_argument(
        "--dir", type=Path, action="append", help="where to measure (default: /dev/shm and here)"
    )
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    for place in options.dir or [path for path in (Path("/dev/shm"), Path.cwd()) if path.is_dir()]:
        folder = Path(tempfile.mkdtemp(prefix="lemming-bench-", dir=place))
        try:
            print(f"## Overhead of a turn, on {file_system(place)} ({place})\n")
            print(measure_overhead(folder, options.agents, options.rounds))
        finally:
            shutil.rmtree(folder)
    print("## Start-up\n")
    print(measure_startup(options.rounds))


def file_system(place: Path) -> str:
    """Return the type of the file system a folder is on."""
    found = subprocess.run(
        ["stat", "-f", "-c", "%T", str(place)], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown file system"


if __name__ == "__main__":
    main()
