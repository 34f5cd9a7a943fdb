"""Capability of workers: coding harnesses that work on a repository."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lemming.capabilities.workers.attempts import organisation_id
from lemming.capabilities.workers.harnesses.harness_table import find_program, load_harness, read_version
from lemming.capabilities.workers.repositories.git_command import GitError, GitRepository, require_git, run_users_git
from lemming.capabilities.workers.repositories.user_repository import open_repository, require_own_branch
from lemming.capabilities.workers.running.vendor_apis import VendorApi, load_api
from lemming.capabilities.workers.running.worker_sandbox import get_worker_sandbox
from lemming.capabilities.workers.worker_provider import HARNESSES, WorkerProvider
from lemming.capabilities.workers.worker_steps import send_job, take_worker_turn
from lemming.capabilities.workers.workspace_settings import WorkspaceSettings, get_workspace, locate_repository
from lemming.ext import (
    AgentSubject,
    Capability,
    ConfigError,
    DescribeQuery,
    Interception,
    ModelEntry,
    OrgQuery,
    Preparation,
    Problem,
    RunTurn,
    SendRequest,
    SharedResource,
    TurnView,
    make_warning,
    resume_file,
)
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.org.capability_usage import TurnPolicy
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_table import provided
from lemming.libraries.git_program import find_git_version
from lemming.libraries.permission_bindings import digest_setting, program_permission


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
            "path": settings.repository, "repository": f"{repository.git_dir}", "branch": branch,
            "base_branch": settings.base, "base": base, "harness": harness.name, "version": read_version(harness),
            "at": turn.at,
        }  # fmt: skip

    def intercept(self, effect: SendRequest, turn: TurnView) -> Interception:
        """Send the job with a question to the harness, and store the patch of its reply."""
        return send_job(effect, turn)

    def wrap_turn(self, turn: TurnView, run: RunTurn) -> End:
        """Run the turn by the steps of a worker."""
        return run(take_worker_turn(turn) if turn.snapshot else None)

    def describe(self, query: DescribeQuery) -> Iterator[SharedResource]:
        """Yield the branches that several workers merge into: their turns run at once and merge in order."""
        assert isinstance(query, OrgQuery), "workspaces are described per organisation"
        branches: dict[tuple[str, str], set[str]] = {}
        for name, agent in query.agents.items():
            if settings := get_workspace(agent):
                key = str(Path(query.org.base, settings.repository).resolve()), settings.branch_name(name)
                branches.setdefault(key, set()).add(name)
        for (repository, branch), names in branches.items():
            if len(names) > 1:
                yield SharedResource(f"branch {branch} of {repository}", frozenset(), frozenset(), frozenset(names))


def find_workspace_problems(subject: AgentSubject) -> Iterator[Problem]:
    """Yield the problems of a workspace: repository, branch, harness."""
    agent, entry = subject.agent, subject.config.models.get(subject.agent.model.key)
    settings = get_workspace(agent)
    if settings is None:
        if entry and entry.provider in HARNESSES:
            text = f"an agent whose model is the harness {entry.provider} must have a workspace, got none"
            yield Problem(text, hint='add "workspace": {"repository": "../site"}: docs/workers.md')
        return
    yield from _check_paths(settings)
    if entry is None or entry.provider not in HARNESSES:
        hint = f"use a model key with one of the providers {', '.join(HARNESSES)}"
        provider = entry.provider if entry else "none"
        yield make_warning(
            f"workspace must be of an agent whose model is a harness, got {provider}", "/workspace", hint
        )
        return
    try:
        repository = open_repository(locate_repository(subject.org, settings.repository))
        branch = settings.branch_name(agent.name)
        repository.find_base(branch, settings.base, agent=agent.name, tick=0, tick_key="")
        require_own_branch(repository, branch, agent.name)
    except LemmingError as error:
        yield Problem(error.message, pointer="/workspace", hint=error.hint)
    if subject.config.org.executor in provided("executors"):
        return  # the harness runs on another machine
    try:
        worker = _make_provider(entry, subject.org)
    except (LemmingError, TypeError):
        return  # the check of the model's options tells it
    for text, fix, is_program in find_obstacles(worker):
        yield Problem(text, pointer="/workspace", hint=fix) if is_program else make_warning(text, "/workspace", fix)
    if worker.has_program and settings.sandbox == "required" and not get_worker_sandbox()[0]:
        text = f"a worker must run in a sandbox, got none: {get_worker_sandbox()[1]}"
        yield Problem(text, pointer="/workspace/sandbox", hint=INSTALL_SANDBOX)


def _check_paths(settings: WorkspaceSettings) -> Iterator[Problem]:
    for number, pattern in enumerate(settings.paths):
        if pattern.startswith(("/", "./", "../")):
            text = f"a pattern of workspace.paths must begin at the top of the repository, got {pattern}"
            hint = f"write {pattern.lstrip('./')}"
            yield Problem(text, pointer=f"/workspace/paths/{number}", hint=hint)
    for number, folder in enumerate(settings.readable):
        if not Path(folder).is_absolute() or not Path(folder).exists():
            text = f"workspace.readable must be absolute folders that exist, got {folder}"
            yield Problem(text, pointer=f"/workspace/readable/{number}", hint="write the whole path")


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
        values: Json = {name: repr(value) for name, value in vars(settings).items()}
        yield RequiredPermission(does, digest_setting(where, values), needs_agreement=True)
        if entry.options.get("command"):
            yield program_permission(org, f"{paths.MODELS_FILE} {agent.model.key}", entry.options)


INSTALL_SANDBOX = "install bubblewrap: apt install bubblewrap, or dnf install bubblewrap"


class HarnessFacts(NamedTuple):
    """A harness on this machine. `version`: empty for a program that is not installed. `has_key`: the key's variable is set."""

    provider: str
    program: str
    version: str
    install: str
    vendor: VendorApi
    has_key: bool


class StartFacts(NamedTuple):
    """What a first organisation is made of: a repository of the user, and this machine.

    `folder`: the main work tree or the bare repository, which a workspace names. `work_tree`: the top folder around
    the user, a linked work tree perhaps. `branch`: the branch there, empty for a detached HEAD. `changes`: files that
    are not committed. `has_stash`: a shared clone could read the stash. `sandbox_problem`: empty if workers can be
    confined here.
    """

    folder: Path
    work_tree: Path
    branch: str
    commit: str
    changes: int
    has_stash: bool
    harnesses: list[HarnessFacts]
    sandbox_problem: str


def describe_start(folder: Path) -> StartFacts:
    """Return the facts about the repository around a folder, and about this machine.

    Raises `RepositoryError` without git, and `ConfigError` without a repository, without a commit, or for one that
    workers cannot use.
    """
    require_git()
    top, (is_confined, detail) = _find_top_folder(folder.resolve()), get_worker_sandbox()
    git_dir, common_dir = _ask(top, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir").split("\n")
    main = top
    if os.path.realpath(git_dir) != os.path.realpath(common_dir):
        main = Path(common_dir).parent if common_dir.endswith("/.git") else Path(common_dir)
    open_repository(main)
    if not (commit := _ask(top, "rev-parse", "-q", "--verify", "HEAD^{commit}")):
        hint = "commit something first: git add -A && git commit -m begin"
        raise ConfigError("repository must have a commit, got none", where=str(top), hint=hint)
    is_bare = _ask(top, "rev-parse", "--is-bare-repository") == "true"
    return StartFacts(
        folder=main, work_tree=top, branch=_ask(top, "symbolic-ref", "-q", "--short", "HEAD"), commit=commit,
        changes=0 if is_bare else len(_ask(top, "status", "--porcelain").splitlines()),
        has_stash=bool(_ask(top, "rev-parse", "-q", "--verify", "refs/stash")), harnesses=list_harnesses(),
        sandbox_problem="" if is_confined else detail,
    )  # fmt: skip


def _find_top_folder(folder: Path) -> Path:
    for parent in (folder, *folder.parents):
        if (parent / ".git").exists() or all((parent / name).exists() for name in ("HEAD", "objects", "refs")):
            return parent
    hint = "go to a repository, or make this folder one: git init && git add -A && git commit -m begin"
    raise ConfigError("folder must be in a git repository, got none", where=str(folder), hint=hint)


def _ask(folder: Path, *arguments: str) -> str:
    try:
        return os.fsdecode(run_users_git(*arguments, folder=folder)).strip()
    except GitError:  # no HEAD, no stash, a bare repository
        return ""


def list_harnesses() -> list[HarnessFacts]:
    """Return the harnesses that need no `command`, in the order in which a first organisation prefers them."""
    facts = []
    for provider, kind in HARNESSES.items():
        harness = load_harness(kind.harness_name)
        if not harness.program or harness.api == "none":
            continue
        vendor = load_api(harness.api)
        version = read_version(harness) or "version unknown" if find_program(harness) else ""
        has_key = bool(os.environ.get(vendor.key_variable, "").strip())
        facts.append(HarnessFacts(provider, harness.program[0], version, harness.install, vendor, has_key))
    return facts


def find_obstacles(worker: WorkerProvider) -> Iterator[tuple[str, str, bool]]:
    """Yield what a worker lacks on this machine, apart from a sandbox.

    Each with its text, the command that helps, and True for a program or False for a key, which may come later.
    """
    try:
        require_git()
    except LemmingError as error:
        yield error.message, error.hint, True
    harness, variable = worker.harness, worker.key_variable
    if worker.has_program and find_program(harness) is None:
        hint = harness.install or f"install {harness.program[0]}, or set options.command in {paths.MODELS_FILE}"
        yield f"{harness.program[0]} must be installed, got no such program", hint, True
    if worker.has_program and variable and not os.environ.get(variable, "").strip():
        yield f"{variable} must hold a key, got nothing", f"export {variable}=...", False


def check_worker_model(entry: ModelEntry, base: Path) -> tuple[bool, str, str]:
    """Return True if a worker could start here, a remark about its harness, and the command that helps otherwise."""
    worker = _make_provider(entry, base)
    for text, fix, _ in find_obstacles(worker):
        return False, text, fix
    if not worker.has_program:
        return True, "recorded runs are replayed", ""
    return True, f"{worker.harness.program[0]} {read_version(worker.harness)}".strip(), ""


def describe_machine() -> Iterator[str]:
    """Yield a line about git, the sandbox of workers, and each installed harness."""
    version = ".".join(map(str, find_git_version() or ()))
    yield f"git {version}" if version else "git is not installed: workers need it"
    is_confined, detail = get_worker_sandbox()
    yield f"sandbox: {detail}" if is_confined else f"no sandbox, so no worker starts: {detail}; {INSTALL_SANDBOX}"
    installed = [harness for harness in list_harnesses() if harness.version]
    for harness in installed:
        key = "" if harness.has_key else f"; {harness.vendor.key_variable} is not set"
        yield f"{harness.provider}: {harness.program} {harness.version}{key}"
    if not installed:
        yield f"no harness is installed: {load_harness('claude-code').install}"


_AUTHOR = {"NAME": "LeMMing", "EMAIL": "lemming@lemming.invalid", "DATE": "2026-11-23T09:00:00Z"}


def make_repository(folder: Path) -> str:
    """Make a folder with files a repository with one commit on `main`. Return the commit.

    Raises `RepositoryError` without git, and for a folder that git refuses.
    """
    run_users_git("init", "-q", "-b", "main", "--template=", "--object-format=sha1", folder=folder)
    repository, env = GitRepository(folder / ".git"), {"GIT_WORK_TREE": f"{folder}"}
    repository.run("add", "-A", env=env, cwd=folder)
    people = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _AUTHOR.items()}
    repository.run("commit", "-q", "-m", "begin", env={**env, **people}, cwd=folder)
    return repository.read("rev-parse", "main")
