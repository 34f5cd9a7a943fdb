"""From an entry of `config/models.json` to a provider."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lemming.kernel.base.errors import ConfigError, RequestRejected, UnknownModel
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.providers import (
    HumanProvider,
    LLMProvider,
    Message,
    Request,
    get_provider_class,
    make_provider,
    provider_names,
    register_provider,
)


class Custom(LLMProvider):
    """A provider as the architecture guide shows it, with options of its own."""

    def __init__(self, *, voice: str = "soft", base: Path | None = None) -> None:
        self.voice, self.base = voice, base

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        return f"{self.voice}: {messages[-1]['content']}"


register_provider("voiced", Custom)


def test_the_guides_import_lines_work() -> None:
    from lemming.kernel import providers

    for name in ("OpenAIProvider", "AnthropicProvider", "OllamaProvider", "RetryingLLMProvider"):
        assert issubclass(getattr(providers, name), LLMProvider)


def test_every_built_in_name_has_a_class() -> None:
    for name in provider_names():
        assert issubclass(get_provider_class(name), LLMProvider)


def test_a_registered_provider_is_made_with_its_options(request_: Request) -> None:
    assert call_provider(make_provider("voiced", {"voice": "loud"}), request_).text == "loud: Say hello."


def test_a_provider_that_asks_for_the_organisations_folder_gets_it(tmp_path: Path) -> None:
    provider = make_provider("voiced", {}, base=tmp_path)
    assert isinstance(provider, Custom)
    assert provider.base == tmp_path
    make_provider("openai", {}, base=tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "message", "hint"),
    [
        ("voiced", {"voic": "soft"}, 'option "voic" does not exist', 'did you mean "voice"?'),
        ("voiced", {"base": "/etc"}, 'option "base" does not exist', "options of voiced: voice"),
        ("openai", {"api_key": "sk-1234"}, "a key must not be in a file", "api_key_env"),
        ("openai", {"api": "assistants"}, "option \"api\": expected 'chat' or 'responses', got \"assistants\"", ""),
        ("ollama", {"num_ctx": "8k"}, 'option "num_ctx": expected a whole number, got "8k"', ""),
        ("cli", {"command": "claude -p"}, 'option "command": expected a list, got "claude -p"', ""),
        ("cli", {}, "argument: 'command'", "options of cli: command, env, cwd, effects"),
        ("human", {"x": 1}, 'option "x" does not exist', "options of human: none"),
    ],
)
def test_a_wrong_option_is_a_configuration_error(name: str, options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        make_provider(name, options)
    assert hint in caught.value.hint
    assert caught.value.where == "config/models.json"
    assert "sk-1234" not in str(caught.value)


def test_an_unknown_provider_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownModel) as caught:
        make_provider("opnai", {})
    assert caught.value.hint == 'did you mean "openai"?'


def test_only_a_class_of_providers_can_be_registered() -> None:
    with pytest.raises(ConfigError, match="must be a class"):
        register_provider("broken", str)  # type: ignore[arg-type]


def test_a_person_is_never_called(request_: Request) -> None:
    assert HumanProvider.is_person
    with pytest.raises(RequestRejected, match="lemming send"):
        call_provider(make_provider("human", {}), request_)
