"""Extraction of the one JSON object in a reply's text. Pure."""

from __future__ import annotations

import re
from collections.abc import KeysView
from typing import Any

from lemming.kernel.base.call_shapes import CONTRACT_KEYS
from lemming.kernel.base.errors import ContractError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.reply_json import MAX_REPLY_DEPTH, FoundObject, drop_thinking, find_objects

REPLY_LIMIT_BYTES = 1 << 20
_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\r?\n(.*?)```", re.DOTALL)


def extract_object(
    text: str, remarks: list[str], keys: KeysView[str] = CONTRACT_KEYS, *, is_strict: bool = False
) -> dict[str, Any]:
    """Return the one JSON object of a reply: bare, or with a known key in a fence or prose."""
    stripped = text.strip() if is_strict else drop_thinking(text)
    if not stripped:
        raise ContractError("the reply is empty")
    require_size(stripped)
    try:
        return _require_object(parse(stripped, max_depth=MAX_REPLY_DEPTH))
    except JsonProblem as error:
        objects = _find_matching_objects(stripped, keys, is_strict)
        if objects and (objects[0].start, objects[0].end) == (0, len(stripped)):
            remarks.append("the JSON was not strict")
            return objects[0].value
        # a fence first: it holds what was meant, and the prose around it may quote other objects
        fenced_blocks = _FENCE.findall(stripped)
        candidates = [
            item for block in fenced_blocks for item in _find_matching_objects(block, keys, is_strict)
        ] or objects
        if len(candidates) == 1:
            remarks.append("the JSON stood in a code fence" if fenced_blocks else "the JSON stood in prose")
            return candidates[0].value
        if len(candidates) > 1:
            raise ContractError(f"the reply holds {len(candidates)} JSON objects; send exactly one") from error
        position = f" at line {error.line}, column {error.column}" if error.line else ""
        raise ContractError(f"the reply is not one JSON object: {error.message}{position}") from error


def require_size(text: str) -> None:
    """Raise `ContractError` for an oversized reply."""
    may_be_too_large = 4 * len(text) > REPLY_LIMIT_BYTES  # no character takes more than four bytes
    if may_be_too_large and len(text.encode("utf-8", "replace")) > REPLY_LIMIT_BYTES:
        raise ContractError(f"the reply is larger than {REPLY_LIMIT_BYTES} bytes")


def has_contract(text: str) -> bool:
    """Return True if a text holds one object with keys of the contract, even an invalid one."""
    try:
        return not extract_object(text, []).keys().isdisjoint(CONTRACT_KEYS)
    except ContractError:
        return False


def _require_object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ContractError("the reply must be a JSON object")


def _find_matching_objects(text: str, keys: KeysView[str], is_strict: bool) -> list[FoundObject]:
    """Return the outermost JSON objects in a text with at least one of the keys."""
    return [candidate for candidate in find_objects(text, is_strict=is_strict) if not keys.isdisjoint(candidate.value)]
