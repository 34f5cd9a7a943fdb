"""Table of all sides: a line per side, a column per figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.measurement import Measurement


def to_wide_markdown(measurements: Sequence[Measurement]) -> str:
    """Return the table. A missing figure is a dash, and a ratio follows its value."""
    cells = {(measurement.case, measurement.figure): _format_cell(measurement) for measurement in measurements}
    cases, figures = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    units = {measurement.figure: measurement.unit for measurement in measurements}
    head = [f"{figure}, {units[figure]}" if units[figure] else figure for figure in figures]
    rows = [[case, *(cells.get((case, figure), "–") for figure in figures)] for case in cases]
    return "".join(map(_format_line, [["", *head], ["---", *["--:"] * len(figures)], *rows]))


def _format_cell(measurement: Measurement) -> str:
    ratio = "" if measurement.ratio is None else f" ({measurement.ratio:.1f})"
    return f"{_format_number(measurement.value)}{ratio}"


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2g}"


def _format_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
