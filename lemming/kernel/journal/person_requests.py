"""What waits for the decision of a person, as ledgers hold it: pending actions, and requests outside of calls.

`lemming.obligations` reads and writes the decisions; the capability `approvals` acts on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.open_requests import iter_person_requests
from lemming.kernel.plugins.capability_table import APPROVALS

SHOW, SPEND, PUBLISH = "show", "spend", "publish"
"""Names in place of a tool: showing an entry, spending more, writing an entry."""


def validate_decisions(states: Mapping[str, Json]) -> None:
    """Raise `ValueError` for invalid state about decisions: used, pending and denied ones."""
    state = states.get(APPROVALS)
    if state is None:
        return
    used = state.get("used", [])
    if not (isinstance(used, list) and all(isinstance(item, str) for item in used)):
        raise ValueError("kept/approvals/used must be a list of entries")
    if not isinstance(state.get("asked", []), list):
        raise ValueError("kept/approvals/asked must be a list")
    denied, texts = state.get("denied", []), ("request", "id", "sha256", "by", "reason")
    if not isinstance(denied, list) or not all(_is_denial(item, texts) for item in denied):
        raise ValueError("kept/approvals/denied must be a list of denied calls")
    for sub_request in iter_person_requests(states):
        validate_pending_action(sub_request.held.get(APPROVALS, {}))


def _is_denial(raw: object, texts: Iterable[str]) -> bool:
    is_sound = isinstance(raw, dict) and isinstance(raw.get("binds"), dict)
    return is_sound and isinstance(raw, dict) and all(isinstance(raw.get(key), str) for key in texts)


def validate_pending_action(raw: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a pending action that the engine did not write."""
    args, texts = raw.get("args"), ("id", "tool", "sha256", "gate", "why")
    is_sound = isinstance(args, dict) and isinstance(raw.get("binds"), dict)
    if not is_sound or not all(isinstance(raw.get(key), str) for key in texts):
        raise ValueError("approvals: a pending call must have id, tool, args, sha256, binds, gate and why")
    grants = raw.get("grants", [])
    if not isinstance(grants, list) or not all(_is_grant(grant) for grant in grants):
        raise ValueError("approvals: the grants of a pending call must have id, by, entry, sha256 and binds")
    assert isinstance(args, dict), "looked at above"
    if raw["tool"] == SHOW and not isinstance(args.get("entry"), str):
        raise ValueError("approvals: a pending entry must name its entry")
    amounts = [value for key, value in args.items() if key != "of"]
    if raw["tool"] == SPEND and not ("of" in args and all(type(amount) in (int, float) for amount in amounts)):
        raise ValueError("approvals: a pending expense must name its amount")


def _is_grant(raw: Any) -> bool:
    is_sound = isinstance(raw, dict) and isinstance(raw.get("binds"), dict)
    return is_sound and all(isinstance(raw.get(key), str) for key in ("id", "by", "entry", "sha256"))
