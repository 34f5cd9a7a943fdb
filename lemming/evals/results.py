"""What runs of cases came to: each by itself, and counted together by case and arm. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from lemming.timeline.why.things import Thing

Z = 1.959963984540054  # of 95 %
_NOT_IN_XML = {code: "?" for code in range(32) if code not in (9, 10, 13)} | {0xFFFE: "?", 0xFFFF: "?"}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An expectation that is not met. `index`: its place in the case, from 0; `ways`: where it came from."""

    index: int
    kind: str
    name: str = ""
    said: str = ""
    evidence: Sequence[str] = ()
    ways: Sequence[Thing] = ()

    @property
    def title(self) -> str:
        """What it is called."""
        return self.name or f"{self.kind} (expect/{self.index})"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values, without the way it came."""
        plain = {key: getattr(self, key) for key in ("index", "kind", "name", "said")}
        return {**plain, "evidence": [*self.evidence]}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run of a case. `error`: why it could not be run to its end; `asked`: calls of models, made now.

    `cost_usd` is what its answers cost when they were given; None: a price is not known. `not_done`: turns
    that failed, in words.
    """

    case: str
    arm: str
    repeat: int = 0
    state_root: str = ""
    ticks: int = 0
    calls: int = 0
    asked: int = 0
    credits: float = 0.0
    cost_usd: float | None = 0.0
    failures: Sequence[Failure] = ()
    not_done: Sequence[str] = ()
    error: str = ""
    folder: str = ""

    @property
    def passed(self) -> bool:
        """Whether all that is expected came."""
        return not (self.failures or self.error)

    def as_json(self) -> dict[str, Any]:
        """Return the run as JSON values; the same run gives the same, but for `asked` and `folder`."""
        facts = {key: value for key, value in vars(self).items() if key != "failures"}
        failures = [failure.as_json() for failure in self.failures]
        return {**facts, "not_done": [*self.not_done], "passed": self.passed, "failures": failures}


@dataclass
class RunTally:
    """Runs counted together."""

    results: list[Result] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """How many there are."""
        return len(self.results)

    @property
    def passed(self) -> int:
        """How many of them came out right."""
        return sum(result.passed for result in self.results)

    @property
    def all_right(self) -> bool:
        """Whether each of them came out right: pass^k for one case."""
        return bool(self.results) and self.passed == self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """Between what the share of right runs lies, with 95 %."""
        return wilson(self.passed, self.runs)

    @property
    def cost_usd(self) -> float | None:
        """What they cost together; None: a price is not known."""
        costs = [result.cost_usd for result in self.results]
        known = [cost for cost in costs if cost is not None]
        return round(sum(known), 9) if len(known) == len(costs) else None

    def as_json(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        low, high = self.interval
        return {
            "runs": self.runs,
            "passed": self.passed,
            "mean": self.passed / self.runs if self.runs else None,
            "low": round(low, 4),
            "high": round(high, 4),
            "all_right": self.all_right,
            "calls": sum(result.calls for result in self.results),
            "asked": sum(result.asked for result in self.results),
            "credits": round(sum(result.credits for result in self.results), 6),
            "cost_usd": self.cost_usd,
        }


def tallies_of(results: Iterable[Result]) -> dict[tuple[str, str], RunTally]:
    """Return the counts by case and arm, in the order of the results."""
    found: dict[tuple[str, str], RunTally] = {}
    for result in results:
        found.setdefault((result.case, result.arm), RunTally()).results.append(result)
    return found


def wilson(passed: int, runs: int) -> tuple[float, float]:
    """Return between what a share lies of which so many were seen, with 95 %: Wilson's score interval.

    Formula: E. B. Wilson, "Probable Inference", JASA 22 (1927).

    >>> [round(bound, 3) for bound in wilson(4, 5)], wilson(0, 0)
    ([0.376, 0.964], (0.0, 1.0))
    """
    if not runs:
        return 0.0, 1.0
    share, square = passed / runs, Z * Z
    middle = share + square / (2 * runs)
    half = Z * math.sqrt(share * (1 - share) / runs + square / (4 * runs * runs))
    low, high = ((middle + sign * half) / (1 + square / runs) for sign in (-1, 1))
    return (0.0 if passed == 0 else max(low, 0.0)), (1.0 if passed == runs else min(high, 1.0))


def junit(results: Sequence[Result]) -> bytes:
    """Return the runs as JUnit XML: a suite for each arm, a test for each run."""
    root = Element("testsuites", _counts(results))
    for arm in dict.fromkeys(result.arm for result in results):
        own = [result for result in results if result.arm == arm]
        suite = SubElement(root, "testsuite", {"name": _plain(arm), **_counts(own)})
        for result in own:
            name = f"run {result.repeat + 1}"
            test = SubElement(suite, "testcase", {"classname": result.case, "name": name})
            if result.error:
                SubElement(test, "error", {"message": _plain(result.error)})
            for failure in result.failures:
                message = _plain(f"{failure.title}: {failure.said}")
                element = SubElement(test, "failure", {"message": message, "type": failure.kind})
                element.text = _plain("\n".join(failure.evidence))
    indent(root)
    raw: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return raw + b"\n"


def _counts(results: Sequence[Result]) -> dict[str, str]:
    errors = sum(bool(result.error) for result in results)
    failed = sum(not result.passed for result in results) - errors
    return {"tests": str(len(results)), "failures": str(failed), "errors": str(errors)}


def _plain(text: str) -> str:
    """Return a text that may stand in XML."""
    return text.translate(_NOT_IN_XML).encode("utf-8", "replace").decode()
