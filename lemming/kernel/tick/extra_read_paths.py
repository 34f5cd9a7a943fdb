"""Find files that agents read in their turns without a `context` item or a tool grant."""

from __future__ import annotations

from lemming.kernel.agents import Survey
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.tick_hooks import get_tick_interceptors
from lemming.kernel.tick.turn_dependencies import NOTHING, ImplicitReads


def find_implicit_reads(org: Organisation, survey: Survey, config: Config) -> dict[str, ImplicitReads]:
    """Return the files read by capabilities, by agent."""
    implicit_reads: dict[str, ImplicitReads] = {}
    for interceptor in get_tick_interceptors(org, survey, config):
        for name in interceptor.agents:
            agent, files = survey.agents[name], implicit_reads.get(name, NOTHING)
            may_read = [*files.optional, *interceptor.optional_read_paths(org, agent)]
            implicit_reads[name] = ImplicitReads({**files.required, **interceptor.read_paths(agent)}, may_read)
    return implicit_reads
