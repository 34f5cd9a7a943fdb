"""All runs of a suite, cases by arms by repeats, each in its own copy, and the counts of results."""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from lemming.evals.case_copy import make_copy
from lemming.evals.case_responder import AnswerCache, CaseResponder, RunOptions
from lemming.evals.case_run import CaseRun, open_case, run_case
from lemming.evals.scoring import score_expectation
from lemming.journal_tools.fork import SettingOverride
from lemming.journal_tools.provenance.provenance_tree import build_provenance
from lemming.journal_tools.provenance.write_log import ProvenanceNode, WriteLog
from lemming.journal_tools.verify.state_root import load_state_root
from lemming.kernel.base.errors import LemmingError, NotTrusted, UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import OrgPath
from lemming.queries.case_format import Case, load_case

Z = 1.959963984540054  # for 95 %


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
    def passes(self) -> int:
        """The number of passed runs."""
        return sum(result.is_passed for result in self.results)

    @property
    def is_all_passed(self) -> bool:
        """True if every run passed: pass^k for a single case."""
        return bool(self.results) and self.passes == len(self.results)

    @property
    def cost_usd(self) -> float | None:
        """The total cost in dollars, or None without a known price."""
        costs = [result.cost_usd for result in self.results]
        known_costs = [cost for cost in costs if cost is not None]
        return round(sum(known_costs), 9) if len(known_costs) == len(costs) else None

    def as_json(self) -> dict[str, Any]:
        """Return the totals as JSON values."""
        runs = len(self.results)
        low, high = wilson_interval(self.passes, runs)
        return {
            "runs": runs,
            "passed": self.passes,
            "mean": self.passes / runs if runs else None,
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


DEFAULT_ARM = "as it is"
PROVENANCE_DEPTH = 1
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Arm:
    """A variant in which each case runs: settings, and optionally a model for all agents."""

    name: str = DEFAULT_ARM
    settings: Sequence[SettingOverride] = ()
    model: str = ""


def build_arms(arm_arguments: Sequence[str], models: Sequence[str], settings: Sequence[str]) -> list[Arm]:
    """Build the arms from arguments: each named arm with each model, all with the settings.

    An argument is `NAME=FILE:/POINTER=VALUE`, repeated for further settings of the arm, or `NAME=` for an arm without
    settings. Raises: UsageError.
    """
    common_settings = [SettingOverride.parse(text) for text in settings]
    settings_by_name: dict[str, list[SettingOverride]] = {}
    for argument in arm_arguments:
        name, equals, text = argument.partition("=")
        if not (equals and name.strip()):
            hint = "write for example before= or short=agents/ada/resume.json:/instructions=Be short."
            raise UsageError(f"expected NAME=FILE:/POINTER=VALUE, got {argument[:80]!r}", hint=hint)
        settings_by_name.setdefault(name.strip(), []).extend([SettingOverride.parse(text)] if text else [])
    return [
        Arm(" ".join(filter(None, [name, model])) or DEFAULT_ARM, (*common_settings, *arm_settings), model)
        for (name, arm_settings), model in product(settings_by_name.items() or [("", [])], models or [""])
    ]


def run_suite(base: OrgPath, names: Sequence[str], arms: Sequence[Arm], options: RunOptions) -> Iterator[Result]:
    """Run cases and yield each result at once. All cases are loaded before the first run.

    Errors of a run become part of the result. Raises: ConfigError for an invalid case, UsageError for an arm that does not
    fit a case: both before any run, so a typo costs nothing. NotTrusted during the runs.
    """
    cases = {name: load_case(base, name).value for name in names}
    for (name, case), arm in product(cases.items(), arms):
        if arm.settings or arm.model:
            with _make_scratch_folder() as folder:
                make_copy(base, name, case, folder, settings=arm.settings, model=arm.model)
    caches = {name: AnswerCache(base, name) for name in names}
    for (name, case), arm in product(cases.items(), arms):
        for repeat in range(options.repeat or case.repeat):
            yield _run_case_in_copy(arm, CaseResponder(base, name, case, caches[name], options, repeat))


@contextlib.contextmanager
def _make_scratch_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lemming-eval-") as temporary:
        yield Path(temporary).resolve() / "org"


def _run_case_in_copy(arm: Arm, responder: CaseResponder) -> Result:
    """Run a case once in a copy and return the result; keep the copy of a failed run if requested."""
    kept_runs_folder = responder.options.kept_runs_folder
    if kept_runs_folder is None:
        with _make_scratch_folder() as folder:
            return _run_and_score(folder, arm, responder)
    folder = kept_runs_folder / "-".join([responder.name, _NOT_IN_A_NAME.sub("_", arm.name), str(responder.repeat + 1)])
    if folder.exists():
        hint = "choose another folder for --keep-failed"
        raise UsageError("the folder already exists", where=str(folder), hint=hint)
    result = _run_and_score(folder, arm, responder)
    if not result.is_passed:
        return replace(result, folder=str(folder))
    fs.remove_tree(folder.parent, folder.name)
    return result


def _run_and_score(folder: Path, arm: Arm, responder: CaseResponder) -> Result:
    name, case = responder.name, responder.case
    result = Result(case=name, arm=arm.name, repeat=responder.repeat)
    try:
        make_copy(responder.base, name, case, folder, settings=arm.settings, model=arm.model)
        responder.options.agree(folder, name, case)
        with open_case(folder, case, responder) as runtime:
            case_run = run_case(runtime, case)
            failures = tuple(_find_failures(case_run, case))
            totals = case_run.totals
        return replace(
            result,
            state_root=load_state_root(folder),
            ticks=totals["ticks"],
            calls=totals["calls"],
            asked=responder.model_calls,
            credits=totals["credits"],
            cost_usd=totals["cost_usd"],
            failures=failures,
            not_done=case_run.failed_turns,
        )
    except NotTrusted:
        raise
    except LemmingError as error:
        return replace(result, asked=responder.model_calls, error=str(error))


def _find_failures(case_run: CaseRun, case: Case) -> Iterator[Failure]:
    for index, expectation in enumerate(case.expect):
        verdict = score_expectation(expectation, case_run)
        if verdict.is_met:
            continue
        nodes = []
        for path in verdict.evidence:
            with contextlib.suppress(UsageError):
                nodes.append(build_provenance(WriteLog(case_run.org), path, depth=PROVENANCE_DEPTH))
        yield Failure(
            index=index,
            kind=expectation.kind,
            name=expectation.name,
            said=verdict.detail,
            evidence=verdict.evidence,
            ways=nodes,
        )
