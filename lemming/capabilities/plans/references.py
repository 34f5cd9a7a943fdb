"""What tasks, contexts and conditions of a plan refer to: dotted paths into what a run knows. Pure.

`{{steps.draft.text}}` in a text stands for a value; what was put in is not looked through again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lemming.capabilities.conditions.when import MISSING, field_of
from lemming.kernel.base.jsontext import to_line

ROOTS = {
    "start": "the request: its text, or a field of its payload",
    "previous": "the answer of the step before",
    "steps": "the answer of a step, or of all members of a band: steps.NAME",
    "keys": "what a step wrote under a key: keys.KEY",
    "memory": "a memory of the agent: memory.KEY",
    "last": "the last answer of an agent, and its age: last.AGENT",
    "context": "a context file of the agent's resume, by its label: context.LABEL",
    "round": "how often the step was begun in this run",
    "tick": "the tick",
}
OF_AN_ANSWER = {"answer": "the answer that was given"}
"""What conditions and the tasks of verifiers may refer to besides."""
OF_AN_ITEM = {"item": "the item that the step is done for", "number": "which of the items it is, from 1"}
"""What a step with `each` may refer to besides."""

_REFERENCE = re.compile(r"\{\{([^{}]*)\}\}")
NEED_A_NAME = ("steps", "keys", "memory", "last", "context")


def references_in(template: Any) -> Iterator[str]:
    """Yield the paths that a template refers to; of an object or a list, those of all texts in it.

    >>> list(references_in("About {{ start }}: {{steps.draft}}"))
    ['start', 'steps.draft']
    """
    if isinstance(template, str):
        yield from (path.strip() for path in _REFERENCE.findall(template))
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from references_in(value)
    elif isinstance(template, list):
        for value in template:
            yield from references_in(value)


def parts_of(path: str) -> tuple[str, str]:
    """Return the root of a path, and the name below it where the root has names.

    >>> parts_of("steps.draft.text"), parts_of("start.text")
    (('steps', 'draft'), ('start', ''))
    """
    root, _, rest = path.partition(".")
    return root, rest.partition(".")[0] if root in NEED_A_NAME else ""


def rendered(template: str, known: Mapping[str, Any]) -> str:
    """Return a template with each reference replaced by its value as text; what is not there is empty.

    >>> rendered("About {{start}}.", {"start": {"text": "bees"}})
    'About bees.'
    """
    return _REFERENCE.sub(lambda found: as_text(field_of(known, found[1].strip())), template)


def filled(template: Any, known: Mapping[str, Any]) -> Any:
    """Return arguments with their references replaced; a text that is one reference becomes the value itself.

    >>> filled({"n": "{{start.n}}", "say": "n={{start.n}}"}, {"start": {"n": 3}})
    {'n': 3, 'say': 'n=3'}
    """
    if isinstance(template, Mapping):
        return {key: filled(value, known) for key, value in template.items()}
    if isinstance(template, list):
        return [filled(value, known) for value in template]
    if not isinstance(template, str):
        return template
    alone = _REFERENCE.fullmatch(template.strip())
    if alone is None:
        return rendered(template, known)
    value = field_of(known, alone[1].strip())
    plain_text = isinstance(value, Mapping) and set(value) <= {"text"}
    return "" if value is MISSING else as_text(value) if plain_text else value


def as_text(value: Any) -> str:
    """Return a value as a task shows it: the text of an answer, those of a band or of items, else JSON.

    >>> as_text({"ada": {"text": "yes"}, "bob": {"text": "no"}})
    'ada: yes\\n\\nbob: no'
    """
    if value is MISSING or value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        return to_line(value)
    if isinstance(value.get("text"), str):
        age = value.get("age_ticks")
        return f"{value['text']} ({age} ticks ago)" if isinstance(age, int) else str(value["text"])
    items = value.get("items")
    parts = dict(enumerate(items, start=1)) if len(value) == 1 and isinstance(items, list) else value
    if parts and all(isinstance(it, Mapping) and isinstance(it.get("text"), str) for it in parts.values()):
        return "\n\n".join(f"{name}: {as_text(each)}" for name, each in parts.items())
    return to_line(dict(value))


def context_lines(paths: list[str], known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for each context that is there."""
    for path in paths:
        if text := as_text(field_of(known, path)):
            yield _LABELS.get(path, "") or path.partition(".")[2] or path, text


_LABELS = {"start": "The request", "previous": "The answer of the step before"}
