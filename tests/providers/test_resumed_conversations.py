"""A conversation that waited goes on in each provider's own form, with the values that it wants back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from approvals_org import Ring
from asked import PEOPLE, answers, ask, person
from native_server import Json, NativeServer, chat, messages, ollama, responses

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.tools import ToolRegistry
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, make_org, resume


class Api(NamedTuple):
    """One API: the line of a model behind it, and how its server answers."""

    provider: str
    options: dict[str, Any]
    answer: Any


APIS = {
    "chat": Api("openai", {"base_url": "{}/v1"}, chat),
    "responses": Api("openai", {"base_url": "{}/v1", "api": "responses"}, responses),
    "anthropic": Api("anthropic", {"base_url": "{}"}, messages),
    "ollama": Api("ollama", {"host": "{}"}, ollama),
}
CALLED: dict[str, Json] = {
    "chat": {"role": "tool", "tool_call_id": "t1", "content": "rang once"},
    "responses": {"type": "function_call_output", "call_id": "t1", "output": "rang once"},
    "anthropic": {"type": "tool_result", "tool_use_id": "t1", "content": "rang once"},
    "ollama": {"role": "tool", "tool_name": "ring", "content": "rang once"},
}


@pytest.mark.parametrize("name", list(APIS))
def test_the_call_its_thoughts_and_its_result_are_sent_back_after_an_approval(tmp_path: Path, name: str) -> None:
    api = APIS[name]
    server = NativeServer(answers=[api.answer(None, ("t1", "ring", '{"text": "once"}'), thought="Hm.")])
    server.answers.append(api.answer("It rang."))
    server.start()
    ToolRegistry.register(Ring())
    options = {key: value.format(server.url) for key, value in api.options.items()}
    entry = {"provider": api.provider, "model": "m", "options": options, "tools": "native"}
    may = {"read_outboxes": ["human"], "tools": ["ring"]}
    org = make_org(
        tmp_path,
        resume("ada", model={"key": "native"}, permissions=may, schedule={"wake": "addressed"}),
        person(),
        org={"gates": [{"at": "call", "tool": "ring", "then": "ask"}]},
        models={"native": entry, **PEOPLE},
    )
    request = ask(org, "ada", "Ring the bell.")
    run_once(org, clock=FrozenClock())
    assert run(["-C", str(org), "approve", read_outbox_entries(org, "ada")[-1].id, "--as", "human"]) == 0
    run_once(org, clock=FrozenClock())
    server.stop()
    assert answers(org, "ada")[request.id]["text"] == "It rang."
    question = server.received[-1]
    said = question.get("messages") or question["input"]
    parts = [part for it in said for part in (it["content"] if isinstance(it.get("content"), list) else [it])]
    assert CALLED[name] in parts
    sent = to_line(said)
    assert ("Hm." in sent) == (name != "ollama")  # who takes no thoughts back
