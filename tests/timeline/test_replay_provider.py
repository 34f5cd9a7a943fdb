"""The replay provider: an organisation that runs on the answers of a recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.capabilities.scripted_models.journal_provider import ReplayProvider
from lemming.engine import recorded_report, run_once
from lemming.kernel.base import errors
from lemming.kernel.base.errors import ConfigError, RequestRejected
from lemming.kernel.files import fs
from lemming.kernel.providers import Request
from lemming.testing import FrozenClock, make_org, resume, say, tree


def run_from(recording: Path, base: Path, ticks: int) -> Path:
    """Run an organisation like the recorded one with the provider `replay`."""
    options = {"journals": str(recording / "logs/ticks")}
    models = {"scripted": {"provider": "replay", "options": options}}
    make_org(base, resume("ada"), resume("bob"), models=models)
    for _ in range(ticks):
        run_once(base, clock=FrozenClock())
    return base


def test_a_whole_organisation_runs_from_a_recording(base: Path, again: Path) -> None:
    script: list[dict[str, Any]] = [
        {"agent": "ada", "tick": 1, "step": 0, "reply": "no"},
        {"agent": "ada", "tick": 2, "error": "Unavailable"},
        {"reply": say("hello"), "input_tokens": 5, "output_tokens": 3},
    ]
    scripted = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "attempts": 1}
    make_org(base, resume("ada"), resume("bob"), script=script, models={"scripted": scripted})
    for _ in range(3):
        run_once(base, clock=FrozenClock())
    run_from(base, again, 3)
    of_agents = {path: raw for path, raw in tree(base).items() if path.startswith("agents/")}
    assert {path: raw for path, raw in tree(again).items() if path.startswith("agents/")} == of_agents


def test_recorded_failures_in_a_row_open_no_circuit(base: Path, again: Path) -> None:
    script: list[dict[str, Any]] = [{"tick": tick, "error": "Unavailable"} for tick in range(1, 4)]
    scripted = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "attempts": 1}
    models = {"scripted": scripted}
    make_org(base, resume("ada"), resume("bob"), script=[*script, {"reply": say("up")}], models=models)
    for _ in range(4):
        run_once(base, clock=FrozenClock())
        fs.remove(base, ".lemming/circuits.json")
    run_from(base, again, 4)
    assert [turn.status for turn in recorded_report(again, 4).turns] == ["done", "done"]  # type: ignore[union-attr]


def request(**place: Any) -> Request:
    return Request(model_name="m", messages=[], **place)


def test_the_replay_provider_names_the_answer_that_is_missing(base: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    provider = ReplayProvider(journals=str(base / "logs/ticks"))
    assert json.loads(provider.complete(request(agent="ada", tick=1)).text) == say("hello")
    with pytest.raises(RequestRejected, match="agent ada, tick 7, call 2"):
        provider.complete(request(agent="ada", tick=7, step=2))


@pytest.mark.parametrize("name", ["Unavailable", "TimedOut", "AuthenticationFailed"])
def test_a_recorded_failure_is_raised_again_as_what_it_was(base: Path, name: str) -> None:
    scripted = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "attempts": 1}
    make_org(base, resume("ada"), models={"scripted": scripted}, script=[{"error": name}])
    run_once(base)
    with pytest.raises(getattr(errors, name), match="the script says so") as caught:
        ReplayProvider(journals="logs/ticks", base=base).complete(request(agent="ada", tick=1))
    assert not caught.value.is_retryable


def test_a_path_that_is_no_folder_of_journals_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="logs/ticks"):
        ReplayProvider(journals="/tmp/recording")
