"""What a check is, what checks look at, read once however many are run, and which command asks which."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

from lemming.facts.pending import find_stopped_agents
from lemming.kernel.agents import Survey, agent_folders, one_survey, survey_agents
from lemming.kernel.base.errors import LemmingError, Problem, UsageError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.soundness.judged import judged
from lemming.kernel.tick.turns_not_done import NotDone

if TYPE_CHECKING:
    from lemming.facts.findings.look import Look
    from lemming.timeline.verify.files import Records


Cost = Literal["names", "files", "journals", "world"]
"""What a check reads: the names of files and folders; what stands in files; journals; what there is outside
the organisation's folder."""


ENTRIES_OPENED, LEAST_OF_EACH = 3000, 3
"""How many entries are opened where not all are wanted, and how many of each outbox at least."""
TAKEN_APART = 100
"""How many journals are taken apart, the newest, where not all are wanted."""


def share_of_each(outboxes: int) -> int:
    """Return how many entries of each of so many outboxes a look opens that is to take no time.

    >>> share_of_each(3), share_of_each(1000)
    (1000, 3)
    """
    return max(LEAST_OF_EACH, ENTRIES_OPENED // max(outboxes, 1))


class CheckScope:
    """What checks look at, and how far; nothing of it is read before it is asked for, or twice.

    `agent`: only what concerns one. `newest`: no more entries of an outbox, and journals, than so many are
    looked at; None: as many as each check does of itself. `every`: all of them. `connect`: to the cluster,
    too. `load` gives the settings; `steps` is told what is under way, how much is done, and of how much.
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
        steps: Callable[[str, int, int], None] = lambda *_: None,
    ) -> None:
        self._base, self._load, self.is_in_a_folder = base, load, not isinstance(base, LemmingError)
        self.why_no_config = LemmingError("the settings cannot be read")
        self.agent, self.newest, self.every, self.connect, self.steps = agent, newest, every, connect, steps
        self.entries_left = 0
        """How many entries were not opened."""

    @cached_property
    def org(self) -> Organisation:
        """The organisation. Raises `NotAnOrg` where there is none."""
        if isinstance(self._base, LemmingError):
            raise self._base
        return Organisation.at(self._base)

    @cached_property
    def config(self) -> Config | None:
        """The settings; None where they are broken, which a check of their own tells."""
        try:
            return self._load(self.org)
        except LemmingError as error:
            self.why_no_config = error
            return None

    @property
    def settings(self) -> Config:
        """The settings. Raises the error where they are broken."""
        if self.config is None:
            raise self.why_no_config
        return self.config

    @property
    def survey(self) -> Survey:
        """The agents."""
        return survey_agents(self.org)

    @cached_property
    def sound(self) -> Survey:
        """The agents as they may run: also those are broken of whose files something is not understood."""
        return judged(self.org, self.config, self.survey).survey if self.config else self.survey

    @cached_property
    def turns_not_done(self) -> dict[str, NotDone]:
        """The latest turns that failed or could not be taken, by agent."""
        return find_stopped_agents(self.org)

    @cached_property
    def records(self) -> Records:
        """What the journals tell, beside what the files are."""
        from lemming.timeline.verify.files import Records  # with it comes all that takes turns

        return Records(self.org, None if self.every else TAKEN_APART, self.newest, self.steps)

    @cached_property
    def look(self) -> Look:
        """The turns of the newest ticks, and the requests."""
        from lemming.facts.findings.look import look_at  # likewise

        return look_at(self.org)

    @cached_property
    def folders(self) -> list[str]:
        """The folders below `agents/`."""
        return agent_folders(self.org)

    @property
    def names(self) -> list[str]:
        """The agents that are looked at, the broken ones among them."""
        return self.folders if self.agent is None else [self.agent]

    @property
    def entries_of_each(self) -> int | None:
        """How many entries of each outbox are opened, the newest; None: all."""
        if self.every:
            return None
        return min(share_of_each(len(self.names)), self.newest or ENTRIES_OPENED)


class Check(NamedTuple):
    """One question: its name, what it costs to ask, what it looks at, and what answers it with problems.

    A problem of severity "note" says what is so, and nothing is to be done. An error of a check that `stops`
    leaves nothing for those after it to look at; one `of_all` says nothing of a single agent.
    """

    name: str
    cost: Cost
    looks_at: str
    find: Callable[[CheckScope], Iterable[Problem]]
    stops: bool = False
    of_all: bool = False


def run(
    checks: Iterable[Check], scope: CheckScope, *, has_errors_told: bool = False
) -> Iterator[tuple[Check, list[Problem]]]:
    """Run checks one after the other, and yield each with what it found.

    What one raises ends the run, or with `has_errors_told` is a problem that it found. Without that, one that
    needs the settings finds nothing where these are broken: a check of its own tells.
    """
    with one_survey(scope.org) if scope.is_in_a_folder else contextlib.nullcontext():
        for check in checks:
            try:
                found = [] if check.of_all and scope.agent else [*check.find(scope)]
            except LemmingError as error:
                if not has_errors_told and error is not scope.why_no_config:
                    raise
                found = [problem_of(error)] if has_errors_told else []
            yield check, found
            if check.stops and any(it.severity == "error" for it in found):
                return


def problem_of(error: LemmingError) -> Problem:
    """Return an error as the problem that it is."""
    return Problem(error.message, error.where, hint=error.hint, code=error.code)


SELECTIONS = {
    "validate": "files:CHECKS",
    "doctor": "machine:CHECKS",
    "verify": "records:CHECKS",
    "findings": "records:FINDINGS",
    "status": "standing:CHECKS",
}
"""Where the checks are that a command asks, in their order; `check` asks those of the first three."""
EXIT_STATUS = {"verify": 7, "validate": 3, "doctor": 1, "status": 1, "findings": 1}
"""With what a command ends that has found an error, the worst first."""


def checks_of(command: str, scope: CheckScope) -> list[Check]:
    """Return the checks that a command asks, with those that capabilities bring."""
    module, _, name = SELECTIONS[command].partition(":")
    place = import_module(f"lemming.facts.checklist.{module}")
    return [*getattr(place, name), *(place.of_capabilities(scope) if command == "validate" else ())]


def all_checks(scope: CheckScope) -> dict[Check, list[str]]:
    """Return every check, each with the commands that ask it."""
    found: dict[Check, list[str]] = {}
    for command in SELECTIONS:
        for check in checks_of(command, scope):
            found.setdefault(check, []).append(command)
    return found


def named_checks(names: list[str], scope: CheckScope) -> dict[Check, list[str]]:
    """Return the checks of these names; raise `UsageError` with the nearest name for one that is none."""
    listed = all_checks(scope)
    known = [check.name for check in listed]
    for name in names:
        if name not in known:
            hint = nearest(name, known) or "`lemming check --list` shows them"
            hint = f"`lemming {name}` is a command, which asks several" if name in SELECTIONS else hint
            raise UsageError(f'there is no check "{name}"', hint=hint)
    return {check: commands for check, commands in listed.items() if check.name in names}
