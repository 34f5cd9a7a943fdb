"""A preview of the next tick in the present state: the due agents and their prompts. Read-only, without a lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lemming.kernel.agents import Survey
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.journal_file import journal_ticks, read_journal
from lemming.kernel.journal.journal_parser import find_tick_started
from lemming.kernel.journal.journal_records import TurnEnded, TurnStarted
from lemming.kernel.journal.tick_plan import TickPlan
from lemming.kernel.journal.turn_report import TurnReason
from lemming.kernel.org.capability_usage import find_used_capabilities, resolve_credits
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.plugins.capability_loader import can_be_unimported
from lemming.kernel.tick.context_builder import build_tick_context
from lemming.kernel.tick.error_boundary import isolate, to_skip_reason
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tick.tick_hooks import previous_reading
from lemming.kernel.tick_context import TickContext
from lemming.kernel.turn.prompt_input import PromptInput
from lemming.kernel.turn.turn_inputs import from_record, gather_inputs
from lemming.kernel.turn.turn_values import TurnInputs
from lemming.kernel.turn.wake_check import turn_reason
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.operations.named_agents import choose_agents


def load_inspection_settings(org: OrgPath) -> Config:
    """Load the settings without tool files and without importing plugins: read-only commands run no foreign code.

    Names that only foreign code defines, such as its tools, stay unknown. Raises `ConfigError`.
    """
    config = load_config(org)
    return replace(config, org=replace(config.org, tool_files=[])) if config.org.tool_files else config


class PreparedPrompt(NamedTuple):
    """The inputs of a turn, the prompt sections after its instructions, and the prompt input.

    `prompt_input` is None for an interrupted turn, because only the finished prompt is on record.
    """

    inputs: TurnInputs
    added_sections: Sequence[str] = ()
    prompt_input: PromptInput | None = None


@dataclass(frozen=True)
class TickPreview:
    """A tick that has not finished. `started` and `ended` contain the records of its turns."""

    tick_context: TickContext
    started: dict[str, TurnStarted]
    ended: dict[str, TurnEnded]

    @property
    def tick(self) -> int:
        """The number of the tick."""
        return self.tick_context.tick

    @property
    def plan(self) -> TickPlan:
        """The due agents, in order."""
        return self.tick_context.plan

    @property
    def survey(self) -> Survey:
        """The agents of the organisation."""
        return self.tick_context.survey

    @property
    def is_interrupted(self) -> bool:
        """True if the tick was already started."""
        return bool(self.started or self.ended)

    def explain_turn(self, name: str) -> TurnReason:
        """Return the reason an agent would take or skip a turn in this tick, before earlier agents have written."""
        if name in self.ended:
            return TurnReason("ended", f"already {self.ended[name].report.status} in this tick")
        if name in self.survey.broken:
            return TurnReason("broken", str(self.survey.broken[name]), "ConfigError")
        if name not in self.plan.order:
            return self.plan.turn_reasons[name]
        if name in self.started and name in self.survey.agents:
            return TurnReason("begun", "its turn was interrupted, and continues")
        reason = isolate(lambda: turn_reason(self.tick_context, name))
        if not isinstance(reason, Exception):
            return reason
        config = self.tick_context.config
        capability_names = find_used_capabilities(self.survey.agents[name], config)
        is_unknown = any(can_be_unimported(capability_name, config.org.plugins) for capability_name in capability_names)
        return TurnReason("due", str(reason)) if is_unknown else to_skip_reason(reason)

    def build_prompt(self, name: str) -> PreparedPrompt:
        """Return an agent's prompt with its sources, even if the agent would skip the turn.

        Raises `UsageError` for an agent that waits for other agents: their answers are part of the next prompt.
        """
        if name in self.started and name not in self.ended:
            return PreparedPrompt(from_record(self.started[name], self.tick, self.plan.at))
        tick_context, agent = self.tick_context, self.survey.agents[name]
        allocation = resolve_credits(tick_context.config, name, agent.credits)
        unlimited_credits = AgentCredits(max_credits=None, soft_cap=allocation.soft_cap)
        other_allocations = {key: value for key, value in tick_context.config.allocations.items() if key != name}
        always_due_agent = replace(agent, credits=unlimited_credits, schedule=replace(agent.schedule, wake="always"))
        prepared = gather_inputs(tick_context, name, is_preview=True)
        if isinstance(prepared, TurnReason):  # otherwise decided by the turn: the agent's wake mode defines news
            unlimited = replace(
                tick_context,
                config=replace(tick_context.config, allocations=other_allocations),
                survey=replace(tick_context.survey, agents={**tick_context.survey.agents, name: always_due_agent}),
            )
            prepared = gather_inputs(unlimited, name, is_preview=True)
        if isinstance(prepared, TurnReason):
            message = f"{name} would not be called now: {prepared.text}"
            raise UsageError(message, hint="see `lemming waiting` for what waits for a person")
        return PreparedPrompt(replace(prepared.inputs, agent=agent), prepared.prefix.sections, prepared.prompt_input)

    def find_predecessors(self, name: str) -> list[str]:
        """Return the agents that go before this agent in the tick and write entries the agent would still read."""
        reader = self.survey.agents.get(name)
        if self.tick_context.config.org.visibility == "tick" or reader is None or name not in self.plan.order:
            return []
        predecessors = self.plan.order[: self.plan.order.index(name)]
        return [other for other in predecessors if reader.may_read(other) and other not in self.ended]


def preview_tick(base: OrgPath, config: Config, agents: Sequence[str] = ()) -> TickPreview:
    """Return a preview of the tick in `tick.json`, or of an interrupted one's plan. `agents`: only these are due."""
    tick = load_tick(base)
    records = read_journal(base, tick)
    started = find_tick_started(records)
    tick_context = build_tick_context(
        Organisation.from_path(base),
        config,
        tick,
        TickPlan.from_record(started) if started else None,
        at=timestamp(SystemClock().now()),
        since=lambda: previous_reading(base, tick, journal_ticks(base, with_sealed=False)),
    )
    if agents and not started:
        tick_context = choose_agents(tick_context, agents)
    # entries written by turns of this tick so far: later turns read them
    turn_ends, entry_counts = [record for record in records if isinstance(record, TurnEnded)], Counter[str]()
    for record in turn_ends:
        entry_counts[record.agent_name] += len(record.report.entries)
    for record in turn_ends:
        entry_ids = {entry["id"] for entry in record.report.entries}
        limit = 2 * entry_counts[record.agent_name]
        own_entries = read_outbox_entries(base, record.agent_name, limit) if entry_ids else []
        tick_context.mail.add(record.agent_name, [entry for entry in own_entries if entry.id in entry_ids], record.turn)
    started_turns = {record.agent: record for record in records if isinstance(record, TurnStarted)}
    ended_turn_keys = {record.turn_key for record in turn_ends}
    # an agent is done once the last of its turns that began is
    ended = {
        turn_end.agent_name: turn_end
        for turn_end in turn_ends
        if turn_end.agent_name not in started_turns or started_turns[turn_end.agent_name].turn_key in ended_turn_keys
    }
    return TickPreview(tick_context, started_turns, ended)
