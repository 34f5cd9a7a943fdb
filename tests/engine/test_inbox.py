"""What a turn sees, and that nothing is shown twice or lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.engine import load_tick, run_once
from lemming.journal_tools.outbox_validation import validate_outbox
from lemming.kernel.agents import load_agent
from lemming.kernel.base.jsontext import dump_compact, dump_pretty, parse
from lemming.kernel.journal.engine_events import ProblemFound
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import OutboxEntry
from lemming.libraries.outbox_files import write_person_entry
from lemming.messages import collect_readable_outboxes, write_outbox_entry
from lemming.testing import journal_lines, make_org, resume, say

QUIET = {"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": "quiet"}


def seen(base: Path, tick: int, agent: str) -> list[str]:
    """The ids of the new entries that a turn was shown."""
    started = [r for r in journal_lines(base, tick) if r["type"] == "turn_started" and r["agent"] == agent]
    return list(started[0]["entries"]) if started else []


def speak(base: Path, text: str, tick: int | None = None) -> OutboxEntry:
    when = load_tick(base) if tick is None else tick
    return write_person_entry(base, "human", tick=when, kind="message", payload={"text": text}, tags=[], created_at="x")


def drop(base: Path, author: str, tick: int, identity: str, text: str = "by hand") -> None:
    entry = OutboxEntry(identity, tick, author, "message", {"text": text}, [], "2026-01-01T00:00:00Z")
    write_outbox_entry(base, author, entry)


@pytest.fixture
def org(base: Path) -> Path:
    return make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("reader"),
        resume("zoe", permissions={"read_outboxes": ["reader"]}),
        script=[{"agent": "zoe", "reply": say("z")}, {"reply": QUIET}],
    )


def test_every_entry_is_shown_once(org: Path) -> None:
    first = speak(org, "one")
    run_once(org)
    run_once(org)
    second = speak(org, "two")
    run_once(org)
    shown = [seen(org, tick, "reader") for tick in (1, 2, 3)]
    assert shown[0] == [first.id]
    assert first.id not in shown[1] + shown[2]
    assert second.id in shown[2]


def test_an_agent_sees_those_before_it_in_the_same_tick_and_the_others_one_tick_later(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("x")}])
    run_once(base)
    run_once(base)
    ids = {
        tick: {r["agent"]: r["entries"][0]["id"] for r in journal_lines(base, tick) if r["type"] == "turn_committed"}
        for tick in (1, 2)
    }
    assert seen(base, 1, "ada") == []
    assert seen(base, 1, "bob") == [ids[1]["ada"]]
    assert seen(base, 2, "ada") == [ids[1]["bob"]]
    assert seen(base, 2, "bob") == [ids[2]["ada"]]


def test_with_visibility_tick_nobody_sees_the_tick_under_way(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("x")}], org={"visibility": "tick"})
    run_once(base)
    run_once(base)
    assert seen(base, 1, "bob") == []
    assert len(seen(base, 2, "bob")) == len(seen(base, 2, "ada")) == 1


def test_more_than_the_limit_stays_unread_oldest_first_and_the_prompt_says_how_many(base: Path) -> None:
    make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("reader"),
        script=[{"reply": QUIET}],
        org={"inbox_limit": 2},
    )
    sent = [speak(base, f"n{number}") for number in range(5)]
    ids = [entry.id for entry in sent]
    for _ in range(4):
        run_once(base)
    assert [seen(base, tick, "reader") for tick in (1, 2, 3, 4)] == [ids[:2], ids[2:4], ids[4:], []]
    prompt = next(r for r in journal_lines(base, 1) if r["type"] == "turn_started")["prompt"]
    assert "3 more wait for your next turn" in prompt[-1]["content"]


def test_room_in_characters_is_a_limit_too_but_never_blocks_a_long_entry(base: Path) -> None:
    make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("reader"),
        script=[{"reply": QUIET}],
        org={"inbox_chars": 50},
    )
    ids = [speak(base, "long " * 40).id, speak(base, "short").id]
    run_once(base)
    run_once(base)
    assert [seen(base, 1, "reader"), seen(base, 2, "reader")] == [ids[:1], ids[1:]]


def test_an_entry_dropped_by_hand_with_an_old_tick_is_shown_once(org: Path) -> None:
    for _ in range(3):
        run_once(org)
    drop(org, "human", 1, "abc123")
    for _ in range(2):
        run_once(org)
    assert "abc123" in seen(org, 4, "reader")
    assert "abc123" not in seen(org, 5, "reader")


@pytest.mark.parametrize("wake", ["always", "changed"])
@pytest.mark.parametrize(
    ("author", "tick", "identity"), [("human", 5, "note"), ("zoe", 4, "note"), ("human", 4, "{derived}")]
)
def test_an_entry_whose_id_was_used_before_is_new(base: Path, wake: str, author: str, tick: int, identity: str) -> None:
    make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("zoe", model={"key": "human"}),
        resume("reader", schedule={"wake": wake}),
        script=[{"reply": QUIET}],
        models={"human": {"provider": "human"}},
    )
    derived = speak(base, "first", tick=1).id
    used = identity.format(derived=derived)
    drop(base, "human", 3, "note")
    for _ in range(5):
        run_once(base)
    drop(base, author, tick, used, "again")
    run_once(base)
    run_once(base)
    assert [seen(base, when, "reader") for when in (6, 7)] == [[used], []]


@pytest.mark.parametrize("old", [{"also": ["note"]}, {"also": [], "by_hand": ["human/00000001_note"]}])
def test_what_a_ledger_of_an_earlier_version_says_was_shown_is_not_shown_again(
    base: Path, old: dict[str, list[str]]
) -> None:
    make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("reader"),
        script=[{"reply": QUIET}],
        models={"human": {"provider": "human"}},
    )
    drop(base, "human", 1, "note")
    run_once(base)
    ledger = base / "agents/reader/turns.jsonl"
    line = parse(ledger.read_bytes())
    assert line["read"]["also"] == ["human/00000001_note"]
    line["read"] |= old
    ledger.write_bytes(dump_compact(line) + b"\n")
    drop(base, "human", 2, "note")
    run_once(base)
    run_once(base)
    (journal,) = (r for r in journal_lines(base, 2) if r["type"] == "turn_started")
    assert journal["prompt"][-1]["content"].count('"id": "note"') == 2
    assert [seen(base, tick, "reader") for tick in (1, 2, 3)] == [["note"], ["note"], []]


def test_one_who_writes_much_does_not_keep_others_waiting(base: Path) -> None:
    seldom = {"run_every_n_ticks": 1000}
    make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("flood", schedule=seldom),
        resume("late", schedule=seldom),
        resume("reader"),
        script=[{"reply": QUIET}],
        org={"inbox_limit": 4},
        models={"human": {"provider": "human"}},
    )
    for number in range(40):
        write_person_entry(base, "flood", tick=0, kind="message", payload={"n": number}, tags=[], created_at="x")
    late = write_person_entry(base, "late", tick=0, kind="message", payload={}, tags=[], created_at="x")
    asked = speak(base, "and me?", tick=0)
    run_once(base)
    shown = seen(base, 1, "reader")
    assert {asked.id, late.id} <= set(shown)
    assert len(shown) == 4
    mark = read_state(base, "reader").read.as_json()
    assert mark["through"] == {"*": -1, "human": 0, "late": 0}  # not each entry by itself
    for tick in range(2, 12):
        run_once(base)
        shown += seen(base, tick, "reader")
    assert len(shown) == len(set(shown)) == 42
    assert read_state(base, "reader").read.as_json() == {"through": {"*": 10}, "also": []}


def test_a_person_goes_first_where_there_is_room_for_one(base: Path) -> None:
    make_org(
        base,
        resume("ada"),
        resume("human", model={"key": "human"}),
        resume("reader"),
        script=[{"agent": "ada", "reply": say("a")}, {"reply": QUIET}],
        org={"inbox_limit": 1},
        models={"human": {"provider": "human"}},
    )
    for _ in range(3):
        run_once(base)
    asked = speak(base, "now me")
    run_once(base)
    assert seen(base, 4, "reader") == [asked.id]


def test_an_agent_that_may_newly_be_read_is_read_from_the_beginning(org: Path) -> None:
    old = speak(org, "old")
    reader = org / "agents/zoe/resume.json"
    run_once(org)
    reader.write_text(reader.read_text().replace('"reader"\n', '"reader", "human"\n', 1))
    assert load_agent(org, "zoe").permissions.read_outboxes == ["reader", "human"]
    run_once(org)
    assert seen(org, 2, "zoe") == [old.id]


def test_an_entry_that_cannot_be_read_is_said_and_shown_when_it_is_mended(org: Path) -> None:
    entry = speak(org, "fine")
    file = org / entry.file
    whole = file.read_bytes()
    file.write_bytes(whole[:20])
    problems: list[ProblemFound] = []
    run_once(org, notify=lambda event: problems.append(event) if isinstance(event, ProblemFound) else None)
    assert entry.file in problems[0].problem.file
    run_once(org)
    file.write_bytes(whole)
    run_once(org)
    assert entry.id not in seen(org, 1, "reader") + seen(org, 2, "reader")
    assert entry.id in seen(org, 3, "reader")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"agent": "human"}, "agent must be 'zoe'"),
        ({"tick": 7}, "tick must be 0"),
        ({"id": "fff"}, "id must be 'abc'"),
        ({"payload": []}, "payload"),
        ({"tick": "1"}, "/tick"),
        ({"extra": 1}, "unknown key"),
    ],
)
def test_an_entry_that_is_not_what_its_place_says_is_ignored_with_the_reason(
    org: Path, change: dict[str, Any], why: str
) -> None:
    plain = {"id": "abc", "tick": 0, "agent": "zoe", "kind": "message", "payload": {}, "tags": [], "created_at": ""}
    folder = org / "agents/zoe/outbox"
    folder.mkdir(parents=True)
    (folder / "00000000_abc.json").write_bytes(dump_pretty({**plain, **change}))
    run_once(org)
    assert "abc" not in seen(org, 1, "reader")
    assert why in str(validate_outbox(org, "zoe")[0])


def test_an_entry_with_a_byte_order_mark_is_read(org: Path) -> None:
    file = org / speak(org, "from an editor").file
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    run_once(org)
    assert [seen(org, 1, "reader"), validate_outbox(org, "human")] == [[file.stem.split("_")[1]], []]


@pytest.mark.parametrize("name", ["../x.json", "1_a.json", "00000001_..%2f.json", "note.txt", "00000001_a b.json"])
def test_other_file_names_in_an_outbox_are_left_alone(org: Path, name: str) -> None:
    folder = org / "agents/zoe/outbox"
    folder.mkdir(parents=True)
    (folder / name.replace("/", "_")).write_text("{}")
    run_once(org)
    assert seen(org, 1, "reader") == []


def test_nobody_reads_what_the_resume_does_not_allow(org: Path) -> None:
    speak(org, "secret")
    run_once(org)
    assert seen(org, 1, "zoe") == []
    zoe = load_agent(org, "zoe")
    assert collect_readable_outboxes(org, "zoe", zoe.permissions) == []


def test_agents_write_only_into_their_own_outbox(org: Path) -> None:
    entry = OutboxEntry("abc", 1, "reader", "message", {}, [], "")
    with pytest.raises(ValueError, match="own outbox"):
        write_outbox_entry(org, "zoe", entry)
