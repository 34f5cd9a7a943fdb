"""Check for entries addressed to an unknown agent, among the newest entries of each agent."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.kernel.base.errors import Problem
from lemming.kernel.messages import read_outbox_entries
from lemming.kernel.turn.addressing import find_unknown_targets
from lemming.queries.checks.check_registry import CheckScope

MAX_ENTRIES_CHECKED = 3
"""Maximum entries of an agent that are checked, of its newest tick."""


def check_targets(scope: CheckScope) -> Iterator[Problem]:
    """Yield a warning for each of an agent's newest entries with an unknown target."""
    survey = scope.survey
    known_agents = [*survey.agents, *survey.broken]
    for name in survey.agents if scope.agent is None else [scope.agent]:
        newest = read_outbox_entries(scope.org, name, limit=MAX_ENTRIES_CHECKED)
        for entry in (entry for entry in newest if entry.tick == newest[-1].tick):
            for target, reason in find_unknown_targets(entry, known_agents, ()).items():
                yield Problem(
                    f'{name} wrote to "{target}", but {reason}',
                    entry.file,
                    pointer="/payload/target",
                    hint="name the other agents in its instructions",
                    severity="warning",
                    code="LMG-301",
                )
