"""Spending limits during a tick: the verdicts of gates at `spend` on each model call.

    spent before the tick + spent in the tick by earlier turns + spent by this turn + maximum cost of the call

The sum is compared with the limit, as if turns ran one after another in their order. Turns with a shared
limit do: a turn waits for the earlier turns (`find_shared_limits`). The files of a tick do not depend on the
number of concurrent turns, and no call can exceed a limit.
"""

from __future__ import annotations

from lemming.capabilities.gates.gate_evaluation import rules_at_stage
from lemming.capabilities.gates.gate_settings import get_gates, rules_for_agent
from lemming.capabilities.gates.tick_spending import TickSpending
from lemming.capabilities.gates.turn_spending import TurnSpendingLimits
from lemming.ext import LivePhase, TickContext, TickScope
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.kernel.journal.ledger import AgentState, read_state


class TickSpendingLimits(TickSpending):
    """Spending limits of one tick. Turns call the limits under the turn lock, one at a time."""

    @classmethod
    def for_tick(cls, tick: TickScope) -> TickSpendingLimits | None:
        """Return the spending limits of a tick, or None if no gate limits spending."""
        tick_context, journal = tick.tick_context, tick.journal
        agents = tick_context.mail.resumes.values()  # the limit of one agent may count the spending of others
        gates = [*get_gates(tick_context.config.org), *(gate for agent in agents for gate in get_gates(agent))]
        if not any(gate.at == "spend" for gate in gates):
            return None
        starts = (record for record in journal.records if isinstance(record, TurnStarted))
        # A resumed turn counts from the state at its start, which its record holds.
        recorded_states = {record.agent: AgentState.from_json(record.state) for record in starts if not record.turn}
        initial_states = {
            name: recorded_states.get(name) or _load_agent_state(tick_context, name)
            for name in list_agent_folders(tick_context.org)
        }
        return cls(tick_context, journal, tick.order, tick_context.reports, initial_states)

    def limits_for_turn(self, phase: LivePhase) -> TurnSpendingLimits:
        """Return the spending limits of a new or resumed turn."""
        assert phase.count_spending, "a turn with a tick"
        rules = rules_at_stage(rules_for_agent(phase.inputs.agent, self.tick_context.config.org), "spend")
        return TurnSpendingLimits(self, phase.inputs, rules, phase.answers, phase.count_spending())


def find_turn_limits(phase: LivePhase) -> TurnSpendingLimits | None:
    """Return the spending limits of a turn, or None if nothing limits spending in its tick."""
    limits = phase.tick.get_cache(TickSpendingLimits.for_tick) if phase.tick else None
    return limits.limits_for_turn(phase) if limits else None


def _load_agent_state(tick_context: TickContext, name: str) -> AgentState | CorruptState:
    try:
        return read_state(tick_context.org, name, before_tick=tick_context.tick)
    # Kept as a value: only limits that count this agent let nothing be spent.
    except CorruptState as error:
        return error
