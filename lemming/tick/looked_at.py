"""Files that agents look at in their turns though neither `context` nor a tool of theirs says so."""

from __future__ import annotations

from lemming.access.grants import why_no_grant
from lemming.agents import Survey
from lemming.capabilities.plans.format import files_of_plans
from lemming.org.config import Config
from lemming.org.organisation import Organisation


def looked_at_by(org: Organisation, survey: Survey, config: Config) -> dict[str, list[str]]:
    """Return the files for which plans wait, and where models that take images may find one, by agent."""
    found = files_of_plans(org, survey, config)
    keys = [key for key in survey.by_model if (entry := config.models.get(key)) and entry.images]
    for name in (name for key in keys for name in survey.by_model[key]):
        grants = survey.agents[name].permissions.file_access.allow_read
        found[name] = [*found.get(name, []), *(grant for grant in grants if not why_no_grant(grant))]
    return found
