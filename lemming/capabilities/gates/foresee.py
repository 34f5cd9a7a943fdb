"""What gates may say of something of which not all is known, such as any call of a tool. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.capabilities.conditions.when import fields_in, predicate
from lemming.capabilities.gates.format import SETTLES, Rule
from lemming.kernel.journal.verdicts import Then

Json = dict[str, Any]


class Foreseen(NamedTuple):
    """What a gate may do, and its line; `is_sure`: it does, whatever the rest turns out to be."""

    line: str
    then: Then
    is_sure: bool


def foreseen(rules: Iterable[Rule], known: Mapping[str, Any], absent: Collection[str] = ()) -> list[Foreseen]:
    """Return what gates may say, in their order, up to the first that settles it for sure.

    `known` are fields with their values, `absent` those that will not be there; of all others nothing is
    known. Gates that surely say nothing are left out.
    """
    found: list[Foreseen] = []
    for rule in rules:
        gate = rule.gate
        if (gate.tools or gate.classes) and not gate.concerns_tool(known["tool"], known["class"]):
            continue
        matches = may_hold(gate.when, known, absent) if gate.when is not None else True
        if matches is False or (gate.approved and gate.is_approved(known["agent"], known["tool"])):
            continue
        is_sure = matches is True and not gate.finding
        found.append(Foreseen(rule.line, gate.then, is_sure))
        if is_sure and gate.then in SETTLES:
            break
    return found


def outcomes(said: Sequence[Foreseen]) -> list[str]:
    """Return what may become of a call, by what its gates may say.

    >>> outcomes([Foreseen("a", "block", False), Foreseen("b", "warn", True)])
    ['block', 'pass']
    >>> outcomes([Foreseen("a", "ask", True), Foreseen("b", "block", True)])
    ['block']
    """
    return list(dict.fromkeys(_outcomes(said)))


def _outcomes(said: Sequence[Foreseen]) -> Iterator[Then]:
    asks = surely_asks = False
    passes = Foreseen("", "pass", is_sure=True)  # what all of them let be
    for it in (*said, passes):
        if it.then == "ask":
            asks, surely_asks = True, surely_asks or it.is_sure
        elif it.then == "pass":
            if asks:
                yield "ask"
            if not surely_asks:
                yield "pass"
        elif it.then in SETTLES:
            yield it.then
        if it.then in SETTLES and it.is_sure:
            return


def may_hold(condition: Json, known: Mapping[str, Any], absent: Collection[str] = ()) -> bool | None:
    """Return whether a sound condition holds; None where that depends on what is not known.

    >>> of_ada = {"field": "agent", "op": "is", "value": "ada"}
    >>> of_path = {"field": "args.path", "op": "exists"}
    >>> may_hold({"all": [of_ada, of_path]}, {"agent": "bob"}), may_hold({"any": [of_ada, of_path]}, {})
    (False, None)
    """
    if "all" in condition:
        return _all([may_hold(each, known, absent) for each in condition["all"]])
    if "any" in condition:
        held = _all([_not(may_hold(each, known, absent)) for each in condition["any"]])
        return _not(held)
    if "not" in condition:
        return _not(may_hold(condition["not"], known, absent))
    (field,) = fields_in(condition)
    head = field.partition(".")[0]
    return predicate(condition)(known) if head in known or head in absent else None


def _all(held: Collection[bool | None]) -> bool | None:
    return False if False in held else None if None in held else True


def _not(held: bool | None) -> bool | None:
    return None if held is None else not held
