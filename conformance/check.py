"""A check: a function that runs an engine and raises `Broken`, and the requirements that it holds it to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conformance.bench import Bench


@dataclass(frozen=True)
class Check:
    """One check, by its function's name; its first line of words says what holds."""

    name: str
    words: str
    holds: tuple[str, ...]
    run: Callable[[Bench], None]


CHECKS: list[Check] = []


def holds(*requirements: str) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    """Register a check of the requirements of docs/specification.md with these numbers."""

    def register(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
        words = (function.__doc__ or "").strip().splitlines()[0]
        CHECKS.append(Check(function.__name__, words, requirements, function))
        return function

    return register
