"""Recorded inputs of a turn: written before the first model call, and read when an interrupted tick resumes."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any

from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.turn_numbers import turn_key
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.journal.turn_start import load_loop_settings, recorded_agent, recorded_allocation, recorded_model
from lemming.kernel.turn.forms.reply_form import ReplyForm
from lemming.kernel.turn.interceptor_chain import parse_purpose
from lemming.kernel.turn.turn_inputs import GatheredInputs
from lemming.kernel.turn.turn_values import TurnInputs

OPTIONAL_FIELDS = ("warned", "open_requests", "said_requests", "given", "turn", "dialogue")
"""Fields of `TurnInputs` that a record holds if not empty."""
_get_optional_fields = attrgetter(*OPTIONAL_FIELDS)


def begin_turn(journal: Journal, gathered: GatheredInputs) -> None:
    """Write the inputs of a turn to the journal."""
    inputs, opening = gathered.inputs, gathered.prefix
    ledger = inputs.state.written  # where the state stands as it is written here
    state = ledger[1] if ledger else dump_compact(inputs.state.as_json())
    encoded_fields = b'%b,"state":%b' % (dump_compact(_record_fields(gathered))[1:-1], state)
    make_record = partial(to_record, gathered)
    journal.begin_turn(
        turn_key(inputs.agent.name, inputs.turn), make_record, opening.encoded, gathered.user_message, encoded_fields
    )


def to_record(gathered: GatheredInputs) -> TurnStarted:
    """Return the journal record of a turn's inputs."""
    inputs = gathered.inputs
    state = inputs.state.as_json()
    return TurnStarted(prompt=inputs.prompt, **gathered.prefix.fields, **_record_fields(gathered), state=state)


def _record_fields(gathered: GatheredInputs) -> dict[str, Any]:
    """Return the fields of a record besides prompt prefix, prompt and state."""
    inputs = gathered.inputs
    fields = {"agent": inputs.agent.name, "entries": gathered.entry_ids, "read": inputs.read.as_json()}
    if inputs.fingerprint is not None:
        fields["inputs"] = inputs.fingerprint
    if inputs.damaged:
        fields["damaged"] = sorted(inputs.damaged)
    if inputs.task:
        fields["task"] = inputs.task.as_json()
    for key, value in zip(OPTIONAL_FIELDS, _get_optional_fields(inputs), strict=True):
        if value:
            fields[key] = value
    return fields


def from_record(record: TurnStarted, tick: int) -> TurnInputs:
    """Return the inputs of an interrupted turn, with the original model and credits."""
    return TurnInputs(
        agent=recorded_agent(record),
        tick=tick,
        model=recorded_model(record),
        allocation=recorded_allocation(record),
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
        task=parse_purpose(record.task) if record.task else None,
        **{key: getattr(record, key) for key in OPTIONAL_FIELDS},
    )
