"""Whom the newest entries of agents are addressed to, where that is nobody who is there."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.facts.checklist.check import CheckScope
from lemming.kernel.base.errors import Problem
from lemming.kernel.messages import read_outbox_entries
from lemming.kernel.turn.addressing import find_unknown_targets

NEWEST_LOOKED_AT = 3
"""So many entries of an agent are looked at, of its newest tick."""


def problems_of_targets(scope: CheckScope) -> Iterator[Problem]:
    """Yield a warning for each of an agent's newest entries whose target names nobody."""
    survey = scope.survey
    everyone = [*survey.agents, *survey.broken]
    for name in survey.agents if scope.agent is None else [scope.agent]:
        newest = read_outbox_entries(scope.org, name, limit=NEWEST_LOOKED_AT)
        for entry in (entry for entry in newest if entry.tick == newest[-1].tick):
            for target, why in find_unknown_targets(entry, everyone, ()).items():
                yield Problem(
                    f'{name} wrote to "{target}", and {why}',
                    entry.file,
                    pointer="/payload/target",
                    hint="say in its instructions who is there",
                    severity="warning",
                    code="LMG-301",
                )
