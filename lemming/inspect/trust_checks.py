"""What is wrong with how far an organisation says that texts are trusted: rules that concern nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lemming.agents import Agent, nearest_agent
from lemming.config import ORG_FILE, Config
from lemming.errors import Problem
from lemming.org_blocks import Trust
from lemming.patterns import is_named
from lemming.tick.plan import is_for_channels


def problems_of_trust(trust: Trust, agents: Mapping[str, Agent], config: Config) -> Iterator[Problem]:
    """Yield a warning for each rule that is about nobody here, and for one that can never be reached."""
    channels = {name for name, agent in agents.items() if is_for_channels(agent.model.key, config)}
    for number, rule in enumerate(trust.rules):
        named = {name for name in agents if is_named(name, rule.from_)}
        earlier = [it for it in trust.rules[:number] if not it.when and is_named(rule.from_, it.from_)]
        if not named:
            hint = nearest_agent(rule.from_, sorted(agents))
            yield _warning(number, "from", f'"{rule.from_}" is the name of no agent', hint)
        elif rule.when and not named & channels:
            hint = "only what a channel has verified can be looked at; take `when` out"
            yield _warning(number, "when", f'no channel speaks for "{rule.from_}"', hint)
        elif earlier:
            hint = "the first rule that fits counts: move it up"
            yield _warning(
                number, "from", f'an earlier rule ("{earlier[0].from_}") is about all of these', hint
            )


def _warning(number: int, key: str, message: str, hint: str) -> Problem:
    pointer = f"/trust/rules/{number}/{key}"
    return Problem(message, ORG_FILE, pointer=pointer, hint=hint, severity="warning")
