"""Plans held against their organisation: what `lemming validate` says of each `plan.json`."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.judges.problems import problems_of_judge_in_file
from lemming.capabilities.plans.allowed import permission_problems
from lemming.capabilities.plans.format import is_planner, plan_file, read_plan
from lemming.capabilities.plans.plan_problems import placed, problems_in
from lemming.capabilities.plans.staff import staff_for
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.files.stamps import is_there
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath


def problems_of_plan(base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield what is wrong with the plan of an agent: with the file, the plan, and what it would do."""
    org, file = Organisation.at(base), plan_file(agent.name)
    if not is_planner(agent, config):
        if is_there(f"{org.base}/{file}"):
            message = f'nobody follows it: the model key of {agent.name} is "{agent.model.key}"'
            hint = f'"model": {{"key": "plan"}} in agents/{agent.name}/resume.json, or take the file away'
            yield Problem(message, file, hint=hint, severity="warning")
        return
    try:
        document = read_plan(org, agent.name)
    except ConfigError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            hint = "write it; `lemming schema plan` says what it may hold"
            yield Problem(f"{agent.name} follows a plan, and there is none", file, hint=hint)
        else:
            yield from error.problems
        return
    yield from document.warnings
    staff = staff_for(agent, config, org)
    found = [*problems_in(document.value), *permission_problems(document.value, agent, staff)]
    yield from placed(found, file, document.raw)
    for author, said, place in document.value.judges():
        yield from problems_of_judge_in_file(base, agent, author, said, file, place, config)
