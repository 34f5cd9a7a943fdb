"""Measurements as a Markdown table for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from benchmarks.measurement import Measurement
from benchmarks.targets import TARGETS

HEAD = ("case", "figure", "value", "floor", "ratio", "target", "moonshot", "")
VERDICTS = {True: "met", False: "missed", None: ""}


def as_markdown(measurements: Iterable[Measurement]) -> str:
    """Return the table of one subject; the file system stands above it, as in `as_json` in every row."""
    lines = [_line(HEAD), _line(["---"] * len(HEAD))]
    return "\n".join([*lines, *(_line(_cells(measurement)) for measurement in measurements)]) + "\n"


def as_json(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement with its target written out."""
    plain = dataclasses.asdict(measurement)
    target = TARGETS[measurement.target] if measurement.target else None
    if target is not None:
        plain["target"] = {
            "key": measurement.target, **dataclasses.asdict(target), "is_met": target.is_met(measurement)
        }  # fmt: skip
    return plain


def _cells(measurement: Measurement) -> list[str]:
    target = TARGETS[measurement.target] if measurement.target else None
    goal, dream, verdict = "", "", ""
    if target is not None:
        sign = "≥" if target.more_is_better else "≤"
        goal, dream = (
            f"{sign} {target.goal:g}",
            f"{sign} {target.dream:g}" if target.dream is not None else "",
        )
        verdict = VERDICTS[target.is_met(measurement)]
    floor = f"{_number(measurement.floor, measurement.unit)} ({measurement.floor_is})"
    return [
        measurement.case,
        measurement.figure,
        _number(measurement.value, measurement.unit),
        floor if measurement.floor is not None else "",
        _ratio(measurement),
        goal,
        dream,
        verdict,
    ]


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}".strip()


def _ratio(measurement: Measurement) -> str:
    if measurement.ratio is None:
        return ""
    spread = f" ({measurement.spread[0]:.2f}-{measurement.spread[1]:.2f})" if measurement.spread else ""
    return f"**{measurement.ratio:.2f}**{spread}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
