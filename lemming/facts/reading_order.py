"""Who reads what others write in a tick only in the next one, because his name comes before theirs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lemming.agents import Agent
from lemming.org.config import Config
from lemming.org.schedule import fire_point
from lemming.tick.plan import takes_turns


def waits_for_its_name(
    agents: Mapping[str, Agent], config: Config, concerned: Iterable[str]
) -> Iterator[str]:
    """Yield a sentence for each agent that reads one behind it in the order of a tick, and not the reverse.

    `concerned`: the agents of which something is said, as readers or as those who are read. Two who read each
    other are left out: one of them always waits.
    """
    wanted = {*concerned} if config.org.visibility == "order" else set()
    for name, agent in sorted(agents.items()):
        for other in agent.permissions.read_outboxes:
            author = agents.get(other)
            if author is None or not {name, other} & wanted or not takes_turns(author, config):
                continue
            is_first = (fire_point(agent.schedule), name) < (fire_point(author.schedule), other)
            if takes_turns(agent, config) and is_first and name not in author.permissions.read_outboxes:
                yield (
                    f"{name} comes before {other} in a tick, by its name, and reads it in the next one: "
                    f"`lemming agents rename` gives a name behind it"
                )
