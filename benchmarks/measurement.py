"""Result of a benchmark: a figure with the floor from the same run."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Duration of a piece of work in seconds.

    `cpu_s` is the CPU time of the whole process with all threads.
    """

    cpu_s: float
    wall_s: float


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A row of the table.

    `ratio` is the median over rounds of value : floor, with each pair from the same round, and `spread` the
    smallest and largest ratio. A count is exact and has no spread. `target` is a key of `TARGETS`. The runner
    fills in `subject` and `file_system`.
    """

    case: str
    figure: str
    value: float
    unit: str = ""
    floor: float | None = None
    floor_is: str = ""
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    target: str = ""
    subject: str = ""
    file_system: str = ""

    @classmethod
    def from_pairs(
        cls, values: Sequence[float], floors: Sequence[float], *, scale: float = 1.0, **fields: Any
    ) -> Measurement:
        """Return the row of two series from the same rounds; `scale` converts to the unit."""
        ratios = [value / floor for value, floor in zip(values, floors, strict=True)]
        return cls(
            value=statistics.median(values) * scale,
            floor=statistics.median(floors) * scale,
            ratio=statistics.median(ratios),
            spread=(min(ratios), max(ratios)),
            **fields,
        )

    @classmethod
    def from_count(cls, value: float, floor: float | None = None, **fields: Any) -> Measurement:
        """Return the row of an exact count."""
        return cls(value=value, floor=floor, ratio=value / floor if floor else None, **fields)


def get_file_system(folder: Path) -> str:
    """Return the file system type of a folder."""
    completed = subprocess.run(["df", "--output=fstype", str(folder)], capture_output=True, text=True, check=False)
    return completed.stdout.split()[-1] if completed.returncode == 0 else "unknown file system"
