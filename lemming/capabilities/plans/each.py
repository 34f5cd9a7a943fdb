"""A step that is done once for each item of a list: its members, and the answer that they make. Pure.

The items are kept in the run from when the step begins, so that they stay the same whatever becomes of what
they came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from lemming.capabilities.conditions.when import MISSING, field_of
from lemming.capabilities.plans.format import Member, Step
from lemming.capabilities.plans.run import Doing, Run
from lemming.kernel.base.integers import to_int

Json = dict[str, Any]
_OF_A_MEMBER = tuple(it.name for it in fields(Member) if it.name not in ("name", "writes"))


class NoItems(ValueError):
    """What a step is to be done for is no list of items; the message says why."""


def items_of(step: Step, known: Mapping[str, Any]) -> list[Any]:
    """Return the items for which a step is done. Raises `NoItems`."""
    found = field_of(known, step.each)
    if not isinstance(found, list):
        what = "nothing" if found is MISSING or found is None else "no list"
        raise NoItems(f'"{step.each}" is {what}, expected a list of items')
    if len(found) > step.most:
        raise NoItems(f'"{step.each}" has {len(found)} items, and "most" allows {step.most}')
    return found


def in_words(step: Step) -> str:
    """Return for what a step is done, if it is for each item of a list; empty where not.

    >>> in_words(Step(name="a", ask="ada", each="start.files"))
    ' for each of start.files (at most 100), 8 at once'
    """
    return f" for each of {step.each} (at most {step.most}), {step.at_once} at once" if step.each else ""


def members_of(step: Step, run: Run) -> list[Member]:
    """Return what is done at once in a step, or one after another: itself, a band's members, or its items."""
    if step.each and run.items is not None:
        return [_member(step, number) for number in range(1, len(run.items) + 1)]
    return [*step.parallel] or [step]


def _member(step: Step, number: int) -> Member:
    """Return what is done for one item: `look.1` for the first of the step `look`."""
    return Member(name=f"{step.name}.{number}", **{key: getattr(step, key) for key in _OF_A_MEMBER})


def item_of(member: Member, run: Run) -> Json:
    """Return what a run knows besides, for the item that a member is done for; nothing for other members."""
    number = member.name.partition(".")[2]
    if not number or run.items is None:
        return {}
    return {"item": run.items[to_int(number) - 1], "number": to_int(number)}


def next_of(step: Step, members: Sequence[Member], doing: Mapping[str, Doing]) -> list[Member]:
    """Return the members that may begin now: of items as many as may be at once, and none after a failure."""
    if not step.each:
        return [it for it in members if it.name not in doing]
    states = [doing[it.name] for it in members if it.name in doing]
    under_way = sum(it.phase not in ("done", "failed") for it in states)
    if not step.keeps_failures and any(it.phase == "failed" for it in states):
        return []
    return [it for it in members if it.name not in doing][: step.at_once - under_way]


def answer_of(members: Sequence[Member], doing: Mapping[str, Doing]) -> Json:
    """Return the answer of a step that is over: those of its items, in their order."""
    return {"items": [_answer(doing[it.name]) for it in members]}


def _answer(done: Doing) -> Json:
    if done.phase == "failed":
        return {"text": f"failed: {done.reasons}", "failed": done.reasons}
    return done.answer or {}
