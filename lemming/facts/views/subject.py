"""The subject of a decision, whole: the entry or the amount that a person decides about.

A call of a tool is shown by its arguments. Three decisions are about something else (docs/approvals.md): to
show an agent an entry, to write an entry, to spend more than a limit allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lemming.kernel.base.jsontext import pretty
from lemming.kernel.mail.index import EntryIndex
from lemming.kernel.mail.references import named_in
from lemming.kernel.messages import OutboxEntry, names_of
from lemming.kernel.org.organisation import Organisation

Json = dict[str, Any]
_REFERENCES = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_-]*/[0-9]{8,12}_[0-9a-f]{12}|\b[0-9a-f]{12}\b|[\w.-]+(?:/[\w.-]+)*/[\w.-]*\w"
)


def find_subject(org: Organisation, call: Mapping[str, Any], asker: str) -> Json | None:
    """Return the subject of a pending call: `{"entry": ...}`, `{"spend": ...}`, or None for a call of a tool.

    An entry that cannot be read any more has only `missing`, which says so.
    """
    args = call["args"]
    match call["tool"]:
        case "show":
            return {"entry": _readable_entry(org, str(args.get("entry", "")))}
        case "publish":
            return {
                "entry": _entry(
                    asker, args.get("kind", ""), args.get("payload") or {}, args.get("tags") or ()
                )
            }
        case "spend":
            more = {key: value for key, value in args.items() if key != "of"}
            return {"spend": {"more": more, "of": args.get("of", ""), "now": call.get("amounts")}}
    return None


def _readable_entry(org: Organisation, identity: str) -> Json:
    entry = next((org.own(EntryIndex).read(name) for name in names_of([identity])), None)
    if not isinstance(entry, OutboxEntry):
        return {"missing": f"{identity} cannot be read any more: do not let in what you have not seen"}
    shown = _entry(entry.agent, entry.kind, entry.payload, entry.tags)
    return {**shown, "identity": entry.identity, "file": entry.file, "at": entry.created_at}


def _entry(author: str, kind: str, payload: Mapping[str, Any], tags: Sequence[str]) -> Json:
    """Return an entry as a person reads it: nothing of its payload is cut or left out."""
    text = payload.get("text")
    is_text = isinstance(text, str)
    fields = {
        key: value for key, value in payload.items() if key != "target" and not (is_text and key == "text")
    }
    return {
        "author": author,
        "kind": kind,
        "to": sorted(named_in(payload.get("target"))),
        "text": text if is_text else "",
        "fields": [[key, _field_text(value)] for key, value in fields.items()],
        "tags": [*tags],
    }


def _field_text(value: Any) -> str:
    return value if isinstance(value, str) else pretty(value).decode().rstrip("\n")


def references_in(value: Any) -> set[str]:
    """Return the ids of entries and the paths that a JSON value names.

    >>> sorted(references_in({"path": "shared/a.txt", "why": "see mail/00000042_3fa9c1d2e0b7"}))
    ['mail/00000042_3fa9c1d2e0b7', 'shared/a.txt']
    """
    match value:
        case str():
            return {*_REFERENCES.findall(value)}
        case Mapping():
            return {name for key, each in value.items() if key != "schema" for name in references_in(each)}
        case list() | tuple():
            return {name for each in value for name in references_in(each)}
    return set()
