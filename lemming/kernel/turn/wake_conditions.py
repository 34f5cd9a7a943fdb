"""News for an agent that takes turns only on changes (`wake: "changed"`). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.kernel.tools import Tool
from lemming.kernel.turn.notices import is_notice


def describe_changes(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[str]:
    """Return descriptions of the differences between two different fingerprints of an agent's inputs.

    >>> one, other = ({'resume': 'r', 'memory': {'plan': d}, 'context': {}} for d in 'ab')
    >>> describe_changes(one, other), describe_changes(one, None)
    (['memory plan'], ['everything'])
    """
    old = old or {}
    resume = ["its resume"] if new["resume"] != old.get("resume") else []
    memory = [f"memory {key}" for key in _changed_keys(new["memory"], old.get("memory", {}))]
    files = _changed_keys(new["context"], old.get("context", {}))
    return [*resume, *memory, *files] if old and (resume or memory or files) else ["everything"]


def _changed_keys(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    return [key for key in sorted({*new, *old}) if new.get(key) != old.get(key)]


def is_news(result: Mapping[str, Any], tool: Tool | None) -> bool:
    """Return True if a result justifies a model call. A tool that wrote as told gives no news."""
    if is_notice(result):
        return False
    is_from_person = "call" in result
    return is_from_person or not result["success"] or tool is None or tool.success_is_news
