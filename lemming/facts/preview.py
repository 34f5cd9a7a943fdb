"""The next tick as it would begin now: who fires, and what each would be sent. Looks only, holds no lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lemming.kernel.agents import Survey
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.file import journal_ticks, read_journal
from lemming.kernel.journal.lookup import plan_in
from lemming.kernel.journal.records import TurnEnded, TurnStarted
from lemming.kernel.journal.report import Reason
from lemming.kernel.messages import read_outbox_entries
from lemming.kernel.org.config import Config, credits_of, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.org.uses import named_by
from lemming.kernel.plugins.capabilities import is_unknown_here
from lemming.kernel.tick.chosen import choose
from lemming.kernel.tick.clock_reading import previous_reading
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.edge import tried, why_not_begun
from lemming.kernel.tick.firing_plan import Plan
from lemming.kernel.tick.snapshot import Snapshot, take_snapshot
from lemming.kernel.turn.on_record import from_record
from lemming.kernel.turn.seen import Seen
from lemming.kernel.turn.values import TurnInputs


def settings_to_look_by(org: OrgPath) -> Config:
    """Return the settings without files of tools, and import no plugin: neither is code that a look runs.

    What only those would know, such as a tool of theirs, is not known then. Raises `ConfigError`.
    """
    config = load_config(org)
    return replace(config, org=replace(config.org, tool_files=[])) if config.org.tool_files else config


class Prompted(NamedTuple):
    """What a turn would start from, the sections after its instructions, and what its prompt is made of.

    `seen` is None for a turn that was interrupted: its record has the prompt alone.
    """

    inputs: TurnInputs
    added: Sequence[str] = ()
    seen: Seen | None = None


@dataclass(frozen=True)
class Preview:
    """A tick that has not run, or not to its end. `ended` and `started` hold the records of its turns."""

    snapshot: Snapshot
    started: dict[str, TurnStarted]
    ended: dict[str, TurnEnded]

    @property
    def tick(self) -> int:
        """The tick's number."""
        return self.snapshot.tick

    @property
    def plan(self) -> Plan:
        """Who is due, in what order."""
        return self.snapshot.plan

    @property
    def survey(self) -> Survey:
        """The agents there are."""
        return self.snapshot.survey

    @property
    def is_interrupted(self) -> bool:
        """Whether the tick was begun already."""
        return bool(self.started or self.ended)

    def reason_of(self, name: str) -> Reason:
        """Return why an agent would take a turn in this tick, or none, as things stand.

        Agents that go before it in this tick have not written yet.
        """
        if name in self.ended:
            return Reason("ended", f"already {self.ended[name].report.status} in this tick")
        if name in self.survey.broken:
            return Reason("broken", str(self.survey.broken[name]), "ConfigError")
        if name not in self.plan.order:
            return self.plan.reasons[name]
        if name in self.started and name in self.survey.agents:
            return Reason("begun", "its turn was interrupted, and goes on")
        found = tried(lambda: self.snapshot.reason_of(name))
        if not isinstance(found, Exception):
            return found
        config = self.snapshot.config
        named = named_by(self.survey.agents[name], config)
        is_unknown = any(is_unknown_here(it, config.org.plugins) for it in named)
        return Reason("due", str(found)) if is_unknown else why_not_begun(found)

    def inputs_regardless(self, name: str) -> TurnInputs:
        """Return what an agent's turn would start from if it took one now. Raises as `prompted`."""
        return self.prompted(name).inputs

    def prompted(self, name: str) -> Prompted:
        """Return an agent's prompt with what it is made of, even if it would take no turn now.

        Raises `UsageError` for one that waits for others: what they say is part of its next prompt.
        """
        if name in self.started and name not in self.ended:
            return Prompted(from_record(self.started[name], self.tick))
        now, agent = self.snapshot, self.survey.agents[name]
        allocation = credits_of(now.config, name, agent.credits)
        unlimited = AgentCredits(max_credits=None, soft_cap=allocation.soft_cap)
        others = {key: value for key, value in now.config.allocations.items() if key != name}
        eager = replace(agent, credits=unlimited, schedule=replace(agent.schedule, wake="always"))
        found = now.inputs_of(name)
        if isinstance(found, Reason):  # else it is the turn's own: how an agent wakes says what is new to it
            found = replace(
                now,
                config=replace(now.config, allocations=others),
                survey=replace(now.survey, agents={**now.survey.agents, name: eager}),
            ).inputs_of(name)
        if isinstance(found, Reason):
            why = f"{name} would be asked nothing now: {found.text}"
            raise UsageError(why, hint="`lemming waiting` shows what waits for a person")
        return Prompted(replace(found.inputs, agent=agent), found.opening.added, found.seen)

    def waits_for(self, name: str) -> list[str]:
        """Return the agents that go before this one in the tick and whose entries it would still see."""
        reader = self.survey.agents.get(name)
        if self.snapshot.config.org.visibility == "tick" or reader is None or name not in self.plan.order:
            return []
        before = self.plan.order[: self.plan.order.index(name)]
        return [other for other in before if reader.may_read(other) and other not in self.ended]


def preview_tick(base: OrgPath, config: Config, agents: Sequence[str] = ()) -> Preview:
    """Return the tick that `tick.json` names. One that was interrupted keeps the plan it began with.

    With `agents`, only the agents of these names are due in it.
    """
    tick = load_tick(base)
    records = read_journal(base, tick)
    started = plan_in(records)
    snapshot = take_snapshot(
        Organisation.at(base),
        config,
        tick,
        Plan.of(started) if started else None,
        at=timestamp(SystemClock().now()),
        since=lambda: previous_reading(base, tick, journal_ticks(base, with_sealed=False)),
    )
    if agents and not started:
        snapshot = choose(snapshot, agents)
    # what turns of this tick have written by now: those after them read it
    ends, count = [record for record in records if isinstance(record, TurnEnded)], Counter[str]()
    for record in ends:
        count[record.about] += len(record.report.entries)
    for record in ends:
        written = {entry["id"] for entry in record.report.entries}
        mine = read_outbox_entries(base, record.about, 2 * count[record.about]) if written else []
        snapshot.mail.add(record.about, [it for it in mine if it.id in written], record.turn)
    begun = {record.agent: record for record in records if isinstance(record, TurnStarted)}
    over = {record.turn_key for record in ends}
    # an agent is done once the last of its turns that began is
    ended = {it.about: it for it in ends if it.about not in begun or begun[it.about].turn_key in over}
    return Preview(snapshot, begun, ended)
