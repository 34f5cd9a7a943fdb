"""Pending actions, as ledgers and requests for approval hold them. Pure: docs/gates.md.

The exact action is stored in the agent's ledger; the request for approval only shows the action to people.
Changes of the request do not change the action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, cast

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.times import Expiry, expiry_payload
from lemming.kernel.obligations.grants import action_digest
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import find_fact
from lemming.kernel.plugins.capability_table import provided
from lemming.libraries.invisible_text import find_suspicious_text

Json = dict[str, Any]
# Part of entries, like the note of `truncate`: a replay of a 0.2.0 journal must give the same bytes.
INSPECT_NOTE = "LOOK CLOSELY: there is more to it than is seen; `lemming approvals ID` says what"
ARGS_CHARS, DIFF_CHARS = 300, 8000

DECISION: Json = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approve", "deny", "answer"]},
        "args": {"type": "object", "description": "approve: make it with these arguments instead"},
        "reason": {"type": "string", "description": "deny: why"},
        "answer": {"type": "string", "description": "answer: the result, in the place of the call"},
    },
    "required": ["decision"],
}
"""The JSON Schema of a decision, which requests for approval carry."""


@dataclass(frozen=True, kw_only=True)
class PendingAction:
    """An action that waits for a person: a tool call, or an equivalent.

    `gate`: line of the gate that asks. `binds`: SHA-256 of the involved files. `unbound`: descriptions of
    effects that may still change. `grants`: approvals of the same call by other persons, while one more is needed.
    """

    id: str
    tool: str
    args: Json
    gate: str
    reason: str
    binds: Json = field(default_factory=dict)
    unbound: Sequence[str] = ()
    grants: Sequence[Mapping[str, Any]] = ()

    @property
    def sha256(self) -> str:
        """Digest that identifies the action."""
        return action_digest(self.tool, self.args)

    def as_json(self) -> Json:
        """Return the action as JSON for the ledger."""
        return {
            "id": self.id,
            "tool": self.tool,
            "args": self.args,
            "sha256": self.sha256,
            "binds": self.binds,
            "gate": self.gate,
            "why": self.reason or "a gate asks for approval",
            **({"unbound": [*self.unbound]} if self.unbound else {}),
            **({"grants": [*self.grants]} if self.grants else {}),
        }

    def build_request(
        self,
        people: Sequence[str],
        expires: Sequence[Expiry],
        at: str,
        *,
        diff: str = "",
        suffix: str = "",
        amounts: Mapping[str, Any] | None = None,
    ) -> Json:
        """Return the payload of the request to these persons, which ends at the earliest expiry.

        `diff` and `amounts` (`GateVerdict.amounts`) only inform: the approval is not bound to them.
        """
        call = self.as_json()
        details = {key: value for key, value in (("diff", truncate(diff, DIFF_CHARS)), ("amounts", amounts)) if value}
        payload: Json = {
            "text": f"{describe_call(call)}{suffix}",
            "target": people[0] if len(people) == 1 else [*people],
            "schema": DECISION,
            "call": {**call, **details},
        }
        join: Json = {"join": "first"} if len(people) > 1 else {}
        return {**payload, **join, **expiry_payload(expires, at)}


def too_many_message(max_approvals: int) -> str:
    """Return the message to a turn that has reached the maximum number of approval requests."""
    return (
        f"NOT YET: this turn asks persons to approve {max_approvals} things already, as many as it may "
        "(turn.max_approvals); ask for the rest once these are decided"
    )


def describe_call(call: Mapping[str, Any]) -> str:
    """Return a pending call and the reason for the question on one line.

    >>> push = {'tool': 'shell', 'args': {'command': 'git push'}, 'why': 'it sends', 'gate': 'org.json#/0'}
    >>> describe_call(push)
    'shell: run `git push`; asks because it sends (org.json#/0)'
    """
    review = find_call_review(call["tool"])
    action = review.describe(call["args"]) if review else f"{call['tool']}: {_describe_arguments(call['args'])}"
    line = f"{action}; asks because {call['why']} ({call['gate']})"
    return f"{line}; {INSPECT_NOTE}" if any(find_suspicious_text(call["args"])) else line


def _describe_arguments(args: Json) -> str:
    command = args.get("command")
    if args.keys() == {"command"} and isinstance(command, str):
        return f"run `{truncate(to_line(command)[1:-1])}`"
    return truncate(to_line(args))


def truncate(text: str, max_chars: int = ARGS_CHARS) -> str:
    """Return a text, or the beginning of a longer text with a note about the omission."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}… (NOT WHOLE: {len(text)} characters; `lemming approvals ID` shows all)"


@dataclass(frozen=True, kw_only=True)
class CallPatch:
    """The patch that a call would apply.

    `title`: the call without its summary. `facts`: labels with their values. `flags`: reasons to look closely, by path.
    `files`: objects with `path`, `status` (A added, M modified, D deleted, T another type), `insertions`, `deletions`,
    `is_binary`, `size_bytes` of a binary file, and `hunks`: objects with `header` and `lines`, pairs of a mark (blank,
    "+", "-", "\\\\") and a text.
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
    """The calls of one tool as persons and gates decide about them. `args`: arguments of a call."""

    def describe(self, args: Mapping[str, Any]) -> str:
        """Return the call on one line, for use after "wants to". Reads no file."""
        ...

    def expand_arguments(self, org: Organisation, args: Any) -> Any:
        """Return the arguments as gates look at them: in full, where a call shows a part."""
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
    owner, _ = provided("tools").get(tool, ("", ""))
    fact = f"{owner}.review_{tool}"
    return cast("CallReview | None", find_fact(fact)) if fact in provided("facts") else None
