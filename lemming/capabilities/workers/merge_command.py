"""`lemming merge`: bring the branch of a worker to the branch that its work starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lemming.capabilities.workers.attempts import collector_folder
from lemming.capabilities.workers.repositories.branch_merge import merge_branch
from lemming.capabilities.workers.repositories.collector import open_collector
from lemming.capabilities.workers.repositories.git_command import read_git
from lemming.capabilities.workers.repositories.user_repository import UserRepository, open_repository
from lemming.capabilities.workers.workspace_settings import get_workspace
from lemming.commands.command_context import AgentName, CommandContext, find_agent, option
from lemming.commands.terminal import print_data
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.paths import resume_file

_RESULTS = {"already": "has all of it already", "fast-forward": "is moved forward to it", "merge": "is merged with it"}


def merge(
    context: CommandContext,
    agent: AgentName,
    into: Annotated[
        str, option("--into BRANCH", "Target branch. Default: the workspace's base, or the branch of the repository.")
    ] = "",
) -> None:
    """Merge the branch of a worker into the branch that its work starts from.

    A target that is checked out must have no changes that are not committed; its files are then updated by your own
    git. Conflicts are named, and nothing is changed.

    \b
    Examples:
      lemming merge coder
      lemming merge coder --into develop
    """
    settings = get_workspace(find_agent(context.org, agent))
    if settings is None:
        hint = "docs/workers.md describes the key"
        raise UsageError(f"{agent} must have a workspace, got none", where=resume_file(agent), hint=hint)
    repository = open_repository(Path(context.org.base) / settings.repository)
    collector = open_collector(collector_folder(Path(context.org.base), f"{repository.git_dir}"), repository)
    source, target = settings.branch_name(agent), into or settings.base or _read_current_branch(repository)
    result = merge_branch(collector, repository, source, target)
    facts = {"source": source, "target": target, "kind": result.kind, "commit": result.commit}
    if not context.print_as_json("merge", facts):
        print_data(f"{target} {_RESULTS[result.kind]}: {source}, commit {result.commit[:12]}")


def _read_current_branch(repository: UserRepository) -> str:
    """Return the branch of HEAD. Raises `UsageError` for a detached one."""
    ref = read_git("rev-parse", "--symbolic-full-name", "HEAD", git_dir=repository.git_dir)
    if not ref.startswith("refs/heads/"):
        raise UsageError("the repository must have a current branch, got a detached HEAD", hint="name one: --into main")
    return ref.removeprefix("refs/heads/")
