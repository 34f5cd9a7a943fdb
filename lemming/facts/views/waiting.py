"""What waits for a person: what is needed in one line, the call and its diff, the fields of the answer."""

from __future__ import annotations

from typing import Any

from lemming.capabilities.requests.fields import properties_of, schema_for, words_of
from lemming.capabilities.requests.now import requests_now
from lemming.capabilities.requests.waiting import WaitsForPerson, waiting_in
from lemming.mail.requests import RequestView
from lemming.org.organisation import Organisation, OrgPath

Json = dict[str, Any]


def waiting(org: OrgPath, *, person: str = "") -> Json:
    """Return what waits for people, or for one `person`, the oldest first."""
    org = Organisation.at(org)
    now = requests_now(org)
    items = [it for it in waiting_in(now, org) if person in ("", it.person)]
    shown = [_shown(item, now.requests.by_identity[item.identity]) for item in items]
    return {"people": sorted(now.people), "items": shown}


def _shown(item: WaitsForPerson, request: RequestView) -> Json:
    schema = schema_for(request)
    required = (schema or {}).get("required")
    return {
        **item.as_json(),
        "text": request.text,
        "line": item.line,
        "created_at": request.entry.created_at,
        "file": request.entry.file,
        "decides": item.call is not None or _decisions(request),
        "fields": [
            {
                "name": name,
                "about": words_of(schema, name),
                "is_required": isinstance(required, list) and name in required,
                **_form(field),
            }
            for name, field in properties_of(schema).items()
        ],
    }


def _decisions(request: RequestView) -> bool:
    """Return whether it is answered with a yes or no, as a plan that is proposed is."""
    field = properties_of(schema_for(request)).get("decision")
    return isinstance(field, dict) and "approve" in (field.get("enum") or ())


def _form(field: Any) -> Json:
    """Return how a field is best typed: one of a choice, yes or no, a number, or text."""
    plain = field if isinstance(field, dict) else {}
    if isinstance(plain.get("enum"), list):
        return {"form": "choice", "choice": [str(it) for it in plain["enum"]]}
    kind = plain.get("type")
    return {"form": {"boolean": "yes", "integer": "number", "number": "number"}.get(str(kind), "text")}
