"""A plan as a Mermaid flowchart. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.plans.format import END, FAIL, AgentPlan, Choice, Member, Step, kind_of
from lemming.capabilities.plans.ways import after, is_decided


def mermaid(plan: AgentPlan) -> str:
    """Return the plan as a flowchart: a box a step, a frame a band, a diamond for what only decides."""
    names = {step.name: f"s{number}" for number, step in enumerate(plan.steps)} | {END: END, FAIL: FAIL}
    lines = ["flowchart TD", "  start([request])"]
    for step in plan.steps:
        lines += _boxes(step, names[step.name])
    lines += [f"  {END}_([answer])", f"  {FAIL}_([failure])"]
    if plan.steps:
        lines.append(f"  start --> {names[plan.steps[0].name]}")
    for step in plan.steps:
        lines += [f"  {names[step.name]} {arrow} {_target(names, to)}" for arrow, to in _arrows(plan, step)]
    return "\n".join(lines)


def _target(names: dict[str, str], to: str) -> str:
    return f"{to}_" if to in (END, FAIL) else names.get(to, f"{FAIL}_")


def _boxes(step: Step, box: str) -> Iterator[str]:
    if not step.parallel:
        left, right = ("{", "}") if kind_of(step) == "decide" else ("[", "]")
        yield f'  {box}{left}"{_label(step)}"{right}'
        return
    yield f'  subgraph {box}["{_quoted(step.name)}"]'
    for number, member in enumerate(step.parallel):
        yield f'    {box}m{number}["{_label(member)}"]'
    yield "  end"


def _label(member: Member) -> str:
    who = member.asked or member.tool or ("wait" if member.wait else "")
    each = f"<br>for each of {_quoted(member.each)}" if isinstance(member, Step) and member.each else ""
    checked = f"<br>verified by {member.verify.judge_name}" if member.verify else ""
    return (
        _quoted(member.name) + (f"<br>{_quoted(who)}" if who else "") + each + _quoted(checked, is_own=True)
    )


def _quoted(text: str, *, is_own: bool = False) -> str:
    """Return text that ends no label; `is_own`: its line breaks are ours."""
    plain = text.replace('"', "'").replace("\n", " ")
    return plain if is_own else plain.replace("<", "&lt;").replace(">", "&gt;")


def _arrows(plan: AgentPlan, step: Step) -> Iterator[tuple[str, str]]:
    for route in step.routes:
        yield f'-- "{_quoted(_condition_in_words(route.when))}" -->', route.to
    yield from _arrows_of_choice(step.choose) if step.choose else ()
    if step.else_:
        yield "-- else -->", step.else_
    if not is_decided(step):
        yield "-->", after(plan, step.name)
    if step.limit is not None and step.at_limit != FAIL:
        yield f'-. "after {step.limit}" .->', step.at_limit
    if step.on_failure != FAIL:
        yield '-. "failed" .->', step.on_failure


def _arrows_of_choice(choice: Choice) -> Iterator[tuple[str, str]]:
    for value, to in choice.to.items():
        yield f'-- "{_quoted(value)}" -->', to


def _condition_in_words(condition: dict[str, object]) -> str:
    """Return a condition in a few words."""
    for word in ("all", "any", "not"):
        inner = condition.get(word)
        if isinstance(inner, list):
            return f" {'and' if word == 'all' else 'or'} ".join(map(_condition_in_words, inner))
        if isinstance(inner, dict):
            return f"not {_condition_in_words(inner)}"
    value = condition.get("value", "")
    return f"{condition.get('field')} {condition.get('op')} {value}".strip()[:80]
