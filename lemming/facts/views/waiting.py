"""What waits for a person: what is needed in one line, the call and its diff, the fields of the answer, and
why it waits: what the turn that asked had before it, in a few lines."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from lemming.capabilities.requests.fields import properties_of, schema_for, words_of
from lemming.capabilities.requests.now import RequestsNow, requests_now
from lemming.capabilities.requests.view import RequestView
from lemming.capabilities.requests.waiting import WaitsForPerson, waiting_in
from lemming.facts.views.feed import trust_of_entries
from lemming.facts.views.glances import journal_file_now
from lemming.facts.views.moments import TickTimes
from lemming.facts.views.sentences import payload_text, short, text_said, wish_of
from lemming.facts.views.subject import find_subject, references_in
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.base.payload_text import text_of_payload
from lemming.kernel.files.stamps import Identity
from lemming.kernel.mail.index import EntryIndex
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.firing_plan import is_for_channels, is_for_people
from lemming.timeline.record import TurnRecord, read_tick
from lemming.timeline.why.sight import sight_of

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
        "items": [_shown(org, it, by_identity[it.identity]) for it in items],
        "because": because_of(org, now, by_identity[chosen]) if chosen else None,
    }


def _shown(org: Organisation, item: WaitsForPerson, request: RequestView) -> Json:
    schema = schema_for(request)
    subject = find_subject(org, item.call, request.asker) if item.call else None
    return {
        **item.as_json(),
        "subject": subject,
        "expiry": _expiry(item, request),
        "text": request.text,
        "line": item.line,
        "wish": _wish(item, request),
        "created_at": org.own(TickTimes).find_moment(request.entry),
        "file": request.entry.file,
        "decides": item.call is not None or _decisions(request),
        "fields": [_field(schema, name, field) for name, field in properties_of(schema).items()],
    }


def _expiry(item: WaitsForPerson, request: RequestView) -> Json:
    """Return the expiry of the request (ticks from now, a moment, or neither), and the answer taken then."""
    left = None if item.deadline is None else max(0, item.deadline - (request.tick + item.age_ticks)) + 1
    default = short(request.default, CHARS) if request.has_default else None
    return {"ticks": left, "at": request.not_after, "default": default}


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


LINES, CHARS, TURNS_KEPT = 3, 240, 64


def because_of(org: Organisation, now: RequestsNow, request: RequestView) -> Json:
    """Return the entries and results that the turn which made a request had just read: at most three lines.

    First come the lines that the request quotes (`is_quoted`: it names their entry, or the same file), then
    the request that the turn served. Having read something is no proof of a cause. `notes`: the agent's own
    note; `more`: the number of lines left out; `wrong`: the reason why a record cannot be read. A request of
    a person has no lines: no turn made it.
    """
    plain: Json = {"identity": request.identity, "tick": request.tick, "agent": request.asker, "notes": ""}
    if request.asker in now.people:
        return {**plain, "lines": [], "more": 0, "wrong": ""}
    try:
        facts = org.own(_Turns).facts(request.tick, request.asker)
    except (CorruptState, UsageError) as error:
        return {**plain, "lines": [], "more": 0, "wrong": str(error)}
    look = _Look(org, now)
    lines = [*look.askers(request, facts["request"]), *look.entries(facts["entries"]), *facts["results"]]
    quoted = references_in(request.entry.payload)
    unique = [_with_quotes(line, quoted) for line in {line["key"]: line for line in lines}.values()]
    unique.sort(key=lambda line: not line["is_quoted"])
    return {
        **plain,
        "notes": facts["notes"],
        "lines": unique[:LINES],
        "more": max(0, len(unique) - LINES),
        "wrong": "",
    }


def _with_quotes(line: Json, quoted: set[str]) -> Json:
    """Return a line that says whether these references name its entry, or a reference that it names, too."""
    own = {line["identity"], line["identity"].rpartition("_")[2], *line["names"]} - {""}
    return {**{key: value for key, value in line.items() if key != "names"}, "is_quoted": bool(own & quoted)}


class _Turns:
    """What turns looked at last had before them, for as long as their journals are the same files."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._kept: OrderedDict[tuple[int, str, Identity | None], Json] = OrderedDict()

    def facts(self, tick: int, agent: str) -> Json:
        key = tick, agent, journal_file_now(self._org, tick)
        if key not in self._kept:
            record = read_tick(self._org, tick)
            turn = record.turn_of(agent)
            found = _facts(turn, record.plan.everyone) if turn else _NOTHING
            if turn is None or turn.report is None:
                return found
            self._kept[key] = found
        self._kept.move_to_end(key)
        while len(self._kept) > TURNS_KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]


_NOTHING: Json = {"entries": [], "results": [], "notes": "", "request": ""}


def _facts(turn: TurnRecord, everyone: Any) -> Json:
    seen = [it for it in sight_of(turn, everyone).entries if it.is_new and it.author and it.tick is not None]
    results = [
        {
            "key": f"{use['tool']} {place}",
            "author": use["tool"],
            "says": "gave",
            "speaks": "tool",
            "trust": "",
            "text": short(use.get("output", ""), CHARS),
            "names": sorted(references_in([use.get("args"), use.get("output")])),
            "file": "",
            "identity": "",
        }
        for place, use in enumerate(turn.results)
    ]
    report = turn.report
    return {
        "entries": [(it.tick, it.id, it.author) for it in seen],
        "results": results,
        "notes": report.notes if report else "",
        "request": report.request if report else "",
    }


class _Look:
    """One look at entries, for who wrote them and how far they are trusted."""

    def __init__(self, org: Organisation, now: RequestsNow) -> None:
        self._index, self._now = org.own(EntryIndex), now
        config = load_config(org)
        self._config: Config = config
        agents = survey_agents(org).agents
        self._agents = agents
        self._trust_of = trust_of_entries(org, config, agents)

    def askers(self, request: RequestView, served: str) -> list[Json]:
        """Return the request that the turn served, and the first request of its chain."""
        requests = self._now.requests
        of_turn = requests.by_identity.get(served) or requests.by_identity.get(request.parent or "")
        if of_turn is None:
            return []
        first = requests.root_of(of_turn)
        found = [first] if first is of_turn else [first, of_turn]
        return [self._line(it.entry, "asked") for it in found]

    def entries(self, names: list[tuple[int, str, str]]) -> list[Json]:
        """Return what was new to a turn, what people wrote first."""
        found = []
        for tick, identity, author in names:
            entry = self._index.read(EntryName(tick, 0, identity, author))
            if isinstance(entry, OutboxEntry):
                found.append(self._line(entry, _SAYS.get(entry.kind, "wrote")))
        rank = {"person": 0, "channel": 1}
        return sorted(found, key=lambda line: rank.get(line["speaks"], 2))

    def _line(self, entry: OutboxEntry, says: str) -> Json:
        said = text_said(entry.payload) or payload_text(entry.payload)
        return {
            "key": entry.identity,
            "author": entry.agent,
            "says": says,
            "speaks": self._speaker(entry.agent),
            "trust": self._trust_of(entry),
            "text": short(said or text_of_payload(entry.payload), CHARS),
            "names": sorted(references_in(entry.payload)),
            "file": entry.file,
            "identity": entry.identity,
        }

    def _speaker(self, name: str) -> str:
        agent = self._agents.get(name)
        if agent is None or not paths.AGENT_NAME.match(name):
            return "unknown"
        if is_for_people(agent.model.key, self._config):
            return "person"
        return "channel" if is_for_channels(agent.model.key, self._config) else "agent"


_SAYS = {"request": "asked", "response": "answered", "report": "reported"}
