"""A tick in progress: its journal, and the start, resumption or replay of each turn.

A turn recorded in the journal is not run again: its outcome is derived from the record, and its missing files
are written.

A journal is a file. Editing one must not grant more than the agent's resume and the settings allow: no file outside the
agent's paths, and no model that `config/models.json` does not name for the agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from lemming.kernel.agents import Agent, load_agent
from lemming.kernel.base import paths
from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.errors import ConfigError, CorruptState, Problem, UnknownModel, error_name
from lemming.kernel.base.turn_numbers import TURNS_PER_TICK, list_turn_keys, turn_key
from lemming.kernel.files.disk_errors import FILE_ERRORS
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.journal.journal_file import OWN_LIMIT_BYTES, Journal, read_journal
from lemming.kernel.journal.journal_parser import (
    attempts_without_progress,
    find_start_and_end,
    find_tick_started,
    may_have_rebooted,
)
from lemming.kernel.journal.journal_records import (
    ModelReplied,
    Record,
    TickStarted,
    ToolFinished,
    TurnCommitted,
    TurnEnded,
    TurnStarted,
)
from lemming.kernel.journal.ledger import AgentState, read_state, write_state
from lemming.kernel.journal.tick_plan import TickPlan
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.org.capability_usage import find_used_capabilities, resolve_credits
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import AgentPermissions, FileAccess
from lemming.kernel.plugins.capability_table import LISTED
from lemming.kernel.tick.answer_source import JournaledAnswers
from lemming.kernel.tick.error_boundary import isolate, to_turn_error
from lemming.kernel.tick.recorded_answers import abandon_turn, restore_result
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.turn_commits import Commits
from lemming.kernel.tick.validation.checks import TurnSubject, find_check
from lemming.kernel.tick_context import TickContext
from lemming.kernel.tools import get_toolset
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.descriptions import OrgQuery, SharedResource
from lemming.kernel.turn.preparation_chain import active_capabilities, starting_capabilities
from lemming.kernel.turn.turn_hooks import Capability
from lemming.kernel.turn.turn_inputs import from_record
from lemming.kernel.turn.turn_loop import take_turn
from lemming.kernel.turn.turn_values import TurnInputs, TurnOutcome
from lemming.operations.turns.state_merge import join_outcome

if TYPE_CHECKING:
    from lemming.kernel.turn.live_phase import TickScope

_RUN_FIELDS = ("at_once", "chosen", "left_out")  # fields of the plan that are recorded only if set


@dataclass
class RunningTick:
    """A tick of an organisation. `is_stopped`: the operator stopped the tick before all turns were over."""

    runtime: Runtime
    journal: Journal
    tick_context: TickContext
    commits: Commits
    is_stopped: bool = False
    root: int = -1  # the organisation's folder, open as long as turns are taken

    @classmethod
    def start_or_resume(
        cls, runtime: Runtime, journal: Journal, tick_context: TickContext, previous: int | None
    ) -> RunningTick:
        """Start a tick, or resume an interrupted tick; `previous` is the previous tick with a journal."""
        if not journal.records:
            # This record fixes the plan: a resumed tick takes the same turns, whatever resumes say by then.
            plan, boot, since = tick_context.plan, runtime.clock.boot_id, tick_context.plan.since
            previous_fields = {"after": previous, "since": since} if since else {"after": previous}
            optional_fields: dict[str, Any] = {
                name: recorded for name, recorded in tick_context.servers.items() if recorded
            }
            optional_fields |= {key: value for key in _RUN_FIELDS if (value := getattr(plan, key))}
            optional_fields |= {"settings": {**recorded}} if (recorded := tick_context.config.digests) else {}
            journal.append(TickStarted(at=plan.at, boot=boot, **previous_fields, **plan.as_json(), **optional_fields))
            runtime.journaled_settings = recorded.keys()
        return cls(runtime, journal, tick_context, Commits.from_tick_context(runtime, journal, tick_context))

    @cached_property
    def _plugins(self) -> tuple[str, ...]:
        return tuple(self.tick_context.config.org.plugins)

    @property
    def plan(self) -> TickPlan:
        """The plan of the tick: the agents with a turn, in order."""
        return self.tick_context.plan

    @cached_property
    def active_capabilities(self) -> list[Capability]:
        """The capabilities in use."""
        return active_capabilities(self.tick_context.config, self.tick_context.survey)

    def count_attempts(self, name: str, turn: int) -> int:
        """Return the number of starts of a turn since its last progress."""
        return attempts_without_progress(self.journal.find_agent_records(name, turn))

    def iter_recorded_turns(self, name: str) -> Iterator[int]:
        """Yield the numbers of an agent's turns with records of an earlier attempt; at least 0."""
        yield 0
        yield from takewhile(lambda turn: self.journal.find_agent_records(name, turn), range(1, TURNS_PER_TICK))

    def report(self, began: float) -> TickReport:
        """Return the report of the tick; `began` is a `time.perf_counter()` reading."""
        reports = self.commits.reports
        return TickReport(
            tick=self.plan.tick,
            turns=(
                *[reports[key] for name in self.plan.order for key in list_turn_keys(name, reports)],
                *self.plan.excluded_reports(),
            ),
            not_due=len(self.plan.not_due),
            is_complete=not self.is_stopped,
            duration_ms=elapsed_ms(began),
        )

    def replay_committed(self, ended: TurnEnded, started: TurnStarted | None) -> None:
        """Load a committed turn's report from its record, and publish its entries to other agents.

        The files are written again only after a machine crash, when the record may be the only surviving
        copy. Otherwise a file with other content is somebody's later work.
        """
        report = ended.report
        if _is_self_contained(ended):
            state = self.commits.states[report.agent] = AgentState.from_json(ended.state or {})
            if self.may_have_lost_files and not self.commits.is_removed(report.agent):
                write_state(self.runtime.org, report.agent, state)
        elif started:
            inputs = from_record(started, self.plan.tick, self.plan.at)
            outcome = self._join_outcome(inputs, take_turn(inputs, self._make_answer_source(inputs), self._plugins))
            self.commits.states[report.agent] = outcome.state
            if self.may_have_lost_files:
                self.commits.rewrite_turn(self._drop_refused(outcome, started))
            else:
                self.tick_context.mail.add(report.agent, outcome.entries, report.turn)
        self.commits.reports[report.turn_key] = report
        self.runtime.notify(ended)

    def _drop_refused(self, outcome: TurnOutcome, started: TurnStarted) -> TurnOutcome:
        """Return a committed turn's outcome without files the agent may no longer write."""
        name, records = started.agent, self.journal.find_agent_records(started.agent, started.turn)
        # A person may have edited the journal: only paths that the current rules allow are written.
        refused = find_refused_paths(self.tick_context, restore_inputs(started, self.tick_context).agent, records)
        for path, reason in refused.items():
            problem = Problem(f"not written again: {reason}", path, severity="warning", code="LMG-601")
            self.runtime.report_problem(problem, name)
        effects = tuple(effect for effect in outcome.effects if effect.path_key not in refused)
        return replace(outcome, effects=effects)

    def rewrite_committed(self, agent_names: Iterable[str]) -> None:
        """Rewrite missing files of the agents' committed turns; no other action is taken."""
        turns = [(name, turn) for name in agent_names for turn in self.iter_recorded_turns(name)]
        for name, turn in turns:
            records = self.journal.find_agent_records(name, turn)
            started, ended = find_start_and_end(records)
            assert started, "a committed turn has both records"
            assert ended, "a committed turn has both records"
            kinds = Counter(map(type, records))
            if _is_self_contained(ended):
                state = self.commits.states[name] = AgentState.from_json(ended.state or {})
                write_state(self.runtime.org, name, state)
            # Only with every answer on record: rewriting an old turn must call no model and no tool.
            elif kinds[ModelReplied] == ended.report.calls and kinds[ToolFinished] == len(ended.report.tools):
                # With a `problem`, a model call fails: a missing answer cannot turn into a paid call.
                inputs = replace(
                    from_record(started, self.plan.tick, self.plan.at), problem=UnknownModel("a turn that is over")
                )
                answers = self._make_answer_source(inputs)  # all recorded: no live call
                outcome = self._join_outcome(inputs, take_turn(inputs, answers, self._plugins))
                self.commits.states[name] = outcome.state
                self.commits.rewrite_turn(self._drop_refused(outcome, started))

    @cached_property
    def may_have_lost_files(self) -> bool:
        """True if files of an earlier attempt at this tick may be missing.

        The machine may have crashed since, or the storage may have been rolled back: a ledger then lacks the
        line of a committed turn.
        """
        records = self.journal.records
        if may_have_rebooted(find_tick_started(records), self.runtime.clock.boot_id):
            return True
        ended = {record.turn_key for record in records if isinstance(record, TurnCommitted)}
        starts = (start for start in records if isinstance(start, TurnStarted) and start.turn_key in ended)
        return has_lost_turn(self.runtime.org, self.plan.tick, starts)

    def run_turn(self, inputs: TurnInputs) -> TurnOutcome:
        """Run a turn to its end and return its outcome."""
        outcome = isolate(lambda: take_turn(inputs, self._make_answer_source(inputs), self._plugins))
        return self.to_broken_outcome(inputs, outcome) if isinstance(outcome, Exception) else outcome

    def commit(self, inputs: TurnInputs, outcome: TurnOutcome, *, is_replay: bool) -> None:
        """Write and commit a turn's outcome. `is_replay`: an earlier attempt may have written parts."""
        joined_outcome, memory_digests = self._join_outcome(inputs, outcome), inputs.memories_seen
        self.commits.commit_turn(
            joined_outcome, is_replay=is_replay, has_warned=inputs.warned, memory_digests=memory_digests
        )

    def _join_outcome(self, inputs: TurnInputs, outcome: TurnOutcome) -> TurnOutcome:
        current = self.commits.states.get(inputs.agent.name)
        return join_outcome(inputs, outcome, current) if current else outcome

    def to_broken_outcome(self, inputs: TurnInputs, error: Exception) -> TurnOutcome:
        """Return the outcome of a turn broken by an error. Re-raises errors that end the run."""
        turn_error = to_turn_error(error)
        # Read from disk: the open journal keeps no copy of the records that it appends.
        all_records = read_journal(self.runtime.org, self.plan.tick, limit_bytes=OWN_LIMIT_BYTES)
        key = turn_key(inputs.agent.name, inputs.turn)
        records = [record for record in all_records if record.turn_key == key]
        started, _ = find_start_and_end(records)
        assert started, "a broken turn has started"
        return self.abandon_turn(started, records, str(turn_error), error_name(turn_error))

    def abandon_turn(self, started: TurnStarted, records: list[Record], reason: str, error: str) -> TurnOutcome:
        """Return the outcome of a turn abandoned for this reason."""
        inputs = from_record(started, self.plan.tick, self.plan.at)
        return abandon_turn(self.journal, inputs, records, reason=reason, error=error, plugins=self._plugins)

    def _make_answer_source(self, inputs: TurnInputs) -> JournaledAnswers:
        active, get_scope = self.active_capabilities, lambda: self.scope
        return JournaledAnswers(self.runtime, self.journal, self.tick_context, inputs, self.commits, get_scope, active)

    @cached_property
    def has_limits(self) -> bool:
        """True if turns share resources besides files, such as limits on spending."""
        return any(not resource.ordered for resource in self.find_shared_resources(self.tick_context.survey.agents))

    def find_shared_resources(self, agents: Mapping[str, Agent]) -> list[SharedResource]:
        """Return the resources besides files that turns of these agents share."""
        query = OrgQuery(SharedResource, self.tick_context.org, agents, self.tick_context.config)
        return [resource for capability in self.active_capabilities for resource in query.ask(capability)]

    @cached_property
    def scope(self) -> TickScope:
        """What the live effects of all turns share."""
        from lemming.kernel.turn.live_phase import TickScope

        return TickScope(self.tick_context, self.journal, self.plan.order)


def _is_self_contained(ended: TurnEnded) -> bool:
    """Return True if the record alone describes the turn: a failed turn without an answer to a request."""
    return ended.state is not None and not ended.report.entries


NO_LONGER_ALLOWED = "NoLongerAllowed"
"""The `error` of a turn with recorded calls that its agent may no longer make."""

NO_PERMISSIONS = AgentPermissions(read_outboxes=[], tools=[], file_access=FileAccess(allow_read=[], allow_write=[]))


def restore_inputs(started: TurnStarted, tick_context: TickContext) -> TurnInputs:
    """Return the inputs of a recorded turn, with the current permissions, model and credit limit.

    The prompt, the parsing of replies and the warnings stay as recorded. An agent with a missing or broken
    resume has no permissions.
    """
    inputs = from_record(started, tick_context.tick, tick_context.at)
    config, agent = tick_context.config, tick_context.survey.agents.get(inputs.agent.name)
    if agent is None:
        problem = UnknownModel(f"the resume of {inputs.agent.name} is missing or broken: no model is called")
        return replace(inputs, agent=replace(inputs.agent, permissions=NO_PERMISSIONS), problem=problem)
    model = replace(agent.model, temperature=inputs.agent.model.temperature)
    inputs = replace(
        inputs,
        agent=replace(agent, model=model, turn=inputs.agent.turn),
        allocation=replace(
            inputs.allocation, max_credits=resolve_credits(config, agent.name, agent.credits).max_credits
        ),
    )
    if reason := _missing_critic_reason(inputs, agent, tick_context):
        return replace(inputs, problem=UnknownModel(reason))
    try:
        return replace(inputs, model=config.model(agent.model.key))
    except UnknownModel as error:
        return replace(inputs, problem=error)


def _missing_critic_reason(inputs: TurnInputs, agent: Agent, tick_context: TickContext) -> str:
    """Return the reason a turn can call no model because its strategy or critic changed, or an empty text."""
    recorded_turn = inputs.agent.turn
    if recorded_turn.strategy is None:
        return ""
    if (recorded_turn.strategy, recorded_turn.options) != (agent.turn.strategy, agent.turn.options):
        return f"the strategy of {agent.name} has changed during its turn: no model is called"
    critic = tick_context.survey.agents.get(str(recorded_turn.options.get("agent")))
    key = next((recorded["needs"].get("model") for recorded in inputs.given.values() if "needs" in recorded), None)
    if key and (critic is None or critic.model.key != key):
        return f"the critic of {agent.name} has changed during its turn: no model is called"
    return ""


def find_refused_paths(tick_context: TickContext, agent: Agent, records: Iterable[Record]) -> dict[str, str]:
    """Return the reasons recorded files of a turn's tools cannot be written now, by `FileEffect.path_key`."""
    refused = {}
    context = ToolContext(agent=agent, org=tick_context.org, settings=tick_context.config.org, now="")
    for record in records:
        if not isinstance(record, ToolFinished):
            continue
        for effect in restore_result(record).effects:
            try:
                _require_allowed(context, record.tool, effect)
            except FILE_ERRORS as error:
                refused[effect.path_key] = str(error)
    return refused


def _require_allowed(context: ToolContext, name: str, effect: FileEffect) -> None:
    """Raise an error unless the agent's tool may write this file now."""
    tool = get_toolset(context.settings, context.org).require_allowed(name, context.agent, context.settings)
    tool.require_writable(context, effect)


def resume_blocker(inputs: TurnInputs, tick_context: TickContext) -> str:
    """Return the reason an interrupted turn cannot resume, or an empty string."""
    plugins = tick_context.config.org.plugins
    # These apply now, and the record does not have them.
    extra_names = find_used_capabilities(inputs.agent, tick_context.config) & LISTED.keys()
    for item in starting_capabilities(inputs, plugins, extra_names):
        find = find_check(item.name, "turn", plugins)
        for problem in find(TurnSubject(inputs, tick_context)) if find else ():
            return problem.message
    return ""


def has_lost_turn(org: Organisation, tick: int, starts: Iterable[TurnStarted]) -> bool:
    """Return True if the ledger of an agent in the records ends before the tick."""
    return any(
        is_ledger_behind(org, start.agent, (tick, start.turn)) and not is_former_agent(org, start) for start in starts
    )


def is_ledger_behind(org: Organisation, agent_name: str, turn_position: tuple[int, int]) -> bool:
    """Return True if an agent's ledger ends before the turn with this number in a tick."""
    if not paths.AGENT_NAME.match(agent_name) or not path_exists(f"{org}/{paths.resume_file(agent_name)}"):
        return False
    try:
        return read_state(org, agent_name).position < turn_position
    except CorruptState:  # a person has to repair it
        return False


def is_former_agent(org: Organisation, start: TurnStarted) -> bool:
    """Return True if the record belongs to a former agent of the same name.

    A new agent has had no turn, and the record is not the first turn of an agent with this resume.
    """
    name = start.agent
    if read_state(org, name).tick >= 0:
        return False
    if start.state["tick"] >= 0:
        return True
    from lemming.kernel.turn.prompt_prefix import PREFIX_KEYS

    try:
        resume = load_agent(org, name).as_json
    except ConfigError:
        return True
    return start.resume != {key: resume[key] for key in resume if key not in (*PREFIX_KEYS, "paused")}
