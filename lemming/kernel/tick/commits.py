"""What turns came to, written: at once, or with durability "tick" all together after one flush.

    answer < effects < commit

An effect reaches the disk only after the answers it follows from survive what the durability promises.
With "tick" that is one flush for all turns, so their outcomes are held until then, and whoever looks at
files meanwhile is shown what is held.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError, code_of
from lemming.kernel.files.effects import apply_effect
from lemming.kernel.journal.file import Journal
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.records import TurnAnswered, TurnCommitted, TurnEnded
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.mail.visibility import Mail
from lemming.kernel.memory import MemoryFolders
from lemming.kernel.org.config import Org
from lemming.kernel.tick.failed_at_the_end import to_write_failure, with_readable_state
from lemming.kernel.tick.memories_seen import MemoriesSeen, to_memory_warning
from lemming.kernel.tick.open_agents import OpenAgent, OpenAgents
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.turn.values import TurnOutcome


@dataclass(frozen=True)
class _Held:
    outcome: TurnOutcome
    again: bool
    warned: bool


@dataclass
class Commits:
    """The committed turns of one tick. `reports` holds what became of each so far, by its key.

    `states`: where each agent stands after its latest turn in the tick.

    Turns call it while they hold the turn lock, so one at a time.
    """

    runtime: Runtime
    journal: Journal
    mail: Mail
    settings: Org
    log: EngineLog = field(init=False)
    agents: OpenAgents = field(init=False)
    reports: dict[str, TurnReport] = field(default_factory=dict)
    states: dict[str, AgentState] = field(default_factory=dict)
    memories: MemoriesSeen = field(default_factory=MemoriesSeen)
    _held: list[_Held] = field(default_factory=list)
    _held_files: dict[str, bytes] = field(default_factory=dict)
    _held_paths: set[str] = field(default_factory=set)

    @classmethod
    def begin(cls, runtime: Runtime, journal: Journal, snapshot: Snapshot) -> Commits:
        """Return the commits of a tick whose turns are shown each other's reports."""
        return cls(runtime, journal, snapshot.open_mail(), snapshot.config.org, reports=snapshot.reports)

    def __post_init__(self) -> None:
        self.log, self.agents = self.runtime.org.own(EngineLog), self.runtime.org.own(OpenAgents)

    @property
    def held_files(self) -> Mapping[str, bytes]:
        """What is not on the disk yet, by `FileEffect.place`."""
        return self._held_files

    @property
    def held_paths(self) -> Collection[str]:
        """The places of `held_files`, and the folders above them."""
        if self._held_files and not self._held_paths:
            for path in self._held_files:
                while path and path not in self._held_paths:
                    self._held_paths.add(path)
                    path = path.rpartition("/")[0]
            self._held_paths.add(".")
        return self._held_paths

    def add(
        self,
        outcome: TurnOutcome,
        *,
        again: bool = False,
        warned: bool = False,
        seen: Mapping[str, str] | None = None,
    ) -> None:
        """Write a turn's files and commit it, now or with all others. `again`: an earlier attempt may have.

        `warned`: its prompt said that the soft cap is reached. `seen`: its memories as it began.
        """
        self.memories.begin(outcome.report.agent, seen)
        outcome = with_readable_state(self.runtime.org, outcome, self.states.get(outcome.report.agent))
        if self.settings.durability != "tick":
            self._commit(outcome, again=again, warned=warned)
            return
        report = outcome.report
        number = {"turn": report.turn} if report.turn else {}
        self.journal.append(TurnAnswered(agent=report.agent, **number))
        self._held.append(_Held(outcome, again, warned))
        self._held_files.update({effect.place: effect.content for effect in outcome.effects})
        self._held_paths.clear()
        self._show(outcome)
        self.reports[report.turn_key] = report
        self.states[report.agent] = outcome.state
        if report.removed:  # what is held can be shown, what is gone cannot
            self.write_held()

    def write_held(self) -> None:
        """Make all answers so far survive power loss, then write and commit the turns that were held."""
        if self._held:
            self.journal.sync()
            while self._held:
                # Taken off once committed, so that what a refusal interrupts is still held.
                held = self._held[0]
                self._commit(held.outcome, again=held.again, warned=held.warned)
                del self._held[0]
            self._held_files = {}
            self._held_paths.clear()

    def write_again(self, outcome: TurnOutcome) -> None:
        """Write the files of a turn that was committed before the machine went down."""
        if agent := self.agents.of(outcome.report.agent):
            self._apply(outcome, agent, again=True)
            self._show(outcome)

    def end(self, ended: TurnEnded, agent: OpenAgent | None = None) -> None:
        """Record how a turn ended: in journal and reports and, unless nothing was new, in the logs."""
        report = ended.report
        self.journal.append(ended)
        self.reports[report.turn_key] = report
        if report.status == "skipped" and not report.error:  # nothing is new: the journal says so
            return
        facts: dict[str, Any] = {"status": report.status, "reason": report.reason}
        if report.error:
            facts["code"] = code_of(report.error)
        facts["entries"] = len(report.entries)
        facts["calls"], facts["credits"] = report.calls, report.credits
        facts["duration_ms"] = report.duration_ms
        action = report.status if report.status in ("skipped", "failed") else "completed"
        agent = agent or self.agents.of(report.agent)
        own = agent.log if agent else None
        self.log.turn(report.agent, self.journal.tick, action, facts, report.notes, own)

    def is_gone(self, agent: str) -> bool:
        """Return whether somebody removed the agent since the tick began: then nothing is written for it."""
        return self.agents.of(agent) is None

    def _commit(self, outcome: TurnOutcome, *, again: bool, warned: bool) -> None:
        agent = self.agents.of(outcome.report.agent)
        if agent is None:
            gone = DiskError("the agent was removed", where=paths.agent_folder(outcome.report.agent))
            outcome = to_write_failure(outcome, str(gone))
            self.end(TurnCommitted(report=outcome.report, state=outcome.state.as_json()))
            return
        try:
            self._apply(outcome, agent, again=again)
        except DiskError as error:
            if not error.concerns_one_file:
                raise
            # Once more, without the files: what the turn cost must be in the ledger.
            outcome = to_write_failure(outcome, str(error))
            self._apply(outcome, agent, again=again)
        report = outcome.report
        self.states[report.agent] = outcome.state
        if report.turn_key not in self.reports:  # one that was held has been shown
            self._show(outcome)
        if report.status == "failed":
            self.end(TurnCommitted(report=report, state=outcome.state.as_json()), agent)
            return
        self.end(TurnCommitted(report=report), agent)
        if warned:
            tick, spent = self.journal.tick, outcome.state.credits
            self.log.warning("soft_cap_reached", agent=report.agent, tick=tick, credits=spent)

    def _apply(self, outcome: TurnOutcome, agent: OpenAgent, *, again: bool) -> None:
        """Write a turn's files: memories and workspace, then the outbox, then the agent's new state.

        An entry is paid for and waited for: where it cannot be written the run ends, as on a full disk, and
        the next one writes it from the journal.
        """
        # Before any file: no power cut may keep a file and lose the answer that it follows from.
        self.journal.settle(outcome.report.agent)
        org, effects, entries = self.runtime.org, outcome.effects, outcome.entries
        first = len(effects) - len(entries)
        digests = {file["path"]: file["sha256"] for file in outcome.report.files}
        for effect in effects[:first]:
            name, place = outcome.report.agent, effect.place
            digest = digests.get(place, "")
            if not again and self.memories.has_changed(org, name, effect, digest):
                self.runtime.tell(to_memory_warning(name, effect, self.journal.tick), name)
                continue
            self.memories.wrote(place, digest)
            # An earlier attempt may have written it, which only `apply_effect` looks at.
            if effect.says is None or again:
                apply_effect(org.base, effect, again=again)
                continue
            path, content, before = effect.path, effect.content, agent.memory.status()
            status = agent.memory.put(path.rpartition("/")[2], content)
            org.files.wrote(path, effect.says, content, status, digest=digest)
            around = before, agent.memory.status()
            org.own(MemoryFolders).written(outcome.report.agent, effect.says["key"], around)
        try:
            for number, (effect, entry) in enumerate(zip(effects[first:], entries, strict=True)):
                if again:
                    apply_effect(org.base, effect, again=True)
                else:
                    before = agent.outbox.status()
                    agent.outbox.add(effect.path.rpartition("/")[2], effect.content)
                    around = before, agent.outbox.status()
                    self.mail.written(number, entry, around, outcome.report.turn)
        except DiskError as error:
            error.concerns_one_file = False
            raise
        # Last: that a ledger has the line says that the turn's other files are there.
        agent.ledger.write(outcome.state)

    def _show(self, outcome: TurnOutcome) -> None:
        """Let the others see what the turn wrote."""
        self.mail.add(outcome.report.agent, outcome.entries, outcome.report.turn)
