"""What a judge or a critic is told of the turn whose draft it judges: what was asked, not the prompt. Pure.

What was asked and what was answered is what a draft is held against. Files and memories of the author are
told where the policy, the rubric or the instructions of who judges name them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.payload_text import quote_text
from lemming.kernel.turn.forms.situation import (
    describe_asked,
    describe_entry,
    describe_request,
    describe_result,
)
from lemming.kernel.turn.notices import without_notices
from lemming.kernel.turn.seen import Seen


def describe_task(seen: Seen, rules: Iterable[str], to_come: Collection[int] = ()) -> str:
    """Return what a turn is about.

    `rules`: the policies and instructions of those who judge it. `to_come`: places of results that come as
    the turn begins, and are told with those of its own calls.
    """
    results = [result for place, result in enumerate(seen.results) if place not in to_come]
    return "\n".join(_lines(seen, "\n".join(rules), results))


def _lines(seen: Seen, rules: str, results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    labels, task = seen.labels, seen.task
    for label, text in seen.context:
        if label.partition(" (trust: ")[0] in rules:
            yield f"{label}:{quote_text(text)}"
    for key, value in seen.memory.items():
        if key in rules:
            told = value if isinstance(value, str) else to_line(value)
            yield f"{labels.of_memory(key)}memory {key}:{quote_text(told)}"
    yield from (f"{title}:{quote_text(text)}" for title, text in seen.before if text)
    if task is None:
        asked = {id(entry) for entry in seen.asked}
        yield from (describe_entry(entry, labels) for entry in seen.inbox.unread if id(entry) not in asked)
        yield from (describe_request(entry, labels) for entry in seen.asked)
    else:
        yield from (describe_entry(entry, labels) for entry in task.thread)
        for ended in task.asked:
            if not ended.asked.call:
                yield from describe_asked(ended, labels)
    yield from (describe_result(result, labels) for result in without_notices(results))
    if task and task.request:
        yield describe_request(task.request, labels)
