"""Transitions of a plan: possible next steps and possible predecessors. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lemming.capabilities.plans.plan_format import END, FAIL, AgentPlan, StepDefinition

EXITS = (END, FAIL)


class Transition(NamedTuple):
    """Target of a transition (a step, "end" or "fail"), and the pointer to its definition."""

    to: str
    pointer: str


def iter_explicit_transitions(plan: AgentPlan, index: int) -> Iterator[Transition]:
    """Yield the explicit transitions of a step."""
    step, base_pointer = plan.steps[index], f"/steps/{index}"
    for number, route in enumerate(step.routes):
        yield Transition(route.to, f"{base_pointer}/routes/{number}/to")
    if step.choose:
        for value, to in step.choose.to.items():
            yield Transition(to, f"{base_pointer}/choose/to/{value}")
    for key, to in (("else", step.else_), ("then", step.then)):
        if to:
            yield Transition(to, f"{base_pointer}/{key}")
    for key, to in (("at_limit", step.at_limit), ("on_failure", step.on_failure)):
        if to != FAIL:
            yield Transition(to, f"{base_pointer}/{key}")


def default_next_step(plan: AgentPlan, name: str) -> str:
    """Return the target of a step without routes: its `then`, or the next step in the file."""
    index = next(number for number, step in enumerate(plan.steps) if step.name == name)
    next_name = plan.steps[index + 1].name if index + 1 < len(plan.steps) else END
    return plan.steps[index].then or next_name


def has_conditions(step: StepDefinition) -> bool:
    """Return True if a step has conditional transitions."""
    return bool(step.routes or step.choose)


def outgoing_transitions(plan: AgentPlan, index: int) -> Iterator[Transition]:
    """Yield every transition of a step, including the implicit transition by file order."""
    yield from iter_explicit_transitions(plan, index)
    step = plan.steps[index]
    if not step.then and not has_conditions(step):
        yield Transition(default_next_step(plan, step.name), f"/steps/{index}")


def successors(plan: AgentPlan) -> dict[str, set[str]]:
    """Return the possible next steps of each step."""
    names = {step.name for step in plan.steps}
    return {
        step.name: {transition.to for transition in outgoing_transitions(plan, index)} & names
        for index, step in enumerate(plan.steps)
    }


def reachable_steps(plan: AgentPlan) -> dict[str, set[str]]:
    """Return all possible later steps of each step, including the step itself in a loop."""
    next_steps = successors(plan)
    result: dict[str, set[str]] = {}
    for name in next_steps:
        visited: set[str] = set()
        pending = [*next_steps[name]]
        while pending:
            step_name = pending.pop()
            if step_name not in visited:
                visited.add(step_name)
                pending.extend(next_steps[step_name])
        result[name] = visited
    return result
