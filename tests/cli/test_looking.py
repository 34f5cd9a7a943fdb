"""The commands that only look: status, plan, prompt, inbox, outbox, logs, agents, doctor."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from patience import PATIENCE_S
from terminal import Lemming, read_until, start

from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import read_journal
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.libraries.memory_files import save_memory
from lemming.libraries.outbox_files import write_person_entry
from lemming.operations.open_org import open_org
from lemming.testing import make_org, resume, say, tree

EVERY_LOOK = [
    ["status"],
    ["plan", "--ticks", "3"],
    ["prompt", "ada"],
    ["inbox", "ada"],
    ["outbox", "ada"],
    ["logs"],
    ["logs", "ada"],
    ["agents", "list"],
    ["agents", "show", "ada"],
    ["memory", "list", "ada"],
    ["credits", "show"],
    ["models", "list"],
    ["validate"],
    ["doctor"],
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("words", EVERY_LOOK, ids=" ".join)
def test_looking_changes_nothing_and_works_beside_an_engine(base: Path, lemming: Lemming, words: list[str]) -> None:
    make_org(base, resume("ada"), resume("bob"))
    lemming("run-once", "-q")
    with open_org(base):
        before = tree(base, without=())
        ran = lemming(*words)
        assert tree(base, without=()) == before
    assert ran.status == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize("words", EVERY_LOOK, ids=" ".join)
def test_json_is_one_object_a_line_each_with_version_and_type(base: Path, lemming: Lemming, words: list[str]) -> None:
    make_org(base, resume("ada"), resume("bob"))
    lemming("run-once", "-q")
    for plain in lemming(*words, "--json").objects:
        assert list(plain)[:2] == ["v", "type"]
        assert plain["v"] == 1


# --- status --------------------------------------------------------------------------------------


def test_status_shows_every_agent_and_the_last_tick(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", credits={"max_credits": 10}), resume("bob", schedule={"run_every_n_ticks": 5}))
    lemming("run-once", "-q")
    lines = lemming("status").out.splitlines()
    assert lines[1] == "tick 2 is next; no engine is running"
    assert lines[2] == "tick 1: 1 done, 1 entry, 1 call, 1 credit, 318 tokens in, 31 out, no price"
    assert lines[5].split() == ["ada", "scripted", "2", "done", "(1)", "1", "1", "of", "10", "no", "price"]
    assert lines[6].split() == ["bob", "scripted", "5", "-", "0", "0", "-"]


@pytest.mark.parametrize(
    "words",
    [
        ["status"], ["agents", "list"], ["credits", "show"], ["memory", "list", "ada"], ["cost"],
        ["models", "list"], ["tools", "list"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_list_is_as_long_as_one_wants_and_says_what_it_leaves_out(
    base: Path, lemming: Lemming, words: list[str]
) -> None:
    make_org(base, resume("ada"), resume("bob"), models={"fast": {"provider": "ollama", "model": "m"}})
    for key in ("a", "b"):
        save_memory(base, "ada", key, 1)
    lemming("run-once", "-q")
    whole, few = lemming(*words, "--json"), lemming(*words, "--limit", "1", "--json")
    if words == ["status"]:
        assert ([it["agent"] for it in few.objects[0]["agents"]], len(whole.objects[0]["agents"])) == (["ada"], 2)
    else:
        assert len(whole.objects) > len(few.objects) == (2 if words == ["cost"] else 1)
    assert ("more; raise --limit to see them" in few.err, "more" in whole.err) == (True, False)


def test_who_is_in_trouble_and_what_came_last_are_first_in_a_short_list(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob", schedule={"run_every_n_ticks": 2}), resume("cyd"))
    for _ in range(2):
        lemming("run-once", "-q")
    first, total = lemming("cost", "--by", "tick", "--limit", "1", "--json").objects
    assert (first["tick"], total["turns"]) == (2, 5)
    (base / "agents/cyd/resume.json").write_text("{")
    assert [it["agent"] for it in lemming("status", "--limit", "1", "--json").objects[0]["agents"]] == ["cyd"]


def test_status_names_the_running_engine(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    with open_org(base, command="run-forever"):
        assert "running: run-forever, pid" in lemming("status").out
        assert lemming("status", "--json").objects[0]["engine"]["command"] == "run-forever"
    assert lemming("status", "--json").objects[0]["engine"] is None


def test_status_says_that_a_counter_was_set_back(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    for _ in range(2):
        lemming("run-once", "-q")
    assert "is over" not in lemming("status").err
    (base / "tick.json").write_text('{"current_tick": 1}')
    told = lemming("status").err
    assert "tick 1 is over: tick 2 has started\n  fix: `lemming repair`" in told


def test_status_marks_what_is_broken_and_says_why(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", model={"key": "scriptd"}), resume("bob", schedule="daily"))
    ran = lemming("status")
    assert ran.status == 0
    assert ran.out.count("PROBLEM") == 2
    assert 'model key "scriptd" does not exist (did you mean "scripted"?)' in ran.err
    assert "bob: out of service: agents/bob/resume.json" in ran.err


# --- plan and prompt -----------------------------------------------------------------------------


def test_plan_shows_order_fire_points_and_why_the_others_rest(base: Path, lemming: Lemming) -> None:
    make_org(
        base,
        resume("ada", schedule={"run_every_n_ticks": 4, "phase_offset": 1}),
        resume("bob", schedule={"run_every_n_ticks": 4, "phase_offset": 2}),
        resume("cyd", schedule={"run_every_n_ticks": 1}),
        resume("human", model={"key": "human"}),
    )
    lines = lemming("plan", "--from", "2", "--ticks", "2").out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["tick", "2"], ["0.00", "cyd"], ["0.50", "bob"]]
    assert lines[3].split() == ["-", "ada", "not", "due", "until", "tick", "3"]
    assert lines[4].split() == ["-", "human", "a", "person", "speaks", "for", "it"]
    assert lines[5].split() == ["longest", "chain:", "2", "of", "2", "turns:", "cyd", ">", "bob"]
    assert [line.split()[:2] for line in lines[6:9]] == [["tick", "3"], ["0.00", "cyd"], ["0.75", "ada"]]


def test_plan_says_which_permission_makes_an_agent_wait(base: Path, lemming: Lemming) -> None:
    person = resume("human", model={"key": "human"})
    make_org(base, resume("ada"), resume("bob"), resume("cyd", permissions={}), person)
    assert "waits for all agents before it" in lemming("plan").out
    told = lemming("plan", "--why", "ada", "bob").out
    assert told.splitlines()[0] == "bob waits for ada, which comes first in the order of a tick:"
    assert 'permissions.read_outboxes has "*"' in told
    assert "cyd does not wait for ada" in lemming("plan", "--why", "cyd", "ada").out
    assert lemming("plan", "--why", "bob", "ada", "--json").objects[0]["reasons"]
    assert 'did you mean "ada"?' in lemming("plan", "--why", "adda", "bob").err
    assert "human takes no turn" in lemming("plan", "--why", "ada", "human").err
    assert "expected two agents, got the same one twice" in lemming("plan", "--why", "ada", "ada").err
    assert lemming("plan", "--json").objects[0]["longest_chain"] == ["ada", "bob"]


def test_plan_says_who_would_sit_the_next_tick_out(base: Path, lemming: Lemming) -> None:
    changed = {"schedule": {"wake": "changed"}}
    make_org(
        base,
        resume("ada", permissions={"read_outboxes": []}, **changed),
        resume("bob", permissions={"read_outboxes": ["ada"]}, **changed),
        resume("cyd", credits={"max_credits": 0}),
        resume("dan", model={"key": "gone"}),
    )
    lemming("run-once", "-q")
    notes = {line["agent"]: line["note"] for line in lemming("plan", "--json").objects[0]["order"]}
    assert notes["ada"] == "would be skipped: nothing it reads has changed since tick 1"
    assert notes["bob"].endswith("since tick 1, unless ada writes first")
    assert notes["cyd"].startswith("would be skipped: out of credits: 0 of 0 spent")
    assert notes["dan"].startswith("would fail: ")
    why = {line["agent"]: line["why"] for line in lemming("plan", "--json").objects[0]["order"]}
    assert why == {"ada": "nothing_new", "bob": "nothing_new", "cyd": "out_of_credits", "dan": "failing"}


def test_plan_says_what_an_agent_would_wake_for(base: Path, lemming: Lemming) -> None:
    changed = {"schedule": {"wake": "changed"}}
    person = resume("human", model={"key": "human"})
    hears = {"read_outboxes": ["human"]}
    make_org(base, resume("ada", permissions=hears, **changed), resume("bob"), person)

    def reasons() -> list[tuple[str, str]]:
        return [(line["why"], line["reason"]) for line in lemming("plan", "--json").objects[0]["order"]]

    assert reasons() == [("news", "new to it: everything"), ("due", "")]
    lemming("run-once", "-q")
    lemming("send", "hello", "--to", "ada")
    save_memory(base, "ada", "plan", "rest")
    assert reasons()[0] == ("news", "new to it: memory plan, entries")
    assert "ada    new to it: memory plan, entries" in lemming("plan").out
    why = {line["agent"]: line["why"] for line in lemming("status", "--json").objects[0]["agents"]}
    assert why == {"ada": "due", "bob": "due", "human": "person"}


def test_prompt_is_what_the_next_turn_is_sent(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob", schedule={"run_every_n_ticks": 2}))
    write_person_entry(base, "bob", tick=1, kind="message", payload={"text": "hello"}, tags=[], created_at="")
    shown = lemming("prompt", "ada", "--json").objects[0]
    lemming("run-once", "-q")
    started = next(record for record in read_journal(base, 1) if isinstance(record, TurnStarted))
    assert shown["messages"] == started.prompt
    assert shown["schema"] == started.schema


def test_prompt_shows_also_who_is_idle_broke_or_not_due(base: Path, lemming: Lemming) -> None:
    make_org(
        base,
        resume("ada", schedule={"wake": "changed"}),
        resume("bob", credits={"max_credits": 0}),
        resume("cyd", schedule={"run_every_n_ticks": 9}),
    )
    lemming("run-once", "-q")
    for name in ("ada", "bob", "cyd"):
        ran = lemming("prompt", name)
        assert ran.status == 0
        assert f"You are {name}." in ran.out
    assert "not due until tick 9" in lemming("prompt", "cyd").err


def test_prompt_of_a_person_is_refused(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("human", model={"key": "human"}))
    ran = lemming("prompt", "human")
    assert ran.status == 2
    assert "lemming inbox human" in ran.err


def test_an_unknown_agent_gets_the_nearest_name(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("reporter"))
    for words in (["prompt", "reportr"], ["inbox", "reportr"], ["outbox", "reportr"], ["validate", "reportr"]):
        ran = lemming(*words)
        assert ran.status == 2
        assert 'fix: did you mean "reporter"?' in ran.err


# --- entries and logs ----------------------------------------------------------------------------


def test_an_inbox_marks_what_is_new(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob", schedule={"run_every_n_ticks": 9}))
    write_person_entry(base, "bob", tick=1, kind="message", payload={"text": "first"}, tags=[], created_at="")
    lemming("run-once", "-q")
    write_person_entry(base, "bob", tick=2, kind="request", payload={"text": "second"}, tags=["soon"], created_at="")
    assert lemming("inbox", "ada").out.splitlines() == [
        "   TICK  AGENT  KIND     TEXT",
        "*  2     bob    request  second #soon",
        "   1     bob    message  first",
    ]
    assert [entry["is_unread"] for entry in lemming("inbox", "ada", "--json").objects] == [True, False]


def test_a_persons_inbox_is_the_newest_in_the_order_of_the_ticks(base: Path, lemming: Lemming) -> None:
    late = resume("ada", schedule={"run_every_n_ticks": 2, "phase_offset": 1})
    make_org(base, late, resume("bob"), resume("human", model={"key": "human"}))
    lemming("run-once", "-q")
    lemming("run-once", "-q")
    shown = lemming("inbox", "human", "--peek").out.splitlines()[1:]
    assert [line.split()[:3] for line in shown] == [["*", "1", "bob"], ["*", "1", "ada"], ["*", "2", "bob"]]
    assert len(lemming("inbox", "human", "-n", "1").out.splitlines()) == 2


def test_an_outbox_can_be_narrowed(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    for number, kind in enumerate(("message", "report", "message", "report"), 1):
        write_person_entry(base, "ada", tick=number, kind=kind, payload={"n": number}, tags=[], created_at="")  # type: ignore[arg-type]
    assert [entry["tick"] for entry in lemming("outbox", "ada", "-n", "2", "--json").objects] == [3, 4]
    assert lemming("outbox", "ada", "--kind", "report").out.splitlines() == [
        "TICK  AGENT  KIND    TEXT",
        "2     ada    report  n: 2",
        "4     ada    report  n: 4",
    ]


def test_files_an_outbox_ignores_are_mentioned(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    fs.write_atomic(base, "agents/ada/outbox/notes.txt", b"hello")
    assert "1 file ignored; `lemming validate ada` says why" in lemming("outbox", "ada").err


def test_logs_are_lines_for_people(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"agent": "bob", "reply": "no"}, {"reply": say("hi")}])
    lemming("run-once", "-q")
    assert "tick 1  ada  turn done  entries=1" in lemming("logs", "-n", "2").out
    assert "tick 1  bob  agent_failed failed" in lemming("logs", "bob").out
    assert [line["agent"] for line in lemming("logs", "--json").objects] == ["ada", "bob"]
    assert len(lemming("logs", "-n", "1").out.splitlines()) == 1
    bob = ["bob"]
    for words in (["--level", "warning"], ["--grep", "BOB"], ["--grep", "bob", "--since", "1h", "-n", "1"]):
        assert [line["agent"] for line in lemming("logs", "--json", *words).objects] == bob, words
    assert "no log lines" in lemming("logs", "--level", "critical").err


def test_logs_follow_what_is_added(base: Path) -> None:
    make_org(base, resume("ada"))
    fs.append(base, "logs/engine.log", b'{"event": "one"}\n{"event": "tw')
    with start("-C", str(base), "logs", "-f") as process:
        read_until(process.stdout, "one")
        fs.append(base, "logs/engine.log", b'o"}\n')
        assert read_until(process.stdout, "two") == "two\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_what_a_ledger_that_cannot_be_read_holds_is_not_said_to_be_nothing(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", credits={"max_credits": 7}))
    lemming("run-once")
    (base / "agents/ada/turns.jsonl").write_text("no ledger\n")
    (row,) = (line for line in lemming("status").out.splitlines() if line.startswith("ada "))
    assert row.split() == ["ada", "scripted", "2", "-", "-", "-", "-", "PROBLEM"]


def test_a_tick_has_the_totals_that_the_run_printed(base: Path, lemming: Lemming) -> None:
    human = resume("human", model={"key": "human"})
    make_org(base, resume("ada"), human, models={"human": {"provider": "human"}})
    ran = lemming("run-once", "--agent", "ada")
    assert "1 done, 1 entry" in ran.err
    assert "totals    1 done, 1 entry" in lemming("tick").out
    assert lemming("tick", "--json").objects[0]["totals"]["skipped"] == 0


def test_an_answer_of_a_program_without_a_model_begins_with_its_time(base: Path, lemming: Lemming) -> None:
    reply = '{"outbox_entries": [], "tool_calls": [], "memory_updates": []}'
    command = {"command": ["echo", reply], "effects": "none"}
    models = {"program": {"provider": "cli", "prompt": "values", "options": command}}
    make_org(base, resume("ada", model={"key": "program"}), models=models)
    lemming("run-once", "--trust")
    assert re.search(r"^  answer    [0-9.]+s, 1 credit", lemming("tick").out, re.MULTILINE)
