"""A plan as a Mermaid flowchart. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.plans.plan_format import (
    END,
    FAIL,
    AgentPlan,
    ChoiceSettings,
    StepAction,
    StepDefinition,
    get_kind,
)
from lemming.capabilities.plans.step_graph import default_next_step, has_conditions


def to_mermaid(plan: AgentPlan) -> str:
    """Return the plan as a flowchart: a box per step, a frame per parallel group, a diamond per decision."""
    names = {step.name: f"s{number}" for number, step in enumerate(plan.steps)} | {END: END, FAIL: FAIL}
    lines = ["flowchart TD", "  start([request])"]
    for step in plan.steps:
        lines += _draw_step(step, names[step.name])
    lines += [f"  {END}_([answer])", f"  {FAIL}_([failure])"]
    if plan.steps:
        lines.append(f"  start --> {names[plan.steps[0].name]}")
    for step in plan.steps:
        lines += [f"  {names[step.name]} {arrow} {_target_id(names, to)}" for arrow, to in _draw_edges(plan, step)]
    return "\n".join(lines)


def _target_id(names: dict[str, str], to: str) -> str:
    return f"{to}_" if to in (END, FAIL) else names.get(to, f"{FAIL}_")


def _draw_step(step: StepDefinition, box: str) -> Iterator[str]:
    if not step.parallel:
        opening, closing = ("{", "}") if get_kind(step) == "decide" else ("[", "]")
        yield f'  {box}{opening}"{_node_label(step)}"{closing}'
        return
    yield f'  subgraph {box}["{_escape(step.name)}"]'
    for number, action in enumerate(step.parallel):
        yield f'    {box}m{number}["{_node_label(action)}"]'
    yield "  end"


def _node_label(action: StepAction) -> str:
    performer = action.target_agent or action.tool or ("wait" if action.wait else "")
    item_note = f"<br>for each of {_escape(action.each)}" if isinstance(action, StepDefinition) and action.each else ""
    verifier_note = f"<br>verified by {action.verify.judge_name}" if action.verify else ""
    return (
        _escape(action.name)
        + (f"<br>{_escape(performer)}" if performer else "")
        + item_note
        + _escape(verifier_note, keeps_markup=True)
    )


def _escape(text: str, *, keeps_markup: bool = False) -> str:
    """Return text escaped for a label. `keeps_markup`: the text contains our own line breaks."""
    plain = text.replace('"', "'").replace("\n", " ")
    return plain if keeps_markup else plain.replace("<", "&lt;").replace(">", "&gt;")


def _draw_edges(plan: AgentPlan, step: StepDefinition) -> Iterator[tuple[str, str]]:
    for route in step.routes:
        yield f'-- "{_escape(_describe_condition(route.when))}" -->', route.to
    yield from _draw_choice_edges(step.choose) if step.choose else ()
    if step.else_:
        yield "-- else -->", step.else_
    if not has_conditions(step):
        yield "-->", default_next_step(plan, step.name)
    if step.limit is not None and step.at_limit != FAIL:
        yield f'-. "after {step.limit}" .->', step.at_limit
    if step.on_failure != FAIL:
        yield '-. "failed" .->', step.on_failure


def _draw_choice_edges(choice: ChoiceSettings) -> Iterator[tuple[str, str]]:
    for value, to in choice.to.items():
        yield f'-- "{_escape(value)}" -->', to


def _describe_condition(condition: dict[str, object]) -> str:
    """Return a short description of a condition."""
    for operator in ("all", "any", "not"):
        inner = condition.get(operator)
        if isinstance(inner, list):
            return f" {'and' if operator == 'all' else 'or'} ".join(map(_describe_condition, inner))
        if isinstance(inner, dict):
            return f"not {_describe_condition(inner)}"
    value = condition.get("value", "")
    return f"{condition.get('field')} {condition.get('op')} {value}".strip()[:80]
