"""Capability of workers: coding harnesses that work on a repository."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from lemming.capabilities.workers.attempts import organisation_id
from lemming.capabilities.workers.harnesses.harness_table import read_version
from lemming.capabilities.workers.machine_facts import INSTALL_SANDBOX, find_missing_key, find_obstacles
from lemming.capabilities.workers.repositories.user_repository import open_repository, require_own_branch
from lemming.capabilities.workers.running.worker_sandbox import get_worker_sandbox
from lemming.capabilities.workers.worker_provider import HARNESSES, WorkerProvider
from lemming.capabilities.workers.worker_requests import send_job
from lemming.capabilities.workers.worker_steps import take_worker_turn
from lemming.capabilities.workers.workspace_settings import WorkspaceSettings, get_workspace, locate_repository
from lemming.ext import (
    AgentCheck,
    Capability,
    CheckSubject,
    DescribeQuery,
    Interception,
    OrgQuery,
    Preparation,
    Problem,
    RunTurn,
    SendRequest,
    SharedResource,
    TurnView,
    resume_file,
)
from lemming.kernel.access.permission_bindings import digest_setting, program_permission
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.org.capability_usage import TurnPolicy
from lemming.kernel.org.config import MODELS_FILE, Config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_table import EXECUTORS


class WorkersCapability(Capability):
    """Workers, for agents with a `workspace` whose model is a harness."""

    name = "workers"
    after = ("gates",)  # a limit decides before a job is made
    turn_policy = TurnPolicy("addressed", "one")
    handles = (SendRequest,)
    describes = (SharedResource,)

    def prepare(self, turn: Preparation) -> Json | None:
        """Return the workspace, with the commit that the turn starts from. Raises `ConfigError` for a wrong one."""
        settings = get_workspace(turn.agent)
        if settings is None or turn.model.provider not in HARNESSES:
            return None
        repository = open_repository(locate_repository(turn.org.base, settings.repository))
        branch, org = settings.branch_name(turn.agent.name), organisation_id(Path(turn.org.base))
        base = repository.find_base(branch, settings.base, agent=turn.agent.name, tick=turn.tick, tick_key=org)
        require_own_branch(repository, branch, turn.agent.name)  # before a run whose patch could not be merged
        harness = _make_provider(turn.model, turn.org).harness
        return {
            "path": settings.repository,
            "repository": f"{repository.git_dir}",
            "branch": branch,
            "base_branch": settings.base,
            "base": base,
            "harness": harness.name,
            "version": read_version(harness),
            "at": turn.at,
        }

    def intercept(self, effect: SendRequest, turn: TurnView) -> Interception:
        """Send the job with a question to the harness, and store the patch of its reply."""
        return send_job(effect, turn)

    def wrap_turn(self, turn: TurnView, run: RunTurn) -> End:
        """Run the turn by the steps of a worker."""
        return run(take_worker_turn(turn) if turn.snapshot else None)

    def describe(self, query: DescribeQuery) -> Iterator[SharedResource]:
        """Yield the branches that several workers merge into: their turns run at once and merge in order."""
        assert isinstance(query, OrgQuery), "a workspace is of an organisation"
        branches: dict[tuple[str, str], set[str]] = {}
        for name, agent in query.agents.items():
            if settings := get_workspace(agent):
                key = str(Path(query.org.base, settings.repository).resolve()), settings.branch_name(name)
                branches.setdefault(key, set()).add(name)
        for (repository, branch), names in branches.items():
            if len(names) > 1:
                yield SharedResource(f"branch {branch} of {repository}", frozenset(), frozenset(), frozenset(names))

    def check(self, subject: CheckSubject) -> Iterator[Problem]:
        """Yield the problems of a workspace: repository, branch, harness."""
        if not isinstance(subject, AgentCheck):
            return
        file, entry = resume_file(subject.agent.name), subject.config.models.get(subject.agent.model.key)
        settings = get_workspace(subject.agent)
        if settings is None:
            if entry and entry.provider in HARNESSES:
                text = f"an agent whose model is the harness {entry.provider} must have a workspace, got none"
                yield Problem(text, file, hint='add "workspace": {"repository": "../site"}: docs/workers.md')
            return
        yield from _check_paths(settings, file)
        if entry is None or entry.provider not in HARNESSES:
            hint = f"use a model key with one of the providers {', '.join(HARNESSES)}"
            provider = entry.provider if entry else "none"
            yield Problem(
                f"workspace must be of an agent whose model is a harness, got {provider}",
                file, pointer="/workspace", severity="warning", hint=hint,
            )  # fmt: skip
            return
        try:
            repository = open_repository(locate_repository(subject.base, settings.repository))
            branch = settings.branch_name(subject.agent.name)
            repository.find_base(branch, settings.base, agent=subject.agent.name, tick=0, tick_key="")
            require_own_branch(repository, branch, subject.agent.name)
        except LemmingError as error:
            yield Problem(error.message, file, pointer="/workspace", hint=error.hint)
        if subject.config.org.executor in EXECUTORS:
            return  # the harness runs on another machine
        try:
            worker = _make_provider(entry, subject.base)
        except (LemmingError, TypeError):
            return  # the check of the model's options tells it
        for text, fix in find_obstacles(worker):
            yield Problem(text, file, pointer="/workspace", hint=fix)
        for text, fix in find_missing_key(worker):
            yield Problem(text, file, pointer="/workspace", severity="warning", hint=fix)
        if worker.has_program and settings.sandbox == "required" and not get_worker_sandbox()[0]:
            yield Problem(
                f"a worker must run in a sandbox, got none: {get_worker_sandbox()[1]}",
                file, pointer="/workspace/sandbox", hint=INSTALL_SANDBOX,
            )  # fmt: skip


def _check_paths(settings: WorkspaceSettings, file: str) -> Iterator[Problem]:
    for number, pattern in enumerate(settings.paths):
        if pattern.startswith(("/", "./", "../")):
            text = f"a pattern of workspace.paths must begin at the top of the repository, got {pattern}"
            hint = f"write {pattern.lstrip('./')}"
            yield Problem(text, file, pointer=f"/workspace/paths/{number}", hint=hint)
    for number, folder in enumerate(settings.readable):
        if not Path(folder).is_absolute() or not Path(folder).exists():
            text = f"workspace.readable must be absolute folders that exist, got {folder}"
            yield Problem(text, file, pointer=f"/workspace/readable/{number}", hint="write the whole path")


def _make_provider(entry: ModelEntry, org: Organisation | Path) -> WorkerProvider:
    base = org.base if isinstance(org, Organisation) else org
    return HARNESSES[entry.provider](**entry.options, base=Path(base))


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield the permissions of workers: the repository and branch that each changes, and the program that runs."""
    for agent in agents:
        settings, entry = get_workspace(agent), config.models.get(agent.model.key)
        if settings is None or entry is None or entry.provider not in HARNESSES:
            continue
        where = f"{resume_file(agent.name)}#/workspace"
        walls = " WITHOUT A SANDBOX: it can read and change everything that you can" * (settings.sandbox == "none")
        branch = settings.branch_name(agent.name)
        does = f"{agent.name}: {entry.provider} works on {settings.repository}, merged into {branch}{walls}"
        yield RequiredPermission(does, digest_setting(where, _to_json(settings)), needs_agreement=True)
        if entry.options.get("command"):
            yield program_permission(org, f"{MODELS_FILE} {agent.model.key}", entry.options)


def _to_json(settings: object) -> Json:
    return {name: repr(value) for name, value in vars(settings).items()}
