"""Validation of a plan, independent of its agent: contents and transitions. Pure, except `load_valid_plan`.

Each problem has a JSON pointer; `locate_problems` adds file and line. Permissions are checked in
`plans.plan_permissions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from lemming.capabilities.plans.plan_format import (
    EXITS,
    AgentPlan,
    StepAction,
    StepDefinition,
    VerifySettings,
    get_kind,
    has_conditions,
    iter_explicit_transitions,
    load_plan,
    outgoing_transitions,
    plan_file,
    reachable_steps,
)
from lemming.capabilities.plans.reference_validation import iter_condition_fields, validate_references
from lemming.capabilities.plans.value_paths import ANSWER_ROOTS, ROOTS
from lemming.ext import ConfigError, Problem
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.json_schema.schema_violations import describe_violations, find_schema_flaw
from lemming.kernel.base.jsontext import did_you_mean, locate
from lemming.kernel.base.times import DURATIONS, parse_duration
from lemming.kernel.files.json_documents import Document
from lemming.kernel.inboxes.answer_payload import ENGINE_KEYS
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.conditions import predicates

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")
_NAME_RULE = "use 1 to 63 characters of A-Z, a-z, 0-9, _ and -"


def validate_plan(plan: AgentPlan) -> Iterator[Problem]:
    """Yield problems of a plan, independent of its agent."""
    if plan.proposals:
        message = '"proposals" has no effect any more: requests bring no plans'
        yield Problem(message, pointer="/proposals", hint="remove it", severity="warning")
    if not plan.steps:
        hint = 'write "steps": [{"name": "first", "ask": "AGENT", "task": "{{start}}"}]'
        yield Problem("a plan must have at least one step", pointer="/steps", hint=hint)
    yield from _name_problems(plan)
    if plan.input is not None:
        yield from _schema_problems(plan.input, "/input")
    for action, step, base_pointer in plan.iter_actions():
        yield from _kind_problems(action, step, base_pointer)
        yield from _key_problems(action, base_pointer)
        if action.verify:
            yield from _verify_problems(action.verify, f"{base_pointer}/verify", is_question=bool(action.ask))
    yield from _route_problems(plan)
    yield from _loop_problems(plan)
    yield from validate_references(plan)


def load_valid_plan(org: Organisation, agent: str) -> AgentPlan:
    """Return an agent's plan. Raises: ConfigError with all problems of the plan."""
    return require_valid(load_plan(org, agent), plan_file(agent))


def require_valid(document: Document[AgentPlan], file: str) -> AgentPlan:
    """Return the plan in a document. Raises: ConfigError with all problems of the plan."""
    problems = locate_problems(validate_plan(document.value), file, document.raw)
    if errors := tuple(problem for problem in problems if problem.severity == "error"):
        raise ConfigError(str(errors[0]), problems=errors)
    return document.value


def locate_problems(problems: Iterable[Problem], file: str, raw: bytes) -> Iterator[Problem]:
    """Yield problems with file and line of their pointer, or of the nearest existing parent."""
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    for problem in problems:
        pointer = problem.pointer
        line, column = locate(text, pointer)
        while not line and pointer:  # for a missing value, the location above it
            pointer = pointer.rpartition("/")[0]
            line, column = locate(text, pointer)
        yield replace(problem, file=file, line=line, column=column)


# --- names and kinds ----------------------------------------------------------------------------


def _name_problems(plan: AgentPlan) -> Iterator[Problem]:
    first_pointers: dict[str, str] = {}
    for action, _, base_pointer in plan.iter_actions():
        pointer = f"{base_pointer}/name"
        if not _NAME.match(action.name):
            yield Problem(f'"{action.name[:63]}" is not a valid name for a step', pointer=pointer, hint=_NAME_RULE)
        elif action.name in EXITS:
            message = f'"{action.name}" is reserved for the end of a run'
            yield Problem(message, pointer=pointer, hint="rename the step")
        elif action.name in first_pointers:
            message = (
                f'the name of a step must be unique, got "{action.name}" twice (also {first_pointers[action.name]})'
            )
            yield Problem(message, pointer=pointer, hint="rename one of them")
        first_pointers.setdefault(action.name, base_pointer)


def _kind_problems(action: StepAction, step: StepDefinition, base_pointer: str) -> Iterator[Problem]:
    keys = [key for key in ("ask", "plan", "tool", "wait", "parallel") if getattr(action, key, None)]
    if len(keys) > 1:
        message = f"a step must have one action, got {' and '.join(keys)}"
        yield Problem(message, pointer=f"{base_pointer}/{keys[1]}", hint="split it into two steps")
    elif not keys and not (action is step and has_conditions(step)):
        hint = 'add "ask", "plan", "tool", "wait", "parallel" or "routes"'
        yield Problem(f'step "{action.name}" must have an action', pointer=base_pointer, hint=hint)
    kind = get_kind(action)
    for key, kinds in _ONLY_FOR.items():
        value = getattr(action, key, None)
        is_provided = value not in (None, "", [], {}) and (key != "attempts" or value != 1)
        if is_provided and kind not in kinds and len(keys) <= 1:
            description = {"decide": "that only decides", "parallel": "that is a band"}.get(kind, f'with "{kind}"')
            hint = f"remove it, or use it in steps with {' or '.join(kinds)}"
            if kind == "parallel" and key != "each":
                hint = 'move it into the members of "parallel"'
            yield Problem(f'"{key}" has no effect in a step {description}', pointer=f"{base_pointer}/{key}", hint=hint)
    if isinstance(action, StepDefinition):
        default_step = StepDefinition(name=action.name)
        for key in ("at_once", "most", "on_item_failure") if not action.each else ():
            if getattr(action, key) != getattr(default_step, key):
                hint = 'use it in steps with "each" only'
                yield Problem(f'"{key}" has no effect here', pointer=f"{base_pointer}/{key}", hint=hint)
        if action.each and action.choose:
            hint = 'use a condition on answer.items in "routes"'
            message = '"choose" requires one answer, got one for each item'
            yield Problem(message, pointer=f"{base_pointer}/choose", hint=hint)
    if kind in ("ask", "plan") and not (action.task or action.args):
        hint = 'write "task": "{{start}}" to pass the request on unchanged'
        yield Problem('a step with "ask" must have "task"', pointer=base_pointer, hint=hint)
    if action.wait:
        waits = [key for key in ("file", "ticks", "tick", "time") if getattr(action.wait, key) not in (None, "")]
        if len(waits) != 1:
            message = f"a wait must have one of file, ticks, tick and time, got {' and '.join(waits) or 'nothing'}"
            hint = 'write {"file": "./shared/in.csv"} or {"ticks": 5}, for example'
            yield Problem(message, pointer=f"{base_pointer}/wait", hint=hint)
    if action is step and step.retry != "all" and not step.parallel:
        yield Problem('"retry" has no effect without "parallel"', pointer=f"{base_pointer}/retry", hint="remove it")


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


def _schema_problems(schema: predicates.Json, pointer: str) -> Iterator[Problem]:
    flaw, inside = find_schema_flaw(schema)
    if flaw:
        yield Problem(f"expected a JSON Schema: {flaw}", pointer=f"{pointer}{inside}", hint="correct the schema")


def _key_problems(action: StepAction, base_pointer: str) -> Iterator[Problem]:
    if action.writes and not _NAME.match(action.writes):
        yield Problem(f'"{action.writes[:63]}" is not a valid key', pointer=f"{base_pointer}/writes", hint=_NAME_RULE)
    for key in action.args if action.plan else ():
        if key in (*ENGINE_KEYS, "text", "status"):
            hint = "rename it"
            yield Problem(f'"{key}" is a reserved key of requests', pointer=f"{base_pointer}/args/{key}", hint=hint)
    if action.output is not None:
        flaws = [*_schema_problems(action.output, f"{base_pointer}/output")]
        yield from flaws
        if not flaws and action.default is not None and (errors := describe_violations(action.output, action.default)):
            message = f"the default must match output: {'; '.join(errors)}"
            yield Problem(message, pointer=f"{base_pointer}/default", hint="change the default")
    if action.deadline is not None and (reason := _deadline_error(action.deadline)):
        hint = f"write a number of ticks, or {DURATIONS}"
        yield Problem(reason, pointer=f"{base_pointer}/deadline", hint=hint)
    if action.default is not None and not isinstance(action.default, (str, dict)):
        hint = 'write "default": {"text": "no"}, for example'
        yield Problem('"default" must be a text or an object', pointer=f"{base_pointer}/default", hint=hint)
    if action.default is not None and action.deadline is None:
        hint = 'add "deadline": 20 (ticks until the default is used) or "2h"'
        yield Problem('"default" requires "deadline"', pointer=f"{base_pointer}/default", hint=hint)


def _deadline_error(deadline: int | str) -> str:
    if isinstance(deadline, int):
        return "" if deadline >= 1 else "expected 1 or more"
    try:
        parse_duration(deadline)
    except UsageError as error:
        return error.message
    return ""


def _verify_problems(verify: VerifySettings, base_pointer: str, *, is_question: bool) -> Iterator[Problem]:
    keys = [key for key in ("by", "ask", "tool") if getattr(verify, key)]
    if len(keys) != 1:
        description = " and ".join(keys) or "none of by, ask and tool"
        yield Problem(
            f"expected one judge, got {description}", pointer=base_pointer, hint='write {"by": "critic"}, for example'
        )
    default_settings = VerifySettings()
    for key in ("policy", "max", "then") if not verify.by else ("when", "attempts"):
        if getattr(verify, key) != getattr(default_settings, key):
            hint = 'use it with "by"' if not verify.by else 'use it with "ask" and "tool"'
            yield Problem(f'"{key}" has no effect here', pointer=f"{base_pointer}/{key}", hint=hint)
    for key, is_applicable in (("task", verify.ask), ("args", verify.tool)):
        if getattr(verify, key) and not is_applicable:
            hint = f'use it with "{"ask" if key == "task" else "tool"}"'
            yield Problem(f'"{key}" has no effect here', pointer=f"{base_pointer}/{key}", hint=hint)
    if verify.by and not is_question:
        hint = 'use it in steps with "ask" only'
        yield Problem('"by" has no effect here', pointer=f"{base_pointer}/by", hint=hint)


# --- ways ---------------------------------------------------------------------------------------


def _route_problems(plan: AgentPlan) -> Iterator[Problem]:
    names = [step.name for step in plan.steps]
    group_names = {action.name: step.name for action, step, _ in plan.iter_actions() if action is not step}
    for index, step in enumerate(plan.steps):
        for transition in iter_explicit_transitions(plan, index):
            if transition.to in group_names:
                group_name = group_names[transition.to]
                message = f'expected a step of the plan, got "{transition.to}", a member of "{group_name}"'
                yield Problem(
                    message, pointer=transition.pointer, hint=f'lead to "{group_name}", which starts all its members'
                )
            elif transition.to not in (*names, *EXITS):
                hint = did_you_mean(transition.to, [*names, *EXITS]) or f"use one of {', '.join(names)}, end or fail"
                yield Problem(f'there is no step "{transition.to}"', pointer=transition.pointer, hint=hint)
        yield from _choice_problems(step, f"/steps/{index}")
        yield from _fall_through_problems(plan, index)
    yield from _unreachable_problems(plan)


def _choice_problems(step: StepDefinition, base_pointer: str) -> Iterator[Problem]:
    if step.routes and step.choose:
        hint = "remove one of them"
        yield Problem('"routes" and "choose" exclude each other', pointer=f"{base_pointer}/choose", hint=hint)
    if has_conditions(step) and step.then:
        hint = 'use "else" for the case that no route fits'
        yield Problem('"then" has no effect beside "routes"', pointer=f"{base_pointer}/then", hint=hint)
    if step.routes and not step.else_:
        message = '"routes" requires "else": if no route fits, the run would continue with the next step'
        yield Problem(
            message, pointer=f"{base_pointer}/routes", hint='add "else" with the name of a step, "end" or "fail"'
        )
    if step.else_ and not has_conditions(step):
        yield Problem('"else" has no effect without "routes"', pointer=f"{base_pointer}/else", hint='use "then"')
    for number, route in enumerate(step.routes):
        yield from _condition_problems(route.when, f"{base_pointer}/routes/{number}/when")
    if step.choose and step.output:
        field = step.choose.field_.partition(".")[0]
        properties = step.output.get("properties")
        if isinstance(properties, dict) and properties and field not in properties:
            hint = did_you_mean(field, list(properties)) or f"fields: {', '.join(properties)}"
            message = f'the answer has no field "{field}"'
            yield Problem(message, pointer=f"{base_pointer}/choose/field", hint=hint)


def _condition_problems(condition: predicates.Json, pointer: str) -> Iterator[Problem]:
    problems = list(predicates.validate_condition(condition, pointer))
    yield from problems
    if problems:
        return
    roots = {**ROOTS, **ANSWER_ROOTS}
    for field, field_pointer in iter_condition_fields(condition, pointer):
        root = field.partition(".")[0]
        if root not in roots:
            hint = did_you_mean(root, list(roots)) or f'write "answer.{field}", for example; roots: {", ".join(roots)}'
            yield Problem(f'"{root}" is not a value of the run', pointer=field_pointer, hint=hint)


def _fall_through_problems(plan: AgentPlan, index: int) -> Iterator[Problem]:
    """Yield a problem for each branch that continues into another branch by file order."""
    step, names = plan.steps[index], [candidate.name for candidate in plan.steps]
    if not has_conditions(step):
        return
    branches = {transition.to for transition in iter_explicit_transitions(plan, index) if transition.to in names}
    for name in sorted(branches - {step.name}, key=names.index):
        branch_index = names.index(name)
        branch, next_names = plan.steps[branch_index], names[branch_index + 1 : branch_index + 2]
        if not branch.then and not has_conditions(branch) and next_names and next_names[0] in branches - {name}:
            message = f'branch "{name}" of "{step.name}" continues with "{next_names[0]}", another branch'
            hint = f'set "then": "{next_names[0]}", another step, or "end"'
            yield Problem(message, pointer=f"/steps/{branch_index}", hint=hint)


def _unreachable_problems(plan: AgentPlan) -> Iterator[Problem]:
    if not plan.steps:
        return
    reachable_names = reachable_steps(plan)[plan.steps[0].name] | {plan.steps[0].name}
    for index, step in enumerate(plan.steps):
        if step.name not in reachable_names:
            hint = "lead to it, or remove it"
            yield Problem(
                f'step "{step.name}" is never reached', pointer=f"/steps/{index}", hint=hint, severity="warning"
            )


def _loop_problems(plan: AgentPlan) -> Iterator[Problem]:
    names = [step.name for step in plan.steps]
    for index, step in enumerate(plan.steps):
        for transition in outgoing_transitions(plan, index):
            if (
                transition.to in names
                and names.index(transition.to) <= index
                and plan.steps[names.index(transition.to)].limit is None
            ):
                message = f'a loop must have a limit: "{step.name}" leads back to "{transition.to}"'
                hint = f'set "limit": 3 in "{transition.to}" (starts per run)'
                yield Problem(message, pointer=transition.pointer, hint=hint)
