"""A tick as spans: what there is of each step, when it was, what it is called, and what it does not say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from traced import attributes, make_traced, spans_of

from lemming.engine import run_once
from lemming.kernel.base.clock import timestamp
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied, ToolFinished
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.telemetry.otlp import StepTiming, build_requests, to_protobuf
from lemming.telemetry.spans import compute_timings
from lemming.testing import FrozenClock, make_org, resume, say, tree

Spans = list[dict[str, Any]]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = make_traced(tmp_path_factory.mktemp("traced") / "org")
    for _ in range(2):
        run_once(base)
    return base


@pytest.fixture(scope="module")
def spans(traced: Path) -> Spans:
    return spans_of(traced)


def named(spans: Spans, name: str, tick: int = 1) -> Spans:
    return [it for it in spans if it["name"] == name and attributes(it)["lemming.tick"] == str(tick)]


def of(spans: Spans, agent: str, operation: str, tick: int = 1) -> list[dict[str, Any]]:
    found = map(attributes, spans)
    wanted = (operation, agent, str(tick))
    return [
        it for it in found if (it["gen_ai.operation.name"], it.get("gen_ai.agent.name"), it["lemming.tick"]) == wanted
    ]


def test_the_official_protobufs_read_what_is_sent(spans: Spans) -> None:
    (request,) = build_requests(spans, "org")
    read = ExportTraceServiceRequest.FromString(to_protobuf(request))
    (resource,) = read.resource_spans
    assert resource.resource.attributes[0].value.string_value == "org"
    taken = resource.scope_spans[0].spans
    assert [it.span_id.hex() for it in taken] == [it["spanId"] for it in spans]
    assert {len(it.trace_id) for it in taken} == {16}
    assert [it.start_time_unix_nano for it in taken] == [int(it["startTimeUnixNano"]) for it in spans]


def test_each_tick_is_a_trace_of_its_turns_and_each_turn_has_its_steps(spans: Spans) -> None:
    assert len({it["traceId"] for it in spans}) == 2
    assert len({it["spanId"] for it in spans}) == len(spans)
    by_id = {it["spanId"]: it for it in spans}
    for span in spans:
        operation = attributes(span)["gen_ai.operation.name"]
        above = by_id.get(span.get("parentSpanId", ""))
        expected = {"invoke_workflow": None, "invoke_agent": "invoke_workflow"}
        of_parent = attributes(above)["gen_ai.operation.name"] if above else None
        assert of_parent == expected.get(operation, "invoke_agent")
        if above:
            assert int(above["startTimeUnixNano"]) <= int(span["startTimeUnixNano"])
            assert int(span["endTimeUnixNano"]) <= int(above["endTimeUnixNano"])
            assert above["traceId"] == span["traceId"]


def test_exporting_again_gives_the_same_and_so_does_a_copy(traced: Path, spans: Spans, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(traced, copy)
    assert spans_of(traced) == spans == spans_of(copy)


def test_ticks_of_one_number_in_two_organisations_are_two_traces(tmp_path: Path) -> None:
    ids = []
    for number in range(2):
        clock = FrozenClock()
        clock.advance(number)
        base = make_org(tmp_path / str(number), resume("ada"))
        run_once(base, clock=clock)
        ids.append({it["traceId"] for it in spans_of(base)})
    assert ids[0].isdisjoint(ids[1])


def test_who_was_not_asked_has_no_span(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob", wake="changed"), resume("cyd", credits={"max_credits": 1}))
    for _ in range(2):
        run_once(base)
    (base / "agents/ada/resume.json").write_text(json.dumps(resume("ada", paused="by me")))
    run_once(base)
    asked = [attributes(it)["lemming.tick"] for it in spans_of(base) if it["name"] == "invoke_agent cyd"]
    assert asked == ["1"]


def test_looking_writes_nothing(traced: Path) -> None:
    before = tree(traced, without=())
    spans_of(traced, content=True)
    assert tree(traced, without=()) == before


def test_every_call_of_a_tool_has_a_span_with_its_end(spans: Spans) -> None:
    assert [it["name"] for it in spans if "tool" in it["name"] or "memory" in it["name"]][:3] == [
        "execute_tool file_write",
        "execute_tool file_read",
        "upsert_memory memory_write",
    ]
    (wrote,), (failed,) = (named(spans, f"execute_tool file_{it}") for it in ("write", "read"))
    assert attributes(wrote)["gen_ai.tool.call.id"] == "1/ada/0"
    assert "status" not in wrote
    assert failed["status"] == {"code": 2}
    assert attributes(failed)["lemming.tool.outcome"] == attributes(failed)["error.type"] != "ok"


def test_a_correction_and_a_verdict_are_calls_of_their_own(spans: Spans) -> None:
    calls = of(spans, "bob", "chat")
    assert [it["lemming.call.for"] for it in calls] == ["reply", "correction", "verdict"]
    (turn,) = named(spans, "invoke_agent bob")
    assert "lemming.judged" in [event["name"] for event in turn["events"]]


def test_an_answer_of_a_fallback_says_whose_it_is_and_what_failed_before(spans: Spans) -> None:
    (call,) = of(spans, "dan", "chat")
    assert call["lemming.model_key"] == "scripted"
    (turn,) = (it for it in spans if it["name"] == "invoke_agent dan" and attributes(it)["lemming.tick"] == "1")
    (asked,) = (it for it in spans if it.get("parentSpanId") == turn["spanId"])
    (event,) = asked["events"]
    assert event["name"] == "lemming.failed_attempt"
    assert attributes(event)["error.type"] == "Unavailable"


def test_a_call_and_a_turn_that_failed_say_of_what(spans: Spans) -> None:
    (turn,) = of(spans, "cyd", "invoke_agent")
    (call,) = of(spans, "cyd", "chat")
    assert call["error.type"] == turn["error.type"] == "AuthenticationFailed"
    assert call["lemming.error.code"] == turn["lemming.error.code"] == "LMG-504"
    assert (turn["lemming.turn.status"], turn["lemming.turn.end"]) == ("failed", "no_answer")


def test_texts_are_left_out_unless_they_are_asked_for(traced: Path, spans: Spans) -> None:
    planted = ("PLANTED-CONTENT", "PLANTED-PATH", "PLANTED-ANSWER", "You are ada")
    assert [text for text in planted if text in str(spans)] == []
    with_content = str(spans_of(traced, content=True))
    assert [text for text in planted if text not in with_content] == []
    assert {it["spanId"] for it in spans_of(traced, content=True)} == {it["spanId"] for it in spans}


def test_a_secret_that_is_one_only_now_is_left_out(traced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lemming.kernel.base.redaction import secrets

    monkeypatch.setenv("ADA_API_KEY", "PLANTED-ANSWER")
    secrets.refresh()
    assert "PLANTED-ANSWER" not in str(spans_of(traced, content=True))
    monkeypatch.undo()
    secrets.refresh()


def test_messages_with_calls_have_the_form_of_the_conventions(base: Path) -> None:
    native = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "tools": "native"}
    script: list[dict[str, Any]] = [
        {"step": 0, "calls": [{"tool": "memory_read", "args": {}, "id": "c1"}], "thinking": "hm", "reply": ""},
        {"reply": say("done")},
    ]
    make_org(base, resume("ada", turn={"max_steps": 2}), script=script, models={"scripted": native})
    run_once(base)
    first, second = (it for it in spans_of(base, content=True) if it["name"].startswith("chat"))
    assert '"type":"reasoning","content":"hm"' in attributes(first)["gen_ai.output.messages"]
    assert '"type":"tool_call","id":"c1","name":"memory_read"' in attributes(first)["gen_ai.output.messages"]
    assert '"type":"tool_call_response","id":"c1"' in attributes(second)["gen_ai.input.messages"]


# --- times ------------------------------------------------------------------------------------------


def replied(call: int, clock: FrozenClock, duration_ms: int) -> ModelReplied:
    return ModelReplied(
        agent="ada", call=call, at=timestamp(clock.now()), text="", finish="stop", model="m", input_tokens=1,
        output_tokens=1, cached_tokens=0, is_estimated=False, credits=1.0, cost_usd=None,
        duration_ms=duration_ms,
    )  # fmt: skip


def test_an_answer_has_the_time_that_its_record_says_and_what_follows_comes_after_it() -> None:
    clock = FrozenClock()
    began = round(clock.now().timestamp() * 1000)
    clock.advance(5)
    answer = replied(0, clock, 2000)
    tool = ToolFinished(agent="ada", index=0, tool="t", success=True, output="", effects=[], duration_ms=300)
    failed = ModelFailed(agent="ada", call=1, error="TimedOut", message="", duration_ms=1000)
    turn, calls, tools = compute_timings([answer, tool, failed], began)
    assert calls == {0: StepTiming(began + 3000, began + 5000), 1: StepTiming(began + 5300, began + 6300)}
    assert tools == {0: StepTiming(began + 5000, began + 5300)}
    assert turn == StepTiming(began + 3000, began + 6300)


def test_an_answer_from_a_record_stands_where_it_was_used() -> None:
    clock = FrozenClock()
    old = replied(0, clock, 40)
    clock.advance(86_400)
    began = round(clock.now().timestamp() * 1000)
    assert compute_timings([old], began).calls == {0: StepTiming(began, began + 40)}


def test_names_are_those_of_the_released_conventions(spans: Spans) -> None:
    workflow = next(attributes(it) for it in spans if it["name"] == "invoke_workflow org")
    assert workflow["gen_ai.agent.name"] == "org"
    used = {key for span in spans for key in attributes(span)}
    assert not used & {"gen_ai.workflow.name", "gen_ai.agent.id", "gen_ai.agent.version"}


class WithACache(Backend):
    """A model whose server keeps prompts."""

    def complete(self, request: Request) -> Reply:
        """Answer, with what was read and written."""
        text = json.dumps(say("hi"))
        return Reply(text=text, input_tokens=9, output_tokens=1, cached_tokens=2, written_tokens=4)


def test_tokens_that_were_written_to_a_cache_are_told(base: Path) -> None:
    register_provider("with_a_cache", WithACache)
    make_org(base, resume("ada", model={"key": "m"}), models={"m": {"provider": "with_a_cache", "model": "m-1"}})
    run_once(base)
    _, turn, call = map(attributes, spans_of(base))
    assert turn["gen_ai.request.model"] == call["gen_ai.request.model"] == "m-1"
    assert call["gen_ai.usage.cache_read.input_tokens"] == "2"
    assert call["gen_ai.usage.cache_write.input_tokens"] == "4"
