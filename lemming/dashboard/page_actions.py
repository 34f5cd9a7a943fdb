"""Actions of the dashboard: changes a person makes on the page, through the same functions as the commands."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.journal_tools.fork import fork
from lemming.journal_tools.journal_history import open_past
from lemming.kernel.access.workspace_trust import guard_code
from lemming.kernel.base.errors import NotTrusted, UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files import fs
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.libraries.settings_edits import lock_folders
from lemming.obligations.answer_fields import get_answer_schema, parse_field
from lemming.obligations.ledger_calls import find_blocking_requests
from lemming.obligations.org_requests import find_request, load_requests
from lemming.obligations.pending_actions import PatchEdit, find_call_review
from lemming.obligations.request_entries import (
    choose_person,
    get_conversation_assignee,
    retract_entry,
    write_answer,
    write_cancel,
    write_payload,
    write_request,
    write_urgent_message,
)
from lemming.obligations.write_decisions import decide, find_pending_request
from lemming.queries.editable_files import encode_draft, load_raw_text, validate_text

Json = dict[str, Any]
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
DECISIONS = ("approve", "deny", "answer")


def run_action(org: Organisation, name: str, arguments: Json, person: str | None) -> Json:
    """Run a named action for a person. Return the result. Raises: UsageError for an unknown action or bad arguments."""
    if name not in ACTIONS:
        hint = did_you_mean(name[:80], list(ACTIONS)) or f"use one of {', '.join(ACTIONS)}"
        raise UsageError(f'there is no action "{name[:80]}"', hint=hint)
    with guard_code(_require_code_trust):
        result = ACTIONS[name](org, arguments, person or _get_text(arguments, "person") or None)
    return _entry_to_json(result) if isinstance(result, OutboxEntry) else result


def _require_code_trust(org: Organisation) -> None:
    """Raise `NotTrusted` if code of the organisation needs a missing agreement."""
    from lemming.queries.screens.trust_screen import list_permissions  # only imported if code could be loaded

    missing = [row.missing for row in list_permissions(org) if row.missing and row.permission.needs_agreement]
    if missing:
        hint = "see it with `lemming trust`, grant it with `lemming trust --yes`"
        raise NotTrusted(f"the workspace is not trusted: {'; '.join(map(str, missing[:3]))}", hint=hint)


def _decide_call(org: Organisation, arguments: Json, person: str | None) -> Json:
    """Approve a waiting call (optionally with edited arguments), deny the call, or answer with a result."""
    reference, decision = _get_text(arguments, "id"), _get_text(arguments, "word")
    if decision not in DECISIONS:
        raise UsageError(f'decision must be one of {", ".join(DECISIONS)}, got "{decision[:40]}"')
    edits = [f"{key}={value}" for key, value in _get_texts(arguments, "edits").items()]
    patch, contents = _get_text(arguments, "patch"), _get_texts(arguments, "contents")
    patch_edit = PatchEdit(patch=patch.encode(), contents=contents) if patch or contents else None
    _, request, call = find_pending_request(org, reference)
    approved_call = call if decision == "approve" else None
    is_for_tool = arguments.get("always") is True and approved_call is not None
    if is_for_tool:
        require_fact("gates.require_gate_exists")(org, approved_call, request.asker)
    text = _get_text(arguments, "text")
    entry = decide(org, reference, decision, person=person, text=text, edits=edits, patch_edit=patch_edit)  # type: ignore[arg-type]
    if is_for_tool:
        approval = require_fact("gates.add_standing_approval")(org, approved_call, request.asker)
        return {**_entry_to_json(entry), "gate": approval.line, "told": approval.describe(is_written=True)}
    requests = find_blocking_requests(org, load_requests(org), request.identity) if approved_call else []
    return {**_entry_to_json(entry), **({"beside": [request.id for request in requests]} if requests else {})}


def _load_patch_file(org: Organisation, arguments: Json, _person: str | None) -> Json:
    """Return the text of a file with the patch of a waiting call, or of the patch without a path. Nothing is written."""
    _, _, call = find_pending_request(org, _get_text(arguments, "id"))
    review = find_call_review(call["tool"]) if call else None
    if call is None or review is None:
        raise UsageError("only a call that applies a patch has files to edit")
    return {"text": review.load_file(org, call["args"], _get_text(arguments, "path"))}


def _stop_worker(org: Organisation, arguments: Json, person: str | None) -> Json:
    """Ask the running worker of an agent to end."""
    agent = _require_text(arguments, "agent")
    require_fact("workers.stop")(org, agent, by=person or "a person")
    return {"agent": agent}


def _preview_standing_approval(org: Organisation, arguments: Json, _person: str | None) -> Json:
    """Return the gate line of a standing approval and the calls the gate would allow, without writing anything."""
    _, request, call = find_pending_request(org, _get_text(arguments, "id"))
    if call is None:
        raise UsageError("only tool calls can be approved for all later calls")
    standing_approval = require_fact("gates.preview_standing_approval")(org, call, request.asker)
    return {"gate": standing_approval.line, "told": standing_approval.describe(is_written=False)}


def _answer_request(org: Organisation, arguments: Json, person: str | None) -> OutboxEntry:
    """Answer a request with a text or with form fields, or refuse to answer."""
    reference = _get_text(arguments, "id")
    request = find_request(load_requests(org).requests, reference)
    schema = get_answer_schema(request)
    typed = {name: text for name, text in _get_texts(arguments, "fields").items() if text != ""}
    fields = {name: parse_field(schema, name, text) for name, text in typed.items()}
    text, is_refused = _get_text(arguments, "text"), arguments.get("refuse") is True
    return write_answer(org, reference, person=person, text=text, fields=fields, refuse=is_refused)


def _send_message(org: Organisation, arguments: Json, person: str | None) -> OutboxEntry:
    """Send a message to a single agent, or to all readers of the person."""
    text, recipient = _require_text(arguments, "text"), _get_text(arguments, "to")
    org_requests = load_requests(org)
    author = choose_person(org_requests, person)
    if recipient and recipient not in org_requests.agent_names:
        hint = did_you_mean(recipient[:80], sorted(org_requests.agent_names))
        raise UsageError(f'there is no agent "{recipient[:80]}"', hint=hint)
    return write_payload(org, author, "message", {"text": text, **({"target": recipient} if recipient else {})})


def _say_at_once(org: Organisation, arguments: Json, person: str | None) -> OutboxEntry:
    """Send an urgent message to an agent: a running turn shows it at its next step."""
    org_requests = load_requests(org)
    author, agent = choose_person(org_requests, person), _require_text(arguments, "to")
    return write_urgent_message(org, org_requests, agent, _require_text(arguments, "text"), person=author)


def _send_request(org: Organisation, arguments: Json, person: str | None) -> OutboxEntry:
    """Send a request to an agent; the answer arrives after an engine has run the agent's turn."""
    org_requests = load_requests(org)
    author, agent = choose_person(org_requests, person), _require_text(arguments, "to")
    conversation = _get_text(arguments, "conversation")
    target = get_conversation_assignee(org_requests, author, agent, conversation)
    text = _require_text(arguments, "text")
    return write_request(org, org_requests, target, text, person=author, conversation=conversation)


def _save_file(org: Organisation, arguments: Json, _: str | None) -> Json:
    """Write a file edited on the page byte for byte, and return the problems found by `validate`.

    `was` is the SHA-256 of the file when typing began. Nothing is written if the file has changed since
    (`is_saved` is false, `is_stale` is true), or if the text has an error.
    """
    text, former_digest = _get_text(arguments, "text"), _get_text(arguments, "was")
    file, raw = encode_draft(org, _require_text(arguments, "file"), text)
    problems = validate_text(org, file, raw)
    facts = {"is_saved": False, "is_stale": False, "problems": [problem.as_json() for problem in problems]}
    if any(problem.severity == "error" for problem in problems):
        return {**facts, "sha256": former_digest}
    with lock_folders(org, [file]):
        current_digest = sha256(load_raw_text(org, file)).hexdigest()
        if current_digest != former_digest:
            return {**facts, "is_stale": True, "sha256": current_digest}
        fs.write_atomic(org.base, file, raw)
    return {**facts, "is_saved": True, "sha256": sha256(raw).hexdigest()}


def _fork_org(org: Organisation, arguments: Json, _: str | None) -> Json:
    """Fork the organisation at a tick into a new sibling folder."""
    at, folder = _require_text(arguments, "at"), _require_text(arguments, "folder")
    if not _FOLDER.match(folder):
        hint = "use letters, digits, - _ and ., for example what-if"
        raise UsageError(f'"{folder[:80]}" is not a valid name for a folder', hint=hint)
    target = Path(org.base).resolve().parent / folder
    if target.exists():
        raise UsageError(f"{folder} already exists", hint="choose another name")
    past = open_past(org.base)
    state = past.resolve_state(at)
    fork(past, state, target, [])
    return {"folder": str(target), "at": state.tick, "next_tick": state.tick + 1, "remark": past.reliability_note}


def _try_file(org: Organisation, arguments: Json, _: str | None) -> Json:
    """Rehearse the last ticks with an unsaved file; the organisation stays unchanged."""
    from lemming.dashboard.draft_trial import try_text

    file, text = _require_text(arguments, "file"), _get_text(arguments, "text")
    return try_text(org, file, text, is_dry=arguments.get("is_dry") is not False)


TAKE_LONG = frozenset({"try"})
"""Actions that may take long and change nothing."""

ACTIONS: dict[str, Callable[[Organisation, Json, str | None], Json | OutboxEntry]] = {
    "decide": _decide_call,
    "always": _preview_standing_approval,
    "patch-file": _load_patch_file,
    "stop-worker": _stop_worker,
    "undo": lambda org, arguments, person: retract_entry(org, _require_text(arguments, "identity"), person=person),
    "answer": _answer_request,
    "cancel": lambda org, arguments, person: write_cancel(
        org, _get_text(arguments, "id"), person=person, text=_get_text(arguments, "text")
    ),
    "send": _send_message,
    "say": _say_at_once,
    "ask": _send_request,
    "save": _save_file,
    "fork": _fork_org,
    "try": _try_file,
}
"""Actions by name. Each takes the organisation, the posted arguments, and the person; some return a new entry."""


def _entry_to_json(entry: OutboxEntry) -> Json:
    return {"entry": entry.as_json(), "file": entry.file, "identity": entry.identity}


def _get_text(arguments: Json, key: str) -> str:
    value = arguments.get(key, "")
    if not isinstance(value, str):
        raise UsageError(f"{key} must be a text")
    return value


def _require_text(arguments: Json, key: str) -> str:
    if not (text := _get_text(arguments, key).strip()):
        raise UsageError(f"{key} is missing")
    return text


def _get_texts(arguments: Json, key: str) -> dict[str, str]:
    """Return an object of texts, for example the fields of a form."""
    value = arguments.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise UsageError(f"{key} must be an object whose values are texts")
    return value
