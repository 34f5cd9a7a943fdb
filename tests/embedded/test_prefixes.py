"""How prompts are read in parts: the same split for the same request, whatever was asked before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from lemming.capabilities.embedded_models.llama_provider import LocalProvider, PrefixCache
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.org.model_entries import LOCAL_MODEL
from lemming.kernel.providers import Request, make_provider

RULES = "Name the customer, say sorry once, say what happens next, and promise nothing. " * 3
CLERK = {"role": "system", "content": f"You are a clerk. {RULES}"}
SMITH = {"role": "system", "content": f"You are a smith. {RULES}"}
BODY: dict[str, Any] = {
    "max_tokens": 8,
    "temperature": 0.0,
    "seed": 1,
    "stream": True,
    "stream_options": {"include_usage": True},
    "return_progress": True,
}


class Reader:
    """Reads prompts as llama.cpp does: it goes on after what a prompt shares with the last one.

    `batches`: for each letter of the context, in which batch it was read, with the letters of that batch.
    """

    def __init__(self, *, takes_a_system_message_alone: bool = True) -> None:
        self.context, self.batches, self.read = "", list[str](), 0
        self._takes_one = takes_a_system_message_alone
        self.last: list[str] = []

    def send(self, body: dict[str, Any], hear: Any) -> None:
        """Read the prompt of a request and tell how much of it was known."""
        if len(body["messages"]) == 1 and not self._takes_one:
            hear({"error": {"message": "this template needs a question"}})
            return
        prompt = "".join(f"<{it['role']}>{it['content']}" for it in body["messages"]) + "<assistant>"
        shared = 0
        while body["cache_prompt"] and self.context[shared : shared + 1] == prompt[shared]:
            shared += 1
            if shared == len(prompt):
                shared -= 1
                break
        if hear([{"prompt_progress": {"total": len(prompt), "cache": shared}}]):
            return
        self.batches = [*self.batches[:shared], *[prompt[shared:]] * (len(prompt) - shared)]
        self.context, self.read = prompt, self.read + len(prompt) - shared
        self.last = self.batches
        hear([{"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}]}])


def question(text: str, *first: dict[str, str]) -> dict[str, Any]:
    """Return a request's body with a question after what stands first."""
    return {**BODY, "messages": [*first, {"role": "user", "content": text}]}


def split_of(body: dict[str, Any]) -> list[str]:
    """Return how the prompt is split where nothing was asked before."""
    reader = Reader()
    PrefixCache(reader.send).ask(body, lambda _: False)
    return reader.last


def test_a_prompt_is_split_the_same_way_whatever_was_asked_before() -> None:
    asked = [
        question(text, first)
        for text in ("How are you?", "How are they?", "How are you?", "", "<assistant>", "How are you?")
        for first in (CLERK, SMITH, CLERK)
    ]
    reader = Reader()
    cache = PrefixCache(reader.send)
    for body in [*asked, *reversed(asked)]:
        cache.ask(body, lambda _: False)
        assert reader.last == split_of(body)


def test_the_second_question_to_an_agent_reads_its_instructions_no_more() -> None:
    reader = Reader()
    cache = PrefixCache(reader.send)
    assert cache.ask(question("one?", CLERK), lambda _: False) == 0
    before = reader.read
    assert cache.ask(question("another?", CLERK), lambda _: False) > len(CLERK["content"])
    assert reader.read - before < 50


def test_a_prefix_that_the_server_has_lost_is_read_from_the_start() -> None:
    reader = Reader()
    cache = PrefixCache(reader.send)
    cache.ask(question("one?", CLERK), lambda _: False)
    cache.ask(question("one?", SMITH), lambda _: False)  # shares its beginning, and takes its place
    assert cache.ask(question("two?", CLERK), lambda _: False) == 0
    assert reader.last == split_of(question("two?", CLERK))


@pytest.mark.parametrize(
    "body", [question("a long question " * 40), question("?", {"role": "system", "content": "Be brief."})]
)
def test_without_long_instructions_a_prompt_is_read_in_one_part(body: dict[str, Any]) -> None:
    assert len(set(split_of(body))) == 1


def test_a_template_that_wants_a_question_gets_the_prompt_in_one_part() -> None:
    reader = Reader(takes_a_system_message_alone=False)
    assert PrefixCache(reader.send).ask(question("?", CLERK), lambda _: False) == 0
    assert len(set(reader.last)) == 1


def test_what_is_stopped_while_it_is_read_is_not_taken_for_read() -> None:
    reader = Reader()
    cache = PrefixCache(reader.send)
    cache.ask(question("one?", CLERK), lambda _: True)
    cache.ask(question("two?", CLERK), lambda _: False)
    assert reader.last == split_of(question("two?", CLERK))


def test_a_number_of_threads_is_one_or_more(base: Path) -> None:
    with pytest.raises(ConfigError, match="must be 1 or more, got 0"):
        make_provider("local", {"threads": 0})
    make_provider("local", {"threads": 10_000})  # one fewer than there are processors


@pytest.mark.long
@pytest.mark.model
def test_answers_are_the_same_bytes_in_any_order_and_in_a_process_of_their_own(weights: Path) -> None:
    questions = [
        Request(LOCAL_MODEL, question(text, first)["messages"], max_output_tokens=6)
        for text, first in (("Ada was charged twice.", CLERK), ("Ada waits.", SMITH), ("Ada waits.", CLERK))
    ]
    provider = LocalProvider()
    replies = [call_provider(provider, request) for request in questions]
    again = [call_provider(provider, request) for request in reversed(questions)][::-1]
    assert [reply.text for reply in again] == [reply.text for reply in replies]
    assert all(reply.cached_tokens for reply in again)
    code = f"""
import json
from lemming.capabilities.embedded_models.llama_provider import LocalProvider
from lemming.providers import Request
messages = json.loads({json.dumps(json.dumps(questions[-1].messages))})
print(json.dumps(LocalProvider().complete(Request({LOCAL_MODEL!r}, messages, max_output_tokens=6)).text))
"""
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert json.loads(alone.stdout) == replies[-1].text
