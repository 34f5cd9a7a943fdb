"""People as tests have them: what is asked of them is answered from a script, between ticks.

>>> import tempfile
>>> from pathlib import Path
>>> from lemming.engine import ticks
>>> from lemming.testing import FrozenClock, make_org, resume, say
>>> asks = say("", kind="request")
>>> asks["outbox_entries"][0]["payload"] = {"text": "May I publish?", "target": "eve"}
>>> script = [{"tick": 1, "reply": asks}, {"reply": say("so be it")}]
>>> agents = resume("ada"), resume("eve", model={"key": "human"})
>>> base = make_org(Path(tempfile.mkdtemp()), *agents, script=script)
>>> eve = ScriptedPerson("eve", ("publish", "Yes."))
>>> for report in answered(ticks(base, interval_s=0, max_ticks=2, clock=FrozenClock()), base, eve):
...     print(report.tick, eve.said)
1 ['Yes.']
2 ['Yes.']
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from lemming.capabilities.conditions.expressions import expression
from lemming.capabilities.requests.all_requests import requests_of
from lemming.capabilities.requests.index import RequestEntries
from lemming.capabilities.requests.view import AllRequests, RequestView
from lemming.kernel.agents import agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import FrozenClock, timestamp
from lemming.kernel.base.jsontext import parse
from lemming.kernel.files import fs
from lemming.kernel.mail.answers import answer_in
from lemming.kernel.messages import OutboxEntry, send
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import is_person

T = TypeVar("T")

Answer = str | dict[str, Any] | None
"""A text, or the keys of the answer's payload (`status` among them); None: nothing is said."""


class ScriptedPerson:
    """A person who answers by the first pattern that what they are asked holds.

    Each of `answers` is a pattern (a regular expression that is looked for in the request's text) with the
    answer, or with a function that makes it of the request. What no pattern fits waits, as for a person who
    sleeps.
    """

    def __init__(self, name: str, *answers: tuple[str, Answer | Callable[[RequestView], Answer]]) -> None:
        self.name, self._answers = name, answers
        self.said: list[Any] = []

    def answer(self, base_path: str | os.PathLike[str]) -> list[OutboxEntry]:
        """Answer what waits for the person now; return the entries that were written, in order."""
        base = Organisation.at(base_path)
        requests = _requests_in(base)
        written = []
        for request in requests.open:
            may_read = survey_agents(base).agents[self.name].may_read(request.asker)
            if self.name in request.holders and may_read and (payload := self._payload(request)) is not None:
                written.append(self._write(base, requests, request, payload))
        return written

    def _payload(self, request: RequestView) -> dict[str, Any] | None:
        for pattern, answer in self._answers:
            if expression(pattern).finds(request.text):
                found = answer(request) if callable(answer) else answer
                return {"text": found} if isinstance(found, str) else found
        return None

    def _write(
        self, base: Organisation, requests: AllRequests, request: RequestView, payload: dict[str, Any]
    ) -> OutboxEntry:
        self.said.append(answer_in(payload))
        envelope = {"reply_to": requests.reference(request), "target": request.asker}
        of_it = {"conversation": request.conversation} if request.conversation else {}
        return send(
            base,
            self.name,
            tick=requests.tick,
            kind="response",
            payload={**envelope, **of_it, **payload},
            tags=[],
            created_at=timestamp(FrozenClock().now()),
        )


def answered(reports: Iterable[T], base: str | os.PathLike[str], *people: ScriptedPerson) -> Iterator[T]:
    """Yield what `lemming.engine.ticks` yields; after each tick the people answer what waits for them."""
    for report in reports:
        for person in people:
            person.answer(base)
        yield report


def _requests_in(base: Organisation) -> AllRequests:
    survey, config = survey_agents(base), load_config(base)
    people = [
        name
        for name, agent in survey.agents.items()
        if (entry := config.models.get(agent.model.key)) and is_person(entry.provider, config.org.plugins)
    ]
    return requests_of(
        base.own(RequestEntries).look(agent_folders(base)),
        agents=survey.agents,
        people=people,
        order=survey.order,
        tick=_next_tick(base),
        broken=survey.broken,
    )


def _next_tick(base: Organisation) -> int:
    try:
        return int(parse(fs.read_bytes(base / paths.TICK_FILE, 4096))["current_tick"])
    except FileNotFoundError:
        return 1
