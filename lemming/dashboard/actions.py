"""What the page may change for the person who clicks: what the commands do, by the same functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lemming.capabilities.requests.entries import (
    take_back,
    write_answer,
    write_cancel,
    write_payload,
    write_request,
)
from lemming.capabilities.requests.fields import read_field, schema_for
from lemming.capabilities.requests.now import find_request, requests_now
from lemming.capabilities.requests.people import holder_of_conversation, person_for
from lemming.dashboard.files import fork_beside, save
from lemming.kernel.access.code_guard import code_guarded
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import NotTrusted, UsageError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation

Json = dict[str, Any]
WORDS = ("approve", "deny", "answer")


def act(org: Organisation, name: str, said: Json, person: str | None) -> Json:
    """Do something as a person, and return what came of it; raise `UsageError` for what cannot be."""
    if name not in ACTIONS:
        hint = nearest(name[:80], list(ACTIONS)) or f"actions: {', '.join(ACTIONS)}"
        raise UsageError(f'there is no action "{name[:80]}"', hint=hint)
    with code_guarded(_require_code_agreed):
        return ACTIONS[name](org, said, person or _text(said, "person") or None)


def _require_code_agreed(org: Organisation) -> None:
    """Raise `NotTrusted` where code of the organisation's own would be loaded that nobody has agreed to."""
    from lemming.facts.reach import reaches  # where there is code
    from lemming.service.agreement import Agreement

    reached = reaches(org, load_config(org), survey_agents(org).agents.values())
    missing = [it for it in Agreement(org.base).lacks(reached) if it.reach.needs_agreement]
    if missing:
        what = "; ".join(str(it) for it in missing[:3])
        hint = "`lemming trust` shows it, `lemming trust --yes` agrees to it"
        raise NotTrusted(f"nobody here has agreed to what running this does: {what}", hint=hint)


def _decide(org: Organisation, said: Json, person: str | None) -> Json:
    """Approve a call, with other arguments or not, say no, or give the result in its place."""
    from lemming.capabilities.approvals.always import let_pass, require_asking  # the page is there without it
    from lemming.capabilities.approvals.deciding import decide, find_waiting
    from lemming.capabilities.approvals.waiting_calls import waits_beside

    reference, word = _text(said, "id"), _text(said, "word")
    if word not in WORDS:
        raise UsageError(f'"{word[:40]}" is no decision', hint=", ".join(WORDS))
    edits = [f"{key}={value}" for key, value in _texts(said, "edits").items()]
    _, request, call = find_waiting(org, reference)
    is_for_tool = said.get("always") is True and word == "approve" and call is not None
    if is_for_tool and call:
        require_asking(org, call, request.asker)
    entry = decide(org, reference, word, person=person, text=_text(said, "text"), edits=edits)  # type: ignore[arg-type]
    if is_for_tool and call:
        unasked = let_pass(org, call, request.asker)
        return {**_written(entry), "gate": unasked.line, "told": unasked.in_words(is_written=True)}
    beside = waits_beside(org, requests_now(org), request.identity) if call and word == "approve" else []
    return {**_written(entry), **({"beside": [it.id for it in beside]} if beside else {})}


def _always(org: Organisation, said: Json, _person: str | None) -> Json:
    """Say what approving for always would write, and what it would allow; nothing is written."""
    from lemming.capabilities.approvals.always import foreseen
    from lemming.capabilities.approvals.deciding import find_waiting

    _, request, call = find_waiting(org, _text(said, "id"))
    if call is None:
        raise UsageError("only a call of a tool can be approved for always")
    unasked = foreseen(org, call, request.asker)
    return {"gate": unasked.line, "told": unasked.in_words(is_written=False)}


def _undo(org: Organisation, said: Json, person: str | None) -> Json:
    """Take back an entry of the person's that no tick has seen."""
    return _written(take_back(org, _required(said, "identity"), person=person))


def _answer(org: Organisation, said: Json, person: str | None) -> Json:
    """Answer a request: with a text, or with fields as they were typed; or refuse to."""
    reference = _text(said, "id")
    request = find_request(requests_now(org).requests, reference)
    schema = schema_for(request)
    typed = {name: text for name, text in _texts(said, "fields").items() if text != ""}
    fields = {name: read_field(schema, name, text) for name, text in typed.items()}
    is_refused = said.get("refuse") is True
    return _written(
        write_answer(
            org, reference, person=person, text=_text(said, "text"), fields=fields, refuse=is_refused
        )
    )


def _cancel(org: Organisation, said: Json, person: str | None) -> Json:
    """Cancel a request."""
    return _written(write_cancel(org, _text(said, "id"), person=person, text=_text(said, "text")))


def _send(org: Organisation, said: Json, person: str | None) -> Json:
    """Say something to everybody who reads the person, or to one agent."""
    text, to = _required(said, "text"), _text(said, "to")
    now = requests_now(org)
    author = person_for(now, person)
    if to and to not in now.names:
        raise UsageError(f'there is no agent "{to[:80]}"', hint=nearest(to[:80], sorted(now.names)))
    return _written(write_payload(org, author, "message", {"text": text, **({"target": to} if to else {})}))


def _ask(org: Organisation, said: Json, person: str | None) -> Json:
    """Ask an agent something; the answer comes once an engine has run its turn."""
    now = requests_now(org)
    author, agent = person_for(now, person), _required(said, "to")
    conversation = _text(said, "conversation")
    target = holder_of_conversation(now, author, agent, conversation)
    entry = write_request(org, now, target, _required(said, "text"), person=author, conversation=conversation)
    return _written(entry)


def _save(org: Organisation, said: Json, _: str | None) -> Json:
    """Write a file as it was typed, unless something is wrong with it, or it has changed since."""
    return save(org, _required(said, "file"), _text(said, "text"), was=_text(said, "was"))


def _fork(org: Organisation, said: Json, _: str | None) -> Json:
    """Make an organisation beside this one that goes on from a tick."""
    return fork_beside(org, _required(said, "at"), _required(said, "folder"))


def _try(org: Organisation, said: Json, _: str | None) -> Json:
    """Try a file as it is typed on the last ticks; nothing of the organisation changes."""
    from lemming.dashboard.trying import try_text

    file, text = _required(said, "file"), _text(said, "text")
    return try_text(org, file, text, is_dry=said.get("is_dry") is not False)


TAKE_LONG = frozenset({"try"})
"""Which of them may take long, and change nothing."""

ACTIONS: dict[str, Callable[[Organisation, Json, str | None], Json]] = {
    "decide": _decide,
    "always": _always,
    "undo": _undo,
    "answer": _answer,
    "cancel": _cancel,
    "send": _send,
    "ask": _ask,
    "save": _save,
    "fork": _fork,
    "try": _try,
}
"""What may be posted, by name: each takes the organisation, what was said, and who says it."""


def _written(entry: OutboxEntry) -> Json:
    return {"entry": entry.as_json(), "file": entry.file, "identity": entry.identity}


def _text(said: Json, key: str) -> str:
    value = said.get(key, "")
    if not isinstance(value, str):
        raise UsageError(f"{key} is no text")
    return value


def _required(said: Json, key: str) -> str:
    if not (text := _text(said, key).strip()):
        raise UsageError(f"{key} is missing")
    return text


def _texts(said: Json, key: str) -> dict[str, str]:
    """Return an object of texts, such as the fields of a form."""
    value = said.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(it, str) for it in value.values()):
        raise UsageError(f"{key} is no object of texts")
    return value
