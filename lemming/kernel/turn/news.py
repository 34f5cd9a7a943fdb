"""What wakes an agent that takes turns only for something new (`wake: "changed"`). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.kernel.tools import Tool
from lemming.kernel.turn.notices import is_notice


def changed(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[str]:
    """Return in words what differs between two fingerprints of what an agent reads, which are not the same.

    >>> one, other = ({"resume": "r", "memory": {"plan": d}, "context": {}} for d in "ab")
    >>> changed(one, other), changed(one, None)
    (['memory plan'], ['everything'])
    """
    before = before or {}
    resume = ["its resume"] if now["resume"] != before.get("resume") else []
    memory = [f"memory {key}" for key in _differing(now["memory"], before.get("memory", {}))]
    files = _differing(now["context"], before.get("context", {}))
    return [*resume, *memory, *files] if before and (resume or memory or files) else ["everything"]


def _differing(now: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    return [key for key in sorted({*now, *before}) if now.get(key) != before.get(key)]


def is_news(result: Mapping[str, Any], tool: Tool | None) -> bool:
    """Return whether a result is worth a call: not that of a tool that has written as told."""
    if is_notice(result):
        return False
    is_a_persons_word = "call" in result
    return is_a_persons_word or not result["success"] or tool is None or tool.success_is_news
