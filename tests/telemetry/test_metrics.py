"""Metrics: what Prometheus itself reads, totals that only grow, and who may ask a server for them."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import PATIENCE_S
from terminal import Lemming, typed_at
from traced import make_traced

from lemming.capabilities.channels.channel_service import run_channel_server
from lemming.capabilities.channels.http_api import MetricsSource
from lemming.engine import run_once
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.org.organisation import Organisation
from lemming.telemetry.metrics import CONTENT_TYPE, MetricFamily, iter_families, render_metrics, render_text
from lemming.testing import FrozenClock, make_org, resume, say, tree

PROMTOOL = shutil.which("promtool")


@pytest.fixture
def lemming(base: Path, capsys: pytest.CaptureFixture[str]) -> Lemming:
    return typed_at(base, capsys)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = make_traced(tmp_path_factory.mktemp("metrics") / "org")
    for _ in range(2):
        run_once(base)
    return base


def values(base: Path) -> dict[tuple[str, str], float]:
    """Return each sample of a label or none, by the metric's name and the label's value."""
    return {
        (family.name, next(iter(labels.values()), "")): value
        for family in iter_families(Organisation(base))
        for labels, value in family.samples
    }


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_own_checker_finds_nothing(ran: Path) -> None:
    text = render_metrics(Organisation(ran))
    checked = subprocess.run(
        [PROMTOOL or "", "check", "metrics"], input=text, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_totals_are_those_of_the_ledgers(ran: Path) -> None:
    found = values(ran)
    for name in ("ada", "bob", "cyd", "dan"):
        state = read_state(ran, name)
        assert found["lemming_credits_total", name] == state.credits
        assert found["lemming_input_tokens_total", name] == state.input_tokens
        assert found["lemming_turns_total", name] == state.turns
    assert found["lemming_judging_credits_total", "bob"] == read_state(ran, "bob").aside["judges"] > 0
    assert found["lemming_last_tick_turns", "failed"] == 1
    assert found["lemming_agent_trouble", "cyd"] == 1
    assert found["lemming_agents", "due"] == 4
    assert (found["lemming_tick", ""], found["lemming_engine_up", ""]) == (3, 0)
    assert (found["lemming_turns_total", "cyd"], found["lemming_failed_turns_total", "cyd"]) == (0, 2)


def test_failures_and_refused_calls_of_the_newest_ticks_are_counted(base: Path) -> None:
    asks = say("", outbox_entries=[], tool_calls=[{"tool": "ask_bob", "args": {"message": "a?"}}] * 2)
    lead = resume("ada", team={"ask": ["bob"], "max_asked": 1})
    script = [{"agent": "ada", "reply": asks}, {"agent": "bob", "reply": {"no": "reply"}}]
    make_org(base, lead, resume("bob"), script=script)
    run_once(base, clock=FrozenClock())
    families = {family.name: family.samples for family in iter_families(Organisation(base))}
    calls = {(labels["tool"], labels["outcome"]): count for labels, count in families["lemming_recent_tool_calls"]}
    assert calls == {("ask_bob", "refused"): 1}
    assert families["lemming_recent_errors"] == [({"code": "LMG-401"}, 1)]
    ends = {(labels["status"], labels["end"]): count for labels, count in families["lemming_recent_turns"]}
    assert ends["failed", "bad_reply"] == 1
    assert sum(ends.values()) == 2


def test_totals_go_on_when_journals_are_gone(ran: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ran, copy)
    before = {key: value for key, value in values(copy).items() if key[0].endswith("_total")}
    for journal in (copy / "logs/ticks").glob("*.jsonl"):
        journal.unlink()
    after = {key: value for key, value in values(copy).items() if key[0].endswith("_total")}
    assert after == before


def test_an_agent_whose_resume_broke_keeps_its_totals_and_has_none_before_its_first_turn(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"))
    (base / "agents/new").mkdir()
    (base / "agents/new/resume.json").write_text("{")
    run_once(base)
    (base / "agents/ada/resume.json").write_text("{")
    found = values(base)
    assert ("lemming_turns_total", "new") not in found
    assert found["lemming_turns_total", "ada"] == found["lemming_turns_total", "bob"] == 1
    assert found["lemming_agent_trouble", "ada"] == 1


def test_how_long_things_took_is_told_by_model_and_tool(ran: Path) -> None:
    families = {family.name: [*family.samples] for family in iter_families(Organisation(ran))}
    tools = families["lemming_tool_call_duration_seconds"]
    assert {labels["tool"] for labels, _ in tools} == {"file_write", "file_read", "memory_write"}
    assert {labels["quantile"] for labels, _ in tools} == {"0.5", "0.9", "1.0"}
    assert all(value >= 0 for _, value in families["lemming_model_call_duration_seconds"])


def test_looking_writes_nothing(ran: Path) -> None:
    before = tree(ran, without=())
    render_metrics(Organisation(ran))
    assert tree(ran, without=()) == before


def test_what_is_in_a_label_cannot_end_it() -> None:
    text = render_text([MetricFamily("a", "gauge", "One\nline \\ here.", [({"b": 'x"} 1\nevil 2\\'}, 1.5)])])
    assert text.splitlines() == [r"# HELP a One\nline \\ here.", "# TYPE a gauge", r'a{b="x\"} 1\nevil 2\\"} 1.5']


def test_the_command_prints_them_as_text_and_as_json(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    assert '\nlemming_turns_total{agent="ada"} 1.0\n' in lemming("metrics").out
    lines = [it for it in lemming("metrics", "--json").objects if it["name"] == "lemming_turns_total"]
    assert lines == [
        {"v": 1, "type": "metric", "name": "lemming_turns_total", "kind": "counter",
         "labels": {"agent": "ada"}, "value": 1}
    ]  # fmt: skip


# --- served -----------------------------------------------------------------------------------------


@contextmanager
def served(base: Path, *, metrics: bool = True) -> Iterator[int]:
    stop = threading.Event()
    shown = MetricsSource(CONTENT_TYPE, render_metrics) if metrics else None
    with run_channel_server(base, port=0, stop=stop, report=lambda _: None, metrics=shown) as found:
        yield found.port


def get(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    found = response.status, response.headers["Content-Type"], response.read().decode()
    connection.close()
    return found


def test_a_server_answers_with_what_is_so_now(base: Path) -> None:
    make_org(base, resume("ada"))
    with served(base) as port:
        assert 'lemming_turns_total{agent="ada"} 0.0\n' in get(port)[2]
        run_once(base)
        status, form, text = get(port)
        assert (status, form) == (200, CONTENT_TYPE)
        assert 'lemming_turns_total{agent="ada"} 1.0\n' in text
        assert get(port, Host="evil.example")[0] == 403
        assert get(port, "/metrics/x")[0] == 404
        (base / "config/org.json").write_text("{")
        assert get(port)[0] == 503


def test_with_a_token_nobody_is_answered_without_it(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_org(base, resume("ada"))
    monkeypatch.setenv("LEMMING_METRICS_TOKEN", "of-prometheus")
    with served(base) as port:
        assert get(port)[0] == 401
        assert get(port, Authorization="Bearer wrong")[0] == 401
        assert get(port, Authorization="Bearer of-prometheus", Host="lemmings.example")[0] == 200


def test_metrics_are_served_only_where_somebody_wants_it(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming("serve", "--port", "0")
    assert (ran.status, "there is nothing to serve" in ran.err) == (2, True)
    ran = lemming("serve", "--port", "0", "--metrics", "--host", "0.0.0.0")
    assert (ran.status, "LEMMING_METRICS_TOKEN" in ran.err) == (2, True)
