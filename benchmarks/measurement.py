"""What a benchmark hands over: one figure, beside the floor measured in the same run."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Timing:
    """What a piece of work took, in seconds; `cpu_s` is that of the whole process, its threads included."""

    cpu_s: float
    wall_s: float


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One row of the table.

    `ratio` is the median over rounds of value : floor, each pair taken in one round, and `spread` the
    smallest and the largest of them. A count is exact: it has no spread. `target` is a key of `TARGETS`.
    `subject` and `file_system` are filled in by whoever runs the subject.
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
    def paired(
        cls, values: Sequence[float], floors: Sequence[float], *, scale: float = 1.0, **rest: Any
    ) -> Measurement:
        """Return the row of two series taken in the same rounds; `scale` brings them into the unit."""
        ratios = [value / floor for value, floor in zip(values, floors, strict=True)]
        return cls(
            value=statistics.median(values) * scale,
            floor=statistics.median(floors) * scale,
            ratio=statistics.median(ratios),
            spread=(min(ratios), max(ratios)),
            **rest,
        )

    @classmethod
    def counted(cls, value: float, floor: float | None = None, **rest: Any) -> Measurement:
        """Return the row of an exact count."""
        return cls(value=value, floor=floor, ratio=value / floor if floor else None, **rest)


def file_system(place: Path) -> str:
    """Return the type of the file system a folder is on."""
    found = subprocess.run(["df", "--output=fstype", str(place)], capture_output=True, text=True, check=False)
    return found.stdout.split()[-1] if found.returncode == 0 else "unknown file system"
