"""The real SDKs against a server that misbehaves on cue."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from fault_server import ANSWER, FaultServer, refused_url

from lemming.capabilities.hosted_models.anthropic_provider import AnthropicProvider
from lemming.capabilities.hosted_models.ollama_provider import OllamaProvider
from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.capabilities.hosted_models.rate_headers import retry_after_s
from lemming.capabilities.program_models.program_provider import CliProvider
from lemming.kernel.base.errors import (
    AuthenticationFailed,
    ConfigError,
    ProviderError,
    RateLimited,
    RequestRejected,
    TimedOut,
    Unavailable,
    UnknownModel,
)
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.llm.retrying_provider import RetryingLLMProvider
from lemming.kernel.providers import LLMProvider, Request

Make = Callable[[str], LLMProvider]

BACKENDS: dict[str, Make] = {
    "openai chat": lambda url: OpenAIProvider(base_url=f"{url}/v1"),
    "openai responses": lambda url: OpenAIProvider(base_url=f"{url}/v1", api="responses"),
    "anthropic": lambda url: AnthropicProvider(base_url=url),
    "ollama": lambda url: OllamaProvider(host=url),
}
ERRORS: dict[str, type[ProviderError]] = {
    "400": RequestRejected,
    "401": AuthenticationFailed,
    "402": AuthenticationFailed,
    "403": AuthenticationFailed,
    "404": UnknownModel,
    "408": Unavailable,
    "413": RequestRejected,
    "422": RequestRejected,
    "429": RateLimited,
    "429-after-2": RateLimited,
    "500": Unavailable,
    "503": Unavailable,
    "529": Unavailable,
    "html-502": Unavailable,
    "reset": Unavailable,
    "cut": Unavailable,
    "bad-json": Unavailable,
    "html": Unavailable,
    "list": Unavailable,
    "empty-body": Unavailable,
}
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "maxLength": 40}},
    "required": ["text"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", autouse=True)
def _sdks_are_loaded(faults: FaultServer) -> None:
    """Importing an SDK takes a second or two, which is not to count against the short deadlines here."""
    for make in BACKENDS.values():
        make(faults.url("ok")).complete(Request(model_name="m", messages=[{"role": "user", "content": "hi"}]))


@pytest.fixture(params=list(BACKENDS))
def make(request: pytest.FixtureRequest) -> Make:
    """A backend for a server's address."""
    return BACKENDS[request.param]


def test_an_answer_comes_with_its_usage(make: Make, faults: FaultServer, request_: Request) -> None:
    reply = call_provider(make(faults.url("ok")), request_)
    assert (reply.text, reply.finish, reply.model) == (ANSWER, "stop", "served")
    assert (reply.input_tokens, reply.output_tokens) == (11, 7)
    assert reply.cached_tokens == (None if make is BACKENDS["ollama"] else 3)


def test_an_answer_without_usage_has_unknown_counts(make: Make, faults: FaultServer, request_: Request) -> None:
    reply = call_provider(make(faults.url("no-usage")), request_)
    assert (reply.text, reply.input_tokens, reply.output_tokens) == (ANSWER, None, None)


def test_an_empty_answer_is_a_reply_for_it_was_paid_for(make: Make, faults: FaultServer, request_: Request) -> None:
    reply = call_provider(make(faults.url("no-content")), request_)
    assert (reply.text, reply.finish, reply.output_tokens) == ("", "stop", 7)


def test_a_cut_answer_says_so(make: Make, faults: FaultServer, request_: Request) -> None:
    reply = call_provider(make(faults.url("truncated")), request_)
    assert (reply.text, reply.finish) == (ANSWER[:30], "length")


@pytest.mark.parametrize("name", ["openai chat", "openai responses", "anthropic"])
def test_a_refusal_says_so(name: str, faults: FaultServer, request_: Request) -> None:
    assert call_provider(BACKENDS[name](faults.url("refusal")), request_).finish == "refusal"


@pytest.mark.sample(3)
@pytest.mark.parametrize("scenario", ERRORS)
def test_every_fault_has_its_error(make: Make, scenario: str, faults: FaultServer, request_: Request) -> None:
    with pytest.raises(ProviderError) as caught:
        call_provider(make(faults.url(scenario)), request_)
    assert type(caught.value) is ERRORS[scenario]
    assert len(caught.value.message) <= 400
    assert caught.value.__suppress_context__


def test_a_refused_connection_is_unavailable(make: Make, request_: Request) -> None:
    url = refused_url()
    address = url.removeprefix("http://")
    with pytest.raises(Unavailable, match=f"connection to {address} failed"):
        call_provider(make(url.replace("//", "//me:hunter2@")), request_)


@pytest.mark.parametrize("scenario", ["hang", "drip"])
def test_the_deadline_holds_for_the_whole_call(
    make: Make, scenario: str, faults: FaultServer, request_: Request
) -> None:
    with pytest.raises(TimedOut, match=r"within 0\.2 s"):
        call_provider(make(faults.url(scenario)), request_._replace(deadline_s=0.2))


def test_the_sdks_do_not_retry_by_themselves(make: Make, faults: FaultServer, request_: Request) -> None:
    before = len(faults.received)
    with pytest.raises(Unavailable):
        call_provider(make(faults.url("500-twice")), request_)
    assert len(faults.received) == before + 1


@pytest.mark.parametrize("name", ["openai chat", "openai responses", "anthropic"])
def test_a_429_carries_the_wait_the_server_asks_for(name: str, faults: FaultServer, request_: Request) -> None:
    with pytest.raises(RateLimited) as caught:
        call_provider(BACKENDS[name](faults.url("429-after-2")), request_)
    assert caught.value.retry_after_s == 2.0


@pytest.mark.parametrize("name", ["openai chat", "openai responses"])
def test_a_429_for_want_of_money_is_not_retried(name: str, faults: FaultServer, request_: Request) -> None:
    with pytest.raises(AuthenticationFailed):
        call_provider(BACKENDS[name](faults.url("429-quota")), request_)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Fri, 01 Jan 2027 00:00:30 GMT", "date": "Fri, 01 Jan 2027 00:00:00 GMT"}, 30.0),
        ({"retry-after": "Fri, 01 Jan 2027 00:00:00 GMT", "date": "Fri, 01 Jan 2027 00:00:30 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-1"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_an_error_text_holds_no_key_and_no_whole_body(
    make: Make, faults: FaultServer, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "correct-horse-battery-staple"
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.setenv(name, secret)
    for scenario in ("401", "html-502"):
        with pytest.raises(ProviderError) as caught:
            call_provider(make(faults.url(scenario)), request_)
        assert secret not in str(caught.value)
        assert "sorry " * 50 not in str(caught.value)


@pytest.mark.parametrize(
    ("make_default", "variable"), [(OpenAIProvider, "OPENAI_API_KEY"), (AnthropicProvider, "ANTHROPIC_API_KEY")]
)
def test_a_missing_key_names_the_environment_variable(
    make_default: Callable[[], LLMProvider], variable: str, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(AuthenticationFailed) as caught:
        call_provider(make_default(), request_)
    assert variable in caught.value.message
    assert variable in caught.value.hint


def test_an_account_without_money_is_not_told_to_check_its_key(faults: FaultServer, request_: Request) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        call_provider(OpenAIProvider(base_url=faults.url("429-quota")), request_)
    assert caught.value.hint == "check the balance and the limits of the account"


def test_a_key_variable_that_was_named_must_be_set(faults: FaultServer, request_: Request) -> None:
    provider = OpenAIProvider(base_url=faults.url("ok"), api_key_env="ORG_MODEL_KEY")
    with pytest.raises(AuthenticationFailed, match="ORG_MODEL_KEY"):
        call_provider(provider, request_)


def test_the_key_is_read_at_every_call(faults: FaultServer, request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    for make in (
        lambda: OpenAIProvider(base_url=faults.url("ok"), api_key_env="ORG_MODEL_KEY"),
        lambda: AnthropicProvider(base_url=faults.url("ok"), api_key_env="ORG_MODEL_KEY"),
    ):
        provider = make()
        for key in ("first-key", "second-key"):
            monkeypatch.setenv("ORG_MODEL_KEY", key)
            call_provider(provider, request_)
            headers = faults.received[-1].headers
            assert key in (headers.get("authorization", "") + headers.get("x-api-key", ""))


@pytest.mark.parametrize(
    "provider",
    [
        lambda url: OpenAIProvider(base_url=f"{url}/v1"),
        lambda url: OpenAIProvider(base_url=f"{url}/v1", api="responses"),
        lambda url: AnthropicProvider(base_url=url),
    ],
)
def test_a_key_goes_to_no_other_server_unless_it_was_named(
    provider: Make, faults: FaultServer, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-everybody")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-for-everybody")
    call_provider(provider(faults.url("ok")), request_)
    assert "not-for-everybody" not in str(faults.received[-1])
    with pytest.raises(AuthenticationFailed) as caught:
        call_provider(provider(faults.url("401")), request_)
    assert "options.api_key_env" in caught.value.hint


@pytest.mark.parametrize(
    ("message", "code", "hint"),
    [
        ("This model's maximum context length is 8192 tokens.", "context_length_exceeded", "too long"),
        ("This model's maximum context length is 4096 tokens. However, you requested 5000.", "", "too long"),
        ("prompt is too long: 210000 tokens > 200000 maximum", "", "too long"),
        ("the request exceeds the available context size, try increasing it", "", "too long"),
        ("something", "exceed_context_size_error", "too long"),
        ("Unknown parameter: 'context_management'", "", "options.extra included"),
        ("missing context: no user in this contextual call", "", "options.extra included"),
        ("'response_format' of type 'json_schema' is not supported", "", "JSON schema"),
        ("output_config.format: unexpected field", "", "JSON schema"),
    ],
)
def test_a_refusal_gives_the_hint_that_fits(message: str, code: str, hint: str) -> None:
    body = {"error": {"message": message, "type": code or "invalid_request_error", "code": None}}
    for provider in (OpenAIProvider(base_url="http://box"), AnthropicProvider(base_url="http://box")):
        error = provider._status_error("m", 400, body)
        assert hint in error.hint
        if hint == "JSON schema":
            assert ("options.json" if provider.name == "openai" else "output_config") in error.hint


def test_further_keywords_of_a_call_go_to_the_server(make: Make, faults: FaultServer, request_: Request) -> None:
    assert make(faults.url("ok")).call("m", request_.messages, 0.2, top_p=0.5, seed=3) == ANSWER
    body = faults.received[-1].body
    assert (body.get("options") or body)["top_p"] == 0.5
    assert RetryingLLMProvider(make(faults.url("ok"))).call("m", request_.messages, None, top_k=7) == ANSWER
    body = faults.received[-1].body
    assert (body.get("options") or body)["top_k"] == 7


def test_a_keyword_that_a_backend_has_no_place_for_is_named(request_: Request) -> None:
    with pytest.raises(TypeError, match=r"CliProvider.call\(\) does not take 'top_p'; it takes: .*max_output"):
        CliProvider(command=["true"]).call("m", request_.messages, 0.2, top_p=0.5)


def test_an_unknown_ollama_model_says_how_to_get_it(faults: FaultServer, request_: Request) -> None:
    with pytest.raises(UnknownModel) as caught:
        call_provider(OllamaProvider(host=faults.url("404")), request_)
    assert caught.value.hint == "ollama pull m"


def test_an_address_in_ollama_host_that_is_none_is_named_whoever_is_asked(faults: FaultServer) -> None:
    code = f"""
from lemming.capabilities.hosted_models.ollama_provider import OllamaProvider
from lemming.kernel.llm.model_call import call_provider
from lemming.providers import Request

messages = [{{"role": "user", "content": "hello"}}]
call_provider(OllamaProvider(host="{faults.url("ok")}"), Request(model_name="m", messages=messages, deadline_s=300))
"""
    environment = {**os.environ, "OLLAMA_HOST": "box:port"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "RequestRejected: OLLAMA_HOST: expected the address of a server" in ran.stderr


def test_ollama_is_asked_where_its_line_says_with_its_sdk_and_a_password_apart(
    faults: FaultServer, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", faults.url("404"))
    with pytest.raises(UnknownModel):
        call_provider(OllamaProvider(), request_)
    call_provider(OllamaProvider(host=faults.url("ok").replace("127.0.0.1", "me:p%40ss@127.0.0.1")), request_)
    asked = faults.received[-1]
    assert asked.headers["user-agent"].startswith("ollama-python")
    assert asked.headers["authorization"] == f"Basic {base64.b64encode(b'me:p@ss').decode()}"
    assert asked.path == "/ok/api/chat"


def test_an_error_that_is_no_json_object_says_its_status_and_how_long_to_wait(
    make: Make, faults: FaultServer, request_: Request
) -> None:
    with pytest.raises(Unavailable, match="HTTP 503") as caught:
        call_provider(make(faults.url("list-503")), request_)
    assert caught.value.retry_after_s == 2.0


def test_an_address_without_a_scheme_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="must start with http"):
        OpenAIProvider(base_url="localhost:8000/v1")


# --- what is sent --------------------------------------------------------------------------------


def sent_by(provider: LLMProvider, faults: FaultServer, request: Request) -> dict[str, object]:
    """Ask, and return the body that reached the server."""
    call_provider(provider, request)
    return faults.received[-1].body


def test_the_temperature_of_the_line_is_sent_else_zero_to_a_local_server_and_none_to_a_hosted_one(
    make: Make, faults: FaultServer, request_: Request
) -> None:
    provider = make(faults.url("ok"))
    sent = json.dumps(sent_by(provider, faults, request_))
    assert ('"temperature": 0.0' in sent) is ("temperature" in sent) is isinstance(provider, OllamaProvider)
    warm = request_._replace(temperature=0.25)
    assert '"temperature": 0.25' in json.dumps(sent_by(provider, faults, warm))


def test_the_schema_is_sent_in_each_api_s_own_form(make: Make, faults: FaultServer, request_: Request) -> None:
    body = sent_by(make(faults.url("ok")), faults, request_._replace(schema=SCHEMA))
    asked = body.get("response_format") or body.get("text") or body.get("output_config") or body.get("format")
    assert '"additionalProperties": false' in json.dumps(asked)
    assert make("http://x").takes_schema


def test_the_system_message_reaches_the_model(make: Make, faults: FaultServer, request_: Request) -> None:
    body = sent_by(make(faults.url("ok")), faults, request_)
    assert "Be brief." in json.dumps(body)


@pytest.mark.parametrize("name", ["openai chat", "ollama"])
def test_the_seed_is_sent_where_it_is_known(name: str, faults: FaultServer, request_: Request) -> None:
    body = sent_by(BACKENDS[name](faults.url("ok")), faults, request_._replace(seed=77))
    assert '"seed": 77' in json.dumps(body)


def test_json_mode_for_servers_without_structured_output(faults: FaultServer, request_: Request) -> None:
    asked = request_._replace(schema=SCHEMA)
    provider = OpenAIProvider(base_url=faults.url("ok"), json="object")
    assert not provider.takes_schema
    assert sent_by(provider, faults, asked)["response_format"] == {"type": "json_object"}
    assert "response_format" not in sent_by(OpenAIProvider(base_url=faults.url("ok"), json="text"), faults, asked)


def test_extra_fields_are_added_and_null_takes_a_field_out(faults: FaultServer, request_: Request) -> None:
    extra = {"reasoning_effort": "low", "seed": None, "top_p": 0.5}
    body = sent_by(OpenAIProvider(base_url=faults.url("ok"), extra=extra), faults, request_)
    assert (body["reasoning_effort"], body["top_p"]) == ("low", 0.5)
    assert "seed" not in body
    body = sent_by(AnthropicProvider(base_url=faults.url("ok"), extra={"top_k": 3}), faults, request_)
    assert body["top_k"] == 3


def test_ollama_gets_its_options(faults: FaultServer, request_: Request) -> None:
    provider = OllamaProvider(host=faults.url("ok"), num_ctx=8192, keep_alive="10m", extra={"top_k": 3})
    body = sent_by(provider, faults, request_)
    assert body["options"].items() > {"num_predict": 2048, "seed": 0, "num_ctx": 8192, "top_k": 3}.items()
    assert body["keep_alive"] == "10m"
