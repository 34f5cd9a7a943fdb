"""`lemming models test`: what a model does with four first turns, and what its server refuses."""

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

    def verdicts(self) -> list[str]:
        return [self.json()["verdicts"][kind] for kind in KINDS]


@pytest.fixture
def trial(base: Path, lemming: Lemming, server: ModelServer) -> Trial:
    """A trial of a line."""
    return Trial(base, lemming, server)


def test_a_model_that_does_everything_is_of_use(trial: Trial, server: ModelServer) -> None:
    trial.line("llamacpp", usd_per_million_input_tokens=1, usd_per_million_output_tokens=1)
    ran = trial.run()
    assert ran.status == 0
    assert [line.split() for line in ran.out.splitlines()][1:5] == [[kind, "yes"] for kind in KINDS]
    server.received.clear()
    found = trial.json()
    assert len(server.received) == 4
    assert (found["input_tokens"], found["output_tokens"], found["is_of_use"]) == (40, 8, True)
    assert found["cost_usd"] == pytest.approx(48e-6)


def test_a_server_that_refuses_tools_is_named_and_a_model_that_calls_none_did_not(
    trial: Trial, server: ModelServer
) -> None:
    trial.line("openai")
    server.refuses = ("tools",)
    refused = trial.json()
    assert (refused["calls_tools"], refused["left_out"]) == (False, ["tools"])
    server.refuses, server.calls = (), "never"
    assert trial.verdicts() == ["yes", "yes", "other", "other"]
    assert '"tools": "contract" in its line' in trial.run().out


def test_a_call_that_is_written_as_text_is_no_native_call(trial: Trial, server: ModelServer) -> None:
    trial.line("openai")
    server.calls = "as text"
    assert trial.verdicts() == ["yes", "yes", "other", "other"]
    ran = trial.run()
    assert ran.status == 1
    assert "the call is written as text" in ran.out
    trial.line("openai", tools="contract")
    assert trial.run().status == 0


def test_a_server_without_schemas_is_named(trial: Trial, server: ModelServer) -> None:
    trial.line("vllm")
    server.refuses = ("response_format",)
    found = trial.json()
    assert (found["takes_schema"], found["left_out"]) == (False, ["json_object", "json_schema"])


def test_a_model_that_writes_prose_is_of_no_use(trial: Trial, server: ModelServer) -> None:
    trial.line("openai", options={"json": "text"}, tools="contract")
    server.refuses, server.is_able = ("response_format", "tools"), False
    ran = trial.run()
    assert ran.status == 1
    assert "invalid" in ran.out


def test_the_option_of_an_earlier_version_is_named(trial: Trial) -> None:
    trial.line("llamacpp")
    assert "docs/models.md" in trial.run("--write").err


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
