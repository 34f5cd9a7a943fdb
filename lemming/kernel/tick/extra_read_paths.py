"""Find files that agents read in their turns without a `context` item or a tool grant."""

from __future__ import annotations

from lemming.kernel.agents import Survey
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.tick_hooks import get_capability_uses
from lemming.kernel.tick.turn_dependencies import ImplicitReads
from lemming.kernel.turn.descriptions import OptionalReadPath, ReadPath


def find_implicit_reads(org: Organisation, survey: Survey, config: Config) -> dict[str, ImplicitReads]:
    """Return the files read by capabilities, by agent."""
    required: dict[str, dict[str, str]] = {}
    optional: dict[str, list[str]] = {}
    for use in get_capability_uses(org, survey, config):
        for item in use.make_query(ReadPath, org, survey, config).ask(use.capability):
            required.setdefault(item.agent, {})[item.path] = item.reason
        for item in use.make_query(OptionalReadPath, org, survey, config).ask(use.capability):
            optional.setdefault(item.agent, []).append(item.path)
    return {name: ImplicitReads(required.get(name, {}), optional.get(name, ())) for name in {**required, **optional}}
