"""`lemming prompt`: all that a call sends, and its tokens counted by the server them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from asked import ask
from counting_server import CountingServer, words
from terminal import Lemming

from lemming.engine import run_once
from lemming.kernel.messages import write_person_entry
from lemming.kernel.providers import LLMProvider, Message, Request, register_provider
from lemming.memory import save_memory
from lemming.testing import make_org, resume, say

COUNT = "/v1/chat/completions/input_tokens"
CHAT = "/v1/chat/completions"


@pytest.fixture
def server() -> Iterator[CountingServer]:
    server = CountingServer()
    server.start()
    yield server
    server.stop()


def org(base: Path, server: CountingServer, **line: Any) -> None:
    """Make an organisation whose ada asks this server."""
    entry = {"provider": "llamacpp", "model": "m", "options": {"base_url": f"{server.url}/v1"}, **line}
    may = {"read_outboxes": [], "tools": ["file_read"]}
    make_org(base, resume("ada", model={"key": "m"}, permissions=may), models={"m": entry})


def test_the_count_is_the_server_s_own_of_the_very_body_that_is_sent(
    base: Path, server: CountingServer, lemming: Lemming
) -> None:
    org(base, server)
    lemming("trust", "--yes")
    server.paths[COUNT] = {"input_tokens": 1234}
    server.paths["/tokenize"] = words
    shown = lemming("prompt", "ada", "--json").objects[0]
    assert shown["tokens"]["all"] == 1234
    assert (shown["tokens"]["counted_by"], shown["tokens"]["are_parts_exact"]) == ("server", True)
    assert sum(shown["tokens"]["parts"].values()) == 1234
    answer = {"message": {"content": json.dumps(say("done"))}}
    server.paths[CHAT] = {"choices": [answer], "usage": {"prompt_tokens": 1234}}
    run_once(base)
    assert server.asked(CHAT) == server.asked(COUNT) == shown["body"]


def test_a_prompt_is_shown_with_its_tools_and_fields_and_a_table(
    base: Path, server: CountingServer, lemming: Lemming
) -> None:
    org(base, server, tools="native")
    lemming("trust", "--yes")
    server.paths[COUNT] = {"input_tokens": 1234}
    ran = lemming("prompt", "ada")
    assert "1,234 tokens" in ran.err
    tool = next(line for line in ran.out.splitlines() if '"file_read"' in line)
    assert json.loads(tool) in server.asked(COUNT)["tools"]
    assert "max_completion_tokens: 2048" in ran.out
    table = ran.out.partition("--- tokens, counted by the server")[2]
    assert {"instructions", "tools", "all"} <= {line.split(" ")[0] for line in table.splitlines()}


def test_no_server_is_asked_where_nobody_wants_a_count(base: Path, server: CountingServer, lemming: Lemming) -> None:
    org(base, server)
    ran = lemming("prompt", "ada", "--no-count")
    assert server.received == []
    assert "about " in ran.err
    assert "--- tokens, estimated from bytes" in ran.out


def test_a_server_elsewhere_is_sent_no_prompt_before_somebody_has_agreed(
    base: Path, server: CountingServer, lemming: Lemming
) -> None:
    org(base, server, options={"base_url": "http://far.invalid/v1"})
    assert "not counted" not in lemming("prompt", "ada").err
    lemming("trust", "--yes")
    assert "not counted: connection to far.invalid:80 failed" in lemming("prompt", "ada").err


def test_a_server_that_is_down_is_named_and_the_tokens_are_estimated(
    base: Path, server: CountingServer, lemming: Lemming
) -> None:
    org(base, server)
    lemming("trust", "--yes")
    make_org(base, models={"m": {"provider": "llamacpp", "options": {"base_url": "http://127.0.0.1:9/v1"}}})
    ran = lemming("prompt", "ada")
    assert "not counted: connection to 127.0.0.1:9 failed" in ran.err
    assert "--- tokens, estimated" in ran.out


def test_parts_are_shares_of_the_whole_where_only_the_whole_is_counted(
    base: Path, server: CountingServer, lemming: Lemming
) -> None:
    org(base, server)
    lemming("trust", "--yes")
    server.paths[COUNT] = {"input_tokens": 5000}
    found = lemming("prompt", "ada", "--json").objects[0]["tokens"]
    assert found["are_parts_exact"] is False
    assert abs(sum(found["parts"].values()) - 5000) <= len(found["parts"])


def test_an_estimate_of_a_prompt_counts_its_tools(base: Path, server: CountingServer, lemming: Lemming) -> None:
    org(base, server, tools="native")
    natively = lemming("prompt", "ada", "--json", "--no-count").objects[0]
    tools = json.dumps(natively["body"]["tools"])
    assert natively["tokens"]["all"] > len(tools) / 5
    assert natively["tokens"]["parts"]["tools"] > len(tools) / 8


# --- the parts -------------------------------------------------------------------------------------


def parts_of(base: Path, lemming: Lemming, prompt: str, tools: str = "contract") -> dict[str, int]:
    """Return the parts of a prompt that has something of every kind, a word for a token."""
    line = {"provider": "overheard", "prompt": prompt, "tools": tools}
    context = [{"file": "shared/terms.txt", "label": "terms"}]
    may = {"read_outboxes": ["human"], "tools": ["file_list"], "file_access": {"allow_read": ["./shared"]}}
    ada = resume(
        "ada",
        model={"key": "m"},
        permissions=may,
        context=context,
        clock=True,
        instructions="Be kind and brief, ada.",
        examples=[{"input": "one two three", "output": "four"}],
    )
    human = resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]})
    make_org(base, ada, human, models={"m": line, "human": {"provider": "human"}})
    (base / "shared").mkdir(exist_ok=True)
    (base / "shared/terms.txt").write_text("seven words that stand in a file")
    save_memory(base, "ada", "plan", "five words that are remembered")
    write_person_entry(base, "human", tick=0, kind="message", payload={"text": "ten"}, tags=[], created_at="")
    ask(base, "ada", "What is it that I have asked you for?")
    lemming("trust", "--yes")
    found: dict[str, int] = lemming("prompt", "ada", "--json").objects[0]["tokens"]["parts"]
    return found


class Overheard(LLMProvider):
    """A backend that counts words."""

    takes_tools = True

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **_: Any) -> str:
        """Not used."""
        raise NotImplementedError

    def count_tokens(self, request: Request) -> int:
        """Count words, and two more for each message."""
        return sum(len(it["content"].split()) + 2 for it in request.messages)

    def count_texts(self, model_name: str, texts: Sequence[str]) -> list[int]:
        """Count words."""
        return [len(text.split()) for text in texts]


@pytest.mark.parametrize("prompt", ["fit", "full"])
def test_each_part_of_a_prompt_is_counted(base: Path, lemming: Lemming, prompt: str) -> None:
    register_provider("overheard", Overheard)
    parts = parts_of(base, lemming, prompt)
    assert parts["instructions"] == 5
    assert parts["tools"] >= 5
    assert 7 <= parts["files"] <= 14
    assert 5 <= parts["memory"] <= 16
    assert 9 <= parts["request"] <= 60
    assert 5 <= parts["moment"] <= 15
    assert parts["examples"] >= 4
    assert parts["reply form"] > 5
    assert parts["frame"] > 0
    assert "turn" not in parts


def test_tools_of_a_backend_are_a_part_too(base: Path, lemming: Lemming) -> None:
    register_provider("overheard", Overheard)
    assert parts_of(base, lemming, "fit", "native")["tools"] > 5


@pytest.mark.long
def test_the_boilerplate_is_what_the_form_and_the_template_add(
    base: Path, server: CountingServer, lemming: Lemming
) -> None:
    org(base, server)
    server.paths[COUNT] = {"input_tokens": 400}
    server.paths["/tokenize"] = words
    found = lemming("prompt", "ada", "--json").objects[0]["tokens"]
    own = found["parts"].get("reply form", 0) + found["parts"]["frame"]
    assert found["boilerplate"] == pytest.approx(own / 400, abs=0.001)
    assert f"boilerplate (reply form and frame): {100 * own / 400:.0f} %" in lemming("prompt", "ada").out
