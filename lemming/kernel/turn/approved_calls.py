"""Results of calls that persons approved, in the places where they are awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lemming.kernel.base.jsontext import parse, to_line
from lemming.kernel.files.field_types import Json
from lemming.kernel.providers import Message
from lemming.kernel.turn.dialogue import CallResults, drop_unanswered, list_call_ids, pair_with_calls, render_results
from lemming.kernel.turn.tool_results import is_notice

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState

VALUES_LIMIT_BYTES = 64 << 20


def store_results(turn_state: TurnState, earlier_results: Sequence[Json], numbers: Mapping[int, int]) -> None:
    """Put the results into their slots among the results of earlier, unseen calls."""
    results = [*earlier_results]
    for index, number in numbers.items():
        results[index] = turn_state.results[number]
    turn_state.move_awaited({number + 1: index + 1 for index, number in numbers.items()})
    ids = list_call_ids(turn_state.inputs.task.begun) if turn_state.inputs.task else []
    turn_state.set_results(results, [*[""] * (len(results) - len(ids)), *ids])


def insert_results(turn_state: TurnState, earlier_results: Sequence[Json], numbers: Mapping[int, int]) -> None:
    """Put the results into the prompt. `earlier_results`: the results from which the prompt was built."""
    if not numbers:
        return
    inputs, results = turn_state.inputs, turn_state.results
    if inputs.model.prompt == "values":  # a program has the results in slots, and notices under a key of their own
        values = parse(inputs.prompt[-1]["content"], limit_bytes=VALUES_LIMIT_BYTES)
        slots = [index for index, item in enumerate(earlier_results) if not is_notice(item)]
        for index, number in numbers.items():
            values["results"][slots.index(index)] = results[number]
        turn_state.set_prompt([*inputs.prompt[:-1], {**inputs.prompt[-1], "content": to_line(values)}])
    else:
        made_numbers = {*numbers.values()}
        failed = [
            (item, "") for number, item in enumerate(results) if number not in made_numbers and not item["success"]
        ]
        turn_state.set_prompt(inputs.prompt, _continue_dialogue(turn_state, numbers, earlier_results, failed))
    turn_state.mark_results_shown()


def _continue_dialogue(
    turn_state: TurnState, numbers: Mapping[int, int], earlier_results: Sequence[Json], failed: CallResults
) -> list[Message]:
    """Return the messages behind the prompt, each pending call with the result.

    `failed`: other results that the model must see.
    """
    inputs, dialogue = turn_state.inputs, drop_unanswered(turn_state.inputs.dialogue)
    render = partial(render_results, inputs.model, inputs.form, [*inputs.prompt, *dialogue])
    if not dialogue:  # a new conversation: its prompt shows the other results
        return render([*((turn_state.results[number], "") for number in sorted(numbers.values())), *failed])
    recorded = render(_pair_results(turn_state, {}, earlier_results))
    new_messages = render([*_pair_results(turn_state, numbers, earlier_results), *failed])
    return [*dialogue, *new_messages, *inputs.dialogue[len(dialogue) + len(recorded) :]]


def _pair_results(turn_state: TurnState, numbers: Mapping[int, int], earlier_results: Sequence[Json]) -> CallResults:
    """Return all pending results, with the results of the calls just made in their slots."""
    open_request = turn_state.inputs.task.begun if turn_state.inputs.task else None
    dialogue = open_request.dialogue if open_request else None
    assert open_request, "a turn that goes on is for something"
    assert dialogue, "it goes on with what was said"
    results = []
    for index in range(len(earlier_results) - len(open_request.results), len(earlier_results)):
        result = turn_state.results[numbers[index]] if index in numbers else earlier_results[index]
        if result["args"] != earlier_results[index]["args"]:  # a person changed them
            note = f"(made with other arguments: {to_line(result['args'])})"
            result = {**result, "output": f"{note}\n{result['output']}"}
        results.append(turn_state.render_result(result))
    return pair_with_calls(open_request, dialogue, results)
