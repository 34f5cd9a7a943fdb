"""The arguments of a call of `merge`, from a tree and its patch, and the call on one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.files.field_types import Json

DIFF_CHARS = 24_000
SUMMARY_CHARS = 120


def make_merge_arguments(
    *,
    workspace: str,
    branch: str,
    base: str,
    tree: str,
    digest: str,
    patch: bytes,
    files: Sequence[Mapping[str, Any]],
    flags: Mapping[str, str],
    summary: str,
) -> Json:
    """Return the arguments of a call that merges a patch. `digest`: its SHA-256. `files`: fields of `ChangedFile`."""
    target = {"workspace": workspace, "branch": branch, "base": base, "tree": tree, "patch": digest}
    summary = _break_markers(redact_values(summary))[:SUMMARY_CHARS]
    return {**target, **describe_changes(patch, files, flags), "summary": summary}


def describe_changes(patch: bytes, files: Sequence[Mapping[str, Any]], flags: Mapping[str, str]) -> Json:
    """Return the arguments that follow from a patch."""
    diff, flags = to_diff(patch), dict(flags)
    if len(diff) > DIFF_CHARS:
        flags[""] = f"the patch has {len(diff)} characters, of which diff holds {DIFF_CHARS}"
        diff = diff[:DIFF_CHARS]
    return {
        "files": len(files),
        "insertions": sum(file["insertions"] for file in files),
        "deletions": sum(file["deletions"] for file in files),
        "paths": [file["path"] for file in files],
        "flags": flags,
        "diff": diff,
    }


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
