"""What waits for a person: one list for every screen. Its lines are made of facts, not of agents' claims."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lemming.capabilities.requests.now import RequestsNow, requests_now, require_agents
from lemming.capabilities.requests.view import RequestView, Share
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import SystemClock, parse_timestamp
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.mail.capability_notes import WaitingForPerson
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capabilities import capability_here, made_by
from lemming.kernel.tick.firing_plan import people_in

TEXT_CHARS, CALL_CHARS, DEFAULT_CHARS = 80, 4000, 60
FIELDS_NAMED = 8
_FIELD = re.compile(r"\w[\w.-]{0,39}")  # who asked chose the names: none that reads like words of ours


@dataclass(frozen=True, kw_only=True)
class WaitsForPerson:
    """One thing that a person is to answer. `deadline` is the last tick in which they may; None: none.

    `call`: the exact tool call that waits for their approval, if that is what it is.
    """

    id: str
    identity: str
    person: str
    asker: str
    text: str
    needs: str
    tick: int
    age_ticks: int
    deadline: int | None
    at_deadline: str
    call: dict[str, Any] | None = None

    @property
    def line(self) -> str:
        """What is needed, from whom, since when, and what happens at the deadline."""
        text = f': "{_cut(self.text, TEXT_CHARS)}"' if self.text else ""
        text = f": {_cut(self.text, CALL_CHARS)}" if self.call else text
        age = f"asked {_ticks(self.age_ticks)} ago" if self.age_ticks else "asked just now"
        if self.call:
            return f"{self.asker} asks {self.person} for {self.needs}, {age}; {self.at_deadline}{text}"
        return f"{self.person} owes {self.asker} {self.needs}, {age}; {self.at_deadline}{text}"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values, its line among them."""
        plain = {**vars(self), "line": self.line}
        if self.call is None:
            del plain["call"]
        return plain


def waiting(base_path: str | os.PathLike[str]) -> list[WaitsForPerson]:
    """Return what waits for a person, the oldest first.

    A request that its holder may not read reaches nobody: `lemming validate` says which line is missing.
    Raises `NotAnOrg` for a folder without `agents/`.
    """
    org = Organisation.at(base_path)
    survey = survey_agents(org)
    require_agents(org, survey)
    if not people_in(survey, load_config(org)):  # then no outbox need be read
        return []
    return waiting_in(requests_now(org), org)


def waiting_text(items: Sequence[WaitsForPerson]) -> str:
    """Return how much waits for whom, in words; empty when nothing does."""
    if not items:
        return ""
    people = ", ".join(sorted({item.person for item in items}))
    verb = "waits" if len(items) == 1 else "wait"
    return f"{_counted(len(items), 'request')} {verb} for {people}; `lemming waiting` says what for"


def waiting_in(now: RequestsNow, org: Organisation) -> list[WaitsForPerson]:
    """Return what `waiting` does, where the requests are known already."""
    held = waiting_for_persons(org, now.requests.open)
    return [
        _waits(request, share, now.requests.tick, held.get(request.identity))
        for request in now.requests.open
        if not is_to_come(request)
        for share in _held_by_people(request, now)
    ]


def is_to_come(request: RequestView) -> bool:
    """Return whether a request bears a moment that has not come yet: nobody sees it before."""
    if not request.not_before:
        return False
    try:
        return parse_timestamp(request.not_before) > SystemClock().now()
    except ValueError:
        return False


def _held_by_people(request: RequestView, now: RequestsNow) -> Iterator[Share]:
    for share in request.open_shares:
        if share.holder in now.people and now.may_read(share.holder, request.asker):
            yield share


def _waits(request: RequestView, share: Share, tick: int, held: WaitingForPerson | None) -> WaitsForPerson:
    return WaitsForPerson(
        id=request.id,
        identity=request.identity,
        person=share.holder,
        asker=request.asker,
        text=request.text if held is None else held.text,
        needs=needs_of(request) if held is None else held.needs,
        tick=request.tick,
        age_ticks=request.age_ticks(tick),
        deadline=request.deadline,
        at_deadline=at_deadline(request, tick),
        call=held.call if held else None,
    )


def needs_of(request: RequestView) -> str:
    """Return what an answer must have, in words."""
    properties = request.schema.get("properties") if request.schema else None
    if not isinstance(properties, dict) or not properties:
        return "an answer"
    if len(properties) <= FIELDS_NAMED and all(map(_FIELD.fullmatch, map(str, properties))):
        return f"an answer with {', '.join(map(str, properties))}"
    return f"an answer of {_counted(len(properties), 'field')}"


def at_deadline(request: RequestView, tick: int) -> str:
    """Return what happens to a request if nobody answers it in time; `tick` is the one that runs next."""
    if request.deadline is None and not request.not_after:
        return "it waits until it is answered"
    left = 0 if request.deadline is None else request.deadline - tick
    in_ticks = "with this tick" if left <= 0 else f"in {_ticks(left + 1)}"
    times = [*([in_ticks] if request.deadline is not None else []), *_at(request.not_after)]
    when = " or ".join(times)
    if request.has_default:
        default = _cut(to_line(request.default), DEFAULT_CHARS)
        return f"it expires {when}, and {default} is taken for its answer"
    return f"it expires {when}, without an answer"


def _at(moment: str) -> list[str]:
    return [f"at {moment}"] if moment else []


def _ticks(number: int) -> str:
    return _counted(number, "tick")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun if number == 1 else noun + 's'}"


def _cut(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def waiting_for_persons(org: Organisation, requests: Iterable[RequestView]) -> dict[str, WaitingForPerson]:
    """Return what capabilities have wait for persons, of these open requests, by the request's identity."""
    found: dict[str, WaitingForPerson] = {}
    by_name: dict[str, list[RequestView]] = {}
    for request in requests:
        if name := made_by(request.entry.payload):
            by_name.setdefault(name, []).append(request)
    for name, its in by_name.items():
        if (known := capability_here(name)) is not None:
            found |= known.waiting(org, its)
    return found
