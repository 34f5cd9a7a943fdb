"""What gates do in a turn: they look at what it is shown, and at what it writes. Rules: docs/gates.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from lemming.capabilities.gates.format import GATES
from lemming.capabilities.gates.keys import gates_in, rules_for
from lemming.capabilities.gates.looking import rules_at
from lemming.capabilities.gates.shown import look_at_shown
from lemming.capabilities.gates.tool_calls import CallGates
from lemming.capabilities.gates.written import OutGates
from lemming.kernel.access.trust import Reach
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import Problem
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.file import Journal
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.org.config import Config, Org
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.soundness.inventory import Inventory
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.moments import TickLimits
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.places import CallLookout, LetsIn, Lookout, Shared, ToShow
from lemming.kernel.turn.seams import Capability, Moment, Preparation, Showing, TurnPart
from lemming.kernel.turn.seen import Seen
from lemming.kernel.turn.values import TurnInputs


class Gates(Capability):
    """Gates at what turns are shown and write, which the key `gates` of settings and resumes has."""

    name = GATES

    def prepare(self, moment: Moment) -> Preparation:
        """Return what it has of what a turn starts from."""
        return GatesPreparation(moment)

    def model_of(self, given: Json, key: str) -> ModelEntry | None:
        """Return the line that a program would have that judges for a gate."""
        judges = [rule["judge"] for rule in given.get("rules", ()) if "judge" in rule]
        if not judges:
            return None
        from lemming.capabilities.judges.judge import entry_of_command  # only where there are any

        return entry_of_command(judges, key)

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return its part in a turn at whose places there are gates."""
        return GatesPart(self.name, draft, given)

    def looks_at_calls(self, now: Surroundings, inputs: TurnInputs) -> CallLookout | None:
        """Return the gates at a turn's calls and at what they give; None where there are none."""
        return CallGates.of(inputs.agent, now.config.org, inputs.tick)

    def limits(
        self, now: Surroundings, journal: Journal, order: Sequence[str], reports: Mapping[str, TurnReport]
    ) -> TickLimits | None:
        """Return the limits of what a tick's turns may spend; None where there are none."""
        from lemming.capabilities.gates.spending import TickSpending

        return TickSpending.of_tick(now, journal, order, reports)

    def shares(self, agents: Mapping[str, Agent], settings: Org) -> Iterable[Shared]:
        """Return the limits that turns share."""
        from lemming.capabilities.gates.shared_limits import shared_limits

        return shared_limits(agents, settings)

    def why_not(self, inputs: TurnInputs, now: Surroundings) -> str:
        """Return why a turn may not go on: a gate at what it writes stands that its record does not have."""
        agent, recorded = inputs.agent, inputs.given.get(GATES, {}).get("rules", ())
        known = [plain["gate"] for plain in recorded]
        rules = rules_at(rules_for(agent, now.config.org), "out")
        missing = (rule.line for rule in rules if rule.as_json()["gate"] not in known)
        line = next(missing, "")
        return f"a gate stands at {line} which the turn was not begun with" if line else ""

    def tools_named(self, said: Org | Agent) -> Iterable[str]:
        """Return the tools that gates name."""
        return (tool for gate in gates_in(said) for tool in gate.tools)

    def wrong_with(self, agent: Agent | None, known: Inventory) -> Iterator[tuple[str, str, str]]:
        """Yield what can never be in gates."""
        from lemming.capabilities.gates.soundness import wrong_with

        for place, gate in enumerate(gates_in(agent or known.config.org)):
            for it in wrong_with(gate, known, agent):
                yield it._replace(at=f"/gates/{place}{it.at}")

    def problems_of_key(self, base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
        """Yield the limits that cannot hold, and those who cannot judge."""
        from lemming.capabilities.gates.problems import problems_of_limits

        yield from problems_of_limits(base, agent, config)
        if any(gate.by for gate in gates_in(agent or config.org)):
            from lemming.capabilities.gates.judge_problems import problems_of_gate_judges

            yield from problems_of_gate_judges(base, agent, config)

    def reaches(
        self, org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
    ) -> Iterator[Reach]:
        """Yield the programs that judge at gates."""
        from lemming.capabilities.gates.judge_problems import programs_at_gates

        yield from programs_at_gates(org.base, config.org)
        for agent in agents:
            yield from programs_at_gates(org.base, agent)

    def problems_of_org(self, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
        """Yield a warning for each gate that does nothing, and for each agent that none keeps from acting."""
        from lemming.capabilities.gates.problems import problems_of_gates
        from lemming.capabilities.gates.strangers import problems_of_strangers

        yield from problems_of_gates(base, config, only)
        yield from problems_of_strangers(base, config, only)


class GatesPreparation(Preparation):
    """Has gates look at what a turn is to be shown."""

    def looks(self, offered: ToShow, lets_in: LetsIn) -> ToShow:
        """Return what a turn may be shown; raise `StoppedByGate` where there is to be none."""
        passed, self._given = look_at_shown(self.moment.now, self.moment.agent, offered, lets_in)
        return passed

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Say which files the judges of gates go by: what these say, the turn reads."""
        rules = [it for it in rules_for(self.moment.agent, self.moment.now.config.org) if it.gate.by]
        if rules:
            from lemming.capabilities.gates.judging import files_of_judges  # only where there are any

            seen.told_by = [*seen.told_by, *files_of_judges(self.moment.now, rules)]

    def given(self) -> Json:
        """Return the gates that the turn itself asks, what they go by, and what others said already."""
        rules = self._given.get("rules", ())
        # Turns begun up to 0.2.0 keep their notes as they came.
        notes = any(it["gate"].get("at") == "out" and it["gate"].get("redact") for it in rules)
        return {key: value for key, value in {**self._given, "notes": notes}.items() if value}


class GatesPart(TurnPart):
    """The gates of one turn. `given`: its `rules`, `channels`, what was `said_before`, and `verdicts`."""

    def __init__(self, name: str, draft: Draft, given: Json) -> None:
        super().__init__(name, draft, given)
        draft.verdicts += given.get("verdicts", ())
        self._out = OutGates(draft) if "rules" in given else None

    def watches(self) -> Lookout | None:
        """Return the gates at what the turn writes, and the judges that gates ask."""
        return self._out
