"""Validation of references in a plan: existence, and availability at the time of use. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from lemming.capabilities.plans.plan_format import AgentPlan, StepAction, StepDefinition, reachable_steps
from lemming.capabilities.plans.step_outcomes import build_answer_schema
from lemming.capabilities.plans.value_paths import (
    ANSWER_ROOTS,
    ITEM_ROOTS,
    NAMED_ROOTS,
    ROOTS,
    find_references,
    split_reference,
)
from lemming.ext import Problem
from lemming.kernel.base.jsontext import did_you_mean
from lemming.libraries.conditions import predicates


def validate_references(plan: AgentPlan) -> Iterator[Problem]:
    """Yield a problem for each reference to a missing or later value, and for each key with two writers."""
    yield from _writer_problems(plan)
    earlier_names = _possible_predecessors(plan)
    for action, step, base_pointer in plan.iter_actions():
        inside = {member.name for member in step.parallel} if action is not step else set[str]()
        for path, pointer in _task_references(action, base_pointer):
            yield from _path_problems(plan, path, pointer, earlier_names[step.name], (step, inside, action))
        done_names = earlier_names[step.name] | {step.name, *(member.name for member in step.parallel)}
        for path, pointer in _answer_references(action, base_pointer):
            yield from _path_problems(plan, path, pointer, done_names, (step, set(), action), is_after=True)
    all_names = {action.name for action, _, _ in plan.iter_actions()}
    for path in find_references(plan.answer):
        yield from _path_problems(plan, path, "/answer", all_names, None)
    if name := find_named_step(plan.answer, all_names):
        message = f'"answer" is a text and has no field "{name}"; "{name}" is a step'
        hint = f'write "{{{{steps.{name}}}}}" for the answer of that step'
        yield Problem(message, pointer="/answer", hint=hint, severity="warning")


def find_named_step(template: str, names: Collection[str]) -> str:
    """Return the step surely meant by a text without a reference, or the empty string.

    >>> [find_named_step(text, ["sort"]) for text in ("steps.sort", "sort", "ok")]
    ['sort', 'sort', '']
    """
    name = template.strip().removeprefix("steps.").partition(".")[0]
    return name if name in names and "{{" not in template else ""


def iter_references(plan: AgentPlan) -> Iterator[tuple[str, str]]:
    """Yield all references of a plan in texts, arguments and conditions, with their pointers."""
    for action, _, base_pointer in plan.iter_actions():
        yield from _task_references(action, base_pointer)
        yield from _answer_references(action, base_pointer)
    yield from ((path, "/answer") for path in find_references(plan.answer))


def _possible_predecessors(plan: AgentPlan) -> dict[str, set[str]]:
    """Return the possible predecessors of each step, including parallel actions."""
    follows = reachable_steps(plan)
    members = {step.name: {step.name, *(action.name for action in step.parallel)} for step in plan.steps}
    return {
        name: {member_name for earlier in follows if name in follows[earlier] for member_name in members[earlier]}
        for name in follows
    }


def _task_references(action: StepAction, base_pointer: str) -> Iterator[tuple[str, str]]:
    yield from ((path, f"{base_pointer}/task") for path in find_references(action.task))
    yield from ((path, f"{base_pointer}/args") for path in find_references(action.args))
    yield from ((path, f"{base_pointer}/context/{index}") for index, path in enumerate(action.context))
    if isinstance(action, StepDefinition) and action.each:
        yield action.each, f"{base_pointer}/each"
    if action.wait:
        yield from ((path, f"{base_pointer}/wait/time") for path in find_references(action.wait.time))


def _answer_references(action: StepAction, base_pointer: str) -> Iterator[tuple[str, str]]:
    if action.verify:
        yield from ((path, f"{base_pointer}/verify/task") for path in find_references(action.verify.task))
        yield from ((path, f"{base_pointer}/verify/args") for path in find_references(action.verify.args))
        if action.verify.when is not None:
            condition, pointer = action.verify.when, f"{base_pointer}/verify/when"
            if not any(predicates.validate_condition(condition)):
                yield from iter_condition_fields(condition, pointer)
    if isinstance(action, StepDefinition):
        for index, route in enumerate(action.routes):
            pointer = f"{base_pointer}/routes/{index}/when"
            if not any(predicates.validate_condition(route.when)):
                yield from ((path, at) for path, at in iter_condition_fields(route.when, pointer) if "." in path)


def _path_problems(
    plan: AgentPlan,
    path: str,
    pointer: str,
    earlier_names: set[str],
    position: tuple[StepDefinition, set[str], StepAction] | None,
    *,
    is_after: bool = False,
) -> Iterator[Problem]:
    root, name = split_reference(path)
    roots = {**ROOTS, **ANSWER_ROOTS} if is_after else ROOTS
    own_action = position[2] if position else None
    has_items = isinstance(own_action, StepDefinition) and own_action.each
    if has_items and "/routes/" not in pointer and not pointer.endswith("/each"):
        roots = {**roots, **ITEM_ROOTS}
    if root not in roots:
        hint = did_you_mean(root, list(roots)) or f"use one of {', '.join(roots)}"
        if root in {action.name for action, _, _ in plan.iter_actions()}:
            hint = f'did you mean "steps.{path}"?'
        yield Problem(f'"{path}" is not a value of the run', pointer=pointer, hint=hint)
    elif closed := _missing_schema_field(plan, path, position[2] if position else None):
        field, fields = closed
        hint = did_you_mean(field, fields) or f"fields: {', '.join(fields)}"
        yield Problem(f'the schema of the answer does not allow a field "{field}"', pointer=pointer, hint=hint)
    elif root in NAMED_ROOTS and not name:
        yield Problem(f'"{root}" must be followed by a name', pointer=pointer, hint=f"{roots[root]}")
    elif root == "steps":
        yield from _step_reference_problems(plan, name, pointer, earlier_names, position)
    elif root == "keys":
        yield from _key_reference_problems(plan, name, pointer, earlier_names)
    elif root == "previous" and position is not None and not earlier_names and not is_after:
        hint = 'write "start" for the request'
        yield Problem("there is no step before this one", pointer=pointer, hint=hint)


def _missing_schema_field(plan: AgentPlan, path: str, own_action: StepAction | None) -> tuple[str, list[str]] | None:
    """Return a referenced field missing from a closed answer schema, with the allowed fields, or None."""
    root, *parts = path.split(".")
    action, field_path = own_action, parts
    if root == "steps":
        matches = [candidate for candidate, _, _ in plan.iter_actions() if parts and candidate.name == parts[0]]
        action, field_path = (matches[0] if matches else None), parts[1:]
    elif root != "answer":
        return None
    if action is None or not field_path or getattr(action, "parallel", None):
        return None
    if isinstance(action, StepDefinition) and action.each and (root == "steps" or own_action is None):
        return (field_path[0], ["items"]) if field_path[0] != "items" else None
    if action.output is None:
        return None
    schema = build_answer_schema(action) or {}
    fields = [*schema.get("properties", {}), "text"]
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    return (field_path[0], fields) if is_closed and field_path[0] not in fields else None


def _step_reference_problems(
    plan: AgentPlan,
    name: str,
    pointer: str,
    earlier_names: set[str],
    position: tuple[StepDefinition, set[str], StepAction] | None,
) -> Iterator[Problem]:
    names = [action.name for action, _, _ in plan.iter_actions()]
    if name not in names:
        hint = did_you_mean(name, names) or f"steps: {', '.join(names)}"
        yield Problem(f'there is no step "{name}"', pointer=pointer, hint=hint)
    elif name in earlier_names:
        return
    elif position is not None and name in position[1] and name != position[2].name:
        message = f'"{name}" runs at the same time, in the same "parallel" step'
        hint = "refer to an earlier step, or move this one behind it"
        yield Problem(message, pointer=pointer, hint=hint)
    elif position is not None and name in (position[0].name, position[2].name):
        hint = "refer to an earlier step"
        yield Problem(f'"{name}" must not refer to its own answer', pointer=pointer, hint=hint)
    else:
        hint = "refer to an earlier step, or move this one behind it"
        yield Problem(f'"{name}" runs later and has no answer yet', pointer=pointer, hint=hint)


def _key_reference_problems(plan: AgentPlan, key: str, pointer: str, earlier_names: set[str]) -> Iterator[Problem]:
    writers = {action.writes: action.name for action, _, _ in plan.iter_actions() if action.writes}
    if key not in writers:
        hint = did_you_mean(key, list(writers)) or f'add "writes": "{key}" to the step that writes it'
        yield Problem(f'no step writes "{key}"', pointer=pointer, hint=hint)
    elif not any(action.writes == key and action.name in earlier_names for action, _, _ in plan.iter_actions()):
        hint = "refer to a key that an earlier step writes"
        yield Problem(f'"{key}" is written later, by "{writers[key]}"', pointer=pointer, hint=hint)


def _writer_problems(plan: AgentPlan) -> Iterator[Problem]:
    """Yield a problem for two steps with the same key in one run. Mutually exclusive branches may share a key."""
    follows, writers = reachable_steps(plan), dict[str, list[tuple[StepAction, StepDefinition]]]()
    for action, step, base_pointer in plan.iter_actions():
        if not action.writes:
            continue
        for other, other_step in writers.get(action.writes, ()):
            if step is other_step or step.name in follows[other_step.name] or other_step.name in follows[step.name]:
                message = f'"{action.name}" and "{other.name}" both write "{action.writes}"'
                yield Problem(message, pointer=f"{base_pointer}/writes", hint="use a different key for each")
                break
        writers.setdefault(action.writes, []).append((action, step))


def iter_condition_fields(condition: predicates.Json, pointer: str) -> Iterator[tuple[str, str]]:
    """Yield each field in a valid condition, with its JSON pointer."""
    return ((test["field"], f"{at}/field") for test, at in predicates.iter_tests(condition, pointer))
