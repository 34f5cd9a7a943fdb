"""A person clears what came from outside, and `why` tells the way on which it came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming, typed_at
from test_files import call, tainted, worker
from tracked import newest, tick, tracked, write

from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import make_org, resume, say


@pytest.fixture
def lemming(base: Path, capsys: pytest.CaptureFixture[str]) -> Lemming:
    return typed_at(base, capsys)


def test_an_entry_that_is_vouched_for_makes_nobody_outside(base: Path, lemming: Lemming) -> None:
    tracked(base, resume("ada"), script=[{"reply": say("seen")}])
    said = write(base, "post", "the price is 4")
    lemming("vouch", said.id)
    assert tick(base)["ada"].trust == {"is": "agent"}
    again = write(base, "post", "the price is 5")
    assert tick(base)["ada"].trust["from"] == [{"is": "outside", "of": again.identity}]


def test_a_memory_is_cleared_as_it_is_and_for_its_next_reader(base: Path, lemming: Lemming) -> None:
    keeps = {"memory_updates": [{"key": "note", "value": 1}]}
    script = [{"tick": 1, "agent": "ada", "reply": say("a", **keeps)}, {"reply": {"outbox_entries": []}}]
    ada = resume("ada", permissions={"read_outboxes": ["post"], "tools": []})
    tracked(base, ada, script=script, retention_ticks=1)
    write(base, "post", "remember it")
    for _ in range(4):
        assert tick(base)["ada"].trust["is"] == "outside"
    for file in (base / "agents/ada/outbox").iterdir():  # what it wrote itself then is another matter
        file.unlink()
    lemming("vouch", "ada/memory/note")
    write(base, "eve", "good morning")
    for _ in range(5):
        tick(base)
    assert tick(base)["ada"].trust == {"is": "agent"}
    assert ["vouch" in it.payload["text"] for it in read_outbox_entries(base, "eve")] == [True]
    file = base / "agents/ada/memory/note.json"
    file.write_bytes(file.read_bytes().replace(b'"value": 1', b'"value": 2'))
    assert tick(base)["ada"].trust["is"] == "outside"


def test_a_file_is_cleared_as_it_is(base: Path, lemming: Lemming) -> None:
    reads = ("ben", call("file_read", path="shared/x.txt"))
    tainted(base, reads, ("ben", call("file_list", path="shared")), reads, retention_ticks=1)
    lemming("vouch", "shared/x.txt")
    assert tick(base)["ben"].trust == {"is": "agent"}
    assert tick(base)["ben"].trust == {"is": "agent"}
    (base / "shared/x.txt").write_text("another text")
    assert tick(base)["ben"].trust["is"] == "outside"


def test_what_is_written_anew_after_it_was_cleared_is_judged_anew(base: Path, lemming: Lemming) -> None:
    tainted(base, ("ben", call("file_append", path="shared/x.txt", content="mine")))
    lemming("vouch", "shared/x.txt")
    tick(base)
    assert json.loads((base / "trust/shared/x.txt.json").read_bytes())["trust"] == "agent"


@pytest.mark.parametrize("author", ["ada", "post"])
def test_only_a_persons_word_counts(base: Path, author: str) -> None:
    tracked(base, resume("ada"), resume("ben"))
    said = write(base, "post", "obey")
    write(base, author, "it is fine", vouches_for=said.identity)
    assert tick(base)["ben"].trust["is"] == "outside"


def test_a_word_for_a_file_names_what_it_held(base: Path) -> None:
    tainted(base, ("ben", call("file_read", path="shared/x.txt")))
    write(base, "eve", "it is fine", vouches_for="shared/x.txt")
    assert tick(base)["ben"].trust["is"] == "outside"


def test_the_command_says_what_is_wrong(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    assert "trust tracking is off" in lemming("vouch", "x").err
    tracked(base, resume("ada"))
    assert "there is no file" in lemming("vouch", "nothing/here").err
    assert "ada is not a person" in lemming("vouch", "config/org.json", "--as", "ada").err


def test_why_tells_the_way_back_to_the_stranger(base: Path, lemming: Lemming) -> None:
    tainted(
        base,
        ("ben", call("file_read", path="shared/x.txt")),
        ("ben", {**say("done"), "memory_updates": [{"key": "note", "value": 1}]}),
        ("ben", call("file_move", path="shared/x.txt", to="y.txt")),
    )
    for _ in range(3):
        tick(base)
    stranger = newest(base, "post")
    way = steps(lemming, "ben/memory/note")
    assert [(step["what"], step["tick"], step["agent"]) for step in way] == [
        ("agents/ben/memory/note.json", 3, "ben"),
        ("what file_read gave before", 2, "ben"),
        ("shared/x.txt", 1, "ada"),
        (stranger.identity, None, ""),
    ]
    assert {step["trust"] for step in way} == {"outside"}
    moved = steps(lemming, "agents/ben/workspace/y.txt")
    assert [step["what"] for step in moved][-1] == stranger.identity
    told = lemming("why", "ben/memory/note").out
    assert f"shared/x.txt: outside, of ada's turn in tick 1, because of {stranger.identity}" in told
    lemming("vouch", "ben/memory/note")
    vouched = steps(lemming, "ben/memory/note")[0]["vouched"]
    assert vouched == [newest(base, "eve").identity]


def steps(lemming: Lemming, target: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lemming("why", target, "--json").out)["trust"]
    return found


def test_why_finds_what_a_tracked_turn_saw_and_says_nothing_of_trust_elsewhere(base: Path, lemming: Lemming) -> None:
    tracked(base, worker("ada", ["post"]), script=[{"reply": say("seen")}])
    said = write(base, "post", "obey")
    tick(base)
    plain = json.loads(lemming("why", newest(base, "ada").id, "--json").out)
    assert [one["name"] for one in plain["target"]["turn"]["saw"]] == [said.id]
    assert "trust" not in json.loads(lemming("why", newest(base, "post").id, "--json").out)


def test_validate_names_rules_that_are_about_nobody_or_come_too_late(base: Path, lemming: Lemming) -> None:
    when = {"field": "verified.token", "op": "exists"}
    rules = [
        {"from": "adda", "is": "known"},
        {"from": "ada", "when": when, "is": "known"},
        {"from": "po*", "is": "known"},
        {"from": "post", "is": "outside"},
        {"from": "eve", "is": "agent"},
    ]
    tracked(base, resume("ada"), trust={"rules": rules})
    told = lemming("validate").err
    assert 'did you mean "ada"' in told
    assert '"ada" is not a channel' in told
    assert 'an earlier rule ("po*") already covers these agents' in told
    assert '"eve"' not in told
