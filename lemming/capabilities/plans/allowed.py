"""What a plan would do and the organisation does not allow: whom it asks, what it calls, and
where silence leads. Pure.

What must be known of the organisation is a `Staff`, which the caller fills in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lemming.capabilities.conditions.when import MISSING, field_of, predicate, problems_of
from lemming.capabilities.plans.format import END, FAIL, AgentPlan, Member, Step
from lemming.capabilities.plans.references import parts_of, references_in
from lemming.capabilities.plans.referred import all_paths
from lemming.capabilities.plans.ways import targets, ways_text
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.json_schema.violations import misfits
from lemming.kernel.base.jsontext import nearest

DANGEROUS = ("send", "execute", "administer")
"""Classes of tools (`lemming.tools.ToolClass`) to which nobody's silence may lead."""


def _no_tool(_: str) -> str:
    return ""


def _any_arguments(_: str) -> Mapping[str, Any] | None:
    return None


def _no_plan(_: str) -> AgentPlan | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Staff:
    """Who works in the organisation, and what the plan's agent may do.

    `tool_classes` maps the tools there are to their classes; plugins may bring more unless `knows_all_tools`.
    `hint_for_tool` says what to do where there is none, `why_refused` why the agent may not call one,
    `gate_that_asks` which gate asks a person about calls of one,
    `why_unreadable` why it may not read a file; `plan_of` gives another agent's plan, `arguments_of` the JSON
    Schema of a tool's arguments, if known.
    """

    agents: Mapping[str, Agent]
    people: frozenset[str] = frozenset()
    planners: frozenset[str] = frozenset()
    tool_classes: Mapping[str, str] = field(default_factory=dict)
    knows_all_tools: bool = True
    hint_for_tool: Callable[[str], str] = _no_tool
    why_refused: Callable[[str], str] = _no_tool
    gate_that_asks: Callable[[str], str] = _no_tool
    why_unreadable: Callable[[str], str] = _no_tool
    plan_of: Callable[[str], AgentPlan | None] = _no_plan
    arguments_of: Callable[[str], Mapping[str, Any] | None] = _any_arguments


def permission_problems(plan: AgentPlan, agent: Agent, staff: Staff) -> Iterator[Problem]:
    """Yield what is wrong with a plan in its organisation: unknown names, and what permissions forbid."""
    for member, step, place in plan.members():
        for name, pointer in _whom(member, place):
            yield from _asking_problems(name, pointer, agent, staff)
        if member.plan:
            yield from _planner_problems(member.plan, f"{place}/plan", agent, staff)
        for name, pointer in _which_tools(member, place):
            yield from _tool_problems(name, pointer, staff)
        if member.wait and member.wait.time and not agent.clock:
            hint = f'"clock": true in agents/{agent.name}/resume.json'
            message = "the agent does not go by the clock: no moment would ever come"
            yield Problem(message, pointer=f"{place}/wait/time", hint=hint)
        if member.wait and member.wait.file and (why := staff.why_unreadable(member.wait.file)):
            hint = "grant it in permissions.file_access.allow_read"
            message = f"{agent.name} may not read {member.wait.file}: {why}"
            yield Problem(message, pointer=f"{place}/wait/file", hint=hint)
        for tool, given, at in _what_is_called(member, place):
            yield from _argument_problems(tool, given, at, staff)
        most = min(agent.turn.max_entries, agent.turn.max_tool_calls)
        if member is step and len(step.parallel) > most:
            message = f"a band of {len(step.parallel)}, while one reply may ask {most}"
            hint = "make two bands of it, or raise turn.max_entries in the resume"
            yield Problem(message, pointer=f"{place}/parallel", hint=hint)
        if member is step and step.each and step.asked and step.at_once > agent.turn.max_entries:
            message = f"{step.at_once} at once, while one reply may ask {agent.turn.max_entries}"
            hint = f'"at_once": {agent.turn.max_entries}, or raise turn.max_entries in the resume'
            yield Problem(message, pointer=f"{place}/at_once", hint=hint)
        if member is step and (slow := _who_serves_fewer(step, staff)):
            message = f"{step.at_once} at once, while {slow.name} takes {slow.turn.requests} request a tick"
            hint = f'"turn": {{"requests": {step.at_once}}} in agents/{slow.name}/resume.json'
            yield Problem(message, pointer=f"{place}/at_once", hint=hint, severity="warning")
        if member is step:
            yield from _approval_problems(step, place, agent, staff)
        if member.plan and (plan_asked := staff.plan_of(member.plan)) and plan_asked.input:
            yield from _input_problems(member, plan_asked.input, place)
        if member.default is not None and member.asked in staff.people:
            yield from _default_problems(plan, member, step, place, staff)
    for path, pointer in all_paths(plan):
        root, name = parts_of(path)
        if root == "last" and name:
            yield from _reading_problems(name, pointer, agent, staff)
    if plan.proposals:
        yield from _asking_problems(plan.proposals, "/proposals", agent, staff)
        if plan.proposals in staff.agents and plan.proposals not in staff.people:
            hint = f"people: {', '.join(sorted(staff.people)) or 'none'}"
            message = f"{plan.proposals} is no person, who alone may approve plans"
            yield Problem(message, pointer="/proposals", hint=hint)


def _approval_problems(step: Step, place: str, agent: Agent, staff: Staff) -> Iterator[Problem]:
    """Yield the number of calls of each step that wait until others are decided."""
    most, calls = agent.turn.max_approvals, [it.tool for it in (step, *step.parallel) if it.tool]
    asked_about = [tool for tool in calls if staff.gate_that_asks(tool)]
    count = step.at_once * len(asked_about) if step.each else len(asked_about)
    if count > most:
        message = (
            f"{staff.gate_that_asks(asked_about[0])} asks a person about {asked_about[0]}: of {count} calls "
            f"at once, {most} are asked about (turn.max_approvals); the others once these are decided"
        )
        hint = f'"at_once": {most}, or raise turn.max_approvals in the resume'
        at = f"{place}/at_once" if step.each else f"{place}/parallel"
        yield Problem(message, pointer=at, hint=hint, severity="warning")


def _whom(member: Member, place: str) -> Iterator[tuple[str, str]]:
    for key in ("ask", "plan"):
        if getattr(member, key):
            yield getattr(member, key), f"{place}/{key}"
    if member.verify and member.verify.ask:
        yield member.verify.ask, f"{place}/verify/ask"


def _which_tools(member: Member, place: str) -> Iterator[tuple[str, str]]:
    if member.tool:
        yield member.tool, f"{place}/tool"
    if member.verify and member.verify.tool:
        yield member.verify.tool, f"{place}/verify/tool"


def _what_is_called(member: Member, place: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    if member.tool:
        yield member.tool, member.args, place
    if member.verify and member.verify.tool:
        yield member.verify.tool, member.verify.args, f"{place}/verify"


def _asking_problems(name: str, pointer: str, agent: Agent, staff: Staff) -> Iterator[Problem]:
    if name == agent.name:
        hint = "a plan cannot wait for itself; ask somebody else"
        yield Problem(f"{name} would ask itself", pointer=pointer, hint=hint)
        return
    if name not in staff.agents:
        names = sorted(set(staff.agents) - {agent.name})
        hint = nearest(name, names) or f"agents: {', '.join(names) or 'none'}"
        yield Problem(f'there is no agent "{name}"', pointer=pointer, hint=hint)
        return
    if not agent.may_read(name):
        hint = f'add "{name}" to permissions.read_outboxes in agents/{agent.name}/resume.json'
        yield Problem(
            f"{agent.name} may not read {name}, whose answer would not reach it", pointer=pointer, hint=hint
        )
    if name not in staff.people and not staff.agents[name].may_read(agent.name):
        hint = f'add "{agent.name}" to permissions.read_outboxes in agents/{name}/resume.json'
        yield Problem(
            f"{name} may not read {agent.name}, whose request would not reach it", pointer=pointer, hint=hint
        )


def _planner_problems(name: str, pointer: str, agent: Agent, staff: Staff) -> Iterator[Problem]:
    if name not in staff.agents:
        return
    if name not in staff.planners:
        hint = f'"ask": "{name}", or one of: {", ".join(sorted(staff.planners - {agent.name})) or "none"}'
        yield Problem(
            f"{name} has no plan, expected an agent whose model key is a plan", pointer=pointer, hint=hint
        )
        return
    chain = _circle(name, agent.name, staff, (agent.name,))
    if chain:
        hint = "let one of them do it itself"
        yield Problem(f"plans ask each other in a circle: {' -> '.join(chain)}", pointer=pointer, hint=hint)


def _circle(name: str, back_to: str, staff: Staff, chain: tuple[str, ...]) -> tuple[str, ...]:
    if name == back_to:
        return (*chain, name)
    if name in chain or (plan := staff.plan_of(name)) is None:
        return ()
    further = (
        _circle(member.asked, back_to, staff, (*chain, name))
        for member, _, _ in plan.members()
        if member.asked
    )
    return next(filter(None, further), ())


def _who_serves_fewer(step: Step, staff: Staff) -> Agent | None:
    """Return the agent that a step asks about several items at once and that takes fewer in one tick."""
    agent = staff.agents.get(step.asked) if step.each else None
    if agent is None or agent.name in staff.people or agent.turn.take == "all":
        return None
    return agent if agent.turn.requests < min(step.at_once, step.most) else None


def _tool_problems(name: str, pointer: str, staff: Staff) -> Iterator[Problem]:
    if name not in staff.tool_classes:
        if not staff.knows_all_tools:
            return
        yield Problem(f'there is no tool "{name}"', pointer=pointer, hint=staff.hint_for_tool(name))
    elif why := staff.why_refused(name):
        hint = f'add "{name}" to permissions.tools in the resume'
        yield Problem(f"the tool {name} may not be called: {why}", pointer=pointer, hint=hint)


def _argument_problems(name: str, given: Mapping[str, Any], place: str, staff: Staff) -> Iterator[Problem]:
    """Yield the arguments that a tool does not have, and those that it needs and is not given."""
    schema = staff.arguments_of(name)
    known = schema.get("properties", {}) if schema else {}
    if schema is None or schema.get("additionalProperties") or not isinstance(known, dict):
        return
    for key in given:
        if key not in known:
            hint = nearest(key, list(known)) or f"its arguments: {', '.join(known) or 'none'}"
            yield Problem(
                f'the tool {name} has no argument "{key}"', pointer=f"{place}/args/{key}", hint=hint
            )
    if missing := [key for key in schema.get("required", ()) if key not in given]:
        hint = f'"args": {{"{missing[0]}": ...}}'
        yield Problem(f'the tool {name} needs "{missing[0]}"', pointer=f"{place}/args", hint=hint)


def _input_problems(member: Member, wanted: Mapping[str, Any], place: str) -> Iterator[Problem]:
    """Yield what a plan that is asked does not take, or needs and is not given, by its `input`."""
    known = wanted.get("properties", {})
    for key, value in member.args.items():
        if key in known:
            if not any(references_in(value)) and (wrong := misfits(known[key], value)):
                message = f'{member.plan} does not take this as "{key}": {"; ".join(wrong)}'
                yield Problem(message, pointer=f"{place}/args/{key}", hint="see input in its plan.json")
        elif wanted.get("additionalProperties") is False:
            hint = nearest(key, list(known)) or f"its fields: {', '.join(known) or 'none'}"
            yield Problem(
                f'the plan of {member.plan} takes no "{key}"', pointer=f"{place}/args/{key}", hint=hint
            )
    if missing := [key for key in wanted.get("required", ()) if key not in (*member.args, "text")]:
        hint = f'"args": {{"{missing[0]}": ...}}'
        yield Problem(f'the plan of {member.plan} needs "{missing[0]}"', pointer=f"{place}/args", hint=hint)


def _reading_problems(name: str, pointer: str, agent: Agent, staff: Staff) -> Iterator[Problem]:
    if name not in staff.agents:
        hint = nearest(name, list(staff.agents)) or f"agents: {', '.join(sorted(staff.agents))}"
        yield Problem(f'there is no agent "{name}"', pointer=pointer, hint=hint)
    elif not agent.may_read(name):
        hint = f'add "{name}" to permissions.read_outboxes in agents/{agent.name}/resume.json'
        yield Problem(f"{agent.name} may not read {name}", pointer=pointer, hint=hint)


# --- silence is never a yes ---------------------------------------------------------------------


def _default_problems(
    plan: AgentPlan, member: Member, step: Step, place: str, staff: Staff
) -> Iterator[Problem]:
    """Yield a problem if a person's silence leads to a tool that reaches further than files."""
    following = targets(plan)
    pending, seen = [*(_after_default(plan, member, step) & following.keys())], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        reached = plan.step(name)
        if reached is None or _asks_a_person(reached, staff):  # from there on a person has decided
            continue
        if tool := _dangerous(reached, staff):
            message = (
                f'when {member.asked} says nothing, the default leads to "{name}", which calls {tool} '
                f"({staff.tool_classes[tool]})"
            )
            hint = "choose a default that ends the run, or leave it out: the request then waits"
            yield Problem(message, pointer=f"{place}/default", hint=hint)
            return
        pending.extend(following[name])


def _asks_a_person(step: Step, staff: Staff) -> bool:
    """Return whether somebody says yes or no there, so that what follows is not silence's doing."""
    return step.asked in staff.people and step.default is None


def _dangerous(step: Step, staff: Staff) -> str:
    tools = (name for each in (step, *step.parallel) for name, _ in _which_tools(each, ""))
    return next((tool for tool in tools if staff.tool_classes.get(tool) in DANGEROUS), "")


def _after_default(plan: AgentPlan, member: Member, step: Step) -> set[str]:
    """Return where the run can go on when the default is the answer."""
    index = plan.steps.index(step)
    every = {way.to for way in ways_text(plan, index)} - {END, FAIL}
    if member is not step:
        return targets(plan)[step.name]
    if step.each:
        return targets(plan)[step.name]
    answer: dict[str, Any] = {"text": member.default} if isinstance(member.default, str) else member.default
    if step.choose:
        chosen = field_of(answer, step.choose.field_)
        return {step.choose.to.get(str(chosen), step.else_)} if chosen is not MISSING else {step.else_}
    if step.routes:
        return _by_routes(step, answer, every)
    return targets(plan)[step.name]


def _by_routes(step: Step, answer: dict[str, Any], every: set[str]) -> set[str]:
    """Return the ways that can be taken, as far as the answer alone decides."""
    possible = set[str]()
    for route in step.routes:
        if any(problems_of(route.when)):  # nobody can tell where it leads
            return every
        if all(field.partition(".")[0] == "answer" for field in _fields(route.when)):
            if predicate(route.when)({"answer": answer}):
                return {*possible, route.to}
        else:
            possible.add(route.to)
    return {*possible, step.else_}


def _fields(condition: dict[str, Any]) -> Iterator[str]:
    for inner in (
        *condition.get("all", ()),
        *condition.get("any", ()),
        *filter(None, [condition.get("not")]),
    ):
        yield from _fields(inner)
    if "field" in condition:
        yield condition["field"]
