"""`lemming eval`: run the cases in `evals/` and print the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lemming.commands.command_context import (
    BudgetUsd,
    CommandContext,
    Quiet,
    Settings,
    SideEffects,
    Trust,
    argument,
    find_org,
    option,
)
from lemming.commands.terminal import (
    format_count,
    format_usd,
    has_person,
    one_line,
    print_data,
    print_json,
    print_notice,
    print_table,
    style_text,
)
from lemming.commands.trust import require_trust_for_copy
from lemming.commands.why import render_tree
from lemming.kernel.access.workspace_trust import RequiredPermission, allow_code
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.libraries import permission_bindings
from lemming.libraries.output_files import without_secrets, write_output
from lemming.queries.case_format import Case, case_file, list_case_names, select_cases

if TYPE_CHECKING:
    from lemming.evals.suite import Result, RunTally

_LINE_WIDTH = 400
_MAX_REASONS_SHOWN = 5


def _complete_case_names(ctx: typer.Context, incomplete: str) -> list[str]:
    return [name for name in list_case_names(find_org(ctx)) if name.startswith(incomplete)]


def eval(
    context: CommandContext,
    names: Annotated[
        list[str] | None, argument("[NAME]...", "Cases to run. Default: all.", autocompletion=_complete_case_names)
    ] = None,
    model: Annotated[
        list[str] | None, option("--model KEY", "Run the cases with this model for all agents. Repeatable.")
    ] = None,
    settings: Settings = None,
    arm: Annotated[
        list[str] | None,
        option(
            "--variant NAME=FILE:POINTER=VALUE",
            'Also run the cases with this override; "NAME=" alone is the unchanged baseline. Repeatable.',
        ),
    ] = None,
    repeat: Annotated[
        int | None, option("--repeat N", "Number of runs per case. Default: from the case.", min=1, max=1000)
    ] = None,
    record: Annotated[
        bool, option("--record", "Call models for answers that are not recorded, and record them.")
    ] = False,
    budget: BudgetUsd = None,
    tools: SideEffects = False,
    keep: Annotated[Path | None, option("--keep-failed DIR", "Keep the copies of failed runs in this folder.")] = None,
    out: Annotated[Path | None, option("--output FILE", "Write the results as JSON Lines.")] = None,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Run eval cases in throw-away copies.

    Recorded answers are reused: an unchanged case calls no model and costs nothing. The table shows the
    number of correct runs, the 95 % confidence interval of their share, and the cases in which all runs are
    correct. Each failure is shown with its origin.

    Exit status 1: a run did not give the expected result.

    \b
    Examples:
      lemming eval
      lemming eval ferry --record --budget 0.50
      lemming eval --repeat 5 --variant before= --variant short=agents/editor/resume.json:/instructions="Be short."
      lemming eval --model fast --model full --record
      lemming eval --json | jq -c 'select(.type == "eval_run") | [.case, .arm, .passed, .state_root]'
    """
    from lemming.evals.case_responder import RunOptions
    from lemming.evals.rehearsal.spending_budget import SpendingBudget
    from lemming.evals.suite import build_arms, run_suite

    base = context.org
    output_path = out.expanduser().absolute() if out else None
    if output_path and not output_path.parent.is_dir():
        raise UsageError("the folder does not exist", where=str(output_path.parent), hint="create it first")
    if keep is not None and keep.expanduser().resolve().is_relative_to(Path(base).resolve()):
        raise UsageError("--keep must name a folder outside the organisation", where=str(keep), hint="name another")
    agree = partial(_confirm_trust, base, trusts=trust, records=record, can_ask=not context.as_json)
    run_options = RunOptions(
        spending=SpendingBudget(budget),
        should_record=record,
        makes_calls=tools,
        repeat=repeat,
        kept_runs_folder=keep.expanduser().resolve() if keep else None,
        agree=agree,
    )
    arms = build_arms(arm or [], model or [], settings or [])
    results: list[Result] = []
    for result in run_suite(base, select_cases(base, names or []), arms, run_options):
        results.append(result)
        print_json("eval_run", result.as_json())
        name = f"{result.case} ({result.arm}, run {result.repeat + 1})"
        if not result.is_passed:
            print_notice(f"{name}: {'interrupted' if result.error else 'failed'}", style="red")
        elif failed := len(result.not_done):
            remark = f"though {format_count(failed, 'turn')} failed: {one_line(result.not_done[0], _LINE_WIDTH)}"
            print_notice(f"{name}: passed, {remark}", style="yellow")
        else:
            print_notice(f"{name}: passed")
    (_print_tallies_as_json if context.as_json else _print_results)(results)
    calls, spending = sum(result.asked for result in results), run_options.spending
    dollars = format_usd(float(spending.dollars), unpriced=spending.unpriced)
    print_notice(f"{format_count(calls, 'call')} of models, {dollars}" if calls else "no model was called")
    if output_path is not None:
        lines = b"".join(without_secrets(result.as_json(), dump_compact) + b"\n" for result in results)
        write_output(output_path.parent, output_path.name, lines)
    if not all(result.is_passed for result in results):
        raise typer.Exit(1)


def _confirm_trust(
    base: OrgPath, copy: Path, name: str, case: Case, *, trusts: bool, records: bool, can_ask: bool
) -> None:
    """Ask for workspace trust for all programs that a case runs outside the copy."""
    if trusts:
        allow_code(copy)
        return
    commands = (expectation.command.run for expectation in case.expect if expectation.command)
    case_permissions = [
        RequiredPermission(
            f"runs the program: {' '.join(run)}, which checks the case {name}",
            permission_bindings.digest_command(base, f"{case_file(name)} command", run, run, None),
            needs_agreement=True,
        )
        for run in commands
    ]
    asks_models = records or case.answers == "live"
    require_trust_for_copy(
        base, Organisation.from_path(copy), case_permissions=case_permissions, calls_models=asks_models, can_ask=can_ask
    )
    allow_code(copy)


def _print_results(results: Sequence[Result]) -> None:
    from lemming.evals.suite import tally_results

    for result in results:
        if not result.is_passed:
            _print_failures(result)
    tallies = tally_results(results)
    arms = list(dict.fromkeys(arm for _, arm in tallies))
    cases = list(dict.fromkeys(case for case, _ in tallies))
    rows = [[case, *(_format_tally(tallies[case, arm]) for arm in arms)] for case in cases]
    if len(cases) > 1:
        by_arm = tally_results(replace(result, case="") for result in results)
        rows.append(["all", *(_format_tally(by_arm["", arm]) for arm in arms)])
        counts = [sum(tallies[case, arm].is_all_passed for case in cases) for arm in arms]
        rows.append(["cases that passed in all runs", *(f"{number} of {len(cases)}" for number in counts)])
    print_table(["CASE", *(arm.upper() for arm in arms)], rows)


def _format_tally(tally: RunTally) -> str:
    """Format a tally: correct runs, their share with its interval, and cost."""
    from lemming.evals.suite import wilson_interval

    runs = len(tally.results)
    low, high = wilson_interval(tally.passes, runs)
    share = f"{tally.passes}/{runs} passed, {tally.passes / runs:.0%} ({low:.0%} to {high:.0%})"
    return f"{share}, {format_usd(tally.cost_usd, calls=sum(result.calls for result in tally.results))}"


def _print_failures(result: Result) -> None:
    title = style_text(f"{result.case} ({result.arm}, run {result.repeat + 1})", "red")
    if result.error:
        print_data(f"{title}: {one_line(result.error, _LINE_WIDTH)}")
    for failure in result.failures:
        print_data(f"{title}: {one_line(failure.title, 80)}: {one_line(failure.said, _LINE_WIDTH)}")
        for branch in failure.ways if has_person() else ():
            for line in render_tree(branch):
                print_data(f"   {line}")
    for reason in result.not_done[:_MAX_REASONS_SHOWN]:
        print_data(f"   {one_line(reason, _LINE_WIDTH)}")
    if len(result.not_done) > _MAX_REASONS_SHOWN:
        print_data(f"   and {format_count(len(result.not_done) - _MAX_REASONS_SHOWN, 'turn')} more failed")
    if result.folder:
        print_data(f"   kept in {result.folder}")


def _print_tallies_as_json(results: Sequence[Result]) -> None:
    from lemming.evals.suite import tally_results

    tallies = tally_results(results)
    for (case, arm), tally in tallies.items():
        print_json("eval", {"case": case, "arm": arm, **tally.as_json()})
    for (_, arm), tally in tally_results(replace(result, case="") for result in results).items():
        cases = sum(tally.is_all_passed for (_, case_arm), tally in tallies.items() if case_arm == arm)
        print_json("eval_total", {"arm": arm, **tally.as_json(), "cases_all_right": cases})
