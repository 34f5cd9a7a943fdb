"""`lemming prompt`: all that a call sends, and an estimate of its tokens by part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asked import ask
from counting_server import CountingServer
from terminal import Lemming

from lemming.engine import run_once
from lemming.kernel.llm.call_cost import estimate_tokens
from lemming.kernel.providers import LLMProvider, Message, register_provider
from lemming.libraries.memory_files import save_memory
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import make_org, resume, say

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


def test_a_prompt_is_shown_as_it_is_sent_with_a_table(base: Path, server: CountingServer, lemming: Lemming) -> None:
    org(base, server, tools="native")
    ran = lemming("prompt", "ada")
    shown = lemming("prompt", "ada", "--json").objects[0]
    assert server.received == []
    tool = next(line for line in ran.out.splitlines() if '"file_read"' in line)
    assert "max_completion_tokens: 2048" in ran.out
    table = ran.out.partition("--- tokens, estimated from bytes")[2]
    assert {"instructions", "tools", "all"} <= {line.split(" ")[0] for line in table.splitlines()}
    answer = {"message": {"content": json.dumps(say("done"))}}
    server.paths[CHAT] = {"choices": [answer], "usage": {"prompt_tokens": 1234}}
    lemming("trust", "--yes")
    run_once(base)
    assert server.asked(CHAT) == shown["body"]
    assert json.loads(tool) in shown["body"]["tools"]


def test_an_option_of_an_earlier_version_is_named(base: Path, server: CountingServer, lemming: Lemming) -> None:
    org(base, server)
    assert "tokens are always estimated" in lemming("prompt", "ada", "--no-count").err


def test_an_estimate_of_a_prompt_counts_its_tools(base: Path, server: CountingServer, lemming: Lemming) -> None:
    org(base, server, tools="native")
    natively = lemming("prompt", "ada", "--json").objects[0]
    tools = json.dumps(natively["body"]["tools"])
    assert natively["tokens"]["all"] > len(tools) / 5
    assert natively["tokens"]["parts"]["tools"] > len(tools) / 8


# --- the parts -------------------------------------------------------------------------------------


def parts_of(base: Path, lemming: Lemming, prompt: str, tools: str = "contract") -> dict[str, int]:
    """Return the parts of a prompt that has something of every kind."""
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
    """A backend that is never asked."""

    takes_tools = True

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **_: Any) -> str:
        """Not used."""
        raise NotImplementedError


@pytest.mark.parametrize("prompt", ["fit", "full"])
def test_each_part_of_a_prompt_is_counted(base: Path, lemming: Lemming, prompt: str) -> None:
    register_provider("overheard", Overheard)
    parts = parts_of(base, lemming, prompt)
    assert parts["instructions"] == estimate_tokens("Be kind and brief, ada.")
    assert parts["files"] >= estimate_tokens("seven words that stand in a file")
    assert parts["memory"] >= estimate_tokens("five words that are remembered")
    assert parts["request"] >= estimate_tokens("What is it that I have asked you for?")
    assert {"tools", "moment", "examples", "reply form"} <= parts.keys()
    assert "turn" not in parts


def test_tools_of_a_backend_are_a_part_too(base: Path, lemming: Lemming) -> None:
    register_provider("overheard", Overheard)
    assert parts_of(base, lemming, "fit", "native")["tools"] > 5


def test_the_boilerplate_is_what_the_form_and_the_template_add(
    base: Path, server: CountingServer, lemming: Lemming
) -> None:
    org(base, server)
    found = lemming("prompt", "ada", "--json").objects[0]["tokens"]
    own = found["parts"].get("reply form", 0) + found["parts"].get("frame", 0)
    assert own
    assert found["boilerplate"] == pytest.approx(own / found["all"], abs=0.001)
    assert f"boilerplate (reply form and frame): {100 * own / found['all']:.0f} %" in lemming("prompt", "ada").out
