"""Skip due agents without news, and without possible news in this tick, before any turn runs.

Thousands of agents may be idle while a few take turns; no idle agent needs a thread or a wait.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lemming.kernel.agents import Agent
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.tick.extra_read_paths import find_implicit_reads
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.tick.turn_dependencies import TurnDependencies, find_affected_agents
from lemming.kernel.turn.descriptions import OrgQuery
from lemming.kernel.turn.guards import SharedResource
from lemming.kernel.turn.turn_hooks import Capability


def build_dependencies(
    snapshot: Snapshot, agents: Mapping[str, Agent], capabilities: Sequence[Capability]
) -> TurnDependencies:
    """Return the dependencies between the turns of a tick, from the capabilities in use."""
    settings = snapshot.config.org
    shared = find_shared_resources(snapshot, agents, capabilities)
    implicit_reads = find_implicit_reads(snapshot.org, snapshot.survey, snapshot.config)
    return TurnDependencies(agents, settings, snapshot.toolset, snapshot.org, implicit_reads, shared)


def find_shared_resources(
    snapshot: Snapshot, agents: Mapping[str, Agent], capabilities: Sequence[Capability]
) -> list[SharedResource]:
    """Return the resources besides files that turns of these agents share."""
    query = OrgQuery(SharedResource, snapshot.org, agents, snapshot.config)
    return [resource for capability in capabilities for resource in query.ask(capability)]


def skip_idle(
    snapshot: Snapshot, started: Collection[str], root: int, dependencies: TurnDependencies
) -> dict[str, TurnReport]:
    """Return the reports of the turns that can be skipped without a check, in order.

    An agent qualifies if it had no news before, nothing has changed since, and no turn of this tick can
    affect it. A turn already started does not qualify. `root` is a descriptor of the organisation's open
    folder.
    """
    order, idle_cache = snapshot.plan.order, snapshot.idle_cache
    reports = {
        name: report
        for name in order
        if name in idle_cache.news_driven
        and name not in started
        and (report := idle_cache.get_report(name, snapshot.mail, root))
    }
    writers = [name for name in order if name not in reports]
    while reports and (woken := find_affected_agents(writers, reports, dependencies)):
        for name in woken:
            del reports[name]
        writers = [*woken]  # an agent that may take a turn may reach others
    return reports
