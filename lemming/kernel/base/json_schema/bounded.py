"""JSON Schemas that somebody else wrote, walked in a number of steps: none can hold the engine.

The words and the rules are those of jsonschema. What it would leave to Python's `re`, or compare each with
each, is done here; every keyword that is asked, and every word that is said of it, is a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any
from urllib.parse import urljoin

from lemming.kernel.base.json_schema.patterns import SchemaPattern, schema_pattern
from lemming.kernel.base.patterns import NoExpression

MOST_STEPS = 60_000
STEPS_A_REFERENCE = 8
STEPS_AN_ERROR = 4
CHARS_A_STEP = 64
WEIGHT_A_STEP = 1  # of a pattern that is made ready
SEARCHED_A_STEP = 10_000  # of a pattern's weight times a text's length

Json = dict[str, Any]
Keyword = Callable[..., Iterable[Any] | None]


class UnusableSchema(Exception):
    """A schema that is one cannot be used, or not on this value; the message says why."""


class Steps:
    """How many steps are left, and the patterns that were made ready."""

    def __init__(self) -> None:
        self._left = MOST_STEPS
        self._patterns: dict[str, SchemaPattern | NoExpression] = {}

    def take(self, count: int) -> None:
        """Raise `UnusableSchema` when more than all steps were taken."""
        self._left -= count
        if self._left < 0:
            raise UnusableSchema(f"it takes more than {MOST_STEPS} steps")

    def ready(self, pattern: str) -> SchemaPattern:
        """Return a pattern ready to search. Raises `NoExpression`."""
        if pattern not in self._patterns:
            try:
                self._patterns[pattern] = schema_pattern(pattern)
            except NoExpression as error:
                self._patterns[pattern] = error
            found = self._patterns[pattern]
            self.take(20 + (found.weight // WEIGHT_A_STEP if isinstance(found, SchemaPattern) else 2000))
        found = self._patterns[pattern]
        if isinstance(found, NoExpression):
            raise found
        return found

    def finds(self, pattern: str, text: str) -> bool:
        """Return whether a pattern finds something in a text. Raises `UnusableSchema`."""
        try:
            engine = self.ready(pattern)
        except NoExpression as error:
            raise UnusableSchema(f"the pattern {pattern[:80]!r} cannot be used: {error}") from None
        self.take(1 + engine.weight * len(text) // SEARCHED_A_STEP)
        return engine.finds(text)


def errors_of(schema: Any, value: Any) -> Iterator[Any]:
    """Yield what jsonschema finds wrong with a value; fetch nothing. Raises `UnusableSchema`."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        yield from _kind(Steps(), _size(schema))(schema, registry=Registry()).iter_errors(value)
    except (UnusableSchema, GeneratorExit):
        raise
    except Unresolvable as error:
        raise UnusableSchema(f"{error.ref[:100]!r} is not in it, and nothing is fetched") from None
    except RecursionError:
        raise UnusableSchema("it is too deep, or refers to itself without end") from None
    except Exception as error:  # noqa: BLE001 - a stranger's schema, in a library that trusts it
        raise UnusableSchema(f"{type(error).__name__}: {error}"[:200]) from None


def errors_of_schema(schema: Any) -> Iterator[Any]:
    """Yield what keeps a value from being a JSON Schema of draft 2020-12. Raises `UnusableSchema`."""
    yield from errors_of(_schema_of_schemas(), schema)


@cache
def _schema_of_schemas() -> Json:
    """Return the meta-schema of draft 2020-12 in one piece: its vocabularies, asked one by one, take long."""
    from jsonschema import Draft202012Validator
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    whole: Json = Draft202012Validator.META_SCHEMA
    parts = [REGISTRY.contents(urljoin(whole["$id"], it["$ref"])) for it in whole["allOf"]] + [whole]
    one = {
        word: {k: v for it in parts for k, v in it.get(word, {}).items()} for word in ("$defs", "properties")
    }
    in_one: Json = _with_own_references({"type": ["object", "boolean"], **one})
    return in_one


def _with_own_references(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_own_references(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$dynamicRef" in schema and isinstance(schema["$dynamicRef"], str):
        return {"$ref": "#"}
    return {key: _with_own_references(each) for key, each in schema.items()}


def _kind(steps: Steps, size: int) -> Any:
    """Return a class of validators that counts its steps; `size` is how many parts the schema has."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    own = {
        "additionalProperties": _additional_properties,
        "const": _const,
        "enum": _enum,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "unevaluatedProperties": _unevaluated_properties,
        "uniqueItems": _unique_items,
    }
    kinds = Draft202012Validator.VALIDATORS
    checks = {**kinds, **{name: check(steps) for name, check in own.items()}}
    counted = {name: _counted(check, steps, _weight) for name, check in checks.items()}
    for word in ("$ref", "$dynamicRef"):
        counted[word] = _counted(kinds[word], steps, partial(_weight_of_reference, size=size))
    counted["format"] = _nothing
    kind: Any = extend(Draft202012Validator, counted)  # type: ignore[no-untyped-call]

    plain = kind.evolve

    def evolve(self: Any, **changes: Any) -> Any:
        steps.take(1)
        part = changes.get("schema")
        if isinstance(part, dict) and "$schema" in part:
            # It would go on with a class of jsonschema's own, which does not count.
            changes["schema"] = {key: value for key, value in part.items() if key != "$schema"}
        return plain(self, **changes)

    kind.evolve = evolve
    return kind


def _nothing(*_: Any) -> None:
    """Check no format: what a text says it is stays its author's word (docs/requests.md)."""


def _counted(check: Keyword, steps: Steps, weight: Callable[[Any, Any], int]) -> Keyword:
    """Return a keyword whose asking and whose errors are steps."""

    def counted(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        steps.take(1 + weight(wanted, instance))
        for error in check(validator, wanted, instance, schema) or ():
            steps.take(STEPS_AN_ERROR + len(error.message) // CHARS_A_STEP)
            yield error

    return counted


def _weight(wanted: Any, instance: Any) -> int:
    """Return what a keyword takes beside what it asks in turn."""
    in_wanted = len(wanted) if isinstance(wanted, (dict, list)) else 0
    in_instance = len(instance) if isinstance(instance, (dict, list)) else 0
    return (in_wanted + in_instance) // 8


def _weight_of_reference(wanted: Any, _: Any, *, size: int) -> int:
    """Return what it takes to look a reference up: an anchor is looked for everywhere."""
    is_pointer = wanted == "#" or wanted.startswith("#/")
    return STEPS_A_REFERENCE + len(wanted) // CHARS_A_STEP + (0 if is_pointer else size // 4)


def _size(value: Any) -> int:
    """Return how many values are in one, without recursion."""
    count, left = 0, [value]
    while left:
        each = left.pop()
        count += 1
        if isinstance(each, dict):
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)
    return count


# --- the keywords that are done here ----------------------------------------------------------------


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _pattern(steps: Steps) -> Keyword:
    def pattern(_: Any, wanted: str, instance: Any, __: Json) -> Iterator[Any]:
        if isinstance(instance, str) and not steps.finds(wanted, instance):
            yield _error(f"{instance[:80]!r} does not match {wanted[:80]!r}")

    return pattern


def _pattern_properties(steps: Steps) -> Keyword:
    def pattern_properties(validator: Any, wanted: Json, instance: Any, _: Json) -> Iterator[Any]:
        if isinstance(instance, dict):
            for pattern, schema in wanted.items():
                for key, value in instance.items():
                    if steps.finds(pattern, key):
                        yield from validator.descend(value, schema, path=key, schema_path=pattern)

    return pattern_properties


def _further(steps: Steps, instance: Json, schema: Json) -> list[str]:
    """Return the keys that neither `properties` nor `patternProperties` beside speak of."""
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    return [
        key for key in instance if key not in named and not any(steps.finds(each, key) for each in patterns)
    ]


def _additional_properties(steps: Steps) -> Keyword:
    def additional_properties(validator: Any, wanted: Any, instance: Any, schema: Json) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        further = _further(steps, instance, schema)
        if isinstance(wanted, dict):
            for key in further:
                yield from validator.descend(instance[key], wanted, path=key)
        elif not wanted and further:
            told, is_one = ", ".join(map(repr, sorted(further))), len(further) == 1
            if "patternProperties" in schema:
                patterns = ", ".join(map(repr, sorted(schema["patternProperties"])))
                verb = "does" if is_one else "do"
                yield _error(f"{told} {verb} not match any of the regexes: {patterns}")
            else:
                were = "was" if is_one else "were"
                yield _error(f"Additional properties are not allowed ({told} {were} unexpected)")

    return additional_properties


def _same_as(value: Any, steps: Steps) -> Any:
    """Return what is equal for JSON values that are the same one, and only then; Python takes true for 1."""
    steps.take(1)
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return ("list", *(_same_as(each, steps) for each in value))
    if isinstance(value, dict):
        return ("dict", frozenset((key, _same_as(each, steps)) for key, each in value.items()))
    steps.take(len(value) // CHARS_A_STEP if isinstance(value, str) else 0)
    return value


def _const(steps: Steps) -> Keyword:
    def const(_: Any, wanted: Any, instance: Any, __: Json) -> Iterator[Any]:
        if _same_as(wanted, steps) != _same_as(instance, steps):
            yield _error(f"{wanted!r} was expected")

    return const


def _enum(steps: Steps) -> Keyword:
    def enum(_: Any, wanted: list[Any], instance: Any, __: Json) -> Iterator[Any]:
        found = _same_as(instance, steps)
        if all(_same_as(each, steps) != found for each in wanted):
            yield _error(f"{instance!r} is not one of {wanted!r}")

    return enum


def _unique_items(steps: Steps) -> Keyword:
    def unique_items(_: Any, wanted: Any, instance: Any, __: Json) -> Iterator[Any]:
        if wanted and isinstance(instance, list):
            seen = {_same_as(each, steps) for each in instance}
            if len(seen) < len(instance):
                yield _error(f"{instance!r} has non-unique elements")

    return unique_items


def _unevaluated_properties(steps: Steps) -> Keyword:
    def unevaluated_properties(validator: Any, wanted: Any, instance: Any, schema: Json) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        evaluated = _evaluated(validator, instance, schema, steps)
        left = [key for key in instance if key not in evaluated]
        wrong = [key for key in left for _ in validator.descend(instance[key], wanted, path=key)]
        if wrong:
            told, were = ", ".join(map(repr, sorted(wrong))), "was" if len(wrong) == 1 else "were"
            if wanted is False:
                yield _error(f"Unevaluated properties are not allowed ({told} {were} unexpected)")
            else:
                what = "Unevaluated properties are not valid under the given schema"
                yield _error(f"{what} ({told} {were} unevaluated and invalid)")

    return unevaluated_properties


def _evaluated(validator: Any, instance: Json, schema: Any, steps: Steps) -> set[str]:
    """Return the keys of a value that a schema, and what of it the value satisfies, speaks of."""
    steps.take(1)
    if not isinstance(schema, dict):
        return set()
    found = set(schema.get("properties", {})) & instance.keys()
    for word in ("$ref", "$dynamicRef"):
        if word in schema:
            to = validator._resolver.lookup(schema[word])
            at = validator.evolve(schema=to.contents, _resolver=to.resolver)
            found |= _evaluated(at, instance, to.contents, steps)
    for word in ("additionalProperties", "unevaluatedProperties"):
        if word in schema:
            found |= {key for key, value in instance.items() if _fits(validator, value, schema[word])}
    for pattern in schema.get("patternProperties", {}):
        found |= {key for key in instance if steps.finds(pattern, key)}
    for key, part in schema.get("dependentSchemas", {}).items():
        if key in instance:
            found |= _evaluated(validator, instance, part, steps)
    for word in ("allOf", "oneOf", "anyOf"):
        for part in schema.get(word, ()):
            if _fits(validator, instance, part):
                found |= _evaluated(validator, instance, part, steps)
    if "if" in schema:
        fits = _fits(validator, instance, schema["if"])
        found |= _evaluated(validator, instance, schema["if"], steps) if fits else set()
        found |= _evaluated(validator, instance, schema.get("then" if fits else "else", True), steps)
    return found


def _fits(validator: Any, instance: Any, schema: Any) -> bool:
    return next(validator.descend(instance, schema), None) is None
