"""All runs that a person asks for: cases by arms by repeats, each in a copy of its own, one after another."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from lemming.evals.answering import Answering, Kept
from lemming.evals.copies import make_copy
from lemming.evals.rehearsal.budget import Spending
from lemming.evals.results import Failure, Result
from lemming.evals.run import Ran, opened, run_case
from lemming.evals.scoring import verdict_on
from lemming.facts.cases import Case, load_case
from lemming.kernel.base.errors import LemmingError, NotTrusted, UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import OrgPath
from lemming.timeline.fork import Setting
from lemming.timeline.verify.root import state_root
from lemming.timeline.why.explain import explain
from lemming.timeline.why.things import Thing
from lemming.timeline.why.writings import Writings

AS_IT_IS = "as it is"
DEPTH_OF_WHY = 1
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")

Agree = Callable[[Path, str, Case], None]
"""Called with each copy before anything of it runs; raises `NotTrusted`."""


@dataclass(frozen=True)
class Arm:
    """One of several ways in which each case is run: with these settings, and this model for all agents."""

    name: str = AS_IT_IS
    settings: Sequence[Setting] = ()
    model: str = ""


NO_ARM = Arm()


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How the runs are made. `keep`: where the folders of failing runs stay; None: they are removed.

    `records`: models are asked what is not recorded. `makes_calls`: calls that send something are made.
    """

    spending: Spending = field(default_factory=Spending)
    records: bool = False
    makes_calls: bool = False
    repeat: int | None = None
    keep: Path | None = None
    agree: Agree = lambda *_: None


def arms_of(words: Sequence[str], models: Sequence[str], settings: Sequence[str]) -> list[Arm]:
    """Return the arms that a person means: each named one with each model, all with the settings.

    A word is `NAME=FILE:/POINTER=VALUE`, again for another setting of the arm, or `NAME=` for one without.
    Raises `UsageError`.
    """
    for_all = [Setting.parse(text) for text in settings]
    named: dict[str, list[Setting]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (equals and name.strip()):
            hint = "for example before= or short=agents/ada/resume.json:/instructions=Be short."
            raise UsageError(f"expected NAME=FILE:/POINTER=VALUE, found {word[:80]!r}", hint=hint)
        named.setdefault(name.strip(), []).extend([Setting.parse(text)] if text else [])
    return [
        Arm(" ".join(filter(None, [name, model])) or AS_IT_IS, (*for_all, *own), model)
        for (name, own), model in product(named.items() or [("", [])], models or [""])
    ]


def run_suite(base: OrgPath, names: Sequence[str], arms: Sequence[Arm], manner: Manner) -> Iterator[Result]:
    """Run cases and yield the result of each run as it comes; every case is read before the first is run.

    Raises as `run_of`, `ConfigError` for a case that is not sound, and `UsageError` for an arm that does not
    fit one: before anything is run, as nothing is paid for what was mistyped.
    """
    cases = {name: load_case(base, name).value for name in names}
    for (name, case), arm in product(cases.items(), arms):
        if arm.settings or arm.model:
            with _folder(None, name, arm, 0) as folder:
                make_copy(base, name, case, folder, settings=arm.settings, model=arm.model)
    kept = {name: Kept(base, name) for name in names}
    for (name, case), arm in product(cases.items(), arms):
        for repeat in range(manner.repeat or case.repeat):
            yield run_of(base, name, case, kept[name], arm=arm, repeat=repeat, manner=manner)


def run_of(
    base: OrgPath, name: str, case: Case, kept: Kept, *, manner: Manner, arm: Arm = NO_ARM, repeat: int = 0
) -> Result:
    """Run a case once and return what came of it; what goes wrong is the result. Raises `NotTrusted`.

    `repeat` is the number of the run, from 0: each has answers of its own.
    """
    answering = Answering(
        base,
        name,
        case,
        kept,
        manner.spending,
        repeat=repeat,
        records=manner.records,
        makes_calls=manner.makes_calls,
    )
    with _folder(manner.keep, name, arm, repeat) as folder:
        result = _run(base, folder, arm, answering, manner.agree)
        if manner.keep and result.passed:
            fs.remove_tree(folder.parent, folder.name)
        return replace(result, folder=str(folder) if manner.keep and not result.passed else "")


@contextlib.contextmanager
def _folder(keep: Path | None, name: str, arm: Arm, repeat: int) -> Iterator[Path]:
    """Give a folder for one copy."""
    if keep is not None:
        folder = keep / "-".join([name, _NOT_IN_A_NAME.sub("_", arm.name), str(repeat + 1)])
        if folder.exists():
            raise UsageError("this is there already", where=str(folder), hint="give --keep another folder")
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="lemming-eval-") as temporary:
        yield Path(temporary).resolve() / "org"


def _run(base: OrgPath, folder: Path, arm: Arm, answering: Answering, agree: Agree) -> Result:
    case = answering.case
    result = Result(case=answering.name, arm=arm.name, repeat=answering.repeat)
    try:
        make_copy(base, answering.name, case, folder, settings=arm.settings, model=arm.model)
        agree(folder, answering.name, case)
        with opened(folder, case, answering) as runtime:
            ran = run_case(runtime, case)
            failures = tuple(_failures(ran, case))
            totals = ran.totals
        return replace(
            result,
            state_root=state_root(folder),
            ticks=totals["ticks"],
            calls=totals["calls"],
            asked=answering.asked,
            credits=totals["credits"],
            cost_usd=totals["cost_usd"],
            failures=failures,
            not_done=ran.not_done,
        )
    except NotTrusted:
        raise
    except LemmingError as error:
        return replace(result, asked=answering.asked, error=str(error))


def _failures(ran: Ran, case: Case) -> Iterator[Failure]:
    for index, wanted in enumerate(case.expect):
        verdict = verdict_on(wanted, ran)
        if not verdict.holds:
            yield Failure(
                index=index,
                kind=wanted.kind,
                name=wanted.name,
                said=verdict.said,
                evidence=verdict.evidence,
                ways=_ways(ran, verdict.evidence),
            )


def _ways(ran: Ran, evidence: Sequence[str]) -> list[Thing]:
    """Return where the files that show a failure came from."""
    found = []
    for path in evidence:
        with contextlib.suppress(UsageError):
            found.append(explain(Writings(ran.org), path, depth=DEPTH_OF_WHY))
    return found
