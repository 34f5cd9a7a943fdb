"""The JSON Schemas say what the engine reads and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from terminal import Lemming

from lemming.import_export.apply_document import load_template
from lemming.libraries.memory_files import save_memory
from lemming.queries.format_schemas import FORMATS, get_schema, record_classes
from lemming.testing import make_org, resume, say

FILES = {
    "resume.json": "resume",
    "models.json": "models",
    "org.json": "org",
    "credits.json": "credits",
    "tick.json": "tick",
}


def wrong(name: str, value: Any) -> list[str]:
    """Return what a schema has against a value."""
    return [error.message for error in Draft202012Validator(get_schema(name)).iter_errors(value)]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", list(FORMATS))
def test_each_schema_is_one_and_is_printed(bare: Lemming, name: str) -> None:
    ran = bare("schema", name)
    assert ran.status == 0
    Draft202012Validator.check_schema(json.loads(ran.out))
    assert bare("schema", name, "--json").objects == [json.loads(ran.out)]


@pytest.mark.parametrize("template", ["newsroom", "empty"])
def test_the_files_of_the_templates_fit(template: str) -> None:
    for file, content in load_template(template).items():
        if name := FILES.get(file.rsplit("/", 1)[-1]):
            assert wrong(name, json.loads(content)) == [], file


@pytest.mark.long
def test_what_the_engine_writes_fits(base: Path, lemming: Lemming) -> None:
    calls = [{"tool": "memory_read", "args": {}}, {"tool": "no_such_tool", "args": {}}]
    make_org(
        base,
        resume("ada", turn={"max_steps": 2}),
        resume("bob", schedule={"wake": "changed"}, permissions={"read_outboxes": []}),
        resume("cyd", schedule="daily"),
        resume("dan"),
        script=[
            {"agent": "ada", "step": 0, "reply": say("hi", tool_calls=calls)},
            {"agent": "dan", "error": "RequestRejected"},
            {"reply": say("done", memory_updates=[{"key": "goal", "value": [1]}])},
        ],
        org={"retention_ticks": 1},
    )
    lemming("run-forever", "--max-ticks", "6", "--interval", "0", "-q")
    kinds = set()
    for journal in (base / "logs/ticks").glob("*.jsonl"):
        for line in journal.read_text().splitlines():
            record = json.loads(line)
            kinds.add(record["type"])
            assert wrong("journal", record) == [], record["type"]
    assert kinds >= {"tick_started", "turn_started", "model_replied", "model_failed", "tool_finished"}
    assert kinds >= {"turn_skipped", "turn_committed", "entries_expired", "tick_committed"}
    for file in base.glob("agents/*/outbox/*.json"):
        assert wrong("outbox", json.loads(file.read_text())) == []
    for file in base.glob("agents/*/memory/*.json"):
        assert wrong("memory", json.loads(file.read_text())) == []
    assert wrong("tick", json.loads((base / "tick.json").read_text())) == []


def test_every_kind_of_record_can_be_written_by_its_schema() -> None:
    """The schema and the engine's own check are one table, so a journal that is read fits its schema."""
    kinds = {branch["properties"]["type"]["const"] for branch in get_schema("journal")["oneOf"]}
    assert kinds == {*record_classes()}
    started = {"type": "turn_resumed", "epoch": 1, "agent": "ada", "check": "0011223344556677"}
    assert wrong("journal", started) == []
    assert wrong("journal", {**started, "agent": "../ada"}) != []
    assert wrong("journal", {**started, "type": "made_up"}) != []


def test_a_misspelt_key_does_not_fit_and_a_schema_key_does() -> None:
    plain = {"name": "ada", "instructions": "Be."}
    assert wrong("resume", {"$schema": "resume.schema.json", **plain}) == []
    assert wrong("resume", {**plain, "modle": {}}) != []
    assert wrong("resume", {**plain, "model": {"kee": "x"}}) != []
    assert wrong("models", {"fast": {"provider": "openai", "modle": "x"}}) != []


def test_the_contract_is_the_four_keys_of_the_guide() -> None:
    reply = say("hi", tool_calls=[{"tool": "file_read", "args": {"path": "data.txt"}}], notes="why")
    assert wrong("turn", reply) == []
    assert wrong("turn", {**reply, "thoughts": ""}) != []
    assert wrong("turn", {"outbox_entries": [{"kind": "gossip", "payload": {}}]}) != []


def test_a_memory_of_the_engine_fits(base: Path) -> None:
    make_org(base, resume("ada"))
    save_memory(base, "ada", "goal", {"deep": [1, None]})
    assert wrong("memory", json.loads((base / "agents/ada/memory/goal.json").read_text())) == []
