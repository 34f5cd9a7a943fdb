"""Write and commit turn outcomes: immediately, or all together after one flush with durability "tick".

    answer < effects < commit

An effect reaches the disk only after its answers survive as the durability setting promises. With "tick", one
flush covers all turns: outcomes are deferred until the flush, and readers of files in the meantime see the
deferred content.

An unreadable ledger line would block its agent for good. A state is therefore read back before any file of the turn is
written, and unreadable values keep their content from before the turn.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError, Problem, TurnBroke, error_code
from lemming.kernel.files import fs
from lemming.kernel.files.file_effects import FileEffect, apply_effect
from lemming.kernel.files.safe_folder import Folder
from lemming.kernel.files.stat_cache import Identity, file_identity, has_stable_mtime
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import TurnAnswered, TurnCommitted, TurnEnded
from lemming.kernel.journal.ledger import AgentState, OpenLedger, read_state, require_readable
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.logging_config import EngineLog, LogFile
from lemming.kernel.memory import MEMORY_LIMIT_BYTES, MemoryFolders
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick_context import TickContext
from lemming.kernel.turn.turn_values import TurnOutcome


class SeenMemories:
    """Digests of the memories as a tick's turns saw them: a memory that a person set since is not overwritten.

    For a turn interrupted by a crash they are unknown, and the turn writes its memories unconditionally.
    """

    def __init__(self) -> None:
        self.digests: dict[str, Mapping[str, str] | None] = {}  # by agent; None if unknown
        self._written: dict[str, str] = {}  # digests of writes by turns of this tick

    def has_changed(self, org: Organisation, agent: str, effect: FileEffect, digest: str) -> bool:
        """Return True if another author has changed an effect's memory file since the turn began."""
        seen_digests, path = self.digests.get(agent), effect.path
        if seen_digests is None or effect.root or not path.startswith(f"agents/{agent}/memory/"):
            return False
        # The effect's own digest counts too: the same value from another author is no conflict.
        key = path.rpartition("/")[2].removesuffix(".json")
        expected = (seen_digests.get(key), self._written.get(path), digest)
        # The file was read as the turn began: its stamp nearly always shows that it is unchanged.
        current_digest = org.files.find_unchanged_digest(path)
        if current_digest and current_digest in expected:
            return False
        try:
            raw = fs.read_bytes(f"{org}/{path}", 2 * MEMORY_LIMIT_BYTES)  # a file holds more than the value
        except OSError:  # missing or unreadable: applying the effect decides
            return False
        return sha256(raw).hexdigest() not in expected

    def record_write(self, path_key: str, digest: str) -> None:
        """Record a turn's write: all turns of the agent in the tick may overwrite the file."""
        self._written[path_key] = digest


@dataclass
class Commits:
    """The committed turns of a tick, used under the turn lock.

    `reports`: the report of each turn by turn key. `states`: each agent's state after its latest turn in the tick.
    """

    runtime: Runtime
    journal: Journal
    mail: MailView
    settings: OrgSettings
    log: EngineLog = field(init=False)
    agents: AgentHandleCache = field(init=False)
    reports: dict[str, TurnReport] = field(default_factory=dict)
    states: dict[str, AgentState] = field(default_factory=dict)
    seen_memories: SeenMemories = field(default_factory=SeenMemories)
    unwritten_files: dict[str, bytes] = field(default_factory=dict)  # content not yet on disk, by `path_key`
    _deferred: list[tuple[TurnOutcome, bool, bool]] = field(default_factory=list)  # with is_replay, has_warned
    _unwritten_paths: set[str] = field(default_factory=set)

    @classmethod
    def from_tick_context(cls, runtime: Runtime, journal: Journal, tick_context: TickContext) -> Commits:
        """Return the commits of a tick, with the reports shared by the turns."""
        return cls(runtime, journal, tick_context.open_mail(), tick_context.config.org, reports=tick_context.reports)

    def __post_init__(self) -> None:
        self.log, self.agents = (self.runtime.org.get_cache(EngineLog), self.runtime.org.get_cache(AgentHandleCache))

    @property
    def unwritten_paths(self) -> Collection[str]:
        """Paths of `unwritten_files` and of their parent folders."""
        if self.unwritten_files and not self._unwritten_paths:
            for path in self.unwritten_files:
                while path and path not in self._unwritten_paths:
                    self._unwritten_paths.add(path)
                    path = path.rpartition("/")[0]
            self._unwritten_paths.add(".")
        return self._unwritten_paths

    def commit_turn(
        self,
        outcome: TurnOutcome,
        *,
        is_replay: bool = False,
        has_warned: bool = False,
        memory_digests: Mapping[str, str] | None = None,
    ) -> None:
        """Write a turn's files and commit the turn, immediately or deferred with all others.

        `is_replay`: an earlier attempt may have written files. `has_warned`: the prompt warned of the soft
        cap. `memory_digests`: the agent's memories at the start of the turn.
        """
        self.seen_memories.digests[outcome.report.agent] = memory_digests
        outcome = _require_readable_state(self.runtime.org, outcome, self.states.get(outcome.report.agent))
        if self.settings.durability != "tick":
            self._commit_outcome(outcome, is_replay=is_replay, has_warned=has_warned)
            return
        report = outcome.report
        number = {"turn": report.turn} if report.turn else {}
        self.journal.append(TurnAnswered(agent=report.agent, **number))
        self._deferred.append((outcome, is_replay, has_warned))
        self.unwritten_files.update({effect.path_key: effect.content for effect in outcome.effects})
        self._unwritten_paths.clear()
        self._publish_entries(outcome)
        self.reports[report.turn_key] = report
        self.states[report.agent] = outcome.state
        if report.removed:  # readers can be shown deferred content, but no deferred removal
            self.write_deferred()

    def write_deferred(self) -> None:
        """Flush all answers to disk, then write and commit the deferred turns."""
        if self._deferred:
            self.journal.sync()
            while self._deferred:
                # Removed after its commit: a turn whose write the disk refuses stays deferred.
                outcome, is_replay, has_warned = self._deferred[0]
                self._commit_outcome(outcome, is_replay=is_replay, has_warned=has_warned)
                del self._deferred[0]
            self.unwritten_files = {}
            self._unwritten_paths.clear()

    def rewrite_turn(self, outcome: TurnOutcome) -> None:
        """Write the files of a turn committed before the machine crashed."""
        if agent := self.agents.get_handles(outcome.report.agent):
            self._write_files(outcome, agent, is_replay=True)
            self._publish_entries(outcome)

    def record_end(self, ended: TurnEnded, agent: AgentHandles | None = None) -> None:
        """Record the end of a turn in journal, reports and logs."""
        report = ended.report
        self.journal.append(ended)
        self.reports[report.turn_key] = report
        if report.status == "skipped" and not report.error:  # the journal alone says that nothing is new
            return
        facts: dict[str, Any] = {"status": report.status, "reason": report.reason}
        if report.error:
            facts["code"] = error_code(report.error)
        facts["entries"] = len(report.entries)
        facts["calls"], facts["credits"] = report.calls, report.credits
        facts["duration_ms"] = report.duration_ms
        action = report.status if report.status in ("skipped", "failed") else "completed"
        agent = agent or self.agents.get_handles(report.agent)
        agent_log = agent.log if agent else None
        self.log.log_turn(report.agent, self.journal.tick, action, facts, report.notes, agent_log)

    def is_removed(self, agent: str) -> bool:
        """Return True if the agent was removed since the tick began; nothing is written for a removed agent."""
        return self.agents.get_handles(agent) is None

    def _commit_outcome(self, outcome: TurnOutcome, *, is_replay: bool, has_warned: bool) -> None:
        agent = self.agents.get_handles(outcome.report.agent)
        if agent is None:
            removed_error = DiskError("the agent was removed", where=paths.agent_folder(outcome.report.agent))
            outcome = _to_write_failure(outcome, str(removed_error))
            self.record_end(TurnCommitted(report=outcome.report, state=outcome.state.as_json()))
            return
        try:
            self._write_files(outcome, agent, is_replay=is_replay)
        except DiskError as error:
            if not error.concerns_one_file:
                raise
            # Again without the files: the cost of the turn must reach the ledger.
            outcome = _to_write_failure(outcome, str(error))
            self._write_files(outcome, agent, is_replay=is_replay)
        report = outcome.report
        self.states[report.agent] = outcome.state
        if report.turn_key not in self.reports:  # a deferred turn has published its entries already
            self._publish_entries(outcome)
        if report.status == "failed":
            self.record_end(TurnCommitted(report=report, state=outcome.state.as_json()), agent)
            return
        self.record_end(TurnCommitted(report=report), agent)
        if has_warned:
            tick, spent = self.journal.tick, outcome.state.credits
            self.log.warning("soft_cap_reached", agent=report.agent, tick=tick, credits=spent)

    def _write_files(self, outcome: TurnOutcome, agent: AgentHandles, *, is_replay: bool) -> None:
        """Write a turn's files: memories and workspace, then the outbox, then the agent's new state.

        An entry is paid for and awaited: a write error on an entry ends the run, as on a full disk, and the
        next run writes the entry from the journal.
        """
        # Before any file: a power cut must not keep a file and lose the answer that caused it.
        self.journal.sync_agent(outcome.report.agent)
        org, effects, entries = self.runtime.org, outcome.effects, outcome.entries
        first = len(effects) - len(entries)
        digests = {file["path"]: file["sha256"] for file in outcome.report.files}
        for effect in effects[:first]:
            name, path_key = outcome.report.agent, effect.path_key
            digest = digests.get(path_key, "")
            # A value that a person set during the turn stays: the model decided without having seen it.
            if not is_replay and self.seen_memories.has_changed(org, name, effect, digest):
                self._report_outside_memory(name, effect)
                continue
            self.seen_memories.record_write(path_key, digest)
            # An earlier attempt may have written the file: only `apply_effect` checks for that.
            if effect.memory_value is None or is_replay:
                apply_effect(org.base, effect, is_replay=is_replay)
                continue
            path, content, old_status = effect.path, effect.content, agent.memory.status()
            status = agent.memory.write_file(path.rpartition("/")[2], content)
            org.files.record_write(path, effect.memory_value, content, status, digest=digest)
            statuses = old_status, agent.memory.status()
            org.get_cache(MemoryFolders).record_written(outcome.report.agent, effect.memory_value["key"], statuses)
        try:
            for number, (effect, entry) in enumerate(zip(effects[first:], entries, strict=True)):
                if is_replay:
                    apply_effect(org.base, effect, is_replay=True)
                else:
                    old_status = agent.outbox.status()
                    agent.outbox.write_file(effect.path.rpartition("/")[2], effect.content, is_new=True)
                    statuses = old_status, agent.outbox.status()
                    self.mail.record_written(number, entry, statuses, outcome.report.turn)
        except DiskError as error:
            error.concerns_one_file = False
            raise
        # Last: a line in the ledger proves that the other files of the turn were written.
        agent.ledger.write(outcome.state)

    def _report_outside_memory(self, agent: str, effect: FileEffect) -> None:
        key, tick = effect.path.rpartition("/")[2].removesuffix(".json"), self.journal.tick
        message = (
            f'{agent} wrote its memory "{key}" in tick {tick}, but it was set from outside during the turn: the outside '
            "value stays"
        )
        hint = f"see what the turn wrote with `lemming tick {tick}`"
        self.runtime.report_problem(Problem(message, effect.path, hint=hint, severity="warning"), agent)

    def _publish_entries(self, outcome: TurnOutcome) -> None:
        self.mail.add(outcome.report.agent, outcome.entries, outcome.report.turn)


def _to_write_failure(outcome: TurnOutcome, cause: str) -> TurnOutcome:
    """Return the outcome as a turn that failed while writing; some of its files may exist."""
    reason = f"not all files of the turn could be written: {cause}"
    return _to_failed_outcome(outcome, outcome.state_if_unwritten(), reason, "DiskError")


def _require_readable_state(org: Organisation, outcome: TurnOutcome, earlier: AgentState | None = None) -> TurnOutcome:
    """Return the outcome, or a failed turn without files if its state could not be read back."""
    try:
        require_readable(outcome.state)
    except ValueError as error:
        previous_state = earlier or read_state(org, outcome.report.agent, before_tick=outcome.state.tick)
        largest = max(outcome.state.kept, key=lambda name: len(str(outcome.state.kept[name])), default="")
        note = f"; the largest part is of {largest}" if largest else ""
        reason = f"the turn's state for the next turn could not be read back: {error}{note}"
        # Unreadable values are replaced by those of the previous state.
        state, last_state = previous_state.copy(), outcome.state_if_unwritten()
        for state_field in fields(AgentState):
            candidate = replace(state, **{state_field.name: getattr(last_state, state_field.name)})
            with suppress(ValueError):
                require_readable(candidate)
                state = candidate
        return _to_failed_outcome(outcome, state, reason, TurnBroke.__name__, files=[], removed=[], memory=[])
    return outcome


def _to_failed_outcome(
    outcome: TurnOutcome, state: AgentState, reason: str, error: str, **cleared_fields: list[Any]
) -> TurnOutcome:
    failed = {"status": "failed", "reason": reason, "error": error, "entries": [], **cleared_fields}
    return TurnOutcome(TurnReport(**{**vars(outcome.report), **failed}), state, lambda: state)


OPEN_FILES_DIVISOR = 16
"""Each agent keeps four files open: so all of them use a quarter of what the process may open."""
MAX_AGENTS = 256


class AgentHandles:
    """Open handles of an agent's folder; valid while the folder's `identity` is unchanged."""

    def __init__(self, org: Organisation, name: str, identity: Identity) -> None:
        self._org, self._name, self.identity = org, name, identity
        # A change within the same granule of the clock is invisible: handles opened then are not kept.
        self.is_cacheable = has_stable_mtime(identity, time.time_ns())

    @cached_property
    def outbox(self) -> Folder:
        """The agent's outbox."""
        return Folder(self._org.base, paths.outbox_folder(self._name))

    @cached_property
    def memory(self) -> Folder:
        """The agent's memory."""
        return Folder(self._org.base, paths.memory_folder(self._name))

    @cached_property
    def ledger(self) -> OpenLedger:
        """The agent's ledger."""
        return OpenLedger(self._org, self._name)

    @cached_property
    def log(self) -> LogFile:
        """The agent's activity log."""
        return LogFile(self._org.base, paths.activity_log(self._name))

    def close(self) -> None:
        """Close all handles."""
        for handle in vars(self).values():
            if isinstance(handle, Folder | OpenLedger | LogFile):
                handle.close()


class AgentHandleCache:
    """Open handles of an organisation's agents, up to a maximum number."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._base = org, str(org.base)
        self._handles: dict[str, AgentHandles] = {}
        self._max_agents = min(MAX_AGENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // OPEN_FILES_DIVISOR)

    def get_handles(self, agent: str) -> AgentHandles | None:
        """Return the open handles of an agent, or None for a removed agent."""
        cached = self._handles.get(agent)
        try:
            identity = file_identity(f"{self._base}/{paths.agent_folder(agent)}")
        except OSError:
            identity = None
        if cached:
            if cached.is_cacheable and cached.identity == identity:
                return cached
            self._handles.pop(agent).close()
        if identity is None:
            return None
        if len(self._handles) >= self._max_agents:  # agents come round in order: the newest is needed last
            self._handles.popitem()[1].close()
        handles = self._handles[agent] = AgentHandles(self._org, agent, identity)
        return handles

    def close(self) -> None:
        """Close all handles; a later call reopens them."""
        while self._handles:
            self._handles.popitem()[1].close()
