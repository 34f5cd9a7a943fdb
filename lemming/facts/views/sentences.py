"""What agents and people did, in sentences: one renderer for every screen. Pure.

Who shows a sentence has what it is made of at hand as well: it says less than the record, never more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.mail.references import named_in
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.plugins.capabilities import made_by

Json = dict[str, Any]
SHOWN_CHARS = 160

_WISHES: Mapping[str, str] = {
    "file_write": "write {path}",
    "file_edit": "change {path}",
    "file_append": "add to {path}",
    "file_read": "read {path}",
    "file_list": "list {path}",
    "file_delete": "delete {path}",
    "shell": "run `{command}`",
    "memory_write": "remember {key}",
    "memory_read": "look up {key}",
    "create_agent": "make the agent {name}",
    "list_agents": "list the agents",
}
WITHOUT_TOOL = frozenset({"show", "spend", "publish"})
"""The decisions that are about no call of a tool: docs/approvals.md."""


def wish_of(tool: str, args: Mapping[str, Any]) -> str:
    """Return what a call does, as what follows "wants to".

    >>> wish_of("shell", {"command": "git push"})
    'run `git push`'
    >>> wish_of("mail_send", {"to": "ada"})
    'call mail_send with to = ada'
    >>> wish_of("publish", {"kind": "report", "payload": {"text": "Done.", "target": ["ada", "bob"]}})
    'send a report to ada and bob'
    >>> wish_of("spend", {"credits": 100, "of": "agent"})
    'spend 100 credits more than its limit'
    """
    if tool in WITHOUT_TOOL:
        return _wish_without_tool(tool, args)
    template = _WISHES.get(tool)
    names = {key: short(value) for key, value in args.items()}
    try:
        return template.format_map(names) if template else _call(tool, names)
    except KeyError:  # it was called without what it is named by
        return _call(tool, names)


def _wish_without_tool(tool: str, args: Mapping[str, Any]) -> str:
    if tool == "show":
        return f"read an entry of {str(args.get('entry', '')).partition('/')[0]}"
    if tool == "spend":
        amounts = [_amount(key, value) for key, value in args.items() if key != "of"]
        return (
            f"spend {' and '.join(amounts)} more than its limit" if amounts else "spend more than its limit"
        )
    payload = args.get("payload")
    readers = sorted(named_in(payload.get("target"))) if isinstance(payload, Mapping) else []
    return f"send a {args.get('kind', 'message')} to {' and '.join(readers) or 'all its readers'}"


def _amount(unit: str, value: object) -> str:
    number = f"{value:,g}" if isinstance(value, (int, float)) else str(value)
    return f"${number}" if unit == "dollars" else f"{number} {unit}"


def _call(tool: str, names: Mapping[str, str]) -> str:
    said = ", ".join(f"{key} = {value}" for key, value in names.items())
    return f"call {tool} with {short(said)}" if said else f"call {tool}"


def text_said(payload: Mapping[str, Any]) -> str:
    """Return the text of an entry; of a request for approval what is wanted. Empty where there is none.

    >>> call = {"tool": "shell", "args": {"command": "ls"}, "gate": "config/org.json#/gates/0"}
    >>> text_said({"text": "shell: ...", "call": call})
    'wants to run `ls`'
    """
    call, text = payload.get("call"), payload.get("text")
    if made_by(payload) and isinstance(call, Mapping) and isinstance(args := call.get("args"), Mapping):
        return f"wants to {wish_of(str(call.get('tool')), args)}"
    return text if isinstance(text, str) else ""


def payload_text(payload: Mapping[str, Any]) -> str:
    """Return what an entry says beside its text, and to whom it goes.

    >>> payload_text({"decision": "approve", "args": {"path": "b.txt"}})
    'approved it, with path = b.txt instead'
    >>> payload_text({"ok": True, "reply_to": "x"})
    'ok: yes'
    """
    if word := payload.get("decision"):
        return _said_of_decision(str(word), payload)
    if payload.get("status") in ("refused", "failed"):
        return f"{payload['status']} it{_because(payload.get('reason'))}"
    if "cancels" in payload:
        return "took the request back"
    fields = {key: it for key, it in payload.items() if key not in ADDRESSING}
    return "; ".join(f"{key}: {short(value)}" for key, value in fields.items())


def message_of(entry: OutboxEntry, chars: int) -> Json:
    """Return an entry as every screen has it, its text cut; `says` is what it says beside that."""
    text = text_said(entry.payload)
    return {
        "identity": entry.identity,
        "id": entry.id,
        "agent": entry.agent,
        "tick": entry.tick,
        "kind": entry.kind,
        "text": text[:chars],
        "says": payload_text(entry.payload),
        "chars": len(text),
        "at": entry.created_at,
        "file": entry.file,
    }


ADDRESSING = frozenset({"text", "target", "reply_to", "conversation", "parent", "schema", "call", "join"})
"""What of a payload says to whom it goes and what it belongs to."""


def _said_of_decision(word: str, payload: Mapping[str, Any]) -> str:
    args = payload.get("args")
    match word:
        case "approve" if isinstance(args, dict):
            instead = ", ".join(f"{key} = {short(it)}" for key, it in args.items())
            return f"approved it, with {short(instead)} instead"
        case "approve":
            return "approved it"
        case "answer":
            return f"gave the result instead: {short(payload.get('answer'))}"
    return f"denied it{_because(payload.get('reason'))}"


def _because(reason: object) -> str:
    return f": {short(reason)}" if reason else ""


def short(value: object, most: int = SHOWN_CHARS) -> str:
    """Return a value on one line, cut where it is long.

    >>> short(True), short({"a": 1}), short("two  \\n lines")
    ('yes', '{"a": 1}', 'two lines')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = " ".join(value.split()) if isinstance(value, str) else to_line(value)
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
