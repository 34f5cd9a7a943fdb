"""The list of all checks, and which command asks which; of those that are not asked none is imported."""

from __future__ import annotations

from importlib import import_module

from lemming.base.errors import UsageError
from lemming.base.jsontext import nearest
from lemming.facts.checklist.check import Check, CheckScope

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
