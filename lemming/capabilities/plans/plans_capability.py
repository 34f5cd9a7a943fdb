"""Capability of plans: agents with a file as brain, `agents/<name>/plan.json`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.capabilities.judges.judges_capability import program_permission
from lemming.capabilities.plans.plan_format import AgentPlan, find_awaited_files, is_planner, load_plan, plan_file
from lemming.capabilities.plans.plan_rules import load_valid_plan
from lemming.capabilities.plans.plan_run import PREFIX, get_waits, is_redirected, is_wait_done, run_key
from lemming.capabilities.plans.step_requests import describe_wait
from lemming.ext import (
    Block,
    BuildPrompt,
    Capability,
    ConfigError,
    Continue,
    DescribeQuery,
    ExpiredMemory,
    Interception,
    OptionalReadPath,
    OrgQuery,
    Preparation,
    ReadPath,
    RunTurn,
    SkipReason,
    TurnView,
)
from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import CorruptState, PermissionDenied
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.journal.turn_report import End
from lemming.kernel.memory import list_memories, load_memories
from lemming.kernel.org.capability_usage import TurnPolicy
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.agent_folders import readable_digest


class PlansCapability(Capability):
    """Provider "plan"."""

    name = "plans"
    turn_policy = TurnPolicy("addressed", "one", is_written=True)
    describes = (ExpiredMemory, OptionalReadPath, ReadPath, SkipReason)
    handles = (BuildPrompt,)

    def due(self, turn: Preparation) -> Iterator[Block | Continue]:
        """Yield the requests whose runs wait for an event, and those that a person has redirected.

        Raises: ConfigError for an invalid plan: the agent's turns fail even without requests.
        """
        external_state, values = turn.get_cache(_load_external_state), turn.memories.values
        open_requests = turn.context.state.requests
        waiting = [
            item
            for item in open_requests
            if (waits := collect_waits([item], values))
            and not any(is_wait_done(wait, turn.tick, external_state.time, external_state.files) for wait in waits)
        ]
        count = len({item.request for item in waiting})
        for open_request in waiting:
            ticks = (wait.get("tick") for wait in collect_waits([open_request], values))
            until = min((tick for tick in ticks if isinstance(tick, int)), default=None)
            yield Block(open_request.request, f"waits for what its plan says, for {count} of its requests", until)
        yield from (Continue(item.request) for item in open_requests if is_redirected(values.get(_run_key(item))))

    def intercept(self, effect: BuildPrompt, turn: Preparation) -> Interception:
        """Add the external state to the values, and limit the memories to the run of the request."""
        prompt, task = effect.prompt, effect.selected.task
        memory = prompt.memory
        if task is not None and task.request is not None:  # only its own run among all runs is visible
            own_key, values = run_key(task.request.id), effect.selected.memories.values
            memory = {key: value for key, value in values.items() if key == own_key or not key.startswith(PREFIX)}
        extra_values = {**prompt.extra_values, **turn.get_cache(_load_external_state).as_json()}
        return (yield effect.change(extra_values=extra_values, memory=memory))

    def wrap_turn(self, turn: TurnView, run: RunTurn) -> End:
        """Run the turn, which gives no response while its step waits for something outside."""
        turn.allow_silence()
        return run()

    def describe(self, query: DescribeQuery) -> Iterator[ExpiredMemory | OptionalReadPath | ReadPath | SkipReason]:
        """Yield plan files, files that plans await, surplus ended runs, and the waits of runs."""
        assert isinstance(query, OrgQuery), "plans are described per organisation"
        for name in query.agents:
            if query.kind is ReadPath:
                yield ReadPath(name, plan_file(name), "its plan")
            elif query.kind is OptionalReadPath:
                yield from (OptionalReadPath(name, path) for path in find_awaited_files(query.org, name))
            elif query.kind is ExpiredMemory:
                yield from (ExpiredMemory(name, key) for key in list_surplus_runs(query.org, name))
            elif waits := collect_waits(query.states[name].requests, load_memories(query.org, name).values):
                description = " and ".join(dict.fromkeys(describe_wait(wait) for wait in waits))
                yield SkipReason(f"waits for {description}", any("tick" not in wait for wait in waits))


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield the permissions for programs that judge answers of steps. Invalid plans are reported elsewhere."""
    for agent in agents:
        with contextlib.suppress(ConfigError):  # its turns fail, and run nothing
            judges = load_plan(org, agent.name).value.iter_judges() if is_planner(agent, config) else ()
            for author, judge_settings, pointer in judges:
                location = f"{plan_file(agent.name)}#{pointer}"
                yield from program_permission(org.base, judge_settings.by, f"what {author} writes", location)


class ExternalState(NamedTuple):
    """External state for waits of a plan: the tick's clock time, and digests of files."""

    time: str = ""
    files: Mapping[str, str | None] = {}

    def as_json(self) -> Json:
        """Return the external state as values of a turn."""
        return {**({"time": self.time} if self.time else {}), **({"files": dict(self.files)} if self.files else {})}


def _load_external_state(turn: Preparation) -> ExternalState:
    """Read the external state for the waits of an agent's plan.

    Raises: ConfigError for an invalid plan: the agent's turns fail even without requests.
    """
    org, agent, contents = turn.org, turn.agent, turn.context.unwritten_files
    load_valid_plan(org, agent.name)
    files = {file: _file_digest(org, agent, file, contents) for file in find_awaited_files(org, agent.name)}
    return ExternalState(turn.at, files)


def _file_digest(org: Organisation, agent: Agent, file: str, file_contents: Mapping[str, bytes]) -> str | None:
    try:
        return readable_digest(resolve_path(agent, org.base, file, "read", caller="plan"), file_contents)
    except PermissionDenied:  # its step waits in vain; `lemming validate` says so
        return None


def collect_waits(open_requests: Iterable[OpenRequest], memories: Mapping[str, Any]) -> list[Json]:
    """Return the external waits of the runs for requests, except for runs with unprocessed results."""
    keys = (_run_key(open_request) for open_request in open_requests if not open_request.results)
    return [wait for key in keys for wait in get_waits(memories.get(key))]


def _run_key(open_request: OpenRequest) -> str:
    return run_key(open_request.request.rpartition("_")[2])


def list_surplus_runs(org: Organisation, name: str) -> list[str]:
    """Return the memories of an agent's ended runs, except the newest.

    The choice depends only on memories and the ledger, so a second attempt removes the same runs.
    """
    try:
        max_kept = load_plan(org, name).value.keep_runs
    except ConfigError:
        max_kept = AgentPlan().keep_runs
    return [key for _, key in sorted(_find_ended(org, name), reverse=True)[max_kept:]]


def _find_ended(org: Organisation, name: str) -> Iterator[tuple[int, str]]:
    """Yield last tick and memory key of the ended runs, including runs of closed requests regardless of their status."""
    try:
        keys = [key for key in list_memories(org, name) if key.startswith(PREFIX)]
        open_keys = {run_key(request.request.rpartition("_")[2]) for request in read_state(org, name).requests}
    except CorruptState:  # told elsewhere
        return
    values = load_memories(org, name).values if keys else {}
    for key in keys:
        run = values.get(key)
        # of a request that is still open the memory is all that says its run has ended
        if key not in open_keys and isinstance(run, dict) and isinstance(run.get("request"), str):
            tick = run.get("ended", run.get("began"))
            yield tick if isinstance(tick, int) else 0, key
