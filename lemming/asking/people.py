"""What a person says from a program: an answer to what waits for them, a yes, a no."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lemming.capabilities.approvals.deciding import decide
from lemming.capabilities.requests.entries import write_answer
from lemming.capabilities.requests.waiting import WaitsForPerson, waiting
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.org.organisation import Organisation

__all__ = ["WaitsForPerson", "answer", "approve", "deny", "waiting"]
Waits = str | WaitsForPerson
"""What waits for a person: one of `waiting`, or the id of its request."""


def answer(
    org: str | os.PathLike[str], waits: Waits, text: str = "", *, person: str | None = None, **fields: Any
) -> str:
    """Answer what waits for a person, with a text or the fields that it asks for; return the entry's file.

    Raises `UsageError` where it has ended, or the answer is not what it asks for. The next tick takes it up.
    """
    return write_answer(Organisation.at(org), _id(waits), person=person, text=text, fields=fields).file


def approve(
    org: str | os.PathLike[str],
    waits: Waits,
    *,
    edits: Mapping[str, Any] | None = None,
    person: str | None = None,
) -> str:
    """Approve a call that waits, with other arguments by `edits`, or a step; return the entry's file.

    Raises `UsageError` where nothing waits, or it is decided already.
    """
    edited = [f"{key}={it if isinstance(it, str) else to_line(it)}" for key, it in (edits or {}).items()]
    return decide(Organisation.at(org), _id(waits), "approve", person=person, edits=edited).file


def deny(org: str | os.PathLike[str], waits: Waits, reason: str = "", *, person: str | None = None) -> str:
    """Say no to what `approve` says yes to, and why; return the entry's file. Raises as `approve`."""
    return decide(Organisation.at(org), _id(waits), "deny", person=person, text=reason).file


def _id(waits: Waits) -> str:
    return waits.identity if isinstance(waits, WaitsForPerson) else waits
