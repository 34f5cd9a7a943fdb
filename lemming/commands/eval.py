"""`lemming eval`: run the cases in `evals/`, and say what came out right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lemming.commands.options import Here, Quiet, Trust, argument, find_org, option
from lemming.commands.screen import (
    counted,
    in_dollars,
    one_line,
    painted,
    show,
    show_json,
    show_table,
    tell,
)
from lemming.commands.trust import require_agreement_to_copy
from lemming.commands.why import lines_of
from lemming.facts.cases import Case, case_file, case_names, chosen
from lemming.kernel.access import bound
from lemming.kernel.access.code_guard import allow_code
from lemming.kernel.access.trust import Reach
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import compact
from lemming.kernel.files.outputs import put_output, without_secrets
from lemming.kernel.org.organisation import Organisation, OrgPath

if TYPE_CHECKING:
    from lemming.evals.results import Result, RunTally

WIDTH = 400
SHOWN_NOT_DONE = 5


def _cases(ctx: typer.Context, incomplete: str) -> list[str]:
    return [name for name in case_names(find_org(ctx)) if name.startswith(incomplete)]


def eval(
    here: Here,
    names: Annotated[
        list[str] | None, argument("[NAME]...", "Which cases; all without one.", autocompletion=_cases)
    ] = None,
    model: Annotated[
        list[str] | None, option("--model KEY", "Run all with this model for all agents. Repeatable.")
    ] = None,
    settings: Annotated[
        list[str] | None, option("--set FILE:POINTER=VALUE", "Change one value. Repeatable.")
    ] = None,
    arm: Annotated[
        list[str] | None,
        option("--arm NAME=FILE:POINTER=VALUE", "Run all so too; NAME= is as it is. Repeatable."),
    ] = None,
    repeat: Annotated[
        int | None, option("--repeat N", "How often; else by the case.", min=1, max=1000)
    ] = None,
    record: Annotated[
        bool, option("--record", "Ask models what is not recorded yet, and keep what they say.")
    ] = False,
    budget: Annotated[
        float | None, option("--budget USD", "Make no call that could exceed it.", min=0)
    ] = None,
    tools: Annotated[
        bool, option("--tools", "Make calls that send something too; else they are refused.")
    ] = False,
    keep: Annotated[Path | None, option("--keep DIR", "Keep the copies of runs that fail here.")] = None,
    out: Annotated[Path | None, option("--out FILE", "Write the runs here, a JSON object a line.")] = None,
    junit_file: Annotated[Path | None, option("--junit FILE", "Write the runs here as JUnit XML.")] = None,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Run the cases in evals/, each in a throw-away copy, and say what came out right.

    Recorded answers are used again: a case that has not changed asks nobody and costs nothing. The table says
    how many runs were right, the 95 % interval of that share, and whether all of them were. A failure is
    shown with where it came from.

    Exit status 1 says that something did not come out as expected.

    \b
    Examples:
      lemming eval
      lemming eval ferry --record --budget 0.50
      lemming eval --repeat 5 --arm before= --arm short=agents/editor/resume.json:/instructions="Be short."
      lemming eval --model fast --model full --record
      lemming eval --json | jq -c 'select(.type == "eval_run") | [.case, .arm, .passed, .state_root]'
    """
    from lemming.evals.rehearsal.budget import Spending
    from lemming.evals.results import junit
    from lemming.evals.suite import Manner, arms_of, run_suite

    base = here.org
    places = _written_to(out, junit_file)
    if keep is not None and keep.expanduser().resolve().is_relative_to(Path(base).resolve()):
        raise UsageError(
            "copies cannot be kept inside the organisation", where=str(keep), hint="name a folder elsewhere"
        )
    spending = Spending(budget)
    agree = partial(_agree, base, trusts=trust, asks=record, can_ask=not here.as_json)
    manner = Manner(
        spending=spending,
        records=record,
        makes_calls=tools,
        repeat=repeat,
        keep=keep.expanduser().resolve() if keep else None,
        agree=agree,
    )
    arms = arms_of(arm or [], model or [], settings or [])
    results: list[Result] = []
    for result in run_suite(base, chosen(base, names or []), arms, manner):
        results.append(result)
        if here.as_json:
            show_json("eval_run", result.as_json())
        elif not quiet:
            _tell_run(result)
    if here.as_json:
        _show_counts(results)
    else:
        _show(results, quiet=quiet)
        if not quiet:
            _tell_spent(sum(it.asked for it in results), float(spending.dollars), spending.unpriced)
    lines = b"".join(without_secrets(result.as_json(), compact) + b"\n" for result in results)
    for place, content in zip(places, (lines, junit(results)), strict=True):
        if place is not None:
            put_output(place.parent, place.name, content)
    if not all(result.passed for result in results):
        raise typer.Exit(1)


def _written_to(*places: Path | None) -> list[Path | None]:
    """Return where results are written to; raise `UsageError` before anything is run."""
    found = [place.expanduser().absolute() if place else None for place in places]
    for place in found:
        if place and not place.parent.is_dir():
            raise UsageError("there is no such folder", where=str(place.parent), hint="make it first")
    return found


def _agree(
    base: OrgPath, copy: Path, name: str, case: Case, *, trusts: bool, asks: bool, can_ask: bool
) -> None:
    """Ask a person, as for any run, about what a case runs outside of its copy."""
    if trusts:
        allow_code(copy)
        return
    commands = [wanted.command.run for wanted in case.expect if wanted.command]
    further = [
        Reach(
            f"runs the program: {' '.join(run)}, which checks the case {name}",
            bound.of_command(base, f"{case_file(name)} command", run, run, None),
            needs_agreement=True,
        )
        for run in commands
    ]
    asks_models = asks or case.answers == "live"
    require_agreement_to_copy(
        base, Organisation.at(copy), further=further, asks_models=asks_models, can_ask=can_ask
    )
    allow_code(copy)


# --- what is shown ----------------------------------------------------------------------------


def _tell_run(result: Result) -> None:
    name = f"{result.case} ({result.arm}, run {result.repeat + 1})"
    if result.passed:
        failed = len(result.not_done)
        but = (
            f", though {counted(failed, 'turn')} failed: {one_line(result.not_done[0], WIDTH)}"
            if failed
            else ""
        )
        tell(f"{name}: right{but}", style="yellow" if failed else "plain")
        return
    tell(f"{name}: {'not run to its end' if result.error else 'wrong'}", style="red")


def _show(results: Sequence[Result], *, quiet: bool) -> None:
    from lemming.evals.results import tallies_of

    for result in results:
        if not result.passed:
            _show_failures(result, quiet=quiet)
    tallies = tallies_of(results)
    arms = list(dict.fromkeys(arm for _, arm in tallies))
    cases = list(dict.fromkeys(case for case, _ in tallies))
    rows = [[case, *(_cell(tallies[case, arm]) for arm in arms)] for case in cases]
    if len(cases) > 1:
        by_arm = tallies_of(_as_one(results))
        rows.append(["all", *(_cell(by_arm["", arm]) for arm in arms)])
        right = [sum(tallies[case, arm].all_right for case in cases) for arm in arms]
        rows.append(["cases of which all runs are right", *(f"{number} of {len(cases)}" for number in right)])
    show_table(["CASE", *(arm.upper() for arm in arms)], rows)


def _as_one(results: Sequence[Result]) -> list[Result]:
    """Return results as if they were of one case."""
    from dataclasses import replace

    return [replace(result, case="") for result in results]


def _cell(tally: RunTally) -> str:
    """Return how a case came out: right runs, the share with its interval, what it cost."""
    low, high = tally.interval
    share = f"{tally.passed}/{tally.runs} right, {tally.passed / tally.runs:.0%} ({low:.0%} to {high:.0%})"
    calls = sum(result.calls for result in tally.results)
    return f"{share}, {in_dollars(tally.cost_usd, calls=calls)}"


def _show_failures(result: Result, *, quiet: bool) -> None:
    title = f"{result.case} ({result.arm}, run {result.repeat + 1})"
    if result.error:
        show(f"{painted(title, 'red')}: {one_line(result.error, WIDTH)}")
    for failure in result.failures:
        show(f"{painted(title, 'red')}: {one_line(failure.title, 80)}: {one_line(failure.said, WIDTH)}")
        for way in () if quiet else failure.ways:
            for line in lines_of(way):
                show(f"   {line}")
    for reason in result.not_done[:SHOWN_NOT_DONE]:
        show(f"   {one_line(reason, WIDTH)}")
    if len(result.not_done) > SHOWN_NOT_DONE:
        show(f"   and {counted(len(result.not_done) - SHOWN_NOT_DONE, 'turn')} more failed")
    if result.folder:
        show(f"   kept in {result.folder}")


def _show_counts(results: Sequence[Result]) -> None:
    from lemming.evals.results import tallies_of

    for (case, arm), tally in tallies_of(results).items():
        show_json("eval", {"case": case, "arm": arm, **tally.as_json()})
    for (_, arm), tally in tallies_of(_as_one(results)).items():
        cases = {case for (case, of), each in tallies_of(results).items() if of == arm and each.all_right}
        show_json("eval_total", {"arm": arm, **tally.as_json(), "cases_all_right": len(cases)})


def _tell_spent(asked: int, dollars: float, unpriced: int) -> None:
    if not asked:
        tell("no model was asked")
        return
    tell(f"{counted(asked, 'call')} of models, {in_dollars(dollars, unpriced=unpriced)}")
