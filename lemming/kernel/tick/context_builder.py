"""Build the `TickContext` of a tick: the agents that its turns see, and the plan."""

from __future__ import annotations

import time
from collections.abc import Callable

from lemming.kernel.agents import survey_agents
from lemming.kernel.files.json_documents import retry_while_saving
from lemming.kernel.journal.tick_plan import TickPlan
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.firing_plan import make_plan
from lemming.kernel.tick.tick_hooks import find_skipped_agents, get_capability_uses, uses_clock
from lemming.kernel.tick.validation.agent_validation import require_valid_survey
from lemming.kernel.tick_context import TickContext


def build_tick_context(
    org: Organisation,
    config: Config,
    tick: int,
    plan: TickPlan | None = None,
    *,
    at: str = "",
    since: Callable[[], str] = str,
) -> TickContext:
    """Read an organisation at the start of a tick. An interrupted attempt's `plan` is reused.

    `at` is the tick's clock reading; `since` returns the reading of the previous tick, if needed. Raises
    `ConfigError` for invalid settings.
    """
    began_ns = time.time_ns()
    # A person's editor may be saving a resume at this moment.
    survey = retry_while_saving(
        org.base,
        lambda: survey_agents(org),
        lambda survey: (problem for error in survey.broken.values() for problem in error.problems),
    )
    survey = require_valid_survey(org, config, survey)
    if plan is None:
        uses = get_capability_uses(org, survey, config)
        previous = since() if uses_clock(uses) else ""
        skipped_agents = {}
        if uses:
            from lemming.kernel.turn.descriptions import TickView

            skipped_agents = find_skipped_agents(uses, TickView(org, config, survey, tick, at, previous))
        plan = make_plan(tick, survey, config, at=at, since=previous, skipped_agents=skipped_agents)
    return TickContext(org, config, survey, plan, began_ns=began_ns)
