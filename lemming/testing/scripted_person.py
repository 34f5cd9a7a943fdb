"""Scripted people for tests: requests to a person are answered from a script, between ticks.

>>> import tempfile
>>> from pathlib import Path
>>> from lemming.engine import ticks
>>> from lemming.testing import FrozenClock, make_org, resume, say
>>> asks = say("", kind="request")
>>> asks["outbox_entries"][0]["payload"] = dict(text="May I publish?", target="eve")
>>> script = [dict(tick=1, reply=asks), dict(reply=say("so be it"))]
>>> agents = resume("ada"), resume("eve", model={"key": "human"})
>>> base = make_org(Path(tempfile.mkdtemp()), *agents, script=script)
>>> eve = ScriptedPerson("eve", ("publish", "Yes."))
>>> for report in answer_each_tick(ticks(base, interval_s=0, max_ticks=2, clock=FrozenClock()), base, eve):
...     print(report.tick, eve.replies)
1 ['Yes.']
2 ['Yes.']
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from lemming.kernel.agents import list_agent_folders, survey_agents
from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.clock import timestamp
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.conditions.regex_search import compile_regex
from lemming.libraries.outbox_files import write_person_entry
from lemming.obligations.answer_fields import parse_answer
from lemming.obligations.org_requests import RequestEntryIndex
from lemming.obligations.request_outcome import build_requests
from lemming.obligations.request_view import RequestView
from lemming.testing import FrozenClock

T = TypeVar("T")

Answer = str | dict[str, Any] | None
"""A text, or the keys of the answer's payload (`status` among them); None: nothing is said."""


@accept_old_names
class ScriptedPerson:
    """A person who answers requests by the first matching pattern of a script.

    Each of `answers` is a pair of a pattern (a regular expression searched in the request's text) and an answer, or a
    function of the request that returns an answer. A request without a match stays open, as for a sleeping person.
    """

    def __init__(self, name: str, *answers: tuple[str, Answer | Callable[[RequestView], Answer]]) -> None:
        self.name, self._answers = name, answers
        self.replies: list[Any] = []

    def answer(self, base_path: str | os.PathLike[str]) -> list[OutboxEntry]:
        """Answer the person's open requests, and return the written entries in order."""
        base = Organisation.from_path(base_path)
        survey, entries = survey_agents(base), []
        requests = build_requests(  # without the time, which stands still in tests
            base.get_cache(RequestEntryIndex).refresh(list_agent_folders(base)),
            agents=survey.agents,
            people=survey.find_people(load_config(base)),
            order=survey.turn_order,
            tick=load_tick(base),
            broken=survey.broken,
        )
        for request in requests.unresolved_requests:
            can_read = survey.agents[self.name].may_read(request.asker)
            if not (self.name in request.assignees and can_read) or (payload := self._build_payload(request)) is None:
                continue
            self.replies.append(parse_answer(payload))
            envelope = {"reply_to": requests.get_reference(request), "target": request.asker}
            if request.conversation:
                envelope["conversation"] = request.conversation
            entry = write_person_entry(
                base,
                self.name,
                tick=requests.tick,
                kind="response",
                payload={**envelope, **payload},
                tags=[],
                created_at=timestamp(FrozenClock().now()),
            )
            entries.append(entry)
        return entries

    def _build_payload(self, request: RequestView) -> dict[str, Any] | None:
        for pattern, answer in self._answers:
            if compile_regex(pattern).search(request.text):
                scripted_answer = answer(request) if callable(answer) else answer
                return {"text": scripted_answer} if isinstance(scripted_answer, str) else scripted_answer
        return None


def answer_each_tick(reports: Iterable[T], base: str | os.PathLike[str], *people: ScriptedPerson) -> Iterator[T]:
    """Yield the reports of `lemming.engine.ticks`; after each tick the people answer their open requests."""
    for report in reports:
        for person in people:
            person.answer(base)
        yield report
