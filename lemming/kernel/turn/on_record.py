"""The inputs of a turn on record: written to the journal before the model is asked, and read back from there
when an interrupted tick goes on.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any

from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.turn_numbers import turn_key
from lemming.kernel.journal.file import Journal
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.read_mark import ReadMark
from lemming.kernel.journal.records import TurnStarted
from lemming.kernel.journal.turn_start import agent_of, allocation_of, load_loop_settings, model_of
from lemming.kernel.turn.forms.reply_form import ReplyForm
from lemming.kernel.turn.inputs import Gathered
from lemming.kernel.turn.parts import purpose_in
from lemming.kernel.turn.values import TurnInputs

MAY_BE_EMPTY = ("warned", "open_requests", "said_requests", "given", "turn", "dialogue")
"""Of `TurnInputs`, what a record holds where it says anything."""
_perhaps_empty = attrgetter(*MAY_BE_EMPTY)


def begin_turn(journal: Journal, gathered: Gathered) -> None:
    """Write into the journal what a turn starts from."""
    inputs, opening = gathered.inputs, gathered.opening
    ledger = inputs.state.written  # where the state stands as it is written here
    state = ledger[1] if ledger else compact(inputs.state.as_json())
    rest = b'%b,"state":%b' % (compact(_rest_of(gathered))[1:-1], state)
    whole = partial(as_record, gathered)
    journal.begin_turn(
        turn_key(inputs.agent.name, inputs.turn), whole, opening.written, gathered.situation, rest
    )


def as_record(gathered: Gathered) -> TurnStarted:
    """Return what the journal says of the inputs of a turn."""
    inputs = gathered.inputs
    state = inputs.state.as_json()
    return TurnStarted(prompt=inputs.prompt, **gathered.opening.fields, **_rest_of(gathered), state=state)


def _rest_of(gathered: Gathered) -> dict[str, Any]:
    """Return what a record says of the inputs beside what turns begin with, the prompt and the state."""
    inputs = gathered.inputs
    rest = {
        "agent": inputs.agent.name,
        "entries": gathered.entries,
        "read": inputs.read.as_json(),
    }
    if inputs.fingerprint is not None:
        rest["inputs"] = inputs.fingerprint
    if inputs.damaged:
        rest["damaged"] = sorted(inputs.damaged)
    if inputs.task:
        rest["task"] = inputs.task.as_json()
    for key, value in zip(MAY_BE_EMPTY, _perhaps_empty(inputs), strict=True):
        if value:
            rest[key] = value
    return rest


def from_record(record: TurnStarted, tick: int) -> TurnInputs:
    """Return the inputs of an interrupted turn, with the model and the credits it had when it began."""
    return TurnInputs(
        agent=agent_of(record),
        tick=tick,
        model=model_of(record),
        allocation=allocation_of(record),
        max_steps=record.max_steps,
        repairs=record.repairs,
        prompt=record.prompt,
        loops=load_loop_settings(record),
        schema=record.schema,
        form=ReplyForm.from_json(record.form) if record.form else None,
        state=AgentState.from_json(record.state),
        read=ReadMark.from_json(record.read),
        fingerprint=record.inputs,
        damaged=frozenset(record.damaged),
        task=purpose_in(record.task) if record.task else None,
        **{key: getattr(record, key) for key in MAY_BE_EMPTY},
    )
