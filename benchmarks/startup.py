"""What a command costs before it does anything, beside a bare interpreter that imports typer and pydantic."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from lemming.testing import make_org, resume

YARDSTICK = [sys.executable, "-c", "import typer, pydantic"]


def measure_startup(rounds: int) -> str:
    """Return a table: CPU milliseconds of whole processes, and the median ratio to the yardstick."""
    with tempfile.TemporaryDirectory() as folder:
        base = make_org(
            Path(folder) / "org", *(resume(f"a{n}", schedule={"run_every_n_ticks": 10**6}) for n in range(10))
        )
        lemming = [sys.executable, "-m", "lemming", "-C", str(base)]
        commands = {
            "lemming --help": [*lemming, "--help"],
            "lemming status, 10 agents": [*lemming, "status"],
            "idle run-once, 10 agents": [*lemming, "run-once"],
        }
        lines = ["| command | CPU ms | ratio to `import typer, pydantic` |", "|---|---|---|"]
        for name, command in commands.items():
            pairs = [(_cpu_ms(command), _cpu_ms(YARDSTICK)) for _ in range(rounds + 1)][1:]
            ratio = statistics.median(own / yardstick for own, yardstick in pairs)
            lines.append(f"| `{name}` | {statistics.median(own for own, _ in pairs):.0f} | {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def _cpu_ms(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Modules are to be compiled once, in the round that does not count, as on a user's machine.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000
