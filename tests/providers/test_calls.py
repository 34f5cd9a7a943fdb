"""The edge of a model call: its deadline, and the errors that may leave it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fault_server import FaultServer
from patience import PATIENCE_S

from lemming.kernel.base.errors import ConfigError, RateLimited, RequestRejected, TimedOut
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.providers import Backend, LLMProvider, Message, Reply, Request


class Plugin(LLMProvider):
    """A provider with nothing but `call`, as the guide shows it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        if isinstance(self.answer, BaseException):
            raise self.answer
        text: str = self.answer
        return text


class Hanging(LLMProvider):
    """A provider that does not come back."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        self.released.wait(PATIENCE_S)
        return "too late"


def test_a_plain_provider_answers(request_: Request) -> None:
    assert call_provider(Plugin("hello"), request_) == Reply(text="hello", model="m")


def test_a_plain_provider_gets_the_other_fields_as_keywords(request_: Request) -> None:
    class Curious(LLMProvider):
        def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
            return f"{kwargs['agent']} {kwargs['tick']} {kwargs['max_output_tokens']}"

    assert call_provider(Curious(), request_).text == "planner 3 2048"


def test_a_plain_provider_that_hangs_is_left_behind(request_: Request) -> None:
    provider = Hanging()
    with pytest.raises(TimedOut, match=r"within 0\.1 s"):
        call_provider(provider, request_._replace(deadline_s=0.1))
    provider.released.set()


def test_a_bug_in_a_plugin_is_not_retryable_and_names_its_place(request_: Request) -> None:
    with pytest.raises(RequestRejected) as caught:
        call_provider(Plugin(KeyError("choices")), request_)
    assert caught.value.message == "Plugin m failed: KeyError: 'choices'"
    assert caught.value.where.startswith(__file__)


def test_a_plugin_that_exits_does_not_end_the_process(request_: Request) -> None:
    with pytest.raises(RequestRejected, match="SystemExit"):
        call_provider(Plugin(SystemExit(3)), request_)


def test_ctrl_c_passes_through(request_: Request) -> None:
    class Interrupted(Backend):
        keeps_deadline = True

        def complete(self, request: Request) -> Reply:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_provider(Interrupted(), request_)


@pytest.mark.parametrize("answer", [None, 7, b"bytes", {"text": "hello"}])
def test_an_answer_that_is_not_text_is_rejected(answer: Any, request_: Request) -> None:
    with pytest.raises(RequestRejected, match="must return text"):
        call_provider(Plugin(answer), request_)


def test_half_a_surrogate_pair_is_replaced_for_no_file_can_hold_it(request_: Request) -> None:
    assert call_provider(Plugin("a\ud800b"), request_).text == "a?b"


def test_an_operators_error_keeps_its_place_and_hint(request_: Request) -> None:
    with pytest.raises(RequestRejected) as caught:
        call_provider(Plugin(ConfigError("no such voice", where="voices.json", hint="add it")), request_)
    assert str(caught.value) == "voices.json: no such voice (add it)"


def test_a_plugins_own_provider_error_is_cut_and_redacted(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICE_API_KEY", "correct-horse")
    with pytest.raises(RateLimited) as caught:
        call_provider(Plugin(RateLimited(f"slow down, correct-horse {'x' * 9000}", retry_after_s=3)), request_)
    assert caught.value.message.startswith("slow down, [redacted VOICE_API_KEY]")
    assert len(caught.value.message) == 400
    assert caught.value.retry_after_s == 3


def test_no_sdk_is_imported_before_it_is_used() -> None:
    code = """
import sys
import lemming.kernel.llm.model_call, lemming.kernel.llm.retrying_provider
import lemming.capabilities.hosted_models.openai_provider
import lemming.capabilities.hosted_models.anthropic_provider
import lemming.capabilities.hosted_models.ollama_provider, lemming.capabilities.embedded_models.llama_provider
import lemming.capabilities.program_models.program_provider
import lemming.capabilities.scripted_models.scripted_provider
from lemming.providers import make_provider
for name in ("openai", "anthropic", "ollama", "local"):
    make_provider(name, {})
sdks = {"openai", "anthropic", "ollama", "httpx", "httpx2", "xllamacpp"}
print(sorted(sdks & sys.modules.keys()))
"""
    assert run_python(code) == "[]\n"


@pytest.mark.long
def test_the_interpreter_ends_quietly_with_connections_open_and_calls_in_flight(faults: FaultServer) -> None:
    code = f"""
import contextlib, threading
from lemming.capabilities.hosted_models.anthropic_provider import AnthropicProvider
from lemming.capabilities.hosted_models.ollama_provider import OllamaProvider
from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.base.errors import ProviderError
from lemming.providers import LLMProvider, Request

class Hanging(LLMProvider):
    def call(self, model_name, messages, temperature, **kwargs):
        threading.Event().wait()

request = Request(model_name="m", messages=[{{"role": "user", "content": "hi"}}])
kept = [OpenAIProvider(base_url="{faults.url("ok")}"), AnthropicProvider(base_url="{faults.url("ok")}"),
        OllamaProvider(host="{faults.url("ok")}")]
for provider in kept:
    call_provider(provider, request)
def wait_for(provider):
    with contextlib.suppress(ProviderError):
        call_provider(provider, request)

for hanging in (OpenAIProvider(base_url="{faults.url("hang")}"), Hanging()):
    threading.Thread(target=wait_for, args=(hanging,), daemon=True).start()
print("end", flush=True)
"""
    assert run_python(code) == "end\n"


@pytest.fixture
def hangs() -> Iterator[FaultServer]:
    """A server of one test's own, so that what comes is its own."""
    server = FaultServer()
    server.start()
    yield server
    server.stop()


def test_ctrl_c_cancels_a_call_that_hangs(hangs: FaultServer) -> None:
    code = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # also when the tests run in the background
from lemming.capabilities.hosted_models.ollama_provider import OllamaProvider
from lemming.kernel.llm.model_call import call_provider
from lemming.providers import Request

provider = OllamaProvider(host="{hangs.url("hang")}")
try:
    call_provider(provider, Request(model_name="m", messages=[]))
except KeyboardInterrupt:
    print("interrupted")
"""
    command = [sys.executable, "-W", "error", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        hangs.came.get(timeout=PATIENCE_S)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE_S) == ("interrupted\n", "")


def run_python(code: str) -> str:
    """Run code in a new interpreter that turns every warning into an error; it must say nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
