"""Notices: what the engine tells an agent of its turn, in its next prompt, in a message of its own. Pure.

They are kept among the results of calls until they are shown, so that they bear the trust of the turn. No
call gave them, and the model is not asked again for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from lemming.kernel.base.contract import TurnReply
from lemming.kernel.base.quoting import quoted
from lemming.kernel.providers import Message

T = TypeVar("T", bound=Mapping[str, Any])
NOTICE = "(notice)"
"""What a result is of that is a notice. No tool has such a name."""
NOTICE_CHARS = 1000


class Notices:
    """The notices of one turn; `texts` are those that are not among its results yet."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._useless_replies = 0  # in a row

    @property
    def should_ask_again(self) -> bool:
        """Whether the model is asked again for them: for the first useless reply in a row, once."""
        return self._useless_replies == 1

    def add(self, text: str) -> None:
        """Add a notice."""
        self.texts.append(text)

    def take(self, reply: TurnReply) -> list[dict[str, Any]]:
        """Return the notices of a reply that was acted on, with what was left out of it, as results."""
        if reply.left_out:
            self.add(f"In your last reply: {'; '.join(reply.left_out)}")
        is_of_use = reply.outbox_entries or reply.tool_calls or reply.memory_updates or not reply.left_out
        self._useless_replies = 0 if is_of_use else self._useless_replies + 1
        notices = [*map(as_notice, self.texts)]
        self.texts.clear()
        return notices


def as_notice(text: str) -> dict[str, Any]:
    """Return a notice of the engine to an agent, as it is kept among the results of calls.

    So it bears the trust of the turn, and is shown once; it is nothing to go on with.
    """
    return {"tool": NOTICE, "args": {}, "success": False, "output": text[:NOTICE_CHARS]}


def is_notice(result: Mapping[str, Any]) -> bool:
    """Return True if a result is a notice of the engine."""
    return bool(result["tool"] == NOTICE)


def without_notices(results: Iterable[T]) -> list[T]:
    """Return the results that calls gave."""
    return [result for result in results if not is_notice(result)]


def extract_notices(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the words of the notices among results, each as a line that says how far it is trusted."""
    return [
        f"{trust}{quoted(result['output'])}"
        for result in results
        if is_notice(result)
        for trust in [f"[trust: {result['trust']}] " if "trust" in result else ""]
    ]


def notices_message(notices: Iterable[str]) -> Message:
    """Return the message in which the engine tells the model something within the same turn."""
    return {"role": "user", "content": "\n".join(f"WARNING: {notice}" for notice in notices)}
