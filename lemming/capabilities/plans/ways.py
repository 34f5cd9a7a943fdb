"""The ways through a plan: what may follow a step, and what can have been done before it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lemming.capabilities.plans.format import END, FAIL, AgentPlan, Step

OUT = (END, FAIL)


class Way(NamedTuple):
    """Where one way from a step leads (a step, "end" or "fail"), and the pointer to where that is said."""

    to: str
    pointer: str


def ways_text(plan: AgentPlan, index: int) -> Iterator[Way]:
    """Yield the ways that the file spells out for a step."""
    step, place = plan.steps[index], f"/steps/{index}"
    for number, route in enumerate(step.routes):
        yield Way(route.to, f"{place}/routes/{number}/to")
    if step.choose:
        for value, to in step.choose.to.items():
            yield Way(to, f"{place}/choose/to/{value}")
    for key, to in (("else", step.else_), ("then", step.then)):
        if to:
            yield Way(to, f"{place}/{key}")
    for key, to in (("at_limit", step.at_limit), ("on_failure", step.on_failure)):
        if to != FAIL:
            yield Way(to, f"{place}/{key}")


def after(plan: AgentPlan, name: str) -> str:
    """Return where a step leads that has no routes: what it says, or the next step in the file."""
    index = next(number for number, step in enumerate(plan.steps) if step.name == name)
    following = plan.steps[index + 1].name if index + 1 < len(plan.steps) else END
    return plan.steps[index].then or following


def is_decided(step: Step) -> bool:
    """Return whether a step has ways out that depend on something."""
    return bool(step.routes or step.choose)


def ways_from(plan: AgentPlan, index: int) -> Iterator[Way]:
    """Yield every way from a step, those included that the order of the file means."""
    yield from ways_text(plan, index)
    step = plan.steps[index]
    if not step.then and not is_decided(step):
        yield Way(after(plan, step.name), f"/steps/{index}")


def targets(plan: AgentPlan) -> dict[str, set[str]]:
    """Return the steps that each step may lead to."""
    names = {step.name for step in plan.steps}
    return {
        step.name: {way.to for way in ways_from(plan, index)} & names for index, step in enumerate(plan.steps)
    }


def reachable(plan: AgentPlan) -> dict[str, set[str]]:
    """Return for each step all that may be begun after it, itself included where a loop leads back."""
    following = targets(plan)
    found: dict[str, set[str]] = {}
    for name in following:
        seen: set[str] = set()
        pending = [*following[name]]
        while pending:
            each = pending.pop()
            if each not in seen:
                seen.add(each)
                pending.extend(following[each])
        found[name] = seen
    return found
