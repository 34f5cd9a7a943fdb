"""Calls of `merge` as a person decides about them: read from the stored patch, and edited through the engine's repository.

What is shown comes from the patch with the digest that the call names, never from the argument `diff`, which may be cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from lemming.capabilities.workers.merge_tool import (
    DIFF_CHARS,
    describe_merge,
    load_patch,
    make_merge_arguments,
    open_workspace,
    patch_file,
    require_same,
    store_patch,
    to_diff,
)
from lemming.capabilities.workers.repositories.git_command import RepositoryError
from lemming.capabilities.workers.repositories.patches import FileDiff, apply_patch, parse_patch, replace_file
from lemming.capabilities.workers.repositories.tree_walk import to_text
from lemming.capabilities.workers.repositories.user_repository import require_own_branch
from lemming.capabilities.workers.repositories.work_tree import compare_trees, list_tree
from lemming.ext import LemmingError
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.integers import to_int
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.files.field_types import Json
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.invisible_text import find_suspicious_text
from lemming.libraries.wording import join_names
from lemming.obligations.pending_actions import CallPatch, PatchEdit

_MAX_NAMES_SHOWN = 5
_FAILED_HUNK = re.compile(r"patch failed: (.+):(\d+)")
_OLD_LINE = re.compile(r"@@ -(\d+)")


class _KnownPatches:
    """Results for patches, which are named by their content: a page shows the same patch again each second."""

    def __init__(self, _org: Organisation) -> None:
        self.sound: set[bytes] = set()
        self._notes: dict[str, str] = {}

    def describe_text(self, digest: str, patch: bytes) -> Mapping[str, str]:
        """Return a warning about signs in a patch that are not seen or look like others, by "the whole patch"."""
        if digest not in self._notes:
            # The arguments are looked at anyway, with the beginning of the patch.
            text = patch.decode("utf-8", "replace") if len(patch) > DIFF_CHARS else ""
            self._notes[digest] = "; ".join(find_suspicious_text({"patch": text}))
        return {"the whole patch": self._notes[digest]} if self._notes[digest] else {}


def _describe_binary_files(files: Sequence[FileDiff]) -> dict[str, str]:
    """Return a warning about files of which a patch shows nothing, by "binary files"."""
    binary_files = [file for file in files if file.is_binary and file.status != "D"]
    if not binary_files:
        return {}
    sizes = f"{sum(file.size_bytes for file in binary_files):,} bytes"
    names = join_names([file.path for file in binary_files], _MAX_NAMES_SHOWN)
    return {"binary files": f"{len(binary_files)} with {sizes}, of which nothing is shown: {names}"}


class MergeReview:
    """Calls of `merge`. `args`: their arguments."""

    def describe(self, args: Mapping[str, Any]) -> str:
        """Return the call on one line. Reads no file."""
        return describe_merge(args)

    def expand_arguments(self, org: Organisation, args: Any) -> Any:
        """Return the arguments with the whole patch as `diff`."""
        if not (isinstance(args, dict) and isinstance(args.get("flags"), dict) and "" in args["flags"]):
            return args
        with suppress(LemmingError):  # without its patch, the call will fail
            return {**args, "diff": to_diff(load_patch(org, str(args.get("patch"))))}
        return args

    def load_patch(self, org: Organisation, args: Mapping[str, Any]) -> CallPatch:
        """Return the patch of a call, as it is stored. `problem`: the reason that it cannot be approved."""
        files, problem = [], ""
        flags = {path: reason for path, reason in args["flags"].items() if path}
        try:
            patch = load_patch(org, str(args["patch"]))
            files = parse_patch(patch)
            flags |= org.get_cache(_KnownPatches).describe_text(args["patch"], patch)
            flags |= _describe_binary_files(files)
            self.require_sound(org, args)
        except LemmingError as error:
            problem = error.message
        return CallPatch(
            title=f"merge into {args['branch']} of {args['workspace']}", summary=args["summary"],
            facts={"based on": f"commit {args['base'][:12]}", "patch": patch_file(args["patch"])}, flags=flags,
            files=[asdict(file) for file in files], insertions=sum(file.insertions for file in files),
            deletions=sum(file.deletions for file in files), problem=problem,
        )  # fmt: skip

    def load_file(self, org: Organisation, args: Mapping[str, Any], path: str) -> str:
        """Return the text of a file with the patch, or of the patch for an empty path. Raises `UsageError` for bytes."""
        patch = load_patch(org, args["patch"])
        if path:
            engine_repo = open_workspace(org, args["workspace"])[1]
            tree = apply_patch(engine_repo, args["base"], patch)
            names = {to_text(name): blob for name, (_, blob) in list_tree(engine_repo, tree).items()}
            if path not in names:
                raise UsageError(f"the patch leaves no file {path}", hint="edit the patch itself")
            patch = engine_repo.read_blobs([names[path]])[0]
        try:
            return patch.decode()
        except UnicodeDecodeError as error:
            hint = f"edit a copy of {patch_file(args['patch'])}, then: lemming approve ID --patch FILE"
            raise UsageError(f"{path or 'the patch'} must be text, got other bytes", hint=hint) from error

    def require_sound(self, org: Organisation, args: Mapping[str, Any]) -> None:
        """Raise `LemmingError` if the branch is not free, or the stored patch is missing or not that of the call."""
        repository, engine_repo = open_workspace(org, args["workspace"])
        require_own_branch(repository, args["branch"], "NAME")
        load_patch(org, args["patch"])  # its file may have changed since
        key, cache = dump_compact(args), org.get_cache(_KnownPatches)
        if key not in cache.sound:
            require_same(org, engine_repo, args)
            cache.sound.add(key)

    def apply_edit(self, org: Organisation, args: Mapping[str, Any], edit: PatchEdit) -> Json:
        """Store the edited patch, and return the arguments of a call with it. Raises `UsageError` for a wrong patch."""
        engine_repo, base = open_workspace(org, args["workspace"])[1], args["base"]
        patch = edit.patch or load_patch(org, args["patch"])
        try:
            tree = apply_patch(engine_repo, base, patch, is_edited=True)
        except RepositoryError as error:
            raise UsageError(f"patch must apply to commit {base[:12]}: {_explain(patch, error.message)}") from error
        for path, text in edit.contents.items():
            tree = replace_file(engine_repo, tree, path, text.encode())
        changes = compare_trees(engine_repo, base, tree)
        if not changes.files:
            raise UsageError("patch must change a file, got no change", hint="lemming deny ID --reason TEXT")
        store_patch(org, changes.patch, sync=True)
        return make_merge_arguments(args["workspace"], args["branch"], base, changes, summary=args["summary"])


REVIEW = MergeReview()


def _explain(patch: bytes, message: str) -> str:
    """Return git's error with the hunk that does not apply, if git names the hunk."""
    if not (match := _FAILED_HUNK.search(message)):
        return message.partition("error: ")[2] or message
    path, line = match[1], to_int(match[2])
    for file in parse_patch(patch):
        for number, hunk in enumerate(file.hunks if file.path == path else (), 1):
            if (start := _OLD_LINE.match(hunk.header)) and to_int(start[1]) == line:
                return f"hunk {number} of {path} does not apply ({hunk.header})"
    return f"a hunk of {path} does not apply, near line {line}"
