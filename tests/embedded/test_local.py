"""The embedded model, and real SDKs against llama.cpp's own server."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from lemming.capabilities.embedded_models.llama_provider import LocalProvider
from lemming.capabilities.hosted_models.anthropic_provider import AnthropicProvider
from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.kernel.base.errors import AuthenticationFailed, RequestRejected, TimedOut, Unavailable, UnknownModel
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.model_entries import LOCAL_MODEL, ModelEntry
from lemming.kernel.providers import Request, make_provider
from lemming.operations.model_trial import try_model
from lemming.testing import FrozenClock

STORY = [{"role": "user", "content": "Tell a very long story."}]
KEY_ENV = "LOCAL_SERVER_KEY"
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "maxLength": 12}, "mood": {"enum": ["calm", "keen"]}},
    "required": ["text", "mood"],
    "additionalProperties": False,
}


@pytest.fixture
def small() -> Request:
    """A short question with room for a short answer."""
    messages = [{"role": "user", "content": "Say hello to Ada."}]
    return Request(model_name=LOCAL_MODEL, messages=messages, max_output_tokens=8, seed=7, deadline_s=PATIENCE_S)


def test_missing_weights_say_how_to_get_them(small: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEMMING_MODELS_DIR", str(tmp_path))
    with pytest.raises(UnknownModel) as caught:
        call_provider(LocalProvider(), small)
    assert caught.value.hint == f"run `lemming models pull {LOCAL_MODEL}`"
    with pytest.raises(UnknownModel, match="does not exist"):
        call_provider(LocalProvider(path=str(tmp_path / "none.gguf")), small)


@pytest.mark.parametrize("has_weights", [True, False])
def test_a_missing_library_says_how_to_install_it_whether_there_are_weights_or_not(
    small: Request, tmp_path: Path, has_weights: bool
) -> None:
    if has_weights:
        (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    code = f"""
import sys
sys.modules["xllamacpp"] = None
from lemming.capabilities.embedded_models.llama_provider import LocalProvider
from lemming.kernel.base.errors import RequestRejected
from lemming.providers import Request
try:
    LocalProvider(path={str(tmp_path / "tiny.gguf")!r}).complete(Request(model_name="m", messages=[]))
except RequestRejected as error:
    print(error.hint)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "pip install 'lemming-engine[local]'\n"


def test_a_file_that_is_no_model_cannot_be_loaded(small: Request, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    (tmp_path / "tiny.gguf").write_bytes(b"not a model")
    with pytest.raises(RequestRejected, match="cannot be loaded"):
        call_provider(LocalProvider(path=str(tmp_path / "tiny.gguf")), small)


@pytest.fixture(scope="module")
def model(weights: Path) -> LocalProvider:
    """The embedded model, loaded."""
    provider = LocalProvider()
    messages = [{"role": "user", "content": "Hi."}]
    provider.complete(Request(model_name=LOCAL_MODEL, messages=messages, max_output_tokens=1))
    return provider


@pytest.mark.long
@pytest.mark.model
def test_the_same_request_gives_the_same_answer(model: LocalProvider, small: Request) -> None:
    warm = small._replace(temperature=0.7)
    replies = [call_provider(make_provider("local", {}), request) for request in (warm, small, warm)]
    assert replies[0] == replies[2]
    assert replies[0].finish in ("stop", "length")
    assert (replies[0].input_tokens or 0) > 5
    assert replies[0].output_tokens is not None


@pytest.mark.model
def test_calls_from_several_threads_do_not_change_each_others_answers(model: LocalProvider, small: Request) -> None:
    alone = call_provider(model, small).text
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(call_provider(model, small).text)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [alone] * 2


@pytest.mark.model
def test_it_is_heard_as_it_writes(model: LocalProvider, small: Request) -> None:
    heard: list[str] = []
    reply = model.complete_streaming(small, heard.append)
    assert "".join(heard) == reply.text
    assert len(heard) > 3


def test_the_schema_is_enforced(model: LocalProvider, small: Request) -> None:
    answer = json.loads(call_provider(model, small._replace(schema=SCHEMA, max_output_tokens=40)).text)
    assert answer.keys() == {"text", "mood"}
    assert answer["mood"] in ("calm", "keen")


@pytest.mark.model
def test_an_answer_cut_by_the_token_limit_says_so(model: LocalProvider, small: Request) -> None:
    reply = call_provider(model, small._replace(schema=SCHEMA, max_output_tokens=3))
    assert (reply.finish, reply.output_tokens) == ("length", 3)


@pytest.mark.model
def test_the_deadline_stops_the_model_while_it_reads(model: LocalProvider, small: Request) -> None:
    messages = [{"role": "user", "content": "word " * 60}]
    with pytest.raises(TimedOut):  # no machine reads that in a millisecond
        call_provider(model, small._replace(messages=messages, max_output_tokens=1, deadline_s=0.001))
    assert call_provider(model, small._replace(max_output_tokens=1)).output_tokens == 1


@pytest.mark.model
def test_the_deadline_stops_the_model_while_it_writes(model: LocalProvider, small: Request) -> None:
    story = small._replace(messages=STORY, max_output_tokens=2000, deadline_s=0.3)
    is_over, asking = threading.Event(), threading.current_thread()

    def hear(_: str) -> None:
        if threading.current_thread() is not asking:  # who asked hears the rest of a word at the end
            assert is_over.wait(PATIENCE_S)

    with pytest.raises(TimedOut):
        call_provider(model, story, hear)
    is_over.set()
    assert call_provider(model, small._replace(max_output_tokens=1)).output_tokens == 1


@pytest.mark.model
def test_a_stop_breaks_the_answer_off(model: LocalProvider, small: Request) -> None:
    story = small._replace(messages=STORY, max_output_tokens=2000, deadline_s=600.0)
    model.stopping, heard = threading.Event(), list[str]()

    def hear(text: str) -> None:
        assert model.stopping
        model.stopping.set()
        heard.append(text)

    try:
        with pytest.raises(Unavailable, match="the engine is stopping"):
            model.complete_streaming(story, hear)
    finally:
        model.stopping = None
    assert heard
    assert call_provider(model, small._replace(max_output_tokens=1)).output_tokens == 1


@pytest.mark.model
def test_waiting_for_the_model_counts_towards_the_deadline(model: LocalProvider, small: Request) -> None:
    has_begun, may_go_on = threading.Event(), threading.Event()

    def hear(_: str) -> None:
        has_begun.set()
        may_go_on.wait(PATIENCE_S)

    story = small._replace(messages=STORY, max_output_tokens=3)
    busy = threading.Thread(target=call_provider, args=(model, story, hear))
    busy.start()
    assert has_begun.wait(PATIENCE_S)
    with pytest.raises(TimedOut):
        call_provider(model, small._replace(deadline_s=0.05))
    may_go_on.set()
    busy.join()


@pytest.mark.model
def test_a_prompt_that_is_too_long_is_rejected(model: LocalProvider, small: Request) -> None:
    long = small._replace(messages=[{"role": "user", "content": "word " * 5000}])
    with pytest.raises(RequestRejected, match="exceeds the available context size") as caught:
        call_provider(model, long)
    assert "n_ctx" in caught.value.hint


@pytest.mark.model
def test_a_schema_that_is_no_schema_is_rejected(model: LocalProvider, small: Request) -> None:
    with pytest.raises(RequestRejected, match="unrecognized type"):
        call_provider(model, small._replace(schema={"type": "nonsense"}))


@pytest.mark.long
@pytest.mark.model
def test_ctrl_c_stops_the_model_and_the_process_ends_quietly(weights: Path) -> None:
    code = f"""
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # also when the tests run in the background
from lemming.capabilities.embedded_models.llama_provider import LocalProvider
from lemming.providers import Request
provider = LocalProvider(path={str(weights)!r})
story = Request(model_name="m", messages=[{{"role": "user", "content": "Tell a long story."}}])
provider.complete(story._replace(max_output_tokens=1))  # loads the model: nothing is interrupted in there
heard = []
def hear(text):
    heard.append(text)
    if len(heard) == 1:
        os.kill(os.getpid(), signal.SIGINT)
try:
    provider.complete_streaming(story, hear)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


# --- real SDKs against a real model server -------------------------------------------------------


@pytest.fixture(scope="module")
def server(weights: Path) -> Iterator[str]:
    """The address of llama.cpp's server with a key; it speaks OpenAI's and Anthropic's protocol."""
    import xllamacpp

    key = secrets.token_hex(16)
    settings = xllamacpp.CommonParams()
    settings.model.path = str(weights)
    settings.n_ctx, settings.n_parallel, settings.verbosity, settings.ui = 1024, 1, -1, False
    for cpu in (settings.cpuparams, settings.cpuparams_batch):
        cpu.n_threads, cpu.poll = 1, 0
    settings.api_keys = [key]
    running = xllamacpp.Server(settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_ENV, key)
        yield running.listening_address


@pytest.mark.model
def test_openai_s_client_gets_an_answer_that_fits_the_schema(server: str, small: Request) -> None:
    provider = OpenAIProvider(base_url=f"{server}/v1", api_key_env=KEY_ENV)
    reply = call_provider(provider, small._replace(schema=SCHEMA, max_output_tokens=40))
    assert json.loads(reply.text).keys() == {"text", "mood"}
    assert reply.input_tokens
    assert reply.output_tokens


@pytest.mark.model
def test_a_model_whose_template_knows_no_tools_answers_with_text(server: str, small: Request) -> None:
    """llama.cpp passes tools over without a word where the model's chat template has no place for them."""
    tool = {"name": "see", "description": "See.", "parameters": {"type": "object", "properties": {}}}
    told = [{"role": "system", "content": "Be brief.", "tools": [tool]}, *small.messages]
    reply = call_provider(OpenAIProvider(base_url=f"{server}/v1", api_key_env=KEY_ENV), small._replace(messages=told))
    assert (bool(reply.text), reply.calls) == (True, ())


@pytest.mark.model
def test_openai_s_responses_are_understood(server: str, small: Request) -> None:
    provider = OpenAIProvider(base_url=f"{server}/v1", api_key_env=KEY_ENV, api="responses")
    reply = call_provider(provider, small._replace(temperature=0.0))
    assert reply.text
    assert reply.output_tokens


@pytest.mark.model
def test_anthropic_s_client_gets_an_answer(server: str, small: Request) -> None:
    provider = AnthropicProvider(base_url=server, api_key_env=KEY_ENV)
    reply = call_provider(provider, small._replace(temperature=0.0, max_output_tokens=4))
    assert reply.text
    assert (reply.finish, reply.output_tokens) == ("length", 4)
    assert reply.input_tokens


@pytest.mark.model
def test_a_wrong_key_and_a_long_prompt_are_told_apart(
    server: str, small: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG_KEY", "not-this-one")
    with pytest.raises(AuthenticationFailed):
        call_provider(OpenAIProvider(base_url=f"{server}/v1", api_key_env="WRONG_KEY"), small)
    long = small._replace(messages=[{"role": "user", "content": "word " * 3000}])
    with pytest.raises(RequestRejected) as caught:
        call_provider(OpenAIProvider(base_url=f"{server}/v1", api_key_env=KEY_ENV), long)
    assert "too long" in caught.value.hint


@pytest.mark.sample(2)
@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize(("price", "cost", "told"), [(None, 0.0, "$0"), (10.0, 1e-5, "$0.0000")])
def test_a_trial_of_the_embedded_model_costs_nothing_unless_its_line_says_so(
    base: Path, price: float | None, cost: float, told: str
) -> None:
    entry = ModelEntry(
        provider="local",
        model=LOCAL_MODEL,
        prompt="brief",
        max_output_tokens=1,
        usd_per_million_input_tokens=None if price is None else 0.0,
        usd_per_million_output_tokens=price,
    )
    found = try_model(base, entry, OrgSettings(), FrozenClock(), threading.Event())
    assert found.output_tokens  # one for each question
    assert found.cost_usd == pytest.approx(cost * found.output_tokens)
    assert f"{found.output_tokens} out: {told}" in dict(found.format_lines("default"))["cost"]
