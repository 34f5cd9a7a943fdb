"""References in tasks, contexts and conditions of a plan: dotted paths into the variables of a run. Pure.

`{{steps.draft.text}}` in a text is replaced by a value. Inserted values are not expanded again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lemming.kernel.base.jsontext import to_line
from lemming.libraries.conditions.predicates import MISSING, get_field

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
ANSWER_ROOTS = {"answer": "the answer that was given"}
"""Further names for conditions and tasks of verifiers."""
ITEM_ROOTS = {"item": "the item that the step is done for", "number": "which of the items it is, from 1"}
"""Further names in a step with `each`."""

_REFERENCE = re.compile(r"\{\{([^{}]*)\}\}")
NAMED_ROOTS = ("steps", "keys", "memory", "last", "context")


def find_references(template: Any) -> Iterator[str]:
    """Yield the paths referenced by a template, including all texts in an object or a list.

    >>> list(find_references("About {{ start }}: {{steps.draft}}"))
    ['start', 'steps.draft']
    """
    if isinstance(template, str):
        yield from (path.strip() for path in _REFERENCE.findall(template))
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from find_references(value)
    elif isinstance(template, list):
        for value in template:
            yield from find_references(value)


def split_reference(path: str) -> tuple[str, str]:
    """Return the root of a path, and the name below a root with names.

    >>> split_reference("steps.draft.text"), split_reference("start.text")
    (('steps', 'draft'), ('start', ''))
    """
    root, _, remainder = path.partition(".")
    return root, remainder.partition(".")[0] if root in NAMED_ROOTS else ""


def render(template: str, variables: Mapping[str, Any]) -> str:
    """Return a template with each reference replaced by its value as text. Missing values become empty.

    >>> render("About {{start}}.", {"start": {"text": "bees"}})
    'About bees.'
    """
    return _REFERENCE.sub(lambda match: value_to_text(get_field(variables, match[1].strip())), template)


def fill_arguments(template: Any, variables: Mapping[str, Any]) -> Any:
    """Return arguments with their references replaced.

    A text with only one reference becomes the value itself.

    >>> fill_arguments(dict(n="{{start.n}}", say="n={{start.n}}"), {"start": {"n": 3}})
    {'n': 3, 'say': 'n=3'}
    """
    if isinstance(template, Mapping):
        return {key: fill_arguments(value, variables) for key, value in template.items()}
    if isinstance(template, list):
        return [fill_arguments(value, variables) for value in template]
    if not isinstance(template, str):
        return template
    match = _REFERENCE.fullmatch(template.strip())
    if match is None:
        return render(template, variables)
    value = get_field(variables, match[1].strip())
    plain_text = isinstance(value, Mapping) and set(value) <= {"text"}
    return "" if value is MISSING else value_to_text(value) if plain_text else value


def value_to_text(value: Any) -> str:
    """Return a value as text for a task: the text of an answer, a group or items, else JSON.

    >>> value_to_text(dict(ada={"text": "yes"}, bob={"text": "no"})).splitlines()
    ['ada: yes', '', 'bob: no']
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
    if parts and all(
        isinstance(candidate, Mapping) and isinstance(candidate.get("text"), str) for candidate in parts.values()
    ):
        return "\n\n".join(f"{name}: {value_to_text(part)}" for name, part in parts.items())
    return to_line(dict(value))


def context_lines(paths: list[str], variables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for each available context."""
    for path in paths:
        if text := value_to_text(get_field(variables, path)):
            yield _LABELS.get(path, "") or path.partition(".")[2] or path, text


_LABELS = {"start": "The request", "previous": "The answer of the step before"}
