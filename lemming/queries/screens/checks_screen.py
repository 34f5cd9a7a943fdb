"""The screens of checks: the results of `doctor`, and the list of all checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from lemming.kernel.base.errors import Problem
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.validation.checks import Check
from lemming.queries.checks.check_registry import CheckRun, list_checks, map_all_checks, run_checks
from lemming.queries.checks.health_checks import group_issues
from lemming.queries.screens.screen import Column, RowStyle, Screen

Level = Literal["ok", "warn", "fail"]
_LEVELS: dict[str, Level] = {"note": "ok", "warning": "warn", "error": "fail"}
_STYLES: dict[str, RowStyle] = {"warning": "yellow", "error": "red"}


class CheckedRow(NamedTuple):
    """A result of a check; its problem is a note if nothing is wrong."""

    check: Check | None
    problem: Problem

    @property
    def about(self) -> str:
        """The name of the check."""
        return self.check.name if self.check else ""

    @property
    def text(self) -> str:
        """The result in words."""
        subject = "" if self.problem.about in ("", self.about) else f"{self.problem.about}: "
        return f"{subject}{self.problem.message}"

    @property
    def fix(self) -> str:
        """The fix, or empty if nothing is wrong."""
        return "" if self.problem.severity == "note" else self.problem.hint


def list_machine_checks(org: OrgPath) -> list[CheckedRow]:
    """Check this machine and installation, and suggest fixes."""
    return [*check_machine(_make_run(org), is_grouped=True)]


def check_machine(run: CheckRun, *, is_grouped: bool) -> Iterator[CheckedRow]:
    """Yield the results of `lemming doctor`. `is_grouped`: those of several agents with the same text as one."""
    for check, problems in run_checks(list_checks("doctor", run), run, errors_as_problems=True):
        yield from (CheckedRow(check, problem) for problem in (group_issues(problems) if is_grouped else problems))


DOCTOR = Screen(
    "doctor",
    kind="finding",
    title="This machine",
    query=list_machine_checks,
    row=CheckedRow,
    is_table=False,
    is_local=True,
    style=lambda row: _STYLES.get(row.problem.severity, "plain"),
    columns=(
        Column(
            "level", "LEVEL", "ok, warn or fail.", Level, value=lambda row: _LEVELS[row.problem.severity],
            text=lambda row: f"{_LEVELS[row.problem.severity]:<4}",
        ),
        Column("about", "CHECK", "Name of the check.", str, text=lambda row: f"{row.about:<11}"),
        Column(
            "text", "RESULT", "Result in words.", str, width=800,
            text=lambda row: f"{row.text}; fix: {row.fix}" if row.fix else row.text,
        ),
        Column("fix", about="Suggested fix, or empty.", type=str),
    ),
)  # fmt: skip


def list_all_checks(org: OrgPath) -> list[tuple[Check, list[str]]]:
    """List all checks with their cost, scope and commands."""
    return [*map_all_checks(_make_run(org)).items()]


def _make_run(org: OrgPath) -> CheckRun:
    from lemming.queries.tick_preview import load_inspection_settings  # with it comes all that takes turns

    return CheckRun(org, load_inspection_settings)


CHECKS = Screen(
    "checks",
    kind="check",
    title="Checks",
    command="check --list",
    query=list_all_checks,
    columns=(
        Column("name", "CHECK", "Name of the check.", value=lambda row: row[0].name),
        Column("cost", "READS", "What it reads.", value=lambda row: row[0].cost),
        Column("scope", "ABOUT", "What it is about.", value=lambda row: row[0].scope),
        Column("commands", "COMMANDS", "Commands that run it.", list[str], value=lambda row: row[1]),
        Column("looks_at", "CHECKS", "What it compares.", value=lambda row: row[0].description),
    ),
)
