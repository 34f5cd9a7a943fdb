"""What waits for a person: what is needed in one line, the call and its diff, the fields of the answer."""

from __future__ import annotations

from typing import Any

from lemming.capabilities.requests.fields import properties_of, schema_for, words_of
from lemming.capabilities.requests.now import requests_now
from lemming.capabilities.requests.view import RequestView
from lemming.capabilities.requests.waiting import WaitsForPerson, waiting_in
from lemming.facts.views.because import because_of
from lemming.facts.views.sentences import wish_of
from lemming.org.organisation import Organisation, OrgPath

Json = dict[str, Any]


def waiting(org: OrgPath, *, person: str = "", item: str = "") -> Json:
    """Return what waits for people, or for one `person`, the oldest first; `because`: why one of it waits.

    `item`: the identity of which; default: the first.
    """
    org = Organisation.at(org)
    now = requests_now(org)
    items = [it for it in waiting_in(now, org) if person in ("", it.person)]
    by_identity = now.requests.by_identity
    chosen = item if any(it.identity == item for it in items) else items[0].identity if items else ""
    return {
        "people": sorted(now.people),
        "tick": now.requests.tick,
        "items": [_shown(it, by_identity[it.identity]) for it in items],
        "because": because_of(org, now, by_identity[chosen]) if chosen else None,
    }


def _shown(item: WaitsForPerson, request: RequestView) -> Json:
    schema = schema_for(request)
    return {
        **item.as_json(),
        "text": request.text,
        "line": item.line,
        "wish": _wish(item, request),
        "created_at": request.entry.created_at,
        "file": request.entry.file,
        "decides": item.call is not None or _decisions(request),
        "fields": [_field(schema, name, field) for name, field in properties_of(schema).items()],
    }


def _wish(item: WaitsForPerson, request: RequestView) -> str:
    """Return what is wanted, as what follows the name of who asks."""
    if item.call:
        return f"wants to {wish_of(item.call['tool'], item.call['args'])}"
    if _decisions(request):
        return "wants its proposal approved"
    return "asks you to fill in a form" if properties_of(schema_for(request)) else "asks you"


def _field(schema: Json | None, name: str, field: Any) -> Json:
    """Return a field of a form: what it is called, what is said of it, how it is typed."""
    plain = field if isinstance(field, dict) else {}
    title, about = plain.get("title"), plain.get("description")
    required = (schema or {}).get("required")
    form = _form(field)
    said = about if isinstance(about, str) else ""
    if form["form"] in ("text", "number") and not said:
        said = words_of(schema, name)
    return {
        "name": name,
        "title": title if isinstance(title, str) and title else name.replace("_", " "),
        "about": said,
        "is_required": isinstance(required, list) and name in required,
        **form,
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
