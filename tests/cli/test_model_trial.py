"""`lemming models test`: which way of calling tools works, what a server never takes, and the line for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback import one_certificate
from model_server import ModelServer
from terminal import Lemming

from lemming.kernel.turn.forms.form_choice import ModelFeatures
from lemming.operations.trial_forms import TRIAL_PROMPTS, build_prompt
from lemming.testing import journal_lines, make_org, resume

KINDS = ["answer", "form", "tool", "send"]
ACTIONS, NATIVE, PLAIN = "actions under a schema", "native tools, no schema", "neither of the two"


@pytest.fixture(scope="module", autouse=True)
def _one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_certificate(tmp_path_factory.mktemp("certificates")):
        yield


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A model that does all it is asked for."""
    server = ModelServer()
    server.start()
    yield server
    server.stop()


class Trial:
    """`lemming models test` on an organisation with one line."""

    def __init__(self, base: Path, lemming: Lemming, server: ModelServer) -> None:
        self.base, self._lemming, self._server = base, lemming, server

    def line(self, provider: str, **further: Any) -> None:
        options = {"base_url": f"{self._server.url}/v1", **further.pop("options", {})}
        line = {"provider": provider, "model": "m", "options": options, **further}
        make_org(self.base, resume("ada"), models={"real": line})

    def run(self, *words: str) -> Any:
        return self._lemming("models", "test", "real", *words)

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("--json").out)
        return found

    def verdicts(self) -> dict[str, list[str]]:
        return {way["way"]: [way["verdicts"][kind] for kind in KINDS] for way in self.json()["ways"]}


@pytest.fixture
def trial(base: Path, lemming: Lemming, server: ModelServer) -> Trial:
    """A trial of a line."""
    return Trial(base, lemming, server)


def test_a_model_that_does_everything_keeps_its_line(trial: Trial) -> None:
    trial.line("llamacpp")
    ran = trial.run("--write")
    assert ran.status == 0
    assert "works as it is" in ran.out
    rows = [line for line in ran.out.splitlines() if line.startswith((ACTIONS, NATIVE, PLAIN))]
    assert [row.split("  ")[-1].split()[-1] for row in rows] == ["line", "yes", "yes"]
    assert "tools" not in json.loads((trial.base / "config/models.json").read_text())["real"]


def test_the_same_question_is_asked_once_whatever_ways_have_it(trial: Trial, server: ModelServer) -> None:
    trial.line("llamacpp", usd_per_million_input_tokens=1, usd_per_million_output_tokens=1)
    found = trial.json()
    assert len(server.received) == 9  # answer once, form twice, tool and send three times each
    assert (found["input_tokens"], found["output_tokens"]) == (90, 18)
    assert found["cost_usd"] == pytest.approx(108e-6)


def test_a_server_that_refuses_tools_never_can_and_one_that_takes_them_did_not(
    trial: Trial, server: ModelServer
) -> None:
    trial.line("openai")
    server.refuses = ("tools",)
    assert trial.verdicts()[NATIVE] == ["yes", "yes", "never", "-"]
    assert "does not support tools" in trial.run().out
    server.refuses, server.calls = (), "never"
    assert trial.verdicts()[NATIVE] == ["yes", "yes", "other", "other"]


def test_a_call_that_is_written_as_text_is_no_native_call(trial: Trial, server: ModelServer) -> None:
    trial.line("openai")
    server.calls = "as text"
    assert trial.verdicts()[NATIVE] == ["yes", "yes", "other", "other"]
    assert "the call is written as text" in trial.run().out


def test_the_line_that_works_is_written_and_nothing_else(trial: Trial, server: ModelServer) -> None:
    trial.line("openai", max_output_tokens=99)
    server.refuses = ("tools",)
    assert trial.run().status == 1
    before = json.loads((trial.base / "config/models.json").read_text())
    ran = trial.run("--write")
    assert ran.status == 0
    after = json.loads((trial.base / "config/models.json").read_text())
    assert after == {**before, "real": {**before["real"], "tools": "contract"}}
    assert trial.run().status == 0


def test_a_server_without_schemas_gets_native_tools(trial: Trial, server: ModelServer) -> None:
    trial.line("llamacpp")
    server.refuses, server.is_able = ("response_format",), False
    assert trial.verdicts()[ACTIONS] == ["yes", "never", "-", "-"]
    assert trial.json()["line"] == {}  # a form can be had in no way, so no way does all


def test_a_server_without_schemas_and_tools_is_asked_by_samples(trial: Trial, server: ModelServer) -> None:
    trial.line("vllm")
    server.refuses = ("response_format", "tools")
    found = trial.json()
    assert found["line"]["tools"] == "contract"
    assert found["line"]["options"]["json"] == "text"
    assert found["line"]["options"]["base_url"] == f"{server.url}/v1"


def test_a_line_that_sends_a_schema_of_its_own_can_never_have_calls(trial: Trial, server: ModelServer) -> None:
    trial.line("openai", options={"extra": {"response_format": {"type": "json_object"}}})
    assert trial.verdicts()[NATIVE][0] == "never"
    assert all("tools" not in body for body in server.received)


def test_a_model_that_writes_prose_is_of_no_use(trial: Trial, server: ModelServer) -> None:
    trial.line("openai", options={"json": "text"}, tools="contract")
    server.refuses, server.is_able = ("response_format", "tools"), False
    ran = trial.run("--write")
    assert ran.status == 1
    assert "none of these ways works" in ran.out


def test_a_trial_asks_what_a_turn_asks(server: ModelServer, lemming: Lemming, base: Path) -> None:
    line = {"provider": "llamacpp", "model": "m", "options": {"base_url": f"{server.url}/v1"}}
    tester = resume("tester", instructions=TRIAL_PROMPTS[0].instructions, model={"key": "real"})
    models = {"real": line, "human": {"provider": "human"}}
    make_org(base, tester, resume("human", model={"key": "human"}), models=models)
    assert lemming("ask", "tester", TRIAL_PROMPTS[0].text).out == "Paris.\n"
    asked = build_prompt(TRIAL_PROMPTS[0], ModelFeatures(True, False, "fit"), 2048)
    (started,) = [it for it in journal_lines(base, 1) if it["type"] == "turn_started"]
    assert started["form"] == json.loads(json.dumps(asked.choice.form.to_json()))
    assert server.received[-1]["messages"] == asked.messages
