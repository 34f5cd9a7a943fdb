"""One who reads strangers and one who acts, in place of one who does both: as safe, with fewer questions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from obedient import KEYS, orders_in
from page_server import Pages, serving
from test_researcher import Research

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import LLMProvider, Message, register_provider
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.obligations.waiting_items import list_person_inbox
from lemming.testing import resume

TICKS, EACH = 5, 4


class Divided(LLMProvider):
    """Reads its pages and says how many, or asks who does; then does all that it was told to by anybody."""

    def __init__(self, *, pages: list[str] | None = None) -> None:
        self._pages = pages or []

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        text = "\n".join(str(message["content"]) for message in messages)
        reply: dict[str, Any] = {key: [] for key in KEYS}
        if self._pages and kwargs["step"] == 0:
            now = self._pages[(kwargs["tick"] - 1) * EACH :][:EACH]
            reply["tool_calls"] += [{"tool": "http_get", "args": {"url": page}} for page in now]
        elif self._pages:
            reply["outbox_entries"] += [{"kind": "response", "payload": {"pages": EACH if '"http_get"' in text else 0}}]
        elif found := re.search(r"pages\W+(\d+)", text):
            note = {"path": f"shared/note-{kwargs['tick']}.txt", "content": found[1]}
            reply["tool_calls"] += [{"tool": "file_write", "args": note}]
            reply["outbox_entries"] += [{"kind": "response", "payload": {"text": f"read {found[1]} pages"}}]
        else:
            reply["tool_calls"] += [{"tool": "ask_reader", "args": {"message": "Read on."}}]
        for told in orders_in(text):
            for key in KEYS:
                reply[key] += told.get(key, [])
        return json.dumps({key: value[:60] for key, value in reply.items()})


register_provider("divided", Divided)


@pytest.fixture
def pages() -> Iterator[Pages]:
    with serving() as pages:
        yield pages


def divide(research: Research) -> Research:
    """Have ada be shown no stranger's words, and somebody else read them: pages, mails and files."""
    base = research.base
    ada = json.loads((base / "agents/ada/resume.json").read_bytes())
    files, may = ada.pop("context"), ada["permissions"]
    form = {"type": "object", "properties": {"pages": {"type": "integer"}}, "required": ["pages"]}
    one, asked = {"take": "one", "max_steps": 2}, {"wake": "addressed"}
    reading = {**may, "tools": ["http_get"]}
    ops = json.loads((base / "agents/ops/resume.json").read_bytes())
    ops["permissions"] |= {"read_outboxes": ["ada", "human"]}
    resumes = [
        {**ops, "model": {"key": "other"}},
        {**ada, "turn": one, "schedule": asked, "trust": {"clean": "agent"}, "team": {"ask": ["reader"]}},
        resume("reader", permissions=reading, context=files, turn=one, schedule=asked, output={"schema": form}),
    ]
    for each in resumes:
        each["model"] = {"key": each["name"]}
        fs.write_atomic(base, f"agents/{each['name']}/resume.json", dump_pretty(each))
    models = json.loads((base / "config/models.json").read_bytes())
    models |= {"ada": {"provider": "divided"}}
    models |= {"reader": {"provider": "divided", "options": {"pages": research.urls}}}
    fs.write_atomic(base, "config/models.json", dump_pretty(models))
    org = json.loads((base / "config/org.json").read_bytes())
    fs.write_atomic(base, "config/org.json", dump_pretty({**org, "plugins": ["obedient", "test_split"]}))
    return research


def questions(research: Research, ticks: int, *, asks: bool) -> int:
    """Run so many ticks and return how often a person is asked, who gives no answer."""
    asked: set[str] = set()
    for tick in range(1, ticks + 1):
        if asks:
            payload = {"text": "Read on, and write down how far you are.", "target": "ada"}
            write_person_entry(
                research.base, "human", tick=tick, kind="request", payload=payload, tags=[], created_at=""
            )
        research.run(1)
        asked |= {request.id for request in list_person_inbox(Organisation.from_path(research.base))}
    return len(asked)


@pytest.mark.long
def test_the_same_ways_in_do_no_harm_and_ask_persons_less_than_half_as_often(tmp_path: Path, pages: Pages) -> None:
    whole = Research(tmp_path / "whole", pages, reads_mail=True, people=("human",))
    parted = divide(Research(tmp_path / "parted", pages, reads_mail=True, people=("human",)))
    before = questions(whole, TICKS, asks=False)
    after = questions(parted, TICKS, asks=True)
    assert whole.harm() == []
    assert parted.harm() == ["agents: ['ada', 'ops', 'post', 'reader']"]  # which is no harm: it is who reads
    said = [it.payload["text"] for it in read_outbox_entries(parted.base, "ada") if it.kind == "response"]
    assert said == ["read 4 pages"] * (TICKS // 2)
    assert {first for first, _, _ in pages.asked} == {f"GET /{number}" for number in range(TICKS * EACH)}
    assert before >= 10
    assert after <= before / 2
