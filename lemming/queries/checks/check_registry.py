"""The run of checks, with the data they share (read once for all), and the selection of each command."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.agents import Survey, hold_survey, list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, LemmingError, Problem, UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files import fs
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_spec import load_object
from lemming.kernel.tick.validation.agent_validation import validate_survey
from lemming.kernel.tick.validation.checks import Check, CheckSubject, Scope
from lemming.operations.unfinished_turns import UnfinishedTurn
from lemming.queries.pending_questions import find_stopped_agents

if TYPE_CHECKING:
    from lemming.journal_tools.verify.file_verification import VerificationInputs
    from lemming.queries.findings.finding_scan import FindingScan


MAX_ENTRIES_OPENED, MIN_ENTRIES_PER_OUTBOX = 3000, 3
"""Maximum entries opened by default, and the minimum of each outbox."""
MAX_JOURNALS_PARSED = 100
"""Maximum newest journals parsed by default."""


def compute_entries_per_outbox(outboxes: int) -> int:
    """Return the number of entries a quick scan opens in each of `outboxes` outboxes.

    >>> compute_entries_per_outbox(3), compute_entries_per_outbox(1000)
    (1000, 3)
    """
    return max(MIN_ENTRIES_PER_OUTBOX, MAX_ENTRIES_OPENED // max(outboxes, 1))


class CheckRun:
    """The data that checks read, and its limits; everything is read on first use and only once.

    `agent`: check a single agent only. `newest`: maximum number of entries per outbox and of journals; with
    None, each check uses its own limit. `every`: read everything. `connect`: contact the cluster, too.
    `uses_all_cores`: read many journals and files in several processes. `load` returns the settings. `steps` is
    called with the name of the current step, the number done and the total.
    """

    def __init__(
        self,
        base: OrgPath | LemmingError,
        load: Callable[[OrgPath], Config] = load_config,
        *,
        agent: str | None = None,
        newest: int | None = None,
        every: bool = False,
        connect: bool = False,
        uses_all_cores: bool = False,
        steps: Callable[[str, int, int], None] = lambda *_: None,
    ) -> None:
        self._base, self._load, self.has_org_folder = base, load, not isinstance(base, LemmingError)
        self.config_error = LemmingError("the settings cannot be read")
        self.agent, self.newest, self.every, self.connect, self.steps = agent, newest, every, connect, steps
        self._uses_all_cores = uses_all_cores
        self._outbox_files: dict[str, Sequence[str] | None] = {}
        self.unopened_entries = 0
        """How many entries were not opened."""

    @cached_property
    def org(self) -> Organisation:
        """The organisation. Raises `NotAnOrg` if there is none."""
        if isinstance(self._base, LemmingError):
            raise self._base
        return Organisation.from_path(self._base)

    @cached_property
    def config(self) -> Config | None:
        """The settings, or None if they are broken, which the settings check reports."""
        try:
            return self._load(self.org)
        except LemmingError as error:
            self.config_error = error
            return None

    @property
    def settings(self) -> Config:
        """The settings. Raises the load error if the settings are broken."""
        if self.config is None:
            raise self.config_error
        return self.config

    @property
    def survey(self) -> Survey:
        """The agents."""
        return survey_agents(self.org)

    @cached_property
    def valid_survey(self) -> Survey:
        """The agents as they can run: agents with any invalid file count as broken."""
        return validate_survey(self.org, self.config, self.survey).survey if self.config else self.survey

    @cached_property
    def stopped_turns(self) -> dict[str, UnfinishedTurn]:
        """The latest turns that failed or could not be taken, by agent."""
        return find_stopped_agents(self.org)

    @cached_property
    def subject(self) -> CheckSubject:
        """The organisation, as a subject of checks. Raises the load error if the settings are broken."""
        return CheckSubject(org=self.org, config=self.settings, only=self.agent)

    def get_subject(self, scope: Scope) -> Any:
        """Return the argument of `find`, for a check of this scope."""
        if scope in ("settings", "organisation"):
            return self.subject
        return self.records if scope == "journals" else self.scan if scope == "behaviour" else self

    @cached_property
    def records(self) -> VerificationInputs:
        """The journals' contents, for comparison with the files."""
        # With the verification comes all that runs turns.
        from lemming.journal_tools.verify.file_verification import VerificationInputs

        parsed = None if self.every else MAX_JOURNALS_PARSED
        return VerificationInputs(self.org, parsed, self.newest, self.steps, uses_all_cores=self._uses_all_cores)

    @cached_property
    def scan(self) -> FindingScan:
        """The turns of the newest ticks, and the requests."""
        from lemming.queries.findings.finding_scan import scan_ticks  # likewise

        return scan_ticks(self.org)

    @cached_property
    def agent_folders(self) -> list[str]:
        """The folders below `agents/`."""
        return list_agent_folders(self.org)

    def list_outbox_files(self, author: str) -> Sequence[str] | None:
        """Return the sorted names in an outbox, or None for an outbox that cannot be listed."""
        if author not in self._outbox_files:
            self._outbox_files[author] = None
            with contextlib.suppress(OSError):
                self._outbox_files[author] = fs.list_names(f"{self.org}/{paths.outbox_folder(author)}")
        return self._outbox_files[author]

    @property
    def agent_names(self) -> list[str]:
        """The names of the checked agents, including broken agents."""
        return self.agent_folders if self.agent is None else [self.agent]

    @property
    def entries_per_outbox(self) -> int | None:
        """The number of newest entries opened in each outbox, or None for all entries."""
        if self.every:
            return None
        return min(compute_entries_per_outbox(len(self.agent_names)), self.newest or MAX_ENTRIES_OPENED)


def run_checks(
    checks: Iterable[Check], run: CheckRun, *, errors_as_problems: bool = False
) -> Iterator[tuple[Check, list[Problem]]]:
    """Run checks in order and yield each check with its problems.

    An error raised by a check ends the run, or is yielded as a problem if `errors_as_problems` is set, once: a file
    that several checks cannot read is one problem. Without the flag, broken settings are the problems of the check
    of settings, and no problem of the others that need them.
    """
    reported = set[Problem]()
    with hold_survey(run.org) if run.has_org_folder else contextlib.nullcontext():
        for check in checks:
            problems = list[Problem]()
            try:
                if not (check.is_org_wide and run.agent):
                    problems = [*check.find(run.get_subject(check.scope))]
            except LemmingError as error:
                if error is run.config_error and check.scope == "settings":
                    problems = [*error.problems] if isinstance(error, ConfigError) else [to_problem(error)]
                elif errors_as_problems:
                    problems = [*{to_problem(error)} - reported]
                    reported.update(problems)
                elif error is not run.config_error:
                    raise
            yield check, problems
            if check.stops and any(problem.is_error for problem in problems):
                return


def to_problem(error: LemmingError) -> Problem:
    """Convert an error to a problem."""
    return Problem(error.message, error.where, hint=error.hint, code=error.code)


class Selection(NamedTuple):
    """The checks of a command: their declaration, the exit status for an error, and the form of a problem."""

    checks: str
    exit_status: int
    form: str


SELECTIONS = {
    "validate": Selection("lemming.queries.checks.file_checks:CHECKS", 3, "problem"),
    "doctor": Selection("lemming.queries.checks.environment_checks:CHECKS", 1, "level"),
    "verify": Selection("lemming.journal_tools.verify.file_verification:CHECKS", 7, "mismatch"),
    "findings": Selection("lemming.queries.findings.finding_rules:CHECKS", 1, "finding"),
    "status": Selection("lemming.queries.checks.health_checks:CHECKS", 1, "level"),
}
"""Groups of checks of each command, in order; `check` runs the first three."""


def list_checks(command: str, run: CheckRun) -> list[Check]:
    """Return the checks of a command, including the checks of capabilities."""
    checks: tuple[Check, ...] = load_object(SELECTIONS[command].checks)
    if command != "validate" or not run.config:
        return [*checks]
    from lemming.queries.org_validation import list_capability_checks  # with it comes all that takes turns

    return [*checks, *list_capability_checks(run.config, run.survey)]


def map_all_checks(run: CheckRun) -> dict[Check, list[str]]:
    """Return every check with the names of the commands that run it."""
    commands_by_check: dict[Check, list[str]] = {}
    for command in SELECTIONS:
        for check in list_checks(command, run):
            commands_by_check.setdefault(check, []).append(command)
    return commands_by_check


def select_checks(names: list[str], run: CheckRun) -> dict[Check, list[str]]:
    """Return the checks with the given names; raise `UsageError` with the nearest name for an unknown name."""
    commands_by_check = map_all_checks(run)
    check_names = [check.name for check in commands_by_check]
    for name in names:
        if name not in check_names:
            hint = did_you_mean(name, check_names) or "list them with `lemming check --list`"
            hint = f"use the command `lemming {name}`, which runs several checks" if name in SELECTIONS else hint
            raise UsageError(f'check "{name}" does not exist', hint=hint)
    return {check: commands for check, commands in commands_by_check.items() if check.name in names}
