"""The subject of a decision: the complete entry or amount a person decides about.

A tool call is shown by its arguments. Three decisions have another subject (docs/gates.md): showing an
entry to an agent, writing an entry, spending more than a limit allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.obligations.request_payloads import parse_references
from lemming.kernel.org.organisation import Organisation
from lemming.queries.views.moments import find_entry

Json = dict[str, Any]
_REFERENCES = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_-]*/[0-9]{8,12}_[0-9a-f]{12}|\b[0-9a-f]{12}\b|[\w.-]+(?:/[\w.-]+)*/[\w.-]*\w"
)


def find_subject(org: Organisation, call: Mapping[str, Any], asker: str) -> Json | None:
    """Return the subject of a pending call, `{"entry": ...}` or `{"spend": ...}`, or None for a tool call.

    An unreadable entry has only the field `missing`, with an explanation.
    """
    args = call["args"]
    match call["tool"]:
        case "show":
            return {"entry": _load_entry(org, str(args.get("entry", "")))}
        case "publish":
            payload, tags = args.get("payload") or {}, args.get("tags") or ()
            return {"entry": _entry_to_json(asker, args.get("kind", ""), payload, tags)}
        case "spend":
            excess = {key: value for key, value in args.items() if key != "of"}
            return {"spend": {"more": excess, "of": args.get("of", ""), "now": call.get("amounts")}}
    return None


def _load_entry(org: Organisation, identity: str) -> Json:
    entry = find_entry(org, identity)
    if entry is None:
        return {"missing": f"{identity} cannot be read any more: do not let in what you have not seen"}
    row = _entry_to_json(entry.agent, entry.kind, entry.payload, entry.tags)
    return {**row, "identity": entry.identity, "file": entry.file, "at": entry.created_at}


def _entry_to_json(author: str, kind: str, payload: Mapping[str, Any], tags: Sequence[str]) -> Json:
    """Return an entry in the form a person reads; nothing in its payload is shortened or omitted."""
    text = payload.get("text")
    is_text = isinstance(text, str)
    fields = {key: value for key, value in payload.items() if key != "target" and not (is_text and key == "text")}
    return {
        "author": author,
        "kind": kind,
        "to": sorted(parse_references(payload.get("target"))),
        "text": text if is_text else "",
        "fields": [[key, _format_field(value)] for key, value in fields.items()],
        "tags": [*tags],
    }


def _format_field(value: Any) -> str:
    return value if isinstance(value, str) else dump_pretty(value).decode().rstrip("\n")


def find_references(value: Any) -> set[str]:
    """Return the entry ids and paths contained in a JSON value.

    >>> sorted(find_references(["shared/a.txt", "see mail/00000042_3fa9c1d2e0b7"]))
    ['mail/00000042_3fa9c1d2e0b7', 'shared/a.txt']
    """
    match value:
        case str():
            return {*_REFERENCES.findall(value)}
        case Mapping():
            return {item for key, child in value.items() if key != "schema" for item in find_references(child)}
        case list() | tuple():
            return {reference for child in value for reference in find_references(child)}
    return set()
