"""What is wrong with a plan, whoever runs it: what it says, and where it leads. Pure, but for `sound_plan`.

Each problem has a JSON pointer; `placed` adds file and line. Who may do what is in `plans.allowed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from lemming.capabilities.conditions import when
from lemming.capabilities.plans.format import (
    AgentPlan,
    Member,
    Step,
    Verify,
    Wait,
    kind_of,
    plan_file,
    read_plan,
)
from lemming.capabilities.plans.references import OF_AN_ANSWER, ROOTS
from lemming.capabilities.plans.referred import fields_in, reference_problems
from lemming.capabilities.plans.ways import OUT, is_decided, reachable, ways_from, ways_text
from lemming.kernel.base.errors import ConfigError, Problem, UsageError
from lemming.kernel.base.json_schema.violations import flaw_of, misfits
from lemming.kernel.base.jsontext import locate, nearest
from lemming.kernel.base.times.spoken import DURATIONS, parse_duration
from lemming.kernel.files.documents import Document
from lemming.kernel.mail.answers import OF_THE_ENGINE
from lemming.kernel.org.organisation import Organisation

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")
_NAME_RULE = "a name has 1 to 63 characters A-Z, a-z, 0-9, _ and -"


def problems_in(plan: AgentPlan) -> Iterator[Problem]:
    """Yield what is wrong with a plan, whoever runs it."""
    if not plan.steps and not plan.proposals:
        hint = '"steps": [{"name": "first", "ask": "AGENT", "task": "{{start}}"}]'
        yield Problem("found no steps, expected at least one", pointer="/steps", hint=hint)
    yield from _name_problems(plan)
    yield from _input_problems(plan)
    for member, step, place in plan.members():
        yield from _kind_problems(member, step, place)
        yield from _key_problems(member, place)
        yield from _given_problems(member, place)
        if member.verify:
            yield from _verify_problems(member.verify, f"{place}/verify")
        if member.verify and member.verify.by and not member.ask:
            hint = 'it belongs to steps with "ask", whose agent writes its answer again'
            yield Problem('"by" has no effect here', pointer=f"{place}/verify/by", hint=hint)
    yield from _route_problems(plan)
    yield from _loop_problems(plan)
    yield from reference_problems(plan)


def sound_plan(org: Organisation, agent: str) -> AgentPlan:
    """Return an agent's plan; raise `ConfigError` that lists what is wrong with it, whoever runs it."""
    return sound(read_plan(org, agent), plan_file(agent))


def sound(document: Document[AgentPlan], file: str) -> AgentPlan:
    """Return the plan that a file holds; raise `ConfigError` that lists what is wrong with it."""
    problems = placed(problems_in(document.value), file, document.raw)
    if found := tuple(problem for problem in problems if problem.severity == "error"):
        raise ConfigError(str(found[0]), problems=found)
    return document.value


def placed(problems: Iterable[Problem], file: str, raw: bytes) -> Iterator[Problem]:
    """Yield problems with the file and the line of their pointer, or of the nearest one above it."""
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    for problem in problems:
        pointer = problem.pointer
        line, column = locate(text, pointer)
        while not line and pointer:  # of what is missing, the place above it
            pointer = pointer.rpartition("/")[0]
            line, column = locate(text, pointer)
        yield replace(problem, file=file, line=line, column=column)


# --- names and kinds ----------------------------------------------------------------------------


def _name_problems(plan: AgentPlan) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for member, _, place in plan.members():
        pointer = f"{place}/name"
        if not _NAME.match(member.name):
            yield Problem(f'"{member.name[:63]}" is no name of a step', pointer=pointer, hint=_NAME_RULE)
        elif member.name in OUT:
            message = f'"{member.name}" is where a run ends, expected another name'
            yield Problem(message, pointer=pointer, hint="call the step something else")
        elif member.name in seen:
            message = (
                f'found "{member.name}" twice, expected a name of its own (the other: {seen[member.name]})'
            )
            yield Problem(message, pointer=pointer, hint="rename one of them")
        seen.setdefault(member.name, place)


def _kind_problems(member: Member, step: Step, place: str) -> Iterator[Problem]:
    found = [key for key in ("ask", "plan", "tool", "wait", "parallel") if getattr(member, key, None)]
    if len(found) > 1:
        message = f"found {' and '.join(found)}, expected one of them"
        yield Problem(message, pointer=f"{place}/{found[1]}", hint="make two steps of it")
    elif not found and not (member is step and is_decided(step)):
        hint = 'add "ask", "plan", "tool", "wait" or "parallel"; or "routes", for a step that only decides'
        yield Problem(f'step "{member.name}" does nothing', pointer=place, hint=hint)
    kind = kind_of(member)
    for key, kinds in _ONLY_FOR.items():
        if _is_given(member, key) and kind not in kinds and len(found) <= 1:
            what = {"decide": "that only decides", "parallel": "that is a band"}.get(kind, f'with "{kind}"')
            hint = f"take it out; it belongs to steps with {' or '.join(kinds)}"
            if kind == "parallel" and key != "each":
                hint = "put it into the members of the band"
            yield Problem(f'"{key}" has no effect in a step {what}', pointer=f"{place}/{key}", hint=hint)
    if isinstance(member, Step):
        yield from _each_problems(member, place)
    if kind in ("ask", "plan") and not (member.task or member.args):
        hint = '"task": "{{start}}" hands the request on as it is'
        yield Problem("found no task, expected what is asked", pointer=place, hint=hint)
    if member.wait:
        yield from _wait_problems(member.wait, f"{place}/wait")
    if member is step and step.retry != "all" and not step.parallel:
        yield Problem('"retry" has no effect without a band', pointer=f"{place}/retry", hint="take it out")


_ONLY_FOR = {
    "task": ("ask", "plan"),
    "context": ("ask", "plan"),
    "default": ("ask", "plan"),
    "deadline": ("ask", "plan"),
    "args": ("plan", "tool"),
    "each": ("ask", "plan", "tool"),
    "output": ("ask", "plan", "tool"),
    "verify": ("ask", "plan", "tool"),
    "attempts": ("ask", "plan", "tool", "parallel"),
    "writes": ("ask", "plan", "tool", "wait", "parallel"),
    "choose": ("ask", "plan", "tool"),
}


def _is_given(member: Member, key: str) -> bool:
    return getattr(member, key, None) not in (None, "", [], {}) and (
        key != "attempts" or member.attempts != 1
    )


def _each_problems(step: Step, place: str) -> Iterator[Problem]:
    usual = Step(name=step.name)
    for key in ("at_once", "most", "on_item_failure") if not step.each else ():
        if getattr(step, key) != getattr(usual, key):
            yield Problem(
                f'"{key}" has no effect here', pointer=f"{place}/{key}", hint='it belongs to "each"'
            )
    if step.each and step.choose:
        hint = 'a condition over answer.items in "routes"'
        yield Problem(
            '"choose" needs one answer, not one for each item', pointer=f"{place}/choose", hint=hint
        )


def _input_problems(plan: AgentPlan) -> Iterator[Problem]:
    flaw, inside = flaw_of(plan.input) if plan.input is not None else ("", "")
    if flaw:
        yield Problem(f"no JSON Schema: {flaw}", pointer=f"/input{inside}", hint="mend the schema")


def _given_problems(member: Member, place: str) -> Iterator[Problem]:
    """Yield the fields that a step would give a plan and that say something else in a request."""
    for key in member.args if member.plan else ():
        if key in (*OF_THE_ENGINE, "text", "status"):
            hint = "call it something else"
            yield Problem(f'"{key}" is a word of requests', pointer=f"{place}/args/{key}", hint=hint)


def _wait_problems(wait: Wait, place: str) -> Iterator[Problem]:
    found = [key for key in ("file", "ticks", "tick", "time") if getattr(wait, key) not in (None, "")]
    if len(found) != 1:
        what = " and ".join(found) or "nothing"
        message = f"found {what}, expected one of file, ticks, tick and time"
        yield Problem(message, pointer=place, hint='such as {"file": "./shared/in.csv"} or {"ticks": 5}')


def _key_problems(member: Member, place: str) -> Iterator[Problem]:
    if member.writes and not _NAME.match(member.writes):
        yield Problem(f'"{member.writes[:63]}" is no key', pointer=f"{place}/writes", hint=_NAME_RULE)
    if member.output is not None:
        flaw, inside = flaw_of(member.output)
        if flaw:
            yield Problem(
                f"no JSON Schema: {flaw}", pointer=f"{place}/output{inside}", hint="mend the schema"
            )
        elif member.default is not None and (wrong := misfits(member.output, member.default)):
            message = f"the default is not what output asks for: {'; '.join(wrong)}"
            yield Problem(message, pointer=f"{place}/default", hint="give one that is")
    if member.deadline is not None and (why := _why_no_deadline(member.deadline)):
        hint = f"so many ticks, or a time: {DURATIONS}"
        yield Problem(why, pointer=f"{place}/deadline", hint=hint)
    if member.default is not None and not isinstance(member.default, (str, dict)):
        hint = 'such as "default": {"text": "no"}'
        yield Problem("expected a text or an object", pointer=f"{place}/default", hint=hint)
    if member.default is not None and member.deadline is None:
        hint = 'add "deadline": 20, the ticks after which the default is taken, or "2h"'
        yield Problem("found a default without a deadline", pointer=f"{place}/default", hint=hint)


def _why_no_deadline(deadline: int | str) -> str:
    if isinstance(deadline, int):
        return "" if deadline >= 1 else "expected 1 or more"
    try:
        parse_duration(deadline)
    except UsageError as error:
        return error.message
    return ""


def _verify_problems(verify: Verify, place: str) -> Iterator[Problem]:
    given = [key for key in ("by", "ask", "tool") if getattr(verify, key)]
    if len(given) != 1:
        found = " and ".join(given) or "none of by, ask and tool"
        yield Problem(f"found {found}, expected one of them", pointer=place, hint='such as {"by": "critic"}')
    usual = Verify()
    for key in ("policy", "max", "then") if not verify.by else ("when", "attempts"):
        if getattr(verify, key) != getattr(usual, key):
            hint = 'it belongs to "by"' if not verify.by else 'it belongs to "ask" and "tool"'
            yield Problem(f'"{key}" has no effect here', pointer=f"{place}/{key}", hint=hint)
    for key, belongs in (("task", verify.ask), ("args", verify.tool)):
        if getattr(verify, key) and not belongs:
            hint = f'it belongs to "{"ask" if key == "task" else "tool"}"'
            yield Problem(f'"{key}" has no effect here', pointer=f"{place}/{key}", hint=hint)


# --- ways ---------------------------------------------------------------------------------------


def _route_problems(plan: AgentPlan) -> Iterator[Problem]:
    names = [step.name for step in plan.steps]
    bands = {member.name: step.name for member, step, _ in plan.members() if member is not step}
    for index, step in enumerate(plan.steps):
        for way in ways_text(plan, index):
            if way.to in bands:
                band = bands[way.to]
                message = f'"{way.to}" is inside the band "{band}", expected a step'
                yield Problem(message, pointer=way.pointer, hint=f'lead to "{band}", which begins all of it')
            elif way.to not in (*names, *OUT):
                hint = nearest(way.to, [*names, *OUT]) or f"steps: {', '.join(names)}; or end, fail"
                yield Problem(f'there is no step "{way.to}"', pointer=way.pointer, hint=hint)
        yield from _choice_problems(step, f"/steps/{index}")
        yield from _fall_through_problems(plan, index)
    yield from _unreachable_problems(plan)


def _choice_problems(step: Step, place: str) -> Iterator[Problem]:
    if step.routes and step.choose:
        hint = "one of them decides; take the other out"
        yield Problem("found routes and choose, expected one of them", pointer=f"{place}/choose", hint=hint)
    if is_decided(step) and step.then:
        hint = '"else" says where it goes on when nothing fits'
        yield Problem('"then" has no effect beside routes', pointer=f"{place}/then", hint=hint)
    if step.routes and not step.else_:
        message = "where no route fits, the run would fall through to the next step"
        yield Problem(message, pointer=f"{place}/routes", hint='say so: "else": a step, "end" or "fail"')
    if step.else_ and not is_decided(step):
        yield Problem('"else" has no effect without routes', pointer=f"{place}/else", hint='"then" leads on')
    for number, route in enumerate(step.routes):
        yield from _condition_problems(route.when, f"{place}/routes/{number}/when")
    if step.choose and step.output:
        field = step.choose.field_.partition(".")[0]
        known = step.output.get("properties")
        if isinstance(known, dict) and known and field not in known:
            hint = nearest(field, list(known)) or f"fields: {', '.join(known)}"
            message = f'the answer has no field "{field}"'
            yield Problem(message, pointer=f"{place}/choose/field", hint=hint)


def _condition_problems(condition: when.Json, pointer: str) -> Iterator[Problem]:
    problems = list(when.problems_of(condition, pointer))
    yield from problems
    if problems:
        return
    roots = {**ROOTS, **OF_AN_ANSWER}
    for field, place in fields_in(condition, pointer):
        root = field.partition(".")[0]
        if root not in roots:
            hint = nearest(root, list(roots)) or f'such as "answer.{field}"; roots: {", ".join(roots)}'
            yield Problem(f'"{root}" is nothing that a run knows', pointer=place, hint=hint)


def _fall_through_problems(plan: AgentPlan, index: int) -> Iterator[Problem]:
    """Yield a problem for each branch whose order in the file leads it into another branch."""
    step, names = plan.steps[index], [each.name for each in plan.steps]
    if not is_decided(step):
        return
    branches = {way.to for way in ways_text(plan, index) if way.to in names}
    for name in sorted(branches - {step.name}, key=names.index):
        place = names.index(name)
        branch, following = plan.steps[place], names[place + 1 : place + 2]
        if not branch.then and not is_decided(branch) and following and following[0] in branches - {name}:
            message = (
                f'the branch "{name}" of "{step.name}" falls through into "{following[0]}", another branch'
            )
            hint = f'say where it goes on: "then": "{following[0]}", another step, or "end"'
            yield Problem(message, pointer=f"/steps/{place}", hint=hint)


def _unreachable_problems(plan: AgentPlan) -> Iterator[Problem]:
    if not plan.steps:
        return
    begun = reachable(plan)[plan.steps[0].name] | {plan.steps[0].name}
    for index, step in enumerate(plan.steps):
        if step.name not in begun:
            hint = "lead to it, or take it out"
            yield Problem(
                f'no way leads to "{step.name}"', pointer=f"/steps/{index}", hint=hint, severity="warning"
            )


def _loop_problems(plan: AgentPlan) -> Iterator[Problem]:
    names = [step.name for step in plan.steps]
    for index, step in enumerate(plan.steps):
        for way in ways_from(plan, index):
            if (
                way.to in names
                and names.index(way.to) <= index
                and plan.steps[names.index(way.to)].limit is None
            ):
                message = f'a loop leads from "{step.name}" back to "{way.to}", which has no limit'
                hint = f'"limit": 3 in "{way.to}": how often a run may begin it'
                yield Problem(message, pointer=way.pointer, hint=hint)
