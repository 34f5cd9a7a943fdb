"""Answers that are watched as they are written: the same reply, heard in pieces."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stream_server import ANSWER, StreamServer

from lemming import engine
from lemming.capabilities.hosted_models.anthropic_provider import AnthropicProvider
from lemming.capabilities.hosted_models.ollama_provider import OllamaProvider
from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.capabilities.hosted_models.rejected_fields import ServerProfiles
from lemming.kernel.base.errors import AnswerTooLarge, TimedOut, Unavailable
from lemming.kernel.journal.engine_events import ModelWrote
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.providers import LLMProvider, Request, RetryingLLMProvider
from lemming.libraries.streaming import WordBuffer
from lemming.testing import FrozenClock, journal_lines, make_org, resume, tree

APIS: dict[str, Callable[[str], LLMProvider]] = {
    "chat": lambda url: OpenAIProvider(base_url=f"{url}/v1"),
    "responses": lambda url: OpenAIProvider(base_url=f"{url}/v1", api="responses"),
    "anthropic": lambda url: AnthropicProvider(base_url=url),
    "ollama": lambda url: OllamaProvider(host=url),
}


@pytest.fixture
def streams() -> Iterator[StreamServer]:
    """A server of its own for each test."""
    server = StreamServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=list(APIS))
def make(request: pytest.FixtureRequest) -> Callable[[str], LLMProvider]:
    """A backend for a server's address."""
    return APIS[request.param]


def wanted(**fields: Any) -> Request:
    return Request("m", [{"role": "user", "content": "hi"}], **{"deadline_s": 20.0, **fields})


def test_the_text_is_heard_in_pieces_and_the_reply_is_the_same(
    make: Callable[[str], LLMProvider], streams: StreamServer
) -> None:
    heard: list[str] = []
    at_once = call_provider(make(streams.url_of("whole")), wanted())
    watched = call_provider(make(streams.url_of("ok")), wanted(), heard.append)
    assert watched == at_once
    assert (watched.text, watched.input_tokens, watched.output_tokens) == (ANSWER, 11, 7)
    assert "".join(heard) == ANSWER
    assert len(heard) > 3
    assert [bool(body.get("stream")) for body in streams.received] == [False, True]


def test_a_server_that_answers_at_once_all_the_same_is_understood(
    make: Callable[[str], LLMProvider], streams: StreamServer
) -> None:
    assert call_provider(make(streams.url_of("whole")), wanted(), lambda _: None).text == ANSWER


@pytest.mark.parametrize("scenario", ["cut", "error", "odd"])
def test_an_answer_that_breaks_off_is_no_answer(
    make: Callable[[str], LLMProvider], scenario: str, streams: StreamServer
) -> None:
    with pytest.raises(Unavailable):
        call_provider(make(streams.url_of(scenario)), wanted(), lambda _: None)


def test_the_deadline_holds_for_an_answer_that_drips(make: Callable[[str], LLMProvider], streams: StreamServer) -> None:
    call_provider(make(streams.url_of("whole")), wanted())  # importing an SDK takes its time
    with pytest.raises(TimedOut):
        call_provider(make(streams.url_of("drip")), wanted(deadline_s=0.5), lambda _: None)


@pytest.mark.parametrize("name", ["chat", "anthropic", "ollama"])
def test_an_answer_without_an_end_is_not_read_to_its_end(name: str, streams: StreamServer) -> None:
    with pytest.raises((AnswerTooLarge, Unavailable)) as caught:
        call_provider(APIS[name](streams.url_of("endless")), wanted(), lambda _: None)
    assert name == "ollama" or isinstance(caught.value, AnswerTooLarge)


def test_a_server_that_takes_no_streams_is_asked_without(
    make: Callable[[str], LLMProvider], streams: StreamServer, tmp_path: Path
) -> None:
    servers = ServerProfiles(tmp_path, FrozenClock(), lambda _: None)
    wrapped = RetryingLLMProvider(make(streams.url_of("refuses")), server=servers.get_profile("its name"))
    assert wrapped.complete_streaming(wanted(), lambda _: None).text == ANSWER
    assert list(servers.rejected_parts("its name m")) == ["stream"]


def test_words_are_told_whole_so_that_no_secret_comes_in_two_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    from lemming.kernel.base.redaction import secrets

    monkeypatch.setenv("MY_API_KEY", "sk-very-secret-value")
    secrets.refresh()
    heard: list[str] = []
    told = WordBuffer(heard.append)
    for piece in ["the key is sk-very", "-secret-", "value, keep it", " well"]:
        told.feed(piece)
    told.flush()
    monkeypatch.delenv("MY_API_KEY")
    secrets.refresh()
    assert "".join(heard) == "the key is [redacted MY_API_KEY], keep it well"


def watched_org(base: Path, url: str) -> Path:
    models = {"default": {"provider": "openai", "model": "m", "options": {"base_url": f"{url}/v1"}}}
    return make_org(base, resume("ada", model={"key": "default"}), models=models)


def test_watching_tells_of_it_and_writes_nothing_else(streams: StreamServer, tmp_path: Path) -> None:
    trees = []
    for name, watch in (("watched", True), ("not", False)):
        base, heard = watched_org(tmp_path / name, streams.url_of("ok" if watch else "whole")), []
        for _ in engine.ticks(base, max_ticks=1, watch=watch, notify=heard.append, clock=FrozenClock()):
            pass
        wrote = [event.text for event in heard if isinstance(event, ModelWrote)]
        assert "".join(wrote) == (ANSWER if watch else "")
        trees.append({file: text for file, text in tree(base).items() if file != "config/models.json"})
        (replied,) = [line for line in journal_lines(base, 1) if line["type"] == "model_replied"]
        assert replied["text"] == ANSWER
    assert trees[0] == trees[1]


def test_the_command_shows_whole_lines_with_the_name_of_who_writes(
    streams: StreamServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from lemming.cli import run

    base = watched_org(tmp_path / "org", streams.url_of("ok"))
    assert run(["-C", str(base), "run-once", "--watch"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  ada  | ")]
    assert " ".join(line.removeprefix("  ada  | ") for line in lines) == ANSWER
    assert run(["-C", str(base), "run-once", "--watch", "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "".join(line["text"] for line in told if line["type"] == "model_wrote") == ANSWER
    assert "openai" in sys.modules
