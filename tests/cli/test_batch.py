"""`--batch`: what a person is told while a batch is waited for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_server import BatchServer, Trouble
from patience import PATIENCE_S
from terminal import Lemming, start

from lemming.testing import make_org, resume

BATCH_EVENTS = ["batch_sent", "batch_ended"]


@pytest.fixture
def server() -> Iterator[BatchServer]:
    """A server with a batch API."""
    server = BatchServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _org(base: Path, server: BatchServer) -> None:
    options = {"base_url": server.url, "batches": True}
    entry = {"provider": "anthropic", "model": "m", "options": options}
    make_org(base, resume("ada", model={"key": "batchy"}), models={"batchy": entry})


def test_a_person_is_told_what_was_sent_and_what_came_back(lemming: Lemming, server: BatchServer) -> None:
    server.outcomes["ada"] = "error"
    ran = lemming("run-once", "--batch")
    assert ran.status == 0
    lines = [line.strip() for line in ran.err.splitlines()]
    assert lines[1] == "batch msgbatch_1: 1 call sent to anthropic m; Ctrl-C leaves it to the next run"
    assert lines[2] == "batch msgbatch_1: 0 answers, 1 call to be made live (errored: too long)"


def test_a_batch_that_was_refused_is_a_warning_even_if_all_is_to_be_quiet(
    lemming: Lemming, server: BatchServer
) -> None:
    server.trouble = [Trouble("POST /v1/messages/batches", 403)]
    ran = lemming("run-once", "--batch", "-q")
    assert ran.status == 0
    assert ran.err.startswith("  warning   anthropic does not accept batches; its calls run live at the full price: ")


def test_json_has_the_events_of_a_batch(lemming: Lemming) -> None:
    ran = lemming("run-forever", "--batch", "--max-ticks", "1", "--json")
    events = [event for event in ran.objects if event["type"].startswith("batch_")]
    assert [event["type"] for event in events] == BATCH_EVENTS
    assert (events[0]["calls"], events[1]["replies"], events[1]["live"]) == (1, 1, 0)


def test_quiet_says_nothing_of_a_batch_that_goes_well(lemming: Lemming) -> None:
    ran = lemming("run-once", "--batch", "-q")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


@pytest.mark.sample(2)
@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_ends_while_it_waits_is_continued_by_the_next(
    lemming: Lemming, server: BatchServer, base: Path, number: signal.Signals
) -> None:
    server.looks = 1000
    process = start("-C", str(base), "run-once", "--batch")
    assert server.looked.wait(PATIENCE_S)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == (130 if number == signal.SIGINT else -number), said
    server.looks = 1
    ran = lemming("run-once", "--batch")
    assert ran.status == 0, ran.err
    assert (len(server.custom_ids), server.live) == (1, [])
