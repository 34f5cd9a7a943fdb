"""Measurements as a Markdown table for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from benchmarks.measurement import Measurement
from benchmarks.targets import TARGETS

HEAD = ("case", "figure", "value", "floor", "ratio", "target", "moonshot", "")
VERDICTS = {True: "met", False: "missed", None: ""}


def to_markdown(measurements: Iterable[Measurement]) -> str:
    """Return a subject's table. The file system is printed above the table; `to_json` has it in every row."""
    lines = [_format_line(HEAD), _format_line(["---"] * len(HEAD))]
    return "\n".join([*lines, *(_format_line(_make_cells(measurement)) for measurement in measurements)]) + "\n"


def to_json(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as JSON values, with the full target."""
    fields = dataclasses.asdict(measurement)
    target = TARGETS[measurement.target] if measurement.target else None
    if target is not None:
        fields["target"] = {
            "key": measurement.target, **dataclasses.asdict(target), "is_met": target.is_met(measurement)
        }  # fmt: skip
    return fields


def _make_cells(measurement: Measurement) -> list[str]:
    target = TARGETS[measurement.target] if measurement.target else None
    goal, stretch_goal, verdict = "", "", ""
    if target is not None:
        sign = "≥" if target.more_is_better else "≤"
        goal, stretch_goal = (f"{sign} {target.goal:g}", f"{sign} {target.dream:g}" if target.dream is not None else "")
        verdict = VERDICTS[target.is_met(measurement)]
    floor = f"{_format_number(measurement.floor, measurement.unit)} ({measurement.floor_is})"
    return [
        measurement.case,
        measurement.figure,
        _format_number(measurement.value, measurement.unit),
        floor if measurement.floor is not None else "",
        _format_ratio(measurement),
        goal,
        stretch_goal,
        verdict,
    ]


def _format_number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}".strip()


def _format_ratio(measurement: Measurement) -> str:
    if measurement.ratio is None:
        return ""
    spread = f" ({measurement.spread[0]:.2f}-{measurement.spread[1]:.2f})" if measurement.spread else ""
    return f"**{measurement.ratio:.2f}**{spread}"


def _format_line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
