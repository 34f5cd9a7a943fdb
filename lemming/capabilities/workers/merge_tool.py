"""The tool `merge`: bring a worker's recorded patch onto its branch, once.

The call is all that gates, judges and persons decide about. It needs no clone and no harness: tree and commit are made from
the recorded patch in a bare repository of the engine. A repeated call finds the commit that it made before by its trailers.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from lemming.capabilities.workers.attempts import collector_folder, organisation_id, remove_stale_attempts
from lemming.capabilities.workers.merge_arguments import describe_changes, to_diff
from lemming.capabilities.workers.patch_store import load_patch
from lemming.capabilities.workers.repositories.collector import open_collector
from lemming.capabilities.workers.repositories.git_command import read_git
from lemming.capabilities.workers.repositories.merging import (
    MAX_SIDE_BYTES,
    AlreadyMerged,
    Conflict,
    MergeOrder,
    plan_merge,
    publish,
)
from lemming.capabilities.workers.repositories.patches import rebuild_tree
from lemming.capabilities.workers.repositories.user_repository import UserRepository, open_repository
from lemming.capabilities.workers.repositories.work_tree import TakenTree, compare_trees
from lemming.capabilities.workers.workspace_settings import WorkspaceSettings, get_workspace, locate_repository
from lemming.ext import describe_field
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import LemmingError, ToolError
from lemming.kernel.base.jsontext import dump_compact, to_line
from lemming.kernel.base.name_patterns import is_any_match
from lemming.kernel.files.field_types import Json
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import EngineTool, ToolResult
from lemming.kernel.tools.tool_context import ToolContext

MERGE = "merge"
MAX_CONFLICT_BYTES = 40_000
"""Bytes of the output about a conflict: a turn has room for the results of some more."""

MAX_MOVES = 5
"""Times that the branch may move while one patch is merged."""


class CallOnly(EngineTool):
    """A tool that the steps of a worker's turn call, for agents with a workspace. It can be repeated after a kill."""

    stages_files = False
    is_plan_only = False
    keeps_deadline = True
    success_is_news = False
    output_limit_bytes = 256 << 10

    def refusal_reason(self, agent: Agent, settings: OrgSettings) -> str:
        """Return the reason that an agent without a workspace gets, or an empty text."""
        return "" if get_workspace(agent) else f"{self.name} needs a workspace in the resume"

    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        """Refuse a call without the engine: a merge needs the tick that it belongs to."""
        raise ToolError(f"{self.name} must be called in a turn")


class MergeTool(CallOnly):
    """Merges a recorded patch. Called with the arguments that the reply of the harness has."""

    name = MERGE
    description = "Merge a recorded patch into the branch of the agent's workspace."
    tool_class = "write"
    runs_in_order = True

    def expand_arguments(self, context: ToolContext, args: Any) -> Any:
        """Return the arguments with the whole patch as `diff`."""
        if not (isinstance(args, dict) and isinstance(args.get("flags"), dict) and "" in args["flags"]):
            return args
        with suppress(LemmingError):  # without its patch, the call will fail
            return {**args, "diff": to_diff(load_patch(context.org, str(args.get("patch"))))}
        return args

    def plan(
        self,
        context: ToolContext,
        workspace: Annotated[str, describe_field("Repository, as the resume names it.")],
        branch: Annotated[str, describe_field("Branch that the patch is merged into.")],
        base: Annotated[str, describe_field("Commit that the patch applies to.")],
        tree: Annotated[str, describe_field("Tree of the files with the patch.")],
        patch: Annotated[str, describe_field("SHA-256 of the patch.")],
        files: Annotated[int, describe_field("Number of changed files.")],
        insertions: Annotated[int, describe_field("Number of new lines.")],
        deletions: Annotated[int, describe_field("Number of removed lines.")],
        paths: Annotated[list[str], describe_field("Changed files.")],
        flags: Annotated[dict[str, Any], describe_field("What is unusual about a file, by path.")],
        summary: Annotated[str, describe_field("First line of the commit's message.")],
        diff: Annotated[str, describe_field("The patch as text, or its first part.")] = "",
    ) -> ToolResult:
        """Merge the patch. The output is JSON with `merged`, `already` or `conflict`."""
        settings = get_workspace(context.agent)
        if settings is None or (workspace, branch) != (settings.repository, settings.branch_name(context.agent.name)):
            raise ToolError(
                f"merge must be into the agent's workspace, got {workspace} {branch}", hint="see resume.json"
            )
        for path in paths if settings.paths else ():
            if not is_any_match(path, settings.paths):
                hint = f"allowed by workspace.paths: {', '.join(settings.paths)}"
                raise ToolError(f"merge: the patch may not change {path}", hint=hint)
        try:
            call: Json = {"files": files, "insertions": insertions, "deletions": deletions, "paths": paths}
            call |= {"flags": flags, "diff": diff}
            result = _publish_patch(context, settings, base, tree, patch, summary, call)
        except ToolError:
            raise
        except LemmingError as error:
            raise ToolError(f"merge: {error.message}", hint=error.hint) from error
        if result.success:  # no run goes on from this clone, also if the call is repeated after a kill
            remove_stale_attempts(context.base, context.agent.name, keep="")
        return result


def _publish_patch(
    context: ToolContext, settings: WorkspaceSettings, base: str, tree: str, patch: str, summary: str, call: Json
) -> ToolResult:
    branch = settings.branch_name(context.agent.name)
    repository = open_repository(locate_repository(context.base, settings.repository))
    collector = open_collector(collector_folder(context.base, f"{repository.git_dir}"), repository)
    order = MergeOrder(
        agent=context.agent.name,
        branch=branch,
        base=base,
        tree=tree,
        patch=patch,
        tick=context.tick,
        turn=context.call_id,
        at=context.began_at,
        org=organisation_id(context.base),
        summary=summary,
        base_branch=settings.base,
    )
    for _ in range(MAX_MOVES):
        # Looked up each time: an earlier try of this call may have been killed right after the branch moved.
        if commit := _find_published(repository, order):
            return _to_result({"merged": commit, "branch": branch})
        rebuild_tree(collector, base, load_patch(context.org, patch), tree)
        require_same(call, compare_trees(collector, base, tree))
        plan = plan_merge(collector, repository, order)
        if isinstance(plan, AlreadyMerged):
            return _to_result({"already": plan.head, "branch": branch})
        if isinstance(plan, Conflict):
            return _describe_conflict(plan)
        if publish(collector, repository, order, plan):
            return _to_result({"merged": plan.commit, "branch": branch})
    raise ToolError(f"merge: branch {branch} moved {MAX_MOVES} times meanwhile", hint="run the agent again")


def require_same(call: Mapping[str, Any], changes: TakenTree) -> None:
    """Raise `ToolError` if a call does not describe its patch, as after a gate has rewritten it."""
    for name, value in describe_changes(changes.patch, [asdict(file) for file in changes.files], changes.flags).items():
        if call.get(name) != value:
            hint = "a gate cannot rewrite a patch: let it block, or ask a person who edits the patch"
            raise ToolError(f"merge: {name} must be that of the patch, got {to_line(call.get(name))[:200]}", hint=hint)


def _find_published(repository: UserRepository, order: MergeOrder) -> str:
    """Return the commit of this call in the branch's history, by its trailers, or an empty text.

    The history of a branch is the user's: a forged trailer would need a commit of the user.
    """
    if not (head := repository.read_head(order.branch)):
        return ""
    expected = {"Turn": order.turn, "Patch": order.patch, "Org": order.org}
    for commit in read_git("rev-list", head, f"^{order.base}", git_dir=repository.git_dir).split():
        trailers = repository.read_trailers(commit)
        if all(trailers.get(name) == value for name, value in expected.items()):
            return commit
    return ""


def _describe_conflict(conflict: Conflict) -> ToolResult:
    """Return the result of a merge in conflict. Texts are cut until the output is whole: a cut output tells nothing."""
    limit, outcome = MAX_SIDE_BYTES, {"conflict": conflict.files, "head": conflict.head}
    while len(dump_compact(outcome)) > MAX_CONFLICT_BYTES and limit:
        limit //= 2
        files = dict([*conflict.files.items()][: max(1, limit)])
        outcome["conflict"] = {
            path: {side: text if len(text) <= limit else f"{text[:limit]}\n(cut)" for side, text in sides.items()}
            for path, sides in files.items()
        }
    return _to_result(outcome, success=False)


def _to_result(outcome: dict[str, Any], *, success: bool = True) -> ToolResult:
    return ToolResult(success, dump_compact(outcome).decode())
