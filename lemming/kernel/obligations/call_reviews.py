"""Calls of tools as a person decides about them: their descriptions, and the patches that they apply.

A capability provides a review for each tool whose arguments say too little to a person (kind `call_reviews`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, cast

from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import find_review

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class CallPatch:
    """The patch that a call would apply.

    `title`: the call without its summary. `facts`: labels with their values. `flags`: reasons to look closely, by path.
    `files`: objects with `path`, `status` (A added, M modified, D deleted, T another type), `insertions`, `deletions`,
    `is_binary`, and `hunks`: objects with `header` and `lines`, pairs of a mark (blank, "+", "-", "\\\\") and a text.
    `problem`: the reason that the call cannot be approved, or an empty text.
    """

    title: str
    summary: str
    facts: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[Json] = ()
    insertions: int = 0
    deletions: int = 0
    problem: str = ""

    def as_json(self) -> Json:
        """Return the patch as JSON values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class PatchEdit:
    """An edit by a person: a whole `patch` in place of the call's, or new `contents` of files, by path."""

    patch: bytes = b""
    contents: Mapping[str, str] = field(default_factory=dict)


class CallReview(Protocol):
    """The calls of one tool as a person decides about them. `args`: arguments of a call."""

    def describe(self, args: Mapping[str, Any]) -> str:
        """Return the call on one line, for use after "wants to". Reads no file."""
        ...

    def load_patch(self, org: Organisation, args: Mapping[str, Any]) -> CallPatch:
        """Return the patch of a call. An unreadable patch is told by `problem`."""
        ...

    def load_file(self, org: Organisation, args: Mapping[str, Any], path: str) -> str:
        """Return the text of a file after the call, or of the patch for an empty path. Raises `UsageError` for bytes."""
        ...

    def require_sound(self, org: Organisation, args: Mapping[str, Any]) -> None:
        """Raise `LemmingError` if the call cannot be made as a person sees it."""
        ...

    def apply_edit(self, org: Organisation, args: Mapping[str, Any], edit: PatchEdit) -> Json:
        """Store the edited patch and return the arguments of the call with it. Raises `UsageError` for a wrong one."""
        ...


def find_call_review(tool: str) -> CallReview | None:
    """Return the review of a tool's calls, or None for a tool whose arguments are shown as they are."""
    return cast("CallReview | None", find_review(tool))
