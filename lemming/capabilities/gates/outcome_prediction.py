"""Prediction of gates for partly known content, such as any call of a tool. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.capabilities.gates.gate_format import SETTLES, GateRule
from lemming.kernel.journal.verdicts import Then
from lemming.libraries.conditions.predicates import compile_condition, iter_fields

Json = dict[str, Any]


class PredictedOutcome(NamedTuple):
    """Possible action of the gate at `line`. `is_sure`: certain, regardless of unknown fields."""

    line: str
    then: Then
    is_sure: bool


def predict_outcomes(
    rules: Iterable[GateRule], known_fields: Mapping[str, Any], absent: Collection[str] = ()
) -> list[PredictedOutcome]:
    """Return the possible actions of gates in order, up to the first sure decision.

    `known_fields`: fields with their values. `absent`: fields that will be missing. All other fields are
    unknown. Gates that surely do nothing are omitted.
    """
    predictions: list[PredictedOutcome] = []
    for rule in rules:
        gate = rule.gate
        if (gate.tool_patterns or gate.tool_classes) and not gate.concerns_tool(
            known_fields["tool"], known_fields["class"]
        ):
            continue
        matches = evaluate_partially(gate.when, known_fields, absent) if gate.when is not None else True
        if matches is False or (gate.approved and gate.is_approved(known_fields["agent"], known_fields["tool"])):
            continue
        is_sure = matches is True and not gate.finding_key
        predictions.append(PredictedOutcome(rule.line, gate.then, is_sure))
        if is_sure and gate.then in SETTLES:
            break
    return predictions


def possible_outcomes(predictions: Sequence[PredictedOutcome]) -> list[str]:
    """Return the possible outcomes of a call, given the predictions of its gates.

    >>> possible_outcomes([PredictedOutcome("a", "block", False), PredictedOutcome("b", "warn", True)])
    ['block', 'pass']
    >>> possible_outcomes([PredictedOutcome("a", "ask", True), PredictedOutcome("b", "block", True)])
    ['block']
    """
    return list(dict.fromkeys(_iter_outcomes(predictions)))


def _iter_outcomes(predictions: Sequence[PredictedOutcome]) -> Iterator[Then]:
    asks = surely_asks = False
    final_pass = PredictedOutcome("", "pass", is_sure=True)  # content that no gate stops
    for prediction in (*predictions, final_pass):
        if prediction.then == "ask":
            asks, surely_asks = True, surely_asks or prediction.is_sure
        elif prediction.then == "pass":
            if asks:
                yield "ask"
            if not surely_asks:
                yield "pass"
        elif prediction.then in SETTLES:
            yield prediction.then
        if prediction.then in SETTLES and prediction.is_sure:
            return


def evaluate_partially(condition: Json, known_fields: Mapping[str, Any], absent: Collection[str] = ()) -> bool | None:
    """Return the truth of a valid condition, or None if unknown fields matter.

    >>> of_ada = dict(field="agent", op="is", value="ada")
    >>> of_path = dict(field="args.path", op="exists")
    >>> evaluate_partially({"all": [of_ada, of_path]}, {"agent": "bob"}), evaluate_partially({"any": [of_ada, of_path]}, {})
    (False, None)
    """
    if "all" in condition:
        return _and([evaluate_partially(part, known_fields, absent) for part in condition["all"]])
    if "any" in condition:
        none_holds = _and([_not(evaluate_partially(part, known_fields, absent)) for part in condition["any"]])
        return _not(none_holds)
    if "not" in condition:
        return _not(evaluate_partially(condition["not"], known_fields, absent))
    (field,) = iter_fields(condition)
    head = field.partition(".")[0]
    return compile_condition(condition)(known_fields) if head in known_fields or head in absent else None


def _and(results: Collection[bool | None]) -> bool | None:
    return False if False in results else None if None in results else True


def _not(result: bool | None) -> bool | None:
    return None if result is None else not result
