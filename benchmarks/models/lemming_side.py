"""LeMMing side: each turn is an organisation in a separate folder, played by engine ticks."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.models import shop
from benchmarks.models.turn import Outcome, Turn
from lemming.engine import run_once
from lemming.journal_tools.recorded_tick import RecordedTurn, load_tick_record
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.files import fs
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.memory_files import save_memory
from lemming.messages import write_outbox_entry
from lemming.obligations.answer_fields import parse_answer
from lemming.testing import FrozenClock, make_org, resume

AGENT, PERSON = "clerk", "customer"
NOT_DUE = {"run_every_n_ticks": 10**6, "phase_offset": 1}
MAX_TICKS = 3
GOOD = ("done", "waiting")
MARK = "@tool(tool_class='read', repeatable=True, independent=True, process=False)"
FUTURE = "from __future__ import annotations\n"


def make_model_entry(server: str, model: str, provider: str, prompt: str = "") -> dict[str, Any]:
    """Return the entry of `config/models.json` for a model on a server."""
    entry = {
        "provider": provider,
        "model": model,
        "options": {"base_url": server},
        "temperature": 0.0,
        "max_output_tokens": 200,
        "deadline_s": 1800,
    }
    return {**entry, "prompt": prompt} if prompt else entry


def make_organisation(base: Path, turn: Turn, model: dict[str, Any]) -> Path:
    """Make the organisation of a turn: the agent, the partners to read and to address, and the earlier
    messages.
    """
    senders = list(dict.fromkeys(sender for sender, _ in turn.inbox))
    authors = [*senders, *([PERSON] if turn.request else [])]
    agent = resume(
        AGENT,
        model={"key": "default"},
        instructions=turn.instructions,
        permissions={
            "read_outboxes": authors,
            "tools": [*turn.tools, *(["memory_write"] if turn.may_remember else [])],
            "file_access": {"allow_read": ["./shared"], "allow_write": []},
        },
        context=[{"file": f"./shared/{name}", "label": name} for name in turn.files],
    )
    partners = [*(_make_person(name, []) for name in senders), *(_make_reader(name) for name in turn.readers)]
    if turn.request:
        partners.append(_make_person(PERSON, [AGENT]))
    models = {"default": model, "human": {"provider": "human"}}
    make_org(base, agent, *partners, models=models, org={"tool_files": ["tools/*.py"]} if turn.tools else {})
    if turn.tools:
        fs.write_atomic(base, "tools/shop.py", render_tools_module().encode())
    for name, text in turn.files.items():
        fs.write_atomic(base, f"shared/{name}", text.encode())
    for key, value in turn.memory.items():
        save_memory(base, AGENT, key, value, clock=FrozenClock())
    for number, (sender, text) in enumerate(turn.inbox):
        _write_entry(base, sender, f"m{number:02}", "message", {"text": text})
    if turn.request:
        schema_field = {"schema": turn.schema} if turn.schema else {}
        request_payload = {"text": turn.request, "target": AGENT, "conversation": ""}  # as `lemming ask` writes it
        _write_entry(base, PERSON, "asked", "request", {**request_payload, **schema_field})
    return base


def render_tools_module() -> str:
    """Return the source of the organisation's tools: the functions of `shop`, marked as tools."""
    names = "|".join(function.__name__ for function in shop.FUNCTIONS)
    source = inspect.getsource(shop).replace(FUTURE, f"{FUTURE}from lemming.tools import tool\n", 1)
    return re.sub(rf"^def ({names})\(", rf"{MARK}\ndef \1(", source, flags=re.MULTILINE)


def play_turn(base: Path, turn: Turn) -> Outcome:
    """Run the agent's ticks until the request is answered or all entries are read, and return the outcome."""
    records: list[RecordedTurn] = []
    for _ in range(MAX_TICKS + len(turn.inbox)):  # an agent with a small model may read one entry a tick
        report = run_once(base, agents=[AGENT], clock=FrozenClock())
        recorded = load_tick_record(Organisation.from_path(base), report.tick)
        records += [record for record in recorded.turns if record.agent == AGENT]
        if records[-1].status not in GOOD or _is_finished(turn, records):
            break
    return extract_outcome(turn, records)


def extract_outcome(turn: Turn, records: Sequence[RecordedTurn]) -> Outcome:
    """Return the outcome of a turn from the journal. A turn is valid if no reply needed a correction."""
    outcome = Outcome(is_valid=all(map(is_valid_turn, records)))
    for record in records:
        if record.status not in GOOD:
            outcome.problem = record.report.reason if record.report else record.status
        outcome.calls += [[use.tool, use.args] for use in record.tools]
        outcome.memories += [f"{key}: {_to_text(value)}" for key, value in record.memory.items()]
        for entry in record.entries:
            if not entry.payload.get("reply_to"):
                text = _to_text(entry.payload.get("text") or entry.payload)
                outcome.sent += [[reader, text] for reader in sorted(entry.targets) or [""]]
    for answer in map(partial(parse_answer, schema=turn.schema), _find_answers(records)):
        outcome.answer = answer if isinstance(answer, dict) else {"text": answer}
    return outcome


def is_valid_turn(record: RecordedTurn) -> bool:
    """Return True if all replies of a turn were valid without omissions."""
    remarks = record.report.remarks if record.report else ["not ended"]
    broken = any(call.problem or call.error for call in record.calls)
    return record.status in GOOD and not broken and not any(map(_is_correction, remarks))


def _is_correction(remark: str) -> bool:
    return remark.startswith(("asked again", "left out", "outbox_entries"))


def _is_finished(turn: Turn, records: Sequence[RecordedTurn]) -> bool:
    """Return True if the request is answered, or without a request, if all entries were shown."""
    if turn.request:
        return bool(_find_answers(records)) or len(records) >= MAX_TICKS
    return sum(len(record.visible_entry_ids) for record in records) >= len(turn.inbox)


def _find_answers(records: Sequence[RecordedTurn]) -> list[dict[str, Any]]:
    payloads = [entry.payload for record in records for entry in record.entries]
    return [payload for payload in payloads if payload.get("reply_to")]


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _make_person(name: str, readable: list[str]) -> dict[str, Any]:
    return resume(name, model={"key": "human"}, permissions={"read_outboxes": readable, "tools": []})


def _make_reader(name: str) -> dict[str, Any]:
    return resume(name, model={"key": "default"}, permissions={"read_outboxes": [AGENT]}, schedule=NOT_DUE)


def _write_entry(base: Path, author: str, identity: str, kind: MessageKind, payload: dict[str, Any]) -> None:
    timestamp = "2026-01-01T00:00:00.000Z"  # the frozen clock's, so that a turn is the same in each run
    write_outbox_entry(base, author, OutboxEntry(identity, 0, author, kind, payload, [], timestamp))
