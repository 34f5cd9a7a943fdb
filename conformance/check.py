"""A check: a function that runs an engine and raises `Violation`, with the requirements covered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conformance.bench import Bench


@dataclass(frozen=True)
class Check:
    """A check with the function's name, and the docstring's first line as summary."""

    name: str
    summary: str
    requirements: tuple[str, ...]
    run: Callable[[Bench], None]


CHECKS: list[Check] = []


def covers(*requirements: str) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    """Register a function as a check of numbered requirements in docs/specification.md."""

    def register(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
        summary = (function.__doc__ or "").strip().splitlines()[0]
        CHECKS.append(Check(function.__name__, summary, requirements, function))
        return function

    return register
