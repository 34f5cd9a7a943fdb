"""The view of items that wait for people: a summary, the call with its diff, the answer's form, the context.

The context shows, in a few lines, the entries and results the requesting turn had read. The subject of a decision is
the complete entry or amount that a person decides about: docs/gates.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from lemming.journal_tools.provenance.prompt_parser import parse_prompt
from lemming.journal_tools.provenance.write_log import get_payload_text
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files.stat_cache import Identity, file_identity
from lemming.kernel.inboxes.entry_index import EntryIndex
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.obligations.request_payloads import parse_references
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.obligations.answer_fields import describe_field, get_answer_schema, get_properties
from lemming.obligations.org_requests import OrgRequests, load_requests
from lemming.obligations.pending_actions import find_call_review
from lemming.obligations.request_view import RequestView
from lemming.obligations.waiting_items import PersonInboxItem, build_person_inbox
from lemming.queries.screens.requests_screen import WAITING
from lemming.queries.sentences import describe_call, describe_payload, entry_text, truncate_value
from lemming.queries.views.feed_view import find_entry, find_local_time, make_trust_lookup

Json = dict[str, Any]


def build_waiting_view(org: OrgPath, *, person: str = "", item: str = "") -> Json:
    """Return the items that wait for people, or for a single `person`, oldest first.

    `because` is the context of the item with identity `item`, by default of the first; `patch` is the patch that its call
    would apply, or None.
    """
    org = Organisation.from_path(org)
    org_requests = load_requests(org)
    items = [listed for listed in build_person_inbox(org_requests, org) if person in ("", listed.person)]
    chosen = next((listed for listed in items if listed.identity == item), items[0] if items else None)
    by_identity = org_requests.requests.by_identity
    return {
        "people": sorted(org_requests.people),
        "tick": org_requests.requests.tick,
        "items": [_build_item(org, listed, by_identity[listed.identity]) for listed in items],
        "because": build_request_context(org, org_requests, by_identity[chosen.identity]) if chosen else None,
        "patch": _build_patch(org, chosen),
    }


def _build_patch(org: Organisation, item: PersonInboxItem | None) -> Json | None:
    """Return the patch of a call with the identity of its request.

    Files beyond `MAX_PATCH_LINES` have only their number of lines; a long line counts as several.
    """
    review = find_call_review(item.call["tool"]) if item and item.call else None
    if item is None or item.call is None or review is None:
        return None
    facts, room = review.load_patch(org, item.call["args"]).as_json(), MAX_PATCH_LINES
    for file in facts["files"]:
        lines = [text for hunk in file["hunks"] for _, text in hunk["lines"]]
        size = sum(1 + len(text) // 100 for text in lines)
        file["left_out"] = len(lines) if size > room else 0
        file["hunks"] = [] if size > room else file["hunks"]
        room -= 0 if file["left_out"] else size
    return {"identity": item.identity, **facts}


def _build_item(org: Organisation, item: PersonInboxItem, request: RequestView) -> Json:
    schema = get_answer_schema(request)
    ticks_left = None if item.deadline is None else max(0, item.deadline - (request.tick + item.age_ticks)) + 1
    default = truncate_value(request.default_answer, MAX_CHARS) if request.has_default else None
    return {
        **WAITING.to_json(item),
        "subject": find_subject(org, item.call, request.asker) if item.call else None,
        "expiry": {"ticks": ticks_left, "at": request.not_after, "default": default},
        "text": request.text,
        "wish": _describe_wish(item, request),
        "created_at": find_local_time(org, request.entry),
        "file": request.entry.file,
        "has_patch": item.call is not None and find_call_review(item.call["tool"]) is not None,
        "decides": item.call is not None or _is_yes_no_decision(request),
        "fields": [_build_form_field(schema, name, field) for name, field in get_properties(schema).items()],
    }


def _describe_wish(item: PersonInboxItem, request: RequestView) -> str:
    """Return a description of the wish, for use after the requester's name."""
    if item.call:
        return f"wants to {describe_call(item.call['tool'], item.call['args'])}"
    if _is_yes_no_decision(request):
        return "wants its proposal approved"
    return "asks you to fill in a form" if get_properties(get_answer_schema(request)) else "asks you"


def _build_form_field(schema: Json | None, name: str, field: Any) -> Json:
    """Return a form field: title, description, input type."""
    field_schema = field if isinstance(field, dict) else {}
    title, description = field_schema.get("title"), field_schema.get("description")
    required, input_type = (schema or {}).get("required"), _choose_input_type(field_schema)
    about_text = description if isinstance(description, str) else ""
    if input_type["form"] in ("text", "number") and not about_text:
        about_text = describe_field(schema, name)
    return {
        "name": name,
        "title": title if isinstance(title, str) and title else name.replace("_", " "),
        "about": about_text,
        "is_required": isinstance(required, list) and name in required,
        **input_type,
    }


def _is_yes_no_decision(request: RequestView) -> bool:
    """Return True if the answer is yes or no, as for a proposed plan."""
    field = get_properties(get_answer_schema(request)).get("decision")
    return isinstance(field, dict) and "approve" in (field.get("enum") or ())


def _choose_input_type(field_schema: Json) -> Json:
    """Return the input type of a field: a choice, yes or no, a number, or text."""
    if isinstance(field_schema.get("enum"), list):
        return {"form": "choice", "choice": [str(option) for option in field_schema["enum"]]}
    kind = field_schema.get("type")
    return {"form": {"boolean": "yes", "integer": "number", "number": "number"}.get(str(kind), "text")}


MAX_LINES, MAX_CHARS, MAX_TURNS_CACHED, MAX_PATCH_LINES = 3, 240, 64, 20_000


def build_request_context(org: Organisation, org_requests: OrgRequests, request: RequestView) -> Json:
    """Return the entries and results the requesting turn had just read, in at most three lines.

    Lines quoted by the request come first (`is_quoted`: the request names the entry, or the same file), then
    the request the turn served. A line read by the turn is no proof of a cause. `notes`: the agent's own
    note. `more`: number of omitted lines. `wrong`: the error of an unreadable record. A person's request has
    no lines, because no turn made the request.
    """
    base_fields: Json = {"identity": request.identity, "tick": request.tick, "agent": request.asker, "notes": ""}
    if request.asker in org_requests.people:
        return {**base_fields, "lines": [], "more": 0, "wrong": ""}
    try:
        facts = org.get_cache(_TurnContextCache).get_context(request.tick, request.asker)
    except (CorruptState, UsageError) as error:
        return {**base_fields, "lines": [], "more": 0, "wrong": str(error)}
    builder = _RequestContextBuilder(org, org_requests)
    lines = [*builder.list_askers(request, facts["request"]), *builder.list_new_entries(facts["entries"])]
    lines += facts["results"]
    quoted = find_references(request.entry.payload)
    unique = [_mark_quoted(line, quoted) for line in {line["key"]: line for line in lines}.values()]
    unique.sort(key=lambda line: not line["is_quoted"])
    more = max(0, len(unique) - MAX_LINES)
    return {**base_fields, "notes": facts["notes"], "lines": unique[:MAX_LINES], "more": more, "wrong": ""}


def _mark_quoted(line: Json, references: set[str]) -> Json:
    """Return a line with `is_quoted` set if the references contain its entry or any reference in the line."""
    line_references = {line["identity"], line["identity"].rpartition("_")[2], *line["names"]} - {""}
    facts = {key: value for key, value in line.items() if key != "names"}
    return {**facts, "is_quoted": bool(line_references & references)}


class _TurnContextCache:
    """Cache of turn contexts, valid while the journal of the turn remains the same file."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._load = org, lru_cache(MAX_TURNS_CACHED)(self._load_context)

    def get_context(self, tick: int, agent: str) -> Json:
        identity = None
        with suppress(OSError):  # a sealed journal has no file of its own, and does not change
            identity = file_identity(f"{self._org.base}/{paths.journal_file(tick)}")
        return self._load(tick, agent, identity)

    def _load_context(self, tick: int, agent: str, _: Identity | None) -> Json:
        record = load_tick_record(self._org, tick)
        turn = record.find_turn(agent)
        if turn is None:
            return {"entries": [], "results": [], "notes": "", "request": ""}
        report, seen_entries = turn.report, parse_prompt(turn, record.plan.all_agents).entries
        return {
            "entries": [
                (seen_entry.tick, seen_entry.id, seen_entry.author)
                for seen_entry in seen_entries
                if seen_entry.is_new and seen_entry.author and seen_entry.tick is not None
            ],
            "results": [_build_result_line(*pair) for pair in enumerate(turn.visible_results)],
            "notes": report.notes if report else "",
            "request": report.request if report else "",
        }


def _build_result_line(index: int, use: Json) -> Json:
    return {
        "key": f"{use['tool']} {index}",
        "author": use["tool"],
        "says": "gave",
        "speaks": "tool",
        "trust": "",
        "text": truncate_value(use.get("output", ""), MAX_CHARS),
        "names": sorted(find_references([use.get("args"), use.get("output")])),
        "file": "",
        "identity": "",
    }


class _RequestContextBuilder:
    """Builds lines from entries, with the author and the trust label."""

    def __init__(self, org: Organisation, org_requests: OrgRequests) -> None:
        self._index, self._org_requests = org.get_cache(EntryIndex), org_requests
        self._config: Config = load_config(org)
        self._agents = survey_agents(org).agents
        self._trust_of = make_trust_lookup(org, self._config, self._agents)

    def list_askers(self, request: RequestView, served_id: str) -> list[Json]:
        """Return lines for the request the turn served, and for the first request of its chain."""
        requests = self._org_requests.requests
        served_request = requests.by_identity.get(served_id) or requests.by_identity.get(request.parent or "")
        if served_request is None:
            return []
        first = requests.get_root(served_request)
        chain = [first] if first is served_request else [first, served_request]
        return [self._build_line(chain_request.entry, "asked") for chain_request in chain]

    def list_new_entries(self, names: list[tuple[int, str, str]]) -> list[Json]:
        """Return lines for the entries that were new to a turn, with people's entries first."""
        lines = []
        for tick, identity, author in names:
            entry = self._index.read(EntryName(tick, 0, identity, author))
            if isinstance(entry, OutboxEntry):
                lines.append(self._build_line(entry, _SAYS.get(entry.kind, "wrote")))
        rank = {"person": 0, "channel": 1}
        return sorted(lines, key=lambda line: rank.get(line["speaks"], 2))

    def _build_line(self, entry: OutboxEntry, says: str) -> Json:
        text = entry_text(entry.payload) or describe_payload(entry.payload)
        return {
            "key": entry.identity,
            "author": entry.agent,
            "says": says,
            "speaks": self._classify_speaker(entry.agent),
            "trust": self._trust_of(entry),
            "text": truncate_value(text or get_payload_text(entry.payload), MAX_CHARS),
            "names": sorted(find_references(entry.payload)),
            "file": entry.file,
            "identity": entry.identity,
        }

    def _classify_speaker(self, name: str) -> str:
        agent = self._agents.get(name)
        if agent is None or not paths.AGENT_NAME.match(name):
            return "unknown"
        if self._config.is_person(agent):
            return "person"
        return "channel" if self._config.is_channel(agent) else "agent"


_SAYS = {"request": "asked", "response": "answered", "report": "reported"}
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
        "fields": [
            [key, value if isinstance(value, str) else dump_pretty(value).decode().rstrip("\n")]
            for key, value in fields.items()
        ],
        "tags": [*tags],
    }


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
