"""Facts for a first organisation and for `lemming doctor`: the repository, git, the sandbox, the harnesses and their keys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lemming.capabilities.workers.harnesses.harness_table import find_program, load_harness, read_version
from lemming.capabilities.workers.harnesses.model_vendors import VENDORS, ModelVendor
from lemming.capabilities.workers.repositories.git_command import GitError, find_git_version, require_git, run_users_git
from lemming.capabilities.workers.repositories.user_repository import open_repository
from lemming.capabilities.workers.running.worker_sandbox import get_worker_sandbox
from lemming.capabilities.workers.worker_provider import HARNESSES, WorkerProvider
from lemming.ext import ConfigError, ModelEntry
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.org.config import MODELS_FILE

INSTALL_SANDBOX = "install bubblewrap: apt install bubblewrap, or dnf install bubblewrap"


class RepositoryFacts(NamedTuple):
    """A repository of the user.

    `folder`: the main work tree or the bare repository, which a workspace names. `work_tree`: the top folder around
    the user, a linked work tree perhaps. `branch`: the branch there, empty for a detached HEAD. `changes`: files that
    are not committed. `has_stash`: a shared clone could read the stash.
    """

    folder: Path
    work_tree: Path
    branch: str
    commit: str
    changes: int
    has_stash: bool


def describe_repository(folder: Path) -> RepositoryFacts:
    """Return the repository around a folder.

    Raises `RepositoryError` without git, and `ConfigError` without a repository, without a commit, or for one that
    workers cannot use.
    """
    require_git()
    top = _find_top_folder(folder.resolve())
    git_dir, common_dir = _ask(top, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir").split("\n")
    main = top
    if os.path.realpath(git_dir) != os.path.realpath(common_dir):
        main = Path(common_dir).parent if common_dir.endswith("/.git") else Path(common_dir)
    open_repository(main)
    if not (commit := _ask(top, "rev-parse", "-q", "--verify", "HEAD^{commit}")):
        hint = "commit something first: git add -A && git commit -m begin"
        raise ConfigError("repository must have a commit, got none", where=str(top), hint=hint)
    is_bare = _ask(top, "rev-parse", "--is-bare-repository") == "true"
    return RepositoryFacts(
        folder=main,
        work_tree=top,
        branch=_ask(top, "symbolic-ref", "-q", "--short", "HEAD"),
        commit=commit,
        changes=0 if is_bare else len(_ask(top, "status", "--porcelain").splitlines()),
        has_stash=bool(_ask(top, "rev-parse", "-q", "--verify", "refs/stash")),
    )


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


class HarnessFacts(NamedTuple):
    """A harness on this machine. `version`: empty if it is not installed. `has_key`: its variable is set."""

    provider: str
    program: str
    version: str
    install: str
    vendor: ModelVendor
    has_key: bool


def list_harnesses() -> list[HarnessFacts]:
    """Return the harnesses that need no `command`, in the order in which a first organisation prefers them."""
    facts = []
    for provider, kind in HARNESSES.items():
        harness = load_harness(kind.harness_name)
        if not harness.program or harness.api not in VENDORS:
            continue
        vendor = VENDORS[harness.api]
        version = read_version(harness) or "version unknown" if find_program(harness) else ""
        has_key = bool(os.environ.get(vendor.key_variable, "").strip())
        facts.append(HarnessFacts(provider, harness.program[0], version, harness.install, vendor, has_key))
    return facts


class StartFacts(NamedTuple):
    """What a first organisation is made of. `sandbox_problem`: empty if workers can be confined here."""

    repository: RepositoryFacts
    harnesses: list[HarnessFacts]
    sandbox_problem: str


def describe_start(folder: Path) -> StartFacts:
    """Return the facts about the repository around a folder and this machine. Raises as `describe_repository`."""
    repository, (is_confined, detail) = describe_repository(folder), get_worker_sandbox()
    return StartFacts(repository, list_harnesses(), "" if is_confined else detail)


def find_obstacles(worker: WorkerProvider) -> Iterator[tuple[str, str]]:
    """Yield the programs that a worker lacks on this machine, apart from a sandbox: text, and command that helps."""
    try:
        require_git()
    except LemmingError as error:
        yield error.message, error.hint
    harness = worker.harness
    if worker.has_program and find_program(harness) is None:
        hint = harness.install or f"install {harness.program[0]}, or set options.command in {MODELS_FILE}"
        yield f"{harness.program[0]} must be installed, got no such program", hint


def find_missing_key(worker: WorkerProvider) -> Iterator[tuple[str, str]]:
    """Yield the variable without a key that a worker needs, if any: text, and command that helps."""
    variable = worker.key_variable
    if worker.has_program and variable and not os.environ.get(variable, "").strip():
        yield f"{variable} must hold a key, got nothing", f"export {variable}=..."


def check_worker_model(entry: ModelEntry, base: Path) -> tuple[bool, str, str]:
    """Return True if a worker could start here, a remark about its harness, and the command that helps otherwise."""
    worker = HARNESSES[entry.provider](**entry.options, base=base)
    for text, fix in (*find_obstacles(worker), *find_missing_key(worker)):
        return False, text, fix
    if not worker.has_program:
        return True, "recorded runs are replayed", ""
    return True, f"{worker.harness.program[0]} {read_version(worker.harness)}".strip(), ""


def describe_machine() -> Iterator[str]:
    """Yield a line about git, the sandbox of workers, and each installed harness."""
    version = find_git_version()
    yield f"git {version}" if version else "git is not installed: workers need it"
    is_confined, detail = get_worker_sandbox()
    yield f"sandbox: {detail}" if is_confined else f"no sandbox, so no worker starts: {detail}; {INSTALL_SANDBOX}"
    installed = [harness for harness in list_harnesses() if harness.version]
    for harness in installed:
        key = "" if harness.has_key else f"; {harness.vendor.key_variable} is not set"
        yield f"{harness.provider}: {harness.program} {harness.version}{key}"
    if not installed:
        yield f"no harness is installed: {load_harness('claude-code').install}"
