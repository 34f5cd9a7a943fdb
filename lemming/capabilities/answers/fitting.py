"""An answer held to the schema that it must satisfy, and put right where that makes it fit. Pure.

Models say the right thing in forms that are not quite the right one: fields in a JSON text, another case,
null for what is absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lemming.kernel.base.json_schema.violations import Violation, misfits, part_of, wrong_in
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files.fields import Json
from lemming.kernel.mail.answers import APART, answer_in, is_apart


class FittedAnswer(NamedTuple):
    """An answer, or why there is none."""

    answer: Json | None
    why: str = ""


def fitted(payload: Json, schema: Json) -> tuple[Json, list[Violation]]:
    """Return a payload whose answer satisfies a sound schema, or as it is with what is wrong in it.

    >>> fitted({"text": '{"verdict": "Good"}'}, {"properties": {"verdict": {"enum": ["good"]}}})
    ({'text': '{"verdict": "Good"}'}, [])
    >>> schema = {"properties": {"verdict": {"enum": ["good"]}}, "required": ["verdict"]}
    >>> fitted({"text": '{"verdict": "Good"}'}, schema)[0]["verdict"]
    'good'
    """
    wrong = wrong_in(schema, answer_in(payload, schema))
    if wrong and isinstance(apart := payload.get(APART), Mapping) and is_apart(schema):
        found = fitting({**apart}, schema).answer
        return ({**payload, APART: found}, []) if found is not None else (payload, _below(APART, wrong))
    if wrong:
        for attempt in _put_right({**fields_in(payload.get("text")), **payload}, schema):
            if not misfits(schema, answer_in(attempt, schema)):
                return attempt, []
    return payload, wrong


def _below(key: str, wrong: list[Violation]) -> list[Violation]:
    return [it._replace(pointer=f"/{key}{it.pointer}") for it in wrong]


def fitting(answer: Json, schema: Json | None) -> FittedAnswer:
    """Return an answer if it satisfies what it was to satisfy, put right where that is enough.

    A word that a schema lists may be written in another case, and may be all that an answer's text says.
    """
    if schema is None or not (wrong := misfits(schema, answer)):
        return FittedAnswer(answer)
    for attempt in _put_right(answer, schema):
        if not misfits(schema, attempt) or ("text" in attempt and not misfits(schema, without_text(attempt))):
            return FittedAnswer(attempt)
    return FittedAnswer(None, f"the answer is not what was asked for: {'; '.join(wrong)}")


def fields_in(text: Any) -> Json:
    """Return the object that a text is, in a code fence or not; an empty one when it is none."""
    if not isinstance(text, str):
        return {}
    bare = text.strip()
    if bare.startswith("```"):
        bare = bare.removeprefix("```json").strip("`").strip()
    if not bare.startswith("{"):
        return {}
    try:
        found = parse(bare)
    except JsonProblem:
        return {}
    return found if isinstance(found, dict) else {}


def _put_right(answer: Json, schema: Json) -> Iterator[Json]:
    yield answer
    listed = _as_listed(answer, schema)
    yield listed
    yield _without_nulls(listed, schema, schema)


def _as_listed(answer: Json, schema: Json) -> Json:
    """Return an answer with the words that its schema lists spelled as there."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return answer
    alone = required[0] if isinstance(required, list) and len(required) == 1 else None
    listed = dict(answer)
    for name, field in properties.items():
        said = answer.get("text") if name == alone and name not in answer else answer.get(name)
        first = _first_word(said) if name not in answer else None
        if isinstance(field, dict) and field.get("type") == "boolean" and isinstance(said, str):
            found = [it for word in (said, first or "") if (it := yes_or_no(word)) is not None]
            listed |= {name: found[0]} if found else {}
        values = field.get("enum") if isinstance(field, dict) else None
        for value in values if isinstance(values, list) and isinstance(said, str) else ():
            if isinstance(value, str) and bare_word(value) in (bare_word(str(said)), first):
                listed[name] = value
    return listed


def _first_word(said: Any) -> str | None:
    """Return the word that a text begins with and explains: "fail" of "fail: it is too long"."""
    word = next(iter(said.split()), "") if isinstance(said, str) else ""
    return bare_word(word) if word.endswith((":", ".", ",")) else None


def _without_nulls(value: Any, schema: Any, whole: Json) -> Any:
    """Return a value without the nulls that stand for what its schema lets be absent."""
    if isinstance(schema, dict) and "$ref" in schema:
        schema = part_of(whole, schema["$ref"])
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [_without_nulls(item, schema.get("items"), whole) for item in value]
    properties, required = schema.get("properties"), schema.get("required", ())
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    needed = {*required, *(key for key in value if key not in properties)}
    return {
        key: _without_nulls(it, properties.get(key), whole)
        for key, it in value.items()
        if it is not None or key in needed
    }


def yes_or_no(word: str) -> bool | None:
    """Return what a word says that stands for true or false; None for any other.

    >>> yes_or_no("Pass."), yes_or_no("no"), yes_or_no("perhaps")
    (True, False, None)
    """
    return {"true": True, "yes": True, "pass": True, "false": False, "no": False, "fail": False}.get(
        bare_word(word)
    )


def bare_word(word: str) -> str:
    """Return a word without what models put around it, in one case."""
    return word.strip(" .!:,*\n\"'").casefold()


def without_text(answer: Mapping[str, Any]) -> Json:
    """Return an answer's fields but for its text, which a schema need not know."""
    return {key: value for key, value in answer.items() if key != "text"}
