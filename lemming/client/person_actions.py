"""Act for a person from a program: answer, approve or deny pending items."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lemming.kernel.base.aliases import accept_old_keywords
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.org.organisation import Organisation
from lemming.obligations.request_entries import write_answer
from lemming.obligations.waiting_items import PersonInboxItem, list_person_inbox
from lemming.obligations.write_decisions import decide

__all__ = ["PersonInboxItem", "answer", "approve", "deny", "list_person_inbox"]
PendingItem = str | PersonInboxItem
"""An item of a person's inbox, or the id of its request."""


@accept_old_keywords
def answer(
    org: str | os.PathLike[str], item: PendingItem, text: str = "", *, person: str | None = None, **fields: Any
) -> str:
    """Answer a person's pending item with a text or with its requested fields; return the entry's file.

    Raises `UsageError` for an ended item or an unsuitable answer. The next tick processes the answer.
    """
    return write_answer(Organisation.from_path(org), _get_id(item), person=person, text=text, fields=fields).file


@accept_old_keywords
def approve(
    org: str | os.PathLike[str], item: PendingItem, *, edits: Mapping[str, Any] | None = None, person: str | None = None
) -> str:
    """Approve a pending call, with changed arguments in `edits`, or a pending step; return the entry's file.

    Raises `UsageError` without a pending item, or for an item already decided.
    """
    edited = [f"{key}={value if isinstance(value, str) else to_line(value)}" for key, value in (edits or {}).items()]
    return decide(Organisation.from_path(org), _get_id(item), "approve", person=person, edits=edited).file


@accept_old_keywords
def deny(org: str | os.PathLike[str], item: PendingItem, reason: str = "", *, person: str | None = None) -> str:
    """Deny a pending item with a reason, and return the entry's file. Raises as `approve` does."""
    return decide(Organisation.from_path(org), _get_id(item), "deny", person=person, text=reason).file


def _get_id(item: PendingItem) -> str:
    return item.identity if isinstance(item, PersonInboxItem) else item
