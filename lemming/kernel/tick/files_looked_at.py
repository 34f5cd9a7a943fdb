"""Files that agents look at in their turns though neither `context` nor a tool of theirs says so."""

from __future__ import annotations

from lemming.kernel.agents import Survey
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.dependencies import NOTHING, Files
from lemming.kernel.tick.seams import parts_in


def looked_at_by(org: Organisation, survey: Survey, config: Config) -> dict[str, Files]:
    """Return the files that capabilities look at, by agent."""
    found: dict[str, Files] = {}
    for part in parts_in(org, survey, config):
        for name in part.agents:
            agent, files = survey.agents[name], found.get(name, NOTHING)
            may_read = [*files.may_read, *part.may_read(org, agent)]
            found[name] = Files({**files.read, **part.reads(agent)}, may_read)
    return found
