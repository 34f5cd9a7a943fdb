"""The command channel: a program prints messages as JSON lines, and gets entries as such."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from doorway import answer_to, arrived, noted, with_channel

from lemming.engine import run_once
from lemming.git_history.history_reader import GitHistory
from lemming.git_history.rewind import rewind
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.operations.open_org import open_org
from lemming.testing import FrozenClock, make_org, resume

PROGRAM = """
import json, pathlib, sys
here = pathlib.Path(sys.argv[1])
given = [json.loads(line) for line in sys.stdin if line.strip()]
with open(here / "given.jsonl", "a") as file:
    for one in given:
        file.write(json.dumps(one) + "\\n")
name = "after.txt" if given else "says.txt"
said = here / name
sys.stdout.write(said.read_text() if said.exists() else "")
sys.exit(int((here / "status").read_text()) if (here / "status").exists() else 0)
"""


ADDER = """
import json, sys
request = json.load(sys.stdin)["request"]
entry = {"kind": "response", "payload": {"sum": sum(request["payload"]["numbers"])}, "tags": []}
json.dump({"outbox_entries": [entry], "tool_calls": [], "memory_updates": [], "notes": ""}, sys.stdout)
"""


def program(base: Path, tmp_path: Path, *said: Any, **options: Any) -> Path:
    """Make an organisation whose channel is a program that prints these lines, and return where it is."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    with_channel(base, {"command": command, "to": "desk", **options}, provider="command")
    says(tmp_path, *said)
    return tmp_path


def says(where: Path, *said: Any, after: bool = False) -> None:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in said]
    (where / ("after.txt" if after else "says.txt")).write_text("\n".join(lines))


def given(where: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (where / "given.jsonl").read_text().splitlines()]


def test_a_message_that_is_printed_again_is_one_entry(base: Path, tmp_path: Path) -> None:
    program(base, tmp_path, {"id": "m-1", "text": "Hello?", "from": "ada", "payload": {"room": 4}})
    for _ in range(3):
        run_once(base, clock=FrozenClock())
    [entry] = arrived(base)
    assert entry.kind == "request"
    assert entry.payload == {
        "text": "Hello?",
        "target": "desk",
        "from": "ada",
        "channel": "command",
        "message_id": "m-1",
        "body": {"room": 4},
    }


def test_an_answer_is_given_to_the_program_with_its_key_until_it_takes_it(base: Path, tmp_path: Path) -> None:
    where, clock = program(base, tmp_path, {"id": "m-1", "text": "Hello?"}), FrozenClock()
    run_once(base, clock=clock)
    answer_to(base, arrived(base)[0], "Hello.")
    says(where, {"type": "failed", "why": "not now"}, after=True)
    run_once(base, clock=clock)
    says(where, {"type": "delivered"}, after=True)
    run_once(base, clock=clock)
    assert len(given(where)) == 1, "it waits before it tries again"
    clock.advance(11)
    run_once(base, clock=clock)
    first, second = given(where)
    assert first == second
    assert first["key"].startswith("desk/")
    assert (first["text"], first["answers"]) == ("Hello.", "m-1")
    assert [line["did"] for line in noted(base)] == ["received", "failed", "delivered"]


def test_what_the_program_says_it_will_never_take_is_given_up(base: Path, tmp_path: Path) -> None:
    where = program(base, tmp_path, {"id": "m-1", "text": "Hello?"})
    run_once(base, clock=FrozenClock())
    answer_to(base, arrived(base)[0], "Hello.")
    says(where, {"type": "failed", "why": "no such room", "retry": False}, after=True)
    run_once(base, clock=FrozenClock())
    assert noted(base)[-1]["did"] == "gave_up"
    assert noted(base)[-1]["why"] == "no such room"


def test_lines_that_are_no_messages_are_refused_and_the_others_taken(base: Path, tmp_path: Path) -> None:
    said = ["no json", {"id": "m-1"}, {"id": "m-2", "text": "x", "target": "boss"}, {"id": "m-3", "text": "yes"}]
    program(base, tmp_path, *said)
    run_once(base, clock=FrozenClock())
    assert [entry.payload["message_id"] for entry in arrived(base)] == ["m-3"]
    assert [line["why"] for line in noted(base) if line["did"] == "refused"] == [
        "expected one JSON object per line, got another line",
        'a message must have "id" and "text", both texts',
        'unknown key "target"; keys: type, id, text, from, kind, payload',
    ]


def test_a_program_that_fails_is_left_alone_for_a_while_and_ticks_go_on(base: Path, tmp_path: Path) -> None:
    where, clock = program(base, tmp_path, {"id": "m-1", "text": "Hello?"}), FrozenClock()
    (where / "status").write_text("3")
    for _ in range(3):
        assert run_once(base, clock=clock).is_complete
    assert [line["did"] for line in noted(base)] == ["down"]
    (where / "status").unlink()
    clock.advance(10)
    run_once(base, clock=clock)
    assert [line["did"] for line in noted(base)] == ["down", "received", "up"]


def test_a_sender_may_write_so_much_an_hour(base: Path, tmp_path: Path) -> None:
    said = [{"id": f"m-{number}", "text": "again", "from": "ada"} for number in range(5)]
    clock = FrozenClock()
    program(base, tmp_path, *said, {"id": "other", "text": "once", "from": "bob"}, per_sender_an_hour=2)
    run_once(base, clock=clock)
    assert [entry.payload["from"] for entry in arrived(base)].count("ada") == 2
    assert [entry.payload["from"] for entry in arrived(base)].count("bob") == 1
    clock.advance(3601)
    run_once(base, clock=clock)
    assert len(arrived(base)) == 5


def test_a_program_is_an_agent_that_answers_without_a_model(base: Path, tmp_path: Path) -> None:
    adder = tmp_path / "adder.py"
    adder.write_text(ADDER)
    asked = {"text": "add them", "numbers": [19, 23], "target": "adder"}
    line = {
        "provider": "cli",
        "prompt": "values",
        "options": {"command": [sys.executable, "-I", str(adder)], "effects": "none"},
    }
    make_org(
        base,
        resume("adder", model={"key": "adder"}, turn={"take": "one"}),
        resume("human", model={"key": "human"}),
        models={"adder": line},
    )
    request = write_person_entry(base, "human", tick=1, kind="request", payload=asked, tags=[], created_at="")
    run_once(base, clock=FrozenClock())
    [answer] = read_outbox_entries(base, "adder")
    assert (answer.kind, answer.payload["sum"]) == ("response", 42)
    assert answer.payload["reply_to"] in (request.id, f"human/00000001_{request.id}")


def test_what_was_sent_is_not_sent_again_after_a_rewind(base: Path, tmp_path: Path) -> None:
    said = [{"id": f"m-{number}", "text": "Hello?", "from": "ada"} for number in (1, 2)]
    where = program(base, tmp_path, said[0])
    (base / "config/org.json").write_text(json.dumps({"history": "git", "durability": "off"}))
    run_once(base, clock=FrozenClock())
    answer_to(base, arrived(base)[0], "Good morning.")
    run_once(base, clock=FrozenClock())  # its commit is made before the answer goes out
    says(where, said[1])
    run_once(base, clock=FrozenClock())
    answer_to(base, arrived(base)[1], "Good evening.")
    run_once(base, clock=FrozenClock())
    assert [one["text"] for one in given(where)] == ["Good morning.", "Good evening."]
    with open_org(base, clock=FrozenClock()) as runtime:
        rewind(runtime, GitHistory(base), GitHistory(base).resolve_state("2"))
    assert [line["did"] for line in noted(base)] == ["received", "delivered"]
    for _ in range(5):
        run_once(base, clock=FrozenClock())
    # what comes anew after the rewind goes out, although its entry may have an id that was sent before
    assert [one["text"] for one in given(where)] == ["Good morning.", "Good evening."]
    assert [line["did"] for line in noted(base)] == ["received", "delivered", "received"]
    answer_to(base, arrived(base)[1], "Good night.")
    run_once(base, clock=FrozenClock())
    assert [one["text"] for one in given(where)] == ["Good morning.", "Good evening.", "Good night."]
