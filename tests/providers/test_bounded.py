"""What is taken in from a server has a limit, in bytes and in addresses; an odd count costs no answer."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from fault_server import ANSWER, ODD_COUNTS, FaultServer

from lemming.capabilities.hosted_models import bounded_response
from lemming.capabilities.hosted_models.anthropic_provider import AnthropicProvider
from lemming.capabilities.hosted_models.ollama_provider import OllamaProvider
from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.kernel.base.errors import AnswerTooLarge, RequestRejected, Unavailable
from lemming.kernel.llm.call_cost import tokens_used
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
MOST_BYTES = 4 * bounded_response.ANSWER_LIMIT_BYTES


@pytest.fixture(params=list(BACKENDS))
def make(request: pytest.FixtureRequest) -> Make:
    """A backend for a server's address."""
    return BACKENDS[request.param]


@pytest.fixture
def elsewhere() -> Iterator[FaultServer]:
    """Another server, which nobody means to ask."""
    server = FaultServer()
    server.start()
    yield server
    server.stop()


@pytest.mark.sample(2)
@pytest.mark.parametrize("scenario", ["endless", "bomb"])
def test_an_answer_without_an_end_is_given_up_in_little_memory(
    make: Make, scenario: str, faults: FaultServer, request_: Request
) -> None:
    provider = make(faults.url(scenario))
    patient = request_._replace(deadline_s=60.0)
    make(faults.url("ok")).complete(patient)  # the SDK is imported
    faults.received.clear()
    tracemalloc.start()
    try:
        with pytest.raises(AnswerTooLarge, match="longer than 16 MiB"):
            RetryingLLMProvider(provider).complete(patient)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert len(faults.received) == 1


def test_a_packed_answer_is_unpacked(make: Make, faults: FaultServer, request_: Request) -> None:
    assert call_provider(make(faults.url("packed-gzip")), request_).text == ANSWER
    with pytest.raises(Unavailable, match="packed it with 'br'"):
        call_provider(make(faults.url("packed-br")), request_)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_takes_no_prompt_to_another_address(
    make: Make, status: int, faults: FaultServer, elsewhere: FaultServer, request_: Request
) -> None:
    port = elsewhere.url("").rstrip("/").rpartition(":")[2]
    with pytest.raises(RequestRejected) as caught:
        call_provider(make(faults.url(f"redirect-{status}-{port}")), request_)
    assert faults.url("").split("/")[2] in caught.value.message
    assert f"http://127.0.0.1:{port}/ok/" in caught.value.message
    assert "hunter2" not in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert elsewhere.received == []


@pytest.mark.parametrize("number", range(len(ODD_COUNTS)))
def test_an_odd_count_costs_no_answer_and_is_estimated(
    make: Make, number: int, faults: FaultServer, request_: Request
) -> None:
    reply = call_provider(make(faults.url(f"usage-{number}")), request_)
    assert reply.text == ANSWER
    used = tokens_used(request_.messages, reply)
    assert (used.is_estimated, used.output) == (True, -(-len(ANSWER) // 4))
