"""Prometheus's text format: families of samples with their help and type. Pure.

Format: prometheus.io, "Exposition formats", version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_IN_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_IN_LABEL = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})

Sample = tuple[Mapping[str, str], float | int]


class Family(NamedTuple):
    """Samples of one name, each with its labels; `help` is a sentence."""

    name: str
    type: Literal["counter", "gauge", "summary"]
    help: str
    samples: Iterable[Sample]


def text_of(families: Iterable[Family]) -> str:
    r"""Return families as the text that Prometheus reads; one without samples is left out.

    >>> print(text_of([Family("a_total", "counter", "How many.", [({"b": 'x"y'}, 3)])]), end="")
    # HELP a_total How many.
    # TYPE a_total counter
    a_total{b="x\"y"} 3
    """
    lines = []
    for family in families:
        samples = [_line(family.name, *sample) for sample in family.samples]
        if samples:
            lines.append(f"# HELP {family.name} {family.help.translate(_IN_HELP)}")
            lines += [f"# TYPE {family.name} {family.type}", *samples]
    return "".join(f"{line}\n" for line in lines)


def _line(name: str, labels: Mapping[str, str], value: float | int) -> str:
    shown = ",".join(f'{key}="{text.translate(_IN_LABEL)}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {value!r}" if shown else f"{name} {value!r}"
