"""Notices: messages of the engine to an agent, shown in the next prompt as a message of their own. Pure.

Notices are stored among the results of calls until shown, and so carry the trust of the turn. No call gave a
notice, and the model is not asked again for a notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from lemming.kernel.base.contract import TurnReply
from lemming.kernel.base.untrusted_quoting import escape_markers
from lemming.kernel.providers import Message

T = TypeVar("T", bound=Mapping[str, Any])
NOTICE = "(notice)"
"""Tool name in the result of a notice. No tool has such a name."""
NOTICE_CHARS = 1000


class Notices:
    """Notices of a turn. `texts` are the notices not yet among the results."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._useless_replies = 0  # in a row

    @property
    def should_retry(self) -> bool:
        """True if the model is asked again because of notices: once, after the first useless reply in a row."""
        return self._useless_replies == 1

    def add(self, text: str) -> None:
        """Add a notice."""
        self.texts.append(text)

    def to_results(self, reply: TurnReply) -> list[dict[str, Any]]:
        """Return the notices of an applied reply and the omissions as results."""
        if reply.left_out:
            self.add(f"In your last reply: {'; '.join(reply.left_out)}")
        is_useful = reply.outbox_entries or reply.tool_calls or reply.memory_updates or not reply.left_out
        self._useless_replies = 0 if is_useful else self._useless_replies + 1
        notices = [*map(to_notice_result, self.texts)]
        self.texts.clear()
        return notices


def to_notice_result(text: str) -> dict[str, Any]:
    """Return a notice as a result among the results of calls.

    The result carries the trust of the turn, is shown once, and does not continue the turn.
    """
    return {"tool": NOTICE, "args": {}, "success": False, "output": text[:NOTICE_CHARS]}


def is_notice(result: Mapping[str, Any]) -> bool:
    """Return True if a result is a notice of the engine."""
    return bool(result["tool"] == NOTICE)


def without_notices(results: Iterable[T]) -> list[T]:
    """Return the results of calls without notices."""
    return [result for result in results if not is_notice(result)]


def extract_notices(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the texts of the notices among results, each as a line with a trust label."""
    return [
        f"{trust}{escape_markers(result['output'])}"
        for result in results
        if is_notice(result)
        for trust in [f"[trust: {result['trust']}] " if "trust" in result else ""]
    ]


def notices_message(notices: Iterable[str]) -> Message:
    """Return the message with the engine's notices to the model within a turn."""
    return {"role": "user", "content": "\n".join(f"WARNING: {notice}" for notice in notices)}
