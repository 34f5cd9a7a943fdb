"""Small models that act, for real: under a grammar, in the prompt form "tools".

The organisation of three on Qwen2.5-Coder 0.5B takes minutes: `make crash` runs it, where its weights are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.capabilities.embedded.local import LocalProvider
from lemming.capabilities.embedded.weights import find_weights
from lemming.engine import run_once
from lemming.kernel.base.contract import parse_reply
from lemming.kernel.base.errors import UnknownModel
from lemming.kernel.org.models import LOCAL_MODEL
from lemming.kernel.org.resume import Agent
from lemming.kernel.providers import Request
from lemming.kernel.turn.actions import action_schema, actions_of, as_reply, tools_opening
from lemming.testing import make_org, resume
from lemming.timeline.replay.replay import replay


@pytest.mark.model
def test_a_grammar_holds_the_embedded_model_to_one_action() -> None:
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    try:
        find_weights(LOCAL_MODEL)
    except UnknownModel as error:
        pytest.skip(str(error))
    agent = Agent(name="ada", instructions="Say hello.")
    messages = [*tools_opening(agent, ()), {"role": "user", "content": "Say hello to Bob."}]
    schema = action_schema(actions_of(agent, ()))
    request = Request(LOCAL_MODEL, messages, schema=schema, max_output_tokens=120)
    reply = LocalProvider(n_ctx=1024).complete(request)
    assert as_reply(reply.text, ["message"]) != reply.text or reply.finish == "length"
    parse_reply(as_reply(reply.text, ["message"]), kinds=["message"])


@pytest.mark.model
@pytest.mark.long
def test_three_agents_on_the_smallest_qwen_read_compute_and_write(base: Path, qwen: dict[str, Any]) -> None:
    grants = {"allow_read": ["./shared"], "allow_write": ["./shared"]}

    def worker(name: str, tools: list[str], read: list[str], task: str) -> dict[str, Any]:
        may = {"tools": tools, "read_outboxes": read, "file_access": grants}
        blocks = {"permissions": may, "instructions": task, "turn": {"max_steps": 4}}
        return resume(name, model={"key": "qwen"}, **blocks)

    read = "Read the file shared/n.txt, then send a message with the number in it."
    count = "Take the number that reader sends, double it, and send the result."
    write = "Write the number that counter sends into the file shared/out.txt."
    org = make_org(
        base,
        worker("reader", ["file_read"], [], read),
        worker("counter", [], ["reader"], count),
        worker("writer", ["file_write"], ["counter"], write),
        models={"qwen": {**qwen, "prompt": "tools"}},
    )
    (base / "shared").mkdir(exist_ok=True)
    (base / "shared/n.txt").write_text("The number is 21.\n")
    reports = [run_once(org) for _ in range(3)]
    tools = [tool for report in reports for turn in report.turns for tool in turn.tools]
    assert {"file_read", "file_write"} <= {tool["tool"] for tool in tools if tool["success"]}
    assert (base / "shared/out.txt").read_text().strip()
    assert [replayed.tick for replayed in replay(org, [1, 2, 3])] == [1, 2, 3]
