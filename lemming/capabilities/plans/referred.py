"""What the texts and conditions of a plan refer to: is it there, and is it there in time. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from lemming.capabilities.conditions import when
from lemming.capabilities.plans.format import AgentPlan, Member, Step
from lemming.capabilities.plans.outcomes import schema_for
from lemming.capabilities.plans.references import (
    NEED_A_NAME,
    OF_AN_ANSWER,
    OF_AN_ITEM,
    ROOTS,
    parts_of,
    references_in,
)
from lemming.capabilities.plans.ways import reachable
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import nearest


def reference_problems(plan: AgentPlan) -> Iterator[Problem]:
    """Yield a problem for each reference to what is not there (yet), and each key that two steps write."""
    yield from _writer_problems(plan)
    before = _done_before(plan)
    for member, step, place in plan.members():
        inside = {each.name for each in step.parallel} if member is not step else set[str]()
        for path, pointer in _paths_of(member, place):
            yield from _path_problems(plan, path, pointer, before[step.name], (step, inside, member))
        if member is step and step.each:
            yield from _each_problems(plan, step.each, f"{place}/each")
        after = before[step.name] | {step.name, *(each.name for each in step.parallel)}
        for path, pointer in _paths_after(member, place):
            yield from _path_problems(plan, path, pointer, after, (step, set(), member), is_after=True)
    everything = {member.name for member, _, _ in plan.members()}
    for path in references_in(plan.answer):
        yield from _path_problems(plan, path, "/answer", everything, None)
    if name := find_named_step(plan.answer, everything):
        message = f'"answer" is a text, and "{name}" is a step'
        hint = f'for the answer of that step write "{{{{steps.{name}}}}}"'
        yield Problem(message, pointer="/answer", hint=hint, severity="warning")


def find_named_step(template: str, names: Collection[str]) -> str:
    """Return the step that a text without a reference is surely meant for; empty if there is none.

    >>> [find_named_step(text, ["sort"]) for text in ("steps.sort", "sort", "ok")]
    ['sort', 'sort', '']
    """
    name = template.strip().removeprefix("steps.").partition(".")[0]
    return name if name in names and "{{" not in template else ""


def all_paths(plan: AgentPlan) -> Iterator[tuple[str, str]]:
    """Yield all that a plan refers to, in texts, arguments and conditions, each with its place."""
    for member, _, place in plan.members():
        yield from _paths_of(member, place)
        yield from _paths_after(member, place)
    yield from ((path, "/answer") for path in references_in(plan.answer))


def _done_before(plan: AgentPlan) -> dict[str, set[str]]:
    """Return for each step what can have been done before it, the members of bands included."""
    follows = reachable(plan)
    members = {step.name: {step.name, *(member.name for member in step.parallel)} for step in plan.steps}
    return {
        name: {each for earlier in follows if name in follows[earlier] for each in members[earlier]}
        for name in follows
    }


def _paths_of(member: Member, place: str) -> Iterator[tuple[str, str]]:
    yield from ((path, f"{place}/task") for path in references_in(member.task))
    yield from ((path, f"{place}/args") for path in references_in(member.args))
    yield from ((path, f"{place}/context/{index}") for index, path in enumerate(member.context))
    if isinstance(member, Step) and member.each:
        yield member.each, f"{place}/each"
    if member.wait:
        yield from ((path, f"{place}/wait/time") for path in references_in(member.wait.time))


def _paths_after(member: Member, place: str) -> Iterator[tuple[str, str]]:
    """Yield what is referred to once the answer is there."""
    if member.verify:
        yield from ((path, f"{place}/verify/task") for path in references_in(member.verify.task))
        yield from ((path, f"{place}/verify/args") for path in references_in(member.verify.args))
        if member.verify.when is not None:
            condition, pointer = member.verify.when, f"{place}/verify/when"
            if not any(when.problems_of(condition)):
                yield from fields_in(condition, pointer)
    if isinstance(member, Step):
        for index, route in enumerate(member.routes):
            pointer = f"{place}/routes/{index}/when"
            if not any(when.problems_of(route.when)):
                yield from ((path, at) for path, at in fields_in(route.when, pointer) if "." in path)


def _path_problems(
    plan: AgentPlan,
    path: str,
    pointer: str,
    before: set[str],
    at: tuple[Step, set[str], Member] | None,
    *,
    is_after: bool = False,
) -> Iterator[Problem]:
    root, name = parts_of(path)
    roots = {**ROOTS, **OF_AN_ANSWER} if is_after else ROOTS
    own = at[2] if at else None
    if isinstance(own, Step) and own.each and "/routes/" not in pointer and not pointer.endswith("/each"):
        roots = {**roots, **OF_AN_ITEM}
    if root not in roots:
        hint = nearest(root, list(roots)) or f"there are {', '.join(roots)}"
        if root in {member.name for member, _, _ in plan.members()}:
            hint = f'did you mean "steps.{path}"?'
        yield Problem(f'"{path}" is nothing that a run knows', pointer=pointer, hint=hint)
    elif closed := _outside_of_closed(plan, path, at[2] if at else None):
        field, fields = closed
        hint = nearest(field, fields) or f"fields: {', '.join(fields)}"
        yield Problem(
            f'no answer there has a field "{field}": its schema is closed', pointer=pointer, hint=hint
        )
    elif root in NEED_A_NAME and not name:
        yield Problem(f'"{root}" alone says nothing', pointer=pointer, hint=f"{roots[root]}")
    elif root == "steps":
        yield from _step_reference_problems(plan, name, pointer, before, at)
    elif root == "keys":
        yield from _key_reference_problems(plan, name, pointer, before)
    elif root == "previous" and at is not None and not before and not is_after:
        hint = 'the request is "start"'
        yield Problem("no step is before this one", pointer=pointer, hint=hint)


def _outside_of_closed(plan: AgentPlan, path: str, own: Member | None) -> tuple[str, list[str]] | None:
    """Return the field that a path looks at, and those there are, where the answer can never have it."""
    root, *below = path.split(".")
    member, inside = own, below
    if root == "steps":
        named = [each for each, _, _ in plan.members() if below and each.name == below[0]]
        member, inside = (named[0] if named else None), below[1:]
    elif root != "answer":
        return None
    if member is None or not inside or getattr(member, "parallel", None):
        return None
    if isinstance(member, Step) and member.each and (root == "steps" or own is None):
        return (inside[0], ["items"]) if inside[0] != "items" else None
    if member.output is None:
        return None
    schema = schema_for(member) or {}
    fields = [*schema.get("properties", {}), "text"]
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    return (inside[0], fields) if is_closed and inside[0] not in fields else None


def _each_problems(plan: AgentPlan, path: str, pointer: str) -> Iterator[Problem]:
    """Yield a problem where those that `each` names say what they give, and none gives a list there."""
    root, *below = path.split(".")
    if root in ("steps", "keys") and below:
        name = below.pop(0)
        named = [it for it, _, _ in plan.members() if name == (it.name if root == "steps" else it.writes)]
        fields = [*map(_fields_given, named)]
    elif root == "start":
        name, fields = root, [_fields_in(plan.input)]
    else:
        return
    field = below[0] if below else ""
    if not fields or not all(fields) or any(_may_be_a_list(it.get(field)) for it in fields):
        return
    lists = sorted({key for it in fields for key, schema in it.items() if _may_be_a_list(schema)})
    hint = nearest(field, lists) or (f"lists: {', '.join(lists)}" if lists else 'say so in its "output"')
    what = f'"{name}" gives no list' + (f' "{field}"' if field else "")
    yield Problem(what, pointer=pointer, hint=hint)


def _fields_given(member: Member) -> dict[str, Any]:
    """Return what a step says that its answer has, by field; empty where it does not say."""
    if (isinstance(member, Step) and (member.each or member.parallel)) or not member.output:
        return {}
    return _fields_in(member.output)


def _fields_in(schema: dict[str, Any] | None) -> dict[str, Any]:
    found = schema.get("properties") if schema and "patternProperties" not in schema else None
    return found if isinstance(found, dict) else {}


def _may_be_a_list(schema: Any) -> bool:
    """Return whether the schema of a field allows a list; None: there is no such field."""
    if not isinstance(schema, dict):
        return schema is True
    kinds = schema.get("type", "array")
    return kinds == "array" or "array" in kinds


def _step_reference_problems(
    plan: AgentPlan, name: str, pointer: str, before: set[str], at: tuple[Step, set[str], Member] | None
) -> Iterator[Problem]:
    names = [member.name for member, _, _ in plan.members()]
    if name not in names:
        hint = nearest(name, names) or f"steps: {', '.join(names)}"
        yield Problem(f'there is no step "{name}"', pointer=pointer, hint=hint)
    elif name in before:
        return
    elif at is not None and name in at[1] and name != at[2].name:
        message = f'"{name}" is done at the same time, in the same band'
        hint = "refer to what was done before the band, or make it a step after it"
        yield Problem(message, pointer=pointer, hint=hint)
    elif at is not None and name in (at[0].name, at[2].name):
        hint = "refer to what was done before"
        yield Problem(
            f'"{name}" refers to its own answer, which is not there yet', pointer=pointer, hint=hint
        )
    else:
        hint = "refer to a step that was done before, or move this one behind it"
        yield Problem(f'"{name}" is done later: nothing is there yet', pointer=pointer, hint=hint)


def _key_reference_problems(plan: AgentPlan, key: str, pointer: str, before: set[str]) -> Iterator[Problem]:
    writers = {member.writes: member.name for member, _, _ in plan.members() if member.writes}
    if key not in writers:
        hint = nearest(key, list(writers)) or f'"writes": "{key}" in the step that gives it'
        yield Problem(f'no step writes "{key}"', pointer=pointer, hint=hint)
    elif not any(member.writes == key and member.name in before for member, _, _ in plan.members()):
        hint = "refer to a key that was written before"
        yield Problem(f'"{key}" is written later, by "{writers[key]}"', pointer=pointer, hint=hint)


def _writer_problems(plan: AgentPlan) -> Iterator[Problem]:
    """Yield a problem for two steps that write one key in one run; branches that exclude each other may."""
    follows, first = reachable(plan), dict[str, list[tuple[Member, Step]]]()
    for member, step, place in plan.members():
        if not member.writes:
            continue
        for other, other_step in first.get(member.writes, ()):
            if (
                step is other_step
                or step.name in follows[other_step.name]
                or other_step.name in follows[step.name]
            ):
                message = f'"{member.name}" writes "{member.writes}", which "{other.name}" writes too'
                yield Problem(message, pointer=f"{place}/writes", hint="give each a key of its own")
                break
        first.setdefault(member.writes, []).append((member, step))


def fields_in(condition: when.Json, pointer: str) -> Iterator[tuple[str, str]]:
    """Yield each field that a sound condition looks at, and the JSON pointer to where it says so."""
    for word in ("all", "any"):
        for index, each in enumerate(condition.get(word, ())):
            yield from fields_in(each, f"{pointer}/{word}/{index}")
    if "not" in condition:
        yield from fields_in(condition["not"], f"{pointer}/not")
    if "field" in condition:
        yield condition["field"], f"{pointer}/field"
