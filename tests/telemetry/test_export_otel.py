"""`lemming export otel`: printed or sent, once or as ticks end, to collectors that are down or odd."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from terminal import Lemming, read_until, start, typed_at
from traced import Collector, die_at_an_answer, listening

from lemming.engine import run_once
from lemming.journal_tools.tick_ranges import TickRange
from lemming.kernel.base.errors import NotSent, UsageError
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.journal_sealing import seal_old_journals
from lemming.telemetry.journal_follower import get_upcoming_ticks, iter_journals
from lemming.telemetry.otlp import Collector as Client
from lemming.telemetry.otlp import parse_rejection
from lemming.testing import Crash, make_org, resume


@pytest.fixture
def collector() -> Iterator[Collector]:
    yield from listening(Collector())


@pytest.fixture
def org(base: Path) -> Path:
    make_org(base, resume("ada"))
    for _ in range(3):
        run_once(base)
    return base


@pytest.fixture
def lemming(base: Path, capsys: pytest.CaptureFixture[str]) -> Lemming:
    return typed_at(base, capsys)


def client(collector: Collector, told: list[str] | None = None) -> Client:
    tell = (told if told is not None else []).append
    return Client(collector.url, stop=threading.Event(), tell=tell, first_pause_s=0.01)


def test_a_line_is_a_request_of_one_tick(org: Path, lemming: Lemming) -> None:
    ran = lemming("export", "otel", "--ticks", "2..3")
    assert ran.status == 0
    assert [set(each) for each in ran.objects] == [{"resourceSpans"}] * 2
    spans = ran.objects[0]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [it["name"] for it in spans] == ["invoke_workflow org", "invoke_agent ada", "chat scripted"]


def test_the_traces_have_the_name_that_the_environment_gives(
    org: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "news")
    assert '{"key":"service.name","value":{"stringValue":"news"}}' in lemming("export", "otel").out


def test_a_tick_that_is_not_over_is_left_out_and_said(org: Path, lemming: Lemming) -> None:
    with pytest.raises(Crash):
        run_once(org, notify=die_at_an_answer)
    ran = lemming("export", "otel")
    assert len(ran.objects) == 3
    assert "tick 4 is unfinished and left out" in ran.err


def test_sent_are_the_ticks_asked_for(org: Path, lemming: Lemming, collector: Collector) -> None:
    collector.takes_json = False
    ran = lemming("export", "otel", "--ticks", "2..", "--post", collector.url)
    assert (ran.status, ran.out) == (0, "")
    assert "6 spans of 2 ticks sent" in ran.err
    assert collector.names == ["invoke_workflow org", "invoke_agent ada", "chat scripted"] * 2
    assert {path for path, _ in collector.posts} == {"/v1/traces"}
    assert [headers["content-type"][12:] for _, headers in collector.posts] == ["json", *["x-protobuf"] * 2]


def test_headers_come_from_the_environment(
    org: Path, lemming: Lemming, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20abc")
    assert lemming("export", "otel", "--ticks", "1", "--post", f"{collector.url}/own/path").status == 0
    ((path, headers),) = collector.posts
    assert (path, headers["authorization"]) == ("/own/path", "Basic abc")


def test_a_collector_that_is_down_for_a_while_is_asked_again(collector: Collector) -> None:
    collector.answers = [503, 429]
    told: list[str] = []
    client(collector, told).send({"resourceSpans": []})
    assert len(collector.posts) == 3
    assert [text.rsplit(" ", 1)[-1] for text in told] == ["again", "again"]


def test_a_refusal_is_not_asked_again(collector: Collector) -> None:
    collector.answers = [401]
    with pytest.raises(NotSent, match="answered 401: not now"):
        client(collector).send({"resourceSpans": []})
    assert len(collector.posts) == 1


@pytest.mark.parametrize("is_installed", [True, False])
def test_an_answer_in_protobuf_that_nobody_can_read_is_no_mistake_of_ours(
    is_installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_installed:
        response = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"
        monkeypatch.setitem(sys.modules, response, None)
    assert parse_rejection(b"\xff no protobuf") == ""


@pytest.mark.parametrize("takes_json", [True, False])
def test_spans_that_are_rejected_are_an_error(collector: Collector, takes_json: bool) -> None:
    collector.takes_json, collector.rejects = takes_json, 2
    with pytest.raises(NotSent, match="rejected 2 spans: too old"):
        client(collector).send({"resourceSpans": []})


def test_who_gives_up_says_how_to_go_on(org: Path, lemming: Lemming, collector: Collector) -> None:
    collector.answers = [200, 400]
    ran = lemming("export", "otel", "--post", collector.url, "--json")
    assert ran.status == 1
    *sent, error = ran.objects
    assert [it["tick"] for it in sent] == [1]
    assert (error["code"], error["where"]) == ("LMG-109", "tick 2")
    assert f"lemming export otel --ticks 2.. --endpoint {collector.url}" in error["hint"]


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "ftp://127.0.0.1", "http://"])
def test_an_address_that_is_none_is_said_at_once(url: str) -> None:
    with pytest.raises(UsageError, match="must be an http or https address"):
        Client(url, stop=threading.Event(), tell=print)


def test_who_follows_stops_at_once_while_the_collector_is_down(collector: Collector) -> None:
    collector.answers = [503] * 100
    stop = threading.Event()
    waiting = Client(collector.url, stop=stop, tell=lambda _: stop.set(), is_patient=True)
    with pytest.raises(NotSent):
        waiting.send({"resourceSpans": []})
    assert len(collector.posts) <= 2


def test_ticks_come_as_they_are_run_and_one_that_has_grown_comes_again(base: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    org, stop = Organisation(base), threading.Event()
    assert get_upcoming_ticks(org) == TickRange(2)
    found = iter_journals(org, TickRange(1), stop=stop)
    assert next(found)[0] == 1
    with pytest.raises(Crash):
        run_once(base, notify=die_at_an_answer)
    assert get_upcoming_ticks(org) == TickRange(2)
    tick, half = next(found)
    run_once(base)
    again, whole = next(found)
    assert (tick, again) == (2, 2)
    assert len(half.records) == 3
    assert whole.records[:3] == half.records != whole.records
    stop.set()
    assert list(found) == []


def test_ticks_that_are_packed_while_nobody_looks_are_not_missed(base: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    found = iter_journals(Organisation(base), TickRange(1), stop=threading.Event())
    assert next(found)[0] == 1
    for _ in range(2):
        run_once(base)
    assert seal_old_journals(base, 200, 0)
    assert [next(found)[0] for _ in range(2)] == [2, 3]


def test_following_ends_with_the_last_tick_that_was_asked_for(org: Path, lemming: Lemming) -> None:
    assert len(lemming("export", "otel", "--ticks", "2..3", "--follow").objects) == 2


@pytest.mark.long
def test_who_follows_sends_what_another_process_runs(org: Path, collector: Collector) -> None:
    words = ("export", "otel", "--ticks", "3..", "--follow", "--post", collector.url, "--json")
    with start("-C", str(org), *words) as following:
        try:
            assert json.loads(read_until(following.stdout, "traces_sent"))["tick"] == 3
            run_once(org)
            assert json.loads(read_until(following.stdout, "traces_sent"))["tick"] == 4
            following.send_signal(signal.SIGINT)
            assert following.wait(PATIENCE_S) == 0
        finally:
            following.kill()
