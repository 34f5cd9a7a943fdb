"""Steps repeated for each item of a list: the actions of the items, and the combined answer. Pure.

The items are stored in the run when the step starts, so later changes of their source have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from lemming.capabilities.plans.plan_format import StepAction, StepDefinition
from lemming.capabilities.plans.plan_run import ActionState, PlanRun
from lemming.kernel.base.integers import to_int
from lemming.libraries.conditions.predicates import MISSING, get_field

Json = dict[str, Any]
_ACTION_FIELDS = tuple(field.name for field in fields(StepAction) if field.name not in ("name", "writes"))


class NotAList(ValueError):
    """The value for a repeated step is not a list of items. The message names the reason."""


def get_items(step: StepDefinition, variables: Mapping[str, Any]) -> list[Any]:
    """Return the items of a repeated step. Raises: NotAList for a missing value, another type, or too many items."""
    items = get_field(variables, step.each)
    if not isinstance(items, list):
        problem = "nothing" if items is MISSING or items is None else "no list"
        raise NotAList(f'"{step.each}" is {problem}, expected a list of items')
    if len(items) > step.most:
        raise NotAList(f'"{step.each}" has {len(items)} items, and "most" allows {step.most}')
    return items


def describe_items(step: StepDefinition) -> str:
    """Return a description of a step's items, or the empty string for a step without items.

    >>> describe_items(StepDefinition(name="a", ask="ada", each="start.files"))
    ' for each of start.files (at most 100), 8 at once'
    """
    return f" for each of {step.each} (at most {step.most}), {step.at_once} at once" if step.each else ""


def get_actions(step: StepDefinition, run: PlanRun) -> list[StepAction]:
    """Return the actions of a step: the step itself, its parallel actions, or an action per item."""
    if step.each and run.items is not None:
        return [_item_action(step, number) for number in range(1, len(run.items) + 1)]
    return [*step.parallel] or [step]


def _item_action(step: StepDefinition, number: int) -> StepAction:
    """Return the action of one item: `look.1` for the first item of the step `look`."""
    return StepAction(name=f"{step.name}.{number}", **{key: getattr(step, key) for key in _ACTION_FIELDS})


def item_variables(action: StepAction, run: PlanRun) -> Json:
    """Return the variables of an action's item. Actions without an item have none."""
    number = action.name.partition(".")[2]
    if not number or run.items is None:
        return {}
    return {"item": run.items[to_int(number) - 1], "number": to_int(number)}


def next_actions(
    step: StepDefinition, actions: Sequence[StepAction], states_by_name: Mapping[str, ActionState]
) -> list[StepAction]:
    """Return the actions to start next: items up to the concurrency limit, and none after a failure."""
    if not step.each:
        return [field_info for field_info in actions if field_info.name not in states_by_name]
    states = [states_by_name[field_info.name] for field_info in actions if field_info.name in states_by_name]
    running_count = sum(field_info.phase not in ("done", "failed") for field_info in states)
    if not step.keeps_failures and any(field_info.phase == "failed" for field_info in states):
        return []
    return [field for field in actions if field.name not in states_by_name][: step.at_once - running_count]


def collect_answers(actions: Sequence[StepAction], states: Mapping[str, ActionState]) -> Json:
    """Return the combined answer of a finished step: the answers of its items, in order."""
    return {"items": [_action_answer(states[field_info.name]) for field_info in actions]}


def _action_answer(state: ActionState) -> Json:
    if state.phase == "failed":
        return {"text": f"failed: {state.reasons}", "failed": state.reasons}
    return state.answer or {}
