"""Decisions of persons on pending actions, read from payloads. Pure: docs/gates.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from lemming.kernel.files.fast_decoder import MAX_AMOUNT

Json = dict[str, Any]
DecisionKind = Literal["approve", "deny", "answer"]


class Decision(NamedTuple):
    """Decision of a person. `args`: edited arguments. `text`: the reason or the result.

    `binds`: digests of the files named by `args` at the time of the decision, if present.
    """

    kind: DecisionKind
    text: str = ""
    args: Json | None = None
    binds: Json | None = None


def is_approval_request(payload: Mapping[str, Any]) -> bool:
    """Return True if a request's payload asks for approval of an action.

    >>> is_approval_request({"call": {"gate": "config/org.json#/gates/0"}}), is_approval_request({"text": "really?"})
    (True, False)
    """
    call = payload.get("call")
    return isinstance(call, dict) and call.get("gate") is not None


def parse_decision(payload: Mapping[str, Any]) -> Decision | None:
    """Return the decision in a response's payload, or None.

    >>> parse_decision({'decision': 'deny', 'reason': 'not on a Friday'})
    Decision(kind='deny', text='not on a Friday', args=None, binds=None)
    >>> parse_decision({"text": "yes please"})
    """
    if payload.get("status") in ("refused", "failed"):
        return Decision("deny", _text_field(payload, "reason"))
    match payload.get("decision"):
        case "approve":
            args, binds = payload.get("args"), payload.get("binds")
            is_sound = isinstance(args, dict | None) and isinstance(binds, dict | None)
            return Decision("approve", args=args, binds=binds) if is_sound else None
        case "deny":
            return Decision("deny", _text_field(payload, "reason"))
        case "answer" if text := _text_field(payload, "answer"):
            return Decision("answer", text)
    return None


def _text_field(payload: Mapping[str, Any], key: str) -> str:
    return next((text for name in (key, "text") if isinstance(text := payload.get(name), str) and text), "")


def is_amount(value: object) -> bool:
    """Return True for a valid raise of a limit.

    >>> is_amount(2), is_amount(0.5), is_amount(0), is_amount(-3), is_amount(True), is_amount("3")
    (True, True, False, False, False, False)
    """
    return isinstance(value, int | float) and value is not True and 0 < value <= MAX_AMOUNT
