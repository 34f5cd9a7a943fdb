"""Validation with untrusted JSON Schemas in a bounded number of steps: no schema can block the engine.

The error texts and rules are those of jsonschema. Work which jsonschema would leave to Python's `re`, or do
by comparing all pairs, is done here; each evaluated keyword and each error message costs steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any
from urllib.parse import urljoin

from lemming.kernel.base.name_patterns import InvalidPattern, SchemaPattern, compile_schema_pattern

MAX_STEPS = 60_000
STEPS_PER_REFERENCE = 8
STEPS_PER_ERROR = 4
CHARS_PER_STEP = 64
WEIGHT_PER_STEP = 1  # of a pattern that is made ready
SEARCH_COST_PER_STEP = 10_000  # of a pattern's weight times a text's length

Json = dict[str, Any]
Keyword = Callable[..., Iterable[Any] | None]


class UnusableSchema(Exception):
    """Raised for a valid schema that cannot be used, or not for this value; the message has the reason."""


class StepBudget:
    """The remaining steps of a validation, and the compiled patterns."""

    def __init__(self) -> None:
        self._remaining = MAX_STEPS
        self._patterns: dict[str, SchemaPattern | InvalidPattern] = {}

    def spend(self, count: int) -> None:
        """Consume steps. Raise `UnusableSchema` when none remain."""
        self._remaining -= count
        if self._remaining < 0:
            raise UnusableSchema(f"it takes more than {MAX_STEPS} steps")

    def compile_pattern(self, pattern: str) -> SchemaPattern:
        """Return a compiled pattern. Raises `InvalidPattern`."""
        if pattern not in self._patterns:
            try:
                self._patterns[pattern] = compile_schema_pattern(pattern)
            except InvalidPattern as error:
                self._patterns[pattern] = error
            compiled = self._patterns[pattern]
            self.spend(20 + (compiled.weight // WEIGHT_PER_STEP if isinstance(compiled, SchemaPattern) else 2000))
        compiled = self._patterns[pattern]
        if isinstance(compiled, InvalidPattern):
            raise compiled
        return compiled

    def has_match(self, pattern: str, text: str) -> bool:
        """Return True if a pattern matches somewhere in a text. Raises `UnusableSchema`."""
        try:
            engine = self.compile_pattern(pattern)
        except InvalidPattern as error:
            raise UnusableSchema(f"the pattern {pattern[:80]!r} cannot be used: {error}") from None
        self.spend(1 + engine.weight * len(text) // SEARCH_COST_PER_STEP)
        return engine.has_match(text)


def iter_errors(schema: Any, value: Any) -> Iterator[Any]:
    """Yield jsonschema's errors for a value, without fetching anything. Raises `UnusableSchema`."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        yield from _make_validator(StepBudget(), _size(schema))(schema, registry=Registry()).iter_errors(value)
    except (UnusableSchema, GeneratorExit):
        raise
    except Unresolvable as error:
        raise UnusableSchema(f"{error.ref[:100]!r} is not in it, and nothing is fetched") from None
    except RecursionError:
        raise UnusableSchema("it is too deep, or refers to itself without end") from None
    except Exception as error:  # noqa: BLE001 - a stranger's schema, in a library that trusts it
        raise UnusableSchema(f"{type(error).__name__}: {error}"[:200]) from None


@cache
def meta_schema() -> Json:
    """Return the meta-schema of draft 2020-12 in one piece; evaluating its vocabularies individually is slow."""
    from jsonschema import Draft202012Validator
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    whole: Json = Draft202012Validator.META_SCHEMA
    parts = [*(REGISTRY.contents(urljoin(whole["$id"], part["$ref"])) for part in whole["allOf"]), whole]
    both = ("$defs", "properties")
    merged = {name: {key: value for part in parts for key, value in part.get(name, {}).items()} for name in both}
    localized: Json = _localize_refs({"type": ["object", "boolean"], **merged})
    return localized


def _localize_refs(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_localize_refs(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$dynamicRef" in schema and isinstance(schema["$dynamicRef"], str):
        return {"$ref": "#"}
    return {key: _localize_refs(item) for key, item in schema.items()}


def _make_validator(steps: StepBudget, size: int) -> Any:
    """Return a validator class with step counting. `size` is the number of parts in the schema."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    base_checks = Draft202012Validator.VALIDATORS
    checks = {name: _count_steps(check, steps, _keyword_cost) for name, check in {**base_checks, **_CHECKS}.items()}
    for keyword in ("$ref", "$dynamicRef"):
        checks[keyword] = _count_steps(base_checks[keyword], steps, partial(_ref_cost, size=size))
    checks["format"] = lambda *_: None  # a text's claimed format is not verified (docs/requests.md)
    kind: Any = extend(Draft202012Validator, checks)  # type: ignore[no-untyped-call]

    base_evolve = kind.evolve

    def evolve(self: Any, **changes: Any) -> Any:
        steps.spend(1)
        part = changes.get("schema")
        if isinstance(part, dict) and "$schema" in part:
            # It would go on with a class of jsonschema's own, which does not count.
            changes["schema"] = {key: value for key, value in part.items() if key != "$schema"}
        return base_evolve(self, **changes)

    kind.evolve, kind.steps = evolve, steps
    return kind


def _count_steps(check: Keyword, steps: StepBudget, get_cost: Callable[[Any, Any], int]) -> Keyword:
    """Return a keyword check whose evaluation and errors consume steps."""

    def counted(validator: Any, keyword_value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        steps.spend(1 + get_cost(keyword_value, instance))
        for error in check(validator, keyword_value, instance, schema) or ():
            steps.spend(STEPS_PER_ERROR + len(error.message) // CHARS_PER_STEP)
            yield error

    return counted


def _keyword_cost(keyword_value: Any, instance: Any) -> int:
    """Return the cost of a keyword, without the subschemas."""
    value_size = len(keyword_value) if isinstance(keyword_value, (dict, list)) else 0
    instance_size = len(instance) if isinstance(instance, (dict, list)) else 0
    return (value_size + instance_size) // 8


def _ref_cost(reference: Any, _: Any, *, size: int) -> int:
    """Return the cost of resolving a reference; an anchor is searched for everywhere."""
    is_pointer = reference == "#" or reference.startswith("#/")
    return STEPS_PER_REFERENCE + len(reference) // CHARS_PER_STEP + (0 if is_pointer else size // 4)


def _size(value: Any) -> int:
    """Return the number of values nested in a value, without recursion."""
    count, pending = 0, [value]
    while pending:
        item = pending.pop()
        count += 1
        if isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return count


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _pattern(validator: Any, pattern: str, instance: Any, _: Json) -> Iterator[Any]:
    if isinstance(instance, str) and not validator.steps.has_match(pattern, instance):
        yield _error(f"{instance[:80]!r} does not match {pattern[:80]!r}")


def _pattern_properties(validator: Any, subschemas: Json, instance: Any, _: Json) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, schema in subschemas.items():
            for key, value in instance.items():
                if validator.steps.has_match(pattern, key):
                    yield from validator.descend(value, schema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, subschema: Any, instance: Any, schema: Json) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    has_match = validator.steps.has_match
    extra_keys = [
        key for key in instance if key not in named and not any(has_match(pattern, key) for pattern in patterns)
    ]
    if isinstance(subschema, dict):
        for key in extra_keys:
            yield from validator.descend(instance[key], subschema, path=key)
    elif not subschema and extra_keys:
        key_list, is_single = ", ".join(map(repr, sorted(extra_keys))), len(extra_keys) == 1
        if "patternProperties" in schema:
            pattern_list = ", ".join(map(repr, sorted(patterns)))
            verb = "does" if is_single else "do"
            yield _error(f"{key_list} {verb} not match any of the regexes: {pattern_list}")
        else:
            verb = "was" if is_single else "were"
            yield _error(f"Additional properties are not allowed ({key_list} {verb} unexpected)")


def _equality_key(value: Any, steps: StepBudget) -> Any:
    """Return a key that is equal for equal JSON values only; Python treats true and 1 as equal."""
    steps.spend(1)
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return ("list", *(_equality_key(item, steps) for item in value))
    if isinstance(value, dict):
        return ("dict", frozenset((key, _equality_key(item, steps)) for key, item in value.items()))
    steps.spend(len(value) // CHARS_PER_STEP if isinstance(value, str) else 0)
    return value


def _const(validator: Any, expected: Any, instance: Any, _: Json) -> Iterator[Any]:
    if _equality_key(expected, validator.steps) != _equality_key(instance, validator.steps):
        yield _error(f"{expected!r} was expected")


def _enum(validator: Any, options: list[Any], instance: Any, _: Json) -> Iterator[Any]:
    instance_key = _equality_key(instance, validator.steps)
    if all(_equality_key(option, validator.steps) != instance_key for option in options):
        yield _error(f"{instance!r} is not one of {options!r}")


def _unique_items(validator: Any, is_required: Any, instance: Any, _: Json) -> Iterator[Any]:
    if not is_required or not isinstance(instance, list):
        return
    if len({_equality_key(item, validator.steps) for item in instance}) < len(instance):
        yield _error(f"{instance!r} has non-unique elements")


def _unevaluated_properties(validator: Any, subschema: Any, instance: Any, schema: Json) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    evaluated = _evaluated_keys(validator, instance, schema, validator.steps)
    unevaluated = [key for key in instance if key not in evaluated]
    invalid_keys = [key for key in unevaluated for _ in validator.descend(instance[key], subschema, path=key)]
    if invalid_keys:
        key_list, verb = ", ".join(map(repr, sorted(invalid_keys))), "was" if len(invalid_keys) == 1 else "were"
        if subschema is False:
            yield _error(f"Unevaluated properties are not allowed ({key_list} {verb} unexpected)")
        else:
            message = "Unevaluated properties are not valid under the given schema"
            yield _error(f"{message} ({key_list} {verb} unevaluated and invalid)")


def _evaluated_keys(validator: Any, instance: Json, schema: Any, steps: StepBudget) -> set[str]:
    """Return the keys of a value evaluated by a schema and by the subschemas the value satisfies."""
    steps.spend(1)
    if not isinstance(schema, dict):
        return set()
    keys = set(schema.get("properties", {})) & instance.keys()
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema:
            resolved = validator._resolver.lookup(schema[keyword])
            validator_at_target = validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)
            keys |= _evaluated_keys(validator_at_target, instance, resolved.contents, steps)
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            keys |= {key for key, value in instance.items() if _is_valid(validator, value, schema[keyword])}
    for pattern in schema.get("patternProperties", {}):
        keys |= {key for key in instance if steps.has_match(pattern, key)}
    for key, part in schema.get("dependentSchemas", {}).items():
        if key in instance:
            keys |= _evaluated_keys(validator, instance, part, steps)
    for keyword in ("allOf", "oneOf", "anyOf"):
        for part in schema.get(keyword, ()):
            if _is_valid(validator, instance, part):
                keys |= _evaluated_keys(validator, instance, part, steps)
    if "if" in schema:
        fits = _is_valid(validator, instance, schema["if"])
        keys |= _evaluated_keys(validator, instance, schema["if"], steps) if fits else set()
        keys |= _evaluated_keys(validator, instance, schema.get("then" if fits else "else", True), steps)
    return keys


def _is_valid(validator: Any, instance: Any, schema: Any) -> bool:
    return next(validator.descend(instance, schema), None) is None


_CHECKS: dict[str, Keyword] = {
    "additionalProperties": _additional_properties,
    "const": _const,
    "enum": _enum,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "unevaluatedProperties": _unevaluated_properties,
    "uniqueItems": _unique_items,
}
"""The keywords that are done here."""
