"""The tool `merge`: bring a worker's recorded patch onto its branch, once.

Gates, judges and persons decide about this call. The call needs no clone and no harness: tree and commit are made from the
recorded patch in a bare repository of the engine. A repeated call finds the earlier commit by the trailers.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from lemming.capabilities.workers.attempts import engine_repository_folder, organisation_id, remove_stale_attempts
from lemming.capabilities.workers.repositories.engine_repository import EngineRepository, open_engine_repository
from lemming.capabilities.workers.repositories.merging import MAX_SIDE_BYTES, MergeOrder, merge_tree
from lemming.capabilities.workers.repositories.patches import rebuild_tree
from lemming.capabilities.workers.repositories.user_repository import UserRepository, open_repository
from lemming.capabilities.workers.repositories.work_tree import TakenTree, compare_trees
from lemming.capabilities.workers.workspace_settings import get_workspace, locate_repository
from lemming.ext import LemmingError, describe_field
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import dump_compact, to_line
from lemming.kernel.base.name_patterns import is_any_match
from lemming.kernel.base.paths import PATCHES
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import EngineTool, ToolResult
from lemming.kernel.tools.tool_context import ToolContext

MERGE = "merge"
MAX_CONFLICT_BYTES = 40_000
"""Bytes of the output about a conflict: a turn has room for the results of some more."""


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

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Make the call. Raises `ToolError` for each error of a repository, a sandbox or a file."""
        try:
            return self.plan(context, **arguments)
        except ToolError:
            raise
        except LemmingError as error:
            raise ToolError(f"{self.name}: {error.message}", hint=error.hint) from error

    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        """Refuse a call without the engine: a merge needs the tick that it belongs to."""
        raise ToolError(f"{self.name} must be called in a turn")


class MergeTool(CallOnly):
    """Merges a recorded patch. Called with the arguments that the reply of the harness has."""

    name = MERGE
    description = "Merge a recorded patch into the branch of the agent's workspace."
    tool_class = "write"
    runs_in_order = True

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
        order = MergeOrder(
            agent=context.agent.name, branch=branch, base=base, tree=tree, patch=patch, tick=context.tick,
            turn=context.call_id, at=context.began_at, org=organisation_id(context.base), summary=summary,
            base_branch=settings.base,
        )  # fmt: skip
        call: Json = {"files": files, "insertions": insertions, "deletions": deletions, "paths": paths}
        repository, engine_repo = open_workspace(context.org, workspace)
        require_same(context.org, engine_repo, {**call, "flags": flags, "diff": diff, **vars(order)})
        outcome = merge_tree(engine_repo, repository, order)
        if "conflict" in outcome:
            return ToolResult(False, dump_compact(_shorten_conflict(outcome)).decode())
        # No run goes on from this clone, also if the call is repeated after a kill.
        remove_stale_attempts(context.base, context.agent.name, keep="")
        return ToolResult(True, dump_compact(outcome).decode())


def open_workspace(org: Organisation, workspace: str) -> tuple[UserRepository, EngineRepository]:
    """Return a workspace's repository, and the engine's repository beside it."""
    repository = open_repository(locate_repository(org.base, workspace))
    folder = engine_repository_folder(Path(org.base), f"{repository.git_dir}")
    return repository, open_engine_repository(folder, repository)


def require_same(org: Organisation, engine_repo: EngineRepository, call: Mapping[str, Any]) -> None:
    """Make the tree of a call from its patch. Raises `ToolError` if a call does not describe its patch.

    A gate may have rewritten the call, or a person its record.
    """
    rebuild_tree(engine_repo, call["base"], load_patch(org, str(call["patch"])), call["tree"])
    for name, value in describe_changes(compare_trees(engine_repo, call["base"], call["tree"])).items():
        if call.get(name) != value:
            hint = "a gate cannot rewrite a patch: let it block, or ask a person who edits the patch"
            raise ToolError(f"merge: {name} must be that of the patch, got {to_line(call.get(name))[:200]}", hint=hint)


def _shorten_conflict(outcome: Json) -> Json:
    """Return the outcome of a conflict with texts that are short enough: a cut output tells nothing."""
    limit, whole = MAX_SIDE_BYTES, outcome["conflict"]
    while len(dump_compact(outcome)) > MAX_CONFLICT_BYTES and limit:
        limit //= 2
        files = dict([*whole.items()][: max(1, limit)])
        texts = {
            path: {side: text if len(text) <= limit else f"{text[:limit]}\n(cut)" for side, text in sides.items()}
            for path, sides in files.items()
        }
        outcome = {**outcome, "conflict": texts}
    return outcome


DIFF_CHARS = 24_000
SUMMARY_CHARS = 120


def make_merge_arguments(workspace: str, branch: str, base: str, changes: TakenTree, *, summary: str) -> Json:
    """Return the arguments of a call that merges changes of the commit `base`."""
    target = {"workspace": workspace, "branch": branch, "base": base, "tree": changes.tree}
    target["patch"] = sha256(changes.patch).hexdigest()
    return {**target, **describe_changes(changes), "summary": _break_markers(redact_values(summary))[:SUMMARY_CHARS]}


def describe_changes(changes: TakenTree) -> Json:
    """Return the arguments that follow from a patch."""
    diff, flags, files = to_diff(changes.patch), dict(changes.flags), changes.files
    if len(diff) > DIFF_CHARS:
        flags[""] = f"the patch has {len(diff)} characters, of which diff holds {DIFF_CHARS}"
        diff = diff[:DIFF_CHARS]
    return {
        "files": len(files), "insertions": sum(file.insertions for file in files),
        "deletions": sum(file.deletions for file in files), "paths": [file.path for file in files], "flags": flags,
        "diff": diff,
    }  # fmt: skip


def to_diff(patch: bytes) -> str:
    """Return a patch as text for gates and judges."""
    return _break_markers(patch.decode("utf-8", "replace"))


def _break_markers(text: str) -> str:
    """Return a text without what looks like the marker of a secret taken out, which stops a call."""
    return text.replace("[redacted ", "[redacted_")


def describe_merge(args: Mapping[str, Any]) -> str:
    """Return a call of `merge` on one line, also if somebody has edited the record of the call.

    >>> describe_merge({"branch": "lemming/coder", "files": 2, "insertions": 2, "deletions": 0, "summary": "Add b."})
    'merge into lemming/coder: 2 files, +2 -0: Add b.'
    >>> describe_merge({"branch": "b", "files": 1, "insertions": 1, "deletions": 0, "flags": {".mcp.json": "settings"}})
    'merge into b: 1 file, +1 -0, look closely at .mcp.json'
    """
    count = args.get("files")
    size = f"{count} {'file' if count == 1 else 'files'}, +{args.get('insertions')} -{args.get('deletions')}"
    flags = args.get("flags")
    flagged = sorted(filter(None, flags)) if isinstance(flags, Mapping) else []
    warning = f", look closely at {', '.join(flagged[:3])}" if flagged else ""
    warning += f" and {len(flagged) - 3} more" if len(flagged) > 3 else ""
    summary = f": {args['summary']}" if args.get("summary") else ""
    return " ".join(f"merge into {args.get('branch')}: {size}{warning}{summary}".split())


LIMIT_BYTES = 256 << 20


def patch_file(digest: str) -> str:
    """Return the path of a patch in the organisation."""
    return f"{PATCHES}/{digest}.patch"


def store_patch(org: Organisation, patch: bytes, *, sync: bool) -> str:
    """Write a patch durably, and return its SHA-256 in hex. Repeating this changes nothing."""
    digest = sha256(patch).hexdigest()
    if not fs.has_content(f"{org.base}/{patch_file(digest)}", patch):
        fs.write_atomic(org.base, patch_file(digest), patch, sync=sync)
    return digest


def load_patch(org: Organisation, digest: str) -> bytes:
    """Return a stored patch. Raises `ToolError` if the file is missing or does not have its digest."""
    path = f"{org.base}/{patch_file(digest)}"
    try:
        patch = fs.read_bytes(path, LIMIT_BYTES)
    except (OSError, LemmingError) as error:
        raise ToolError(f"patch {digest[:12]} must be in {PATCHES}, got {error}") from error
    if sha256(patch).hexdigest() != digest:
        raise ToolError(f"patch {patch_file(digest)} must have its digest, got {sha256(patch).hexdigest()[:12]}")
    return patch
