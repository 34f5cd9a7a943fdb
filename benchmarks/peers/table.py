"""The figures of all sides as one table: a line for each side, a column for each figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.measurement import Measurement


def as_wide_markdown(measurements: Sequence[Measurement]) -> str:
    """Return the table; a figure that a side does not have is a dash, and a ratio stands behind its value."""
    cells = {(found.case, found.figure): _cell(found) for found in measurements}
    cases, figures = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    units = {found.figure: found.unit for found in measurements}
    head = [f"{figure}, {units[figure]}" if units[figure] else figure for figure in figures]
    rows = [[case, *(cells.get((case, figure), "–") for figure in figures)] for case in cases]
    return "".join(map(_line, [["", *head], ["---", *["--:"] * len(figures)], *rows]))


def _cell(found: Measurement) -> str:
    ratio = "" if found.ratio is None else f" ({found.ratio:.1f})"
    return f"{_rounded(found.value)}{ratio}"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2g}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
