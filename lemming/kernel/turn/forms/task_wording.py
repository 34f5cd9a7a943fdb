"""Description of a turn's task for judges and critics of a draft, in place of the prompt. Pure.

A draft is judged by the request and the answers. The author's files and memories are included only if the
policy, rubric or instructions of the judge name them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.payload_text import quote_text
from lemming.kernel.turn.forms.form_user_message import (
    describe_entry,
    describe_request,
    describe_result,
    describe_sub_request,
)
from lemming.kernel.turn.notices import without_notices
from lemming.kernel.turn.prompt_input import PromptInput


def describe_task(prompt_input: PromptInput, rules: Iterable[str], pending_indexes: Collection[int] = ()) -> str:
    """Return a description of a turn's task.

    `rules`: policies and instructions of the judges. `pending_indexes`: indexes of results that arrive as the
    turn begins, and are described with the turn's own calls.
    """
    results = [result for index, result in enumerate(prompt_input.results) if index not in pending_indexes]
    return "\n".join(_lines(prompt_input, "\n".join(rules), results))


def _lines(prompt_input: PromptInput, rules: str, results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    labels, task = prompt_input.labels, prompt_input.task
    for label, text in prompt_input.context:
        if label.partition(" (trust: ")[0] in rules:
            yield f"{label}:{quote_text(text)}"
    for key, value in prompt_input.memory.items():
        if key in rules:
            value_text = value if isinstance(value, str) else to_line(value)
            yield f"{labels.memory_prefix(key)}memory {key}:{quote_text(value_text)}"
    yield from (f"{title}:{quote_text(text)}" for title, text in prompt_input.leading_sections if text)
    if task is None:
        request_ids = {id(entry) for entry in prompt_input.requests}
        yield from (
            describe_entry(entry, labels) for entry in prompt_input.inbox.unread if id(entry) not in request_ids
        )
        yield from (describe_request(entry, labels) for entry in prompt_input.requests)
    else:
        yield from (describe_entry(entry, labels) for entry in task.thread)
        for outcome in task.outcomes:
            if not outcome.sub_request.call:
                yield from describe_sub_request(outcome, labels)
    yield from (describe_result(result, labels) for result in without_notices(results))
    if task and task.request:
        yield describe_request(task.request, labels)
