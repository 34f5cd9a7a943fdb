"""The architecture guide, line by line: providers and logging.

JSON, tables and code are read from docs/architecture-guide.md, so that the two cannot drift apart.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guide import code, section

from lemming.engine import run_once
from lemming.kernel.logging_config import log_agent_action
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.providers import (
    AnthropicProvider,
    LLMProvider,
    OllamaProvider,
    OpenAIProvider,
    RetryingLLMProvider,
    register_provider,
)
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.logging_config import setup_logging
from lemming.testing import make_org, resume, say

# --- providers ---------------------------------------------------------------------------------


def test_the_provider_interface_is_the_printed_one() -> None:
    interface = code("Providers (`lemming/providers.py`)", "python")
    (printed,) = re.findall(r"def call\((.*?)\) -> (\w+)", interface)
    signature = inspect.signature(LLMProvider.call)
    assert ", ".join(str(p).split(":")[0] for p in signature.parameters.values()) == printed[0]
    assert (signature.return_annotation, printed[1]) == ("str", "str")
    assert inspect.isabstract(LLMProvider)


def test_the_listed_providers_are_there() -> None:
    listed = re.findall(r"^- `(\w+)`", section("Providers (`lemming/providers.py`)"), re.MULTILINE)
    found = [OpenAIProvider, AnthropicProvider, OllamaProvider, RetryingLLMProvider]
    assert [kind.__name__ for kind in found] == listed
    assert all(issubclass(kind, LLMProvider) for kind in found)


@pytest.fixture
def custom() -> Iterator[type[LLMProvider]]:
    """The guide's custom provider, registered as printed; its answer is a contract."""
    scope: dict[str, Any] = {"response_text": json.dumps(say("custom"))}
    exec(code("Custom LLM Provider", "python"), scope)
    yield scope["CustomProvider"]
    unregister("provider", "custom")


def test_a_custom_provider_as_printed_answers_for_an_agent(base: Path, custom: type[LLMProvider]) -> None:
    models = {"mine": {"provider": "custom", "model": "any"}}
    make_org(base, resume("planner", model={"key": "mine"}), models=models)
    assert run_once(base).turns[0].status == "done"
    assert read_outbox_entries(base, "planner")[0].payload == {"text": "custom"}


def test_a_provider_is_wrapped_for_retries(custom: type[LLMProvider]) -> None:
    wrapped = RetryingLLMProvider(custom())
    assert json.loads(wrapped.call("any", [], 0.2))["outbox_entries"][0]["payload"] == {"text": "custom"}


def test_register_provider_takes_a_class_only() -> None:
    with pytest.raises(Exception, match="must be a class derived from LLMProvider"):
        register_provider("custom", "CustomProvider")  # type: ignore[arg-type]


# --- logging -----------------------------------------------------------------------------------


def test_the_printed_logging_calls(base: Path) -> None:
    make_org(base, resume("planner"))
    scope = {
        "base_path": base,
        "agent_name": "planner",
        "tick": 7,
        "setup_logging": setup_logging,
        "log_agent_action": log_agent_action,
    }
    exec(code("Logging (`lemming/logging_config.py`)", "python"), scope)
    line = json.loads((base / "agents/planner/logs/activity.log").read_text())
    wanted = {"event": "agent_completed", "agent": "planner", "tick": 7, "duration_ms": 1234}
    assert wanted.items() <= line.items()


def test_the_logs_are_where_the_guide_says(base: Path) -> None:
    make_org(base, resume("planner"))
    run_once(base)
    listed = re.findall(r"^- `(\S+\.log)`", section("Logging (`lemming/logging_config.py`)"), re.MULTILINE)
    assert listed == ["logs/engine.log", "agents/<name>/logs/activity.log"]
    for place in listed:
        lines = (base / place.replace("<name>", "planner")).read_text().splitlines()
        assert all(isinstance(json.loads(line), dict) for line in lines)
    assert json.loads(lines[-1])["event"] == "agent_completed"
