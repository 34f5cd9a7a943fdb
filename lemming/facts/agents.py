"""One agent: what its resume means, where it stands, what it has spent."""

from __future__ import annotations

from typing import Any, NamedTuple

from lemming.agents import Agent
from lemming.facts.accounts import Account, account_of
from lemming.facts.next_turn import NextTurn, next_turn
from lemming.journal.ledger import AgentState, read_state
from lemming.org.config import Config
from lemming.org.organisation import OrgPath
from lemming.tick.counter import load_tick
from lemming.tick.soundness.judged import sound_survey


class AgentShown(NamedTuple):
    """An agent, who reads it, how its last turn left it, what it has spent, when it is due next."""

    agent: Agent
    readers: list[str]
    state: AgentState
    account: Account
    coming: NextTurn

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        plain = {"agent": self.agent.name, "resume": self.agent.plain, "problem": ""}
        return {**plain, "readers": self.readers, "state": self.state.as_json()}


def agent_shown(base: OrgPath, agent: Agent, config: Config) -> AgentShown:
    """Return an agent as it stands; raise `CorruptState` for a damaged ledger."""
    readers = sorted(each.name for each in sound_survey(base).agents.values() if each.may_read(agent.name))
    coming = next_turn(base, agent, config, load_tick(base))
    state = read_state(base, agent.name)
    return AgentShown(agent, readers, state, account_of(base, agent, config), coming)
