"""Results of runs of cases, and their counts by case and arm. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from lemming.journal_tools.provenance.provenance_node import ProvenanceNode

Z = 1.959963984540054  # for 95 %
_NOT_IN_XML = {code: "?" for code in range(32) if code not in (9, 10, 13)} | {0xFFFE: "?", 0xFFFF: "?"}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An unmet expectation. `index`: position in the case, from 0. `ways`: provenance of the evidence."""

    index: int
    kind: str
    name: str = ""
    said: str = ""
    evidence: Sequence[str] = ()
    ways: Sequence[ProvenanceNode] = ()

    @property
    def title(self) -> str:
        """The expectation's name, or kind and index."""
        return self.name or f"{self.kind} (expect/{self.index})"

    def as_json(self) -> dict[str, Any]:
        """Return the failure as JSON values, without the provenance."""
        fields = {key: getattr(self, key) for key in ("index", "kind", "name", "said")}
        return {**fields, "evidence": [*self.evidence]}


@dataclass(frozen=True, kw_only=True)
class Result:
    """A run of a case. `error`: the reason for an incomplete run. `asked`: number of live model calls.

    `cost_usd` is the cost of the answers when first given, or None without a known price. `not_done`:
    descriptions of failed turns.
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
    def is_passed(self) -> bool:
        """True if every expectation is met and the run is complete."""
        return not (self.failures or self.error)

    def as_json(self) -> dict[str, Any]:
        """Return the run as JSON values. Equal runs give equal values, except for `asked` and `folder`."""
        facts = {key: value for key, value in vars(self).items() if key != "failures"}
        failures = [failure.as_json() for failure in self.failures]
        return {**facts, "not_done": [*self.not_done], "passed": self.is_passed, "failures": failures}


@dataclass
class RunTally:
    """Several runs with their totals."""

    results: list[Result] = field(default_factory=list)

    @property
    def run_count(self) -> int:
        """The number of runs."""
        return len(self.results)

    @property
    def passes(self) -> int:
        """The number of passed runs."""
        return sum(result.is_passed for result in self.results)

    @property
    def is_all_passed(self) -> bool:
        """True if every run passed: pass^k for a single case."""
        return bool(self.results) and self.passes == self.run_count

    @property
    def confidence_interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the pass rate."""
        return wilson_interval(self.passes, self.run_count)

    @property
    def cost_usd(self) -> float | None:
        """The total cost in dollars, or None without a known price."""
        costs = [result.cost_usd for result in self.results]
        known_costs = [cost for cost in costs if cost is not None]
        return round(sum(known_costs), 9) if len(known_costs) == len(costs) else None

    def as_json(self) -> dict[str, Any]:
        """Return the totals as JSON values."""
        low, high = self.confidence_interval
        return {
            "runs": self.run_count,
            "passed": self.passes,
            "mean": self.passes / self.run_count if self.run_count else None,
            "low": round(low, 4),
            "high": round(high, 4),
            "all_right": self.is_all_passed,
            "calls": sum(result.calls for result in self.results),
            "asked": sum(result.asked for result in self.results),
            "credits": round(sum(result.credits for result in self.results), 6),
            "cost_usd": self.cost_usd,
        }


def tally_results(results: Iterable[Result]) -> dict[tuple[str, str], RunTally]:
    """Return the totals by case and arm, in the order of the results."""
    tallies: dict[tuple[str, str], RunTally] = {}
    for result in results:
        tallies.setdefault((result.case, result.arm), RunTally()).results.append(result)
    return tallies


def wilson_interval(passes: int, runs: int) -> tuple[float, float]:
    """Compute Wilson's 95 % score interval for `passes` of `runs`.

    Formula: E. B. Wilson, "Probable Inference", JASA 22 (1927).

    >>> [round(bound, 3) for bound in wilson_interval(4, 5)], wilson_interval(0, 0)
    ([0.376, 0.964], (0.0, 1.0))
    """
    if not runs:
        return 0.0, 1.0
    share, square = passes / runs, Z * Z
    center = share + square / (2 * runs)
    margin = Z * math.sqrt(share * (1 - share) / runs + square / (4 * runs * runs))
    low, high = ((center + sign * margin) / (1 + square / runs) for sign in (-1, 1))
    return (0.0 if passes == 0 else max(low, 0.0)), (1.0 if passes == runs else min(high, 1.0))


def to_junit(results: Sequence[Result]) -> bytes:
    """Return the runs as JUnit XML: a suite for each arm, a test for each run."""
    root = Element("testsuites", _count_outcomes(results))
    for arm in dict.fromkeys(result.arm for result in results):
        arm_results = [result for result in results if result.arm == arm]
        suite = SubElement(root, "testsuite", {"name": _strip_invalid_xml(arm), **_count_outcomes(arm_results)})
        for result in arm_results:
            name = f"run {result.repeat + 1}"
            test = SubElement(suite, "testcase", {"classname": result.case, "name": name})
            if result.error:
                SubElement(test, "error", {"message": _strip_invalid_xml(result.error)})
            for failure in result.failures:
                message = _strip_invalid_xml(f"{failure.title}: {failure.said}")
                element = SubElement(test, "failure", {"message": message, "type": failure.kind})
                element.text = _strip_invalid_xml("\n".join(failure.evidence))
    indent(root)
    raw: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return raw + b"\n"


def _count_outcomes(results: Sequence[Result]) -> dict[str, str]:
    errors = sum(bool(result.error) for result in results)
    failed = sum(not result.is_passed for result in results) - errors
    return {"tests": str(len(results)), "failures": str(failed), "errors": str(errors)}


def _strip_invalid_xml(text: str) -> str:
    """Replace characters forbidden in XML."""
    return text.translate(_NOT_IN_XML).encode("utf-8", "replace").decode()
