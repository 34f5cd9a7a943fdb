"""Asking: ticks are run until the answer is there, or the engine that runs is waited for."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from asked import tried_once
from desk import PERSON
from patience import PATIENCE_S
from terminal import Lemming, start

import lemming as package
from lemming import engine
from lemming.client.ask_client import AskOutcome, WorkProgress, ask
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.obligations.org_requests import load_requests
from lemming.obligations.request_entries import write_answer
from lemming.testing import FrozenClock, make_org, resume, say, write_script

CHANGED = {"schedule": {"wake": "changed"}}
QUIET = {"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": "nothing"}
PEOPLE = {"human": {"provider": "human"}}


def request(target: str, text: str) -> dict[str, Any]:
    """Return a reply that asks somebody something."""
    reply = say("", kind="request")
    reply["outbox_entries"][0]["payload"] = {"text": text, "target": target}
    return reply


@pytest.fixture
def org(base: Path) -> Path:
    """Ada asks bob what she is asked, and says what he says; so cyd asks eve. Eve and human are people."""
    script = [
        {"agent": "bob", "contains": "Asked of you", "reply": say("at nine")},
        {"agent": "ada", "contains": "at nine", "reply": say("It leaves at nine.")},
        {"agent": "ada", "contains": "Asked of you", "reply": request("bob", "When?")},
        {"agent": "cyd", "contains": "says eve", "reply": say("Eve has said it.")},
        {"agent": "cyd", "contains": "Asked of you", "reply": request("eve", "Say it")},
        {"reply": QUIET},
    ]
    agents = (resume(name, turn={"take": "one"}, **CHANGED) for name in ("ada", "bob", "cyd"))
    people = (resume(name, **PERSON) for name in ("human", "eve"))
    return make_org(base, *agents, *people, script=script, models=PEOPLE)


def test_ticks_are_run_until_the_answer_is_there(org: Path) -> None:
    work: list[WorkProgress] = []
    outcome = ask(org, "ada", "When does it leave?", clock=FrozenClock(), at_work=work.append)
    assert (outcome.end, outcome.answer, outcome.has_answer) == ("answered", "It leaves at nine.", True)
    assert [each.assignees for each in work] == [("ada",), ("bob",), ("ada",)]
    assert load_tick(org) <= 4


def test_what_was_asked_stands_in_the_persons_outbox(org: Path) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    ask(org, "ada", "When?", clock=FrozenClock(), conversation="ferry", deadline=9, schema=schema)
    (entry,) = read_outbox_entries(org, "human")
    assert entry.kind == "request"
    assert entry.payload == {"text": "When?", "target": "ada", "conversation": "ferry", "deadline": 9, "schema": schema}


def test_the_answer_of_another_person_is_waited_for(org: Path) -> None:
    def eve_answers(work: WorkProgress) -> None:
        if work.assignees == ("eve",):
            (open_one,) = [it for it in load_requests(org).requests.unresolved_requests if it.assignees == ("eve",)]
            write_answer(org, open_one.id, text="says eve")

    outcome = ask(org, "cyd", "Has she said it?", person="human", clock=FrozenClock(), at_work=eve_answers)
    assert outcome.answer == "Eve has said it."


def test_who_asks_does_not_wait_for_what_waits_for_them(org: Path) -> None:
    outcome = ask(org, "cyd", "Has she said it?", person="eve", clock=FrozenClock())
    assert (outcome.end, outcome.why) == (None, "waits_for_asker")


@pytest.mark.parametrize(("status", "end"), [("refused", "refused"), ("failed", "failed"), ("answered", "answered")])
def test_what_came_of_it_is_told_apart(org: Path, status: str, end: str) -> None:
    reply = say("so it is", kind="response")
    reply["outbox_entries"][0]["payload"]["status"] = status
    write_script(org, [{"reply": reply}])
    outcome = ask(org, "ada", "Well?", clock=FrozenClock())
    assert (outcome.end, outcome.answer) == (end, "so it is" if end == "answered" else None)


def test_a_turn_that_fails_again_and_again_is_not_waited_for(org: Path) -> None:
    write_script(org, [{"error": "Unavailable"}])
    outcome = ask(tried_once(org), "ada", "Well?", clock=FrozenClock())
    assert (outcome.end, outcome.why, outcome.error) == (None, "failing", "Unavailable")
    assert outcome.request.assignees == ("ada",)


def test_time_is_up_after_the_turns_under_way(org: Path) -> None:
    stop = threading.Event()
    outcome = ask(org, "ada", "Well?", clock=FrozenClock(), timeout_s=0.0, stop=stop)
    assert (outcome.end, outcome.why) == (None, "timeout")
    assert not stop.is_set()  # it is the caller's
    stop.set()
    assert ask(org, "ada", "Well?", clock=FrozenClock(), stop=stop).why == "stopped"


def test_what_is_no_time_is_refused_and_more_than_a_thread_waits_is_no_limit(org: Path) -> None:
    with pytest.raises(UsageError, match="must be a number of seconds"):
        ask(org, "ada", "Well?", clock=FrozenClock(), timeout_s=float("nan"))
    assert load_requests(Organisation(org)).requests.by_identity == {}
    assert ask(org, "ada", "Well?", clock=FrozenClock(), timeout_s=float("inf")).end == "answered"


def test_the_engine_that_runs_is_waited_for(org: Path) -> None:
    reports = engine.ticks(org, interval_s=0, clock=FrozenClock())
    next(reports)  # from here on it holds the organisation
    asked, outcomes = threading.Event(), []

    def ask_it() -> None:
        outcomes.append(ask(org, "bob", "When?", asked=lambda _: asked.set()))

    asker = threading.Thread(target=ask_it)
    asker.start()
    assert asked.wait(PATIENCE_S)
    next(reports)
    asker.join(PATIENCE_S)
    reports.close()  # type: ignore[attr-defined]
    assert [outcome.answer for outcome in outcomes] == ["at nine"]


def test_when_the_engine_ends_who_asks_goes_on(org: Path) -> None:
    reports = engine.ticks(org, interval_s=0, clock=FrozenClock())
    next(reports)
    outcomes: list[AskOutcome[Any]] = []
    asked = threading.Event()
    asker = threading.Thread(target=lambda: outcomes.append(ask(org, "bob", "When?", asked=lambda _: asked.set())))
    asker.start()
    assert asked.wait(PATIENCE_S)
    reports.close()  # type: ignore[attr-defined]
    asker.join(PATIENCE_S)
    assert [outcome.answer for outcome in outcomes] == ["at nine"]


def test_it_is_there_for_programs_too(org: Path) -> None:
    assert package.ask(org, "bob", "When?", clock=FrozenClock()).answer == "at nine"

    async def both() -> list[AskOutcome[Any]]:
        return await asyncio.gather(package.aask(org, "bob", "When?"), package.aask(org, "ada", "When?"))

    assert [it.answer for it in asyncio.run(both())] == ["at nine", "It leaves at nine."]


@pytest.mark.parametrize(
    ("reads", "line"),
    [
        ({"ada": [], "human": ["*"]}, 'add "human" to permissions.read_outboxes in agents/ada/resume.json'),
        ({"ada": ["*"], "human": []}, 'add "ada" to permissions.read_outboxes in agents/human/resume.json'),
    ],
)
def test_who_cannot_be_reached_is_not_asked(base: Path, reads: dict[str, list[str]], line: str) -> None:
    people = {"ada": {}, "human": PERSON}
    agents = (resume(name, permissions={"read_outboxes": reads[name], "tools": []}, **people[name]) for name in people)
    make_org(base, *agents, models=PEOPLE)
    with pytest.raises(UsageError) as error:
        ask(base, "ada", "Well?")
    assert error.value.hint == line
    assert read_outbox_entries(base, "human") == []


def test_mistakes_are_told_before_anything_is_written(org: Path) -> None:
    (org / "agents/dan").mkdir()
    (org / "agents/dan/resume.json").write_text("{")
    for words in (("nobody", "hi"), ("human", "hi"), ("ada", " ")):
        with pytest.raises(UsageError):
            ask(org, *words)
    with pytest.raises(ConfigError):
        ask(org, "dan", "hi")
    assert read_outbox_entries(org, "human") == []


# --- the commands ---------------------------------------------------------------------------------


def test_ask_prints_the_answer_and_who_was_at_work(org: Path, lemming: Lemming) -> None:
    ran = lemming("ask", "ada", "When does it leave?")
    assert (ran.status, ran.out) == (0, "It leaves at nine.\n")
    assert "tick 1: ada is at work" in ran.err
    assert "bob is at work" in ran.err
    assert lemming("ask", "-q", "bob", "And then?").err == ""


def test_ask_says_that_an_interrupted_tick_is_continued_first(org: Path, lemming: Lemming) -> None:
    lemming("run-once", "-q")
    assert "continues" not in lemming("ask", "bob", "When?").err
    tick = load_tick(org) - 1
    journal = org / f"logs/ticks/{tick:08}.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:2]))
    (org / "tick.json").write_text(f'{{"current_tick": {tick}}}')
    told = lemming("ask", "ada", "When does it leave?").err
    assert f"tick {tick} continues: " in told
    assert told.index(f"tick {tick} continues: ") < told.index("is at work")


def test_ask_prints_facts_as_json(org: Path, lemming: Lemming) -> None:
    (shown,) = lemming("ask", "ada", "When?", "--json").objects
    assert (shown["type"], shown["answer"], shown["end"]) == ("answer", "It leaves at nine.", "answered")
    assert shown["cost"]["calls"] == 2
    assert shown["cost_with_children"]["calls"] == 3


@pytest.mark.parametrize(
    ("line", "status"), [({"reply": say("no", kind="response", **{})}, 0), ({"error": "AuthenticationFailed"}, 5)]
)
def test_the_exit_status_says_what_came_of_it(org: Path, lemming: Lemming, line: dict[str, Any], status: int) -> None:
    write_script(org, [line])
    ran = lemming("ask", "ada", "Well?", "--json")
    assert ran.status == status
    (shown,) = ran.objects
    assert shown["reason"].startswith("AuthenticationFailed: " if status else "")
    assert bool(shown["reason"]) == bool(status)


def test_no_answer_yet_says_how_to_come_back(org: Path, lemming: Lemming) -> None:
    ran = lemming("ask", "--as", "eve", "cyd", "Has she said it?")
    first = load_requests(org).requests.unresolved_requests[0]
    assert (ran.status, ran.out) == (9, "")
    assert f"`lemming requests {first.id}`" in ran.err
    assert "lemming waiting" in ran.err


def test_ask_wants_a_sound_schema(org: Path, lemming: Lemming, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    assert "cannot be read" in lemming("ask", "ada", "Well?", "--schema", str(file)).err
    for text, said in (("{", "is not JSON"), ("[]", "must contain a JSON Schema"), ('{"type": "strin"}', "strin")):
        file.write_text(text)
        ran = lemming("ask", "ada", "Well?", "--schema", str(file))
        assert (ran.status, said in ran.err) == (2, True)
    assert read_outbox_entries(org, "human") == []


def test_chat_is_a_conversation(org: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("When?\n\nAnd back?\n"))
    write_script(org, [{"agent": "bob", "contains": "At nine.", "reply": say("At ten.")}, {"reply": say("At nine.")}])
    ran = lemming("chat", "bob", "--conversation", "ferry")
    assert (ran.status, ran.out) == (0, "At nine.\nAt ten.\n")
    assert {it.conversation for it in load_requests(org).requests} == {"ferry"}


def test_a_line_that_is_piped_is_never_a_command(org: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("/pause bob\n"))
    write_script(org, [{"agent": "bob", "contains": "/pause bob", "reply": say("What is that?")}])
    ran = lemming("chat", "bob")
    assert (ran.status, ran.out) == (0, "What is that?\n")


def _until_asked(terminal: int) -> bytes:
    """Return what a program writes on a terminal up to where it asks for the next line."""
    said = b""
    while not said.endswith(b"> "):
        said += os.read(terminal, 4096)
    return said


def test_a_line_that_is_typed_may_be_a_command(org: Path) -> None:
    import pty

    write_script(org, [{"agent": "bob", "contains": "/nine or ten", "reply": say("At nine.")}])
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "lemming", "-C", str(org), "chat", "bob"]
    running = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True)
    os.close(theirs)
    said = b""
    for line in (
        b"/nonsense\n",
        b"/chat ada\n",
        b"/cost '\n",
        b"/help cost\n",
        b"//nine or ten?\n",
        b"/status\n",
        b"/quit\n",
    ):
        said += _until_asked(ours)
        os.write(ours, line)
    with suppress(OSError):  # the other end is closed: it has ended
        while piece := os.read(ours, 4096):
            said += piece
    os.close(ours)
    assert running.wait(PATIENCE_S) == 0, said
    for part in (
        b"nonsense",
        b"a chat is already running",
        b"close the quotes",
        b"Usage: lemming cost",
        b"At nine.",
        b"CREDITS",
    ):
        assert part in said, (part, said)


def test_ctrl_c_leaves_it_open_and_says_how_to_come_back(org: Path) -> None:
    heard = ""
    with start("-C", str(org), "ask", "--as", "human", "cyd", "Has she said it?") as process:
        assert process.stderr is not None
        for line in process.stderr:
            heard += line
            if "eve is at work" in line:
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    open_ids = {it.id for it in load_requests(Organisation(org)).requests.unresolved_requests}
    assert any(f"`lemming requests {id_}`" in heard for id_ in open_ids)
