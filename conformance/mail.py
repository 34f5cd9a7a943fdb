"""Checks of entries and their visibility."""

from __future__ import annotations

import json
from typing import Any

from conformance.answering import Call, make_reply
from conformance.bench import Bench, Org, answer_with_position
from conformance.check import covers
from conformance.reading import compute_entry_id, load_entries, load_texts, require, require_equal

ENTRY_KEYS = ["id", "tick", "agent", "kind", "payload", "tags", "created_at"]


def get_visible_texts(org: Org, agent: str, tick: int, key: str = "inbox") -> list[str]:
    """Return the texts visible to an agent in a tick."""
    (call,) = [call for call in org.calls if call.turn == (tick, agent)]
    return call.get_texts(key)


@covers("MSG-1", "MSG-2", "MSG-3", "FIL-8")
def an_entry_is_a_file_with_seven_keys(bench: Bench) -> None:
    """The engine sets an entry's id, author, tick and file name, and writes the specified bytes."""
    claims = {"id": "mine", "agent": "bob", "tick": 99, "created_at": "1999-01-01T00:00:00Z"}
    entries = [
        {"kind": kind, "payload": {"text": "caf\u00e9", "n": 1}, "tags": ["t"], **claims}
        for kind in ("message", "report")
    ]
    org = bench.make_org(lambda call: {"outbox_entries": entries})
    org.add_agent("ada")
    org.add_agent("bob", schedule={"run_every_n_ticks": 9})
    org.run_ticks()
    files = sorted((org.folder / "agents/ada/outbox").iterdir())
    expected = sorted(f"00000001_{compute_entry_id(1, 'ada', index)}.json" for index in (0, 1))
    require_equal([file.name for file in files], expected, "the names of the entries of tick 1")
    for file in files:
        entry = json.loads(file.read_bytes())
        require_equal(list(entry), ENTRY_KEYS, "keys of an entry")
        require_equal((entry["tick"], entry["agent"]), (1, "ada"), "tick and author")
        require_equal(entry["id"], file.stem.partition("_")[2], "the id in the file and in its name")
        require(not entry["created_at"].startswith("1999"), "created_at is the model's")
        expected_bytes = json.dumps(entry, indent=2, ensure_ascii=False).encode() + b"\n"
        require_equal(file.read_bytes(), expected_bytes, "the bytes of an entry")
    require_equal(load_entries(org.folder, "bob"), [], "entries of bob, in whose name ada wrote")


@covers("MSG-4", "MSG-6", "MSG-13")
def a_turn_sees_what_was_written_before_it(bench: Bench) -> None:
    """A turn sees entries of earlier ticks and of earlier turns in the same tick, each as new once."""
    org = bench.make_org()
    for name in ("a", "b", "c"):
        org.add_agent(name, "*")
    org.run_ticks(3)
    require_equal(get_visible_texts(org, "a", 1), [], "new to a in tick 1")
    require_equal(get_visible_texts(org, "b", 1), ["a 1"], "new to b in tick 1")
    require_equal(get_visible_texts(org, "c", 1), ["a 1", "b 1"], "new to c in tick 1")
    require_equal(get_visible_texts(org, "a", 2), ["b 1", "c 1"], "new to a in tick 2")
    require_equal(get_visible_texts(org, "b", 2), ["c 1", "a 2"], "new to b in tick 2")
    require_equal(get_visible_texts(org, "a", 3), ["b 2", "c 2"], "new to a in tick 3")
    require_equal(get_visible_texts(org, "b", 2, "known"), ["a 1"], "known to b in tick 2")
    require_equal(get_visible_texts(org, "a", 3, "own"), ["a 1", "a 2"], "a's own in tick 3")


@covers("MSG-5")
def with_visibility_tick_nobody_sees_the_tick_under_way(bench: Bench) -> None:
    """With `"visibility": "tick"` a turn sees entries of earlier ticks only."""
    org = bench.make_org()
    org.write_file("config/org.json", {"visibility": "tick"})
    for name in ("a", "b"):
        org.add_agent(name, "*")
    org.run_ticks(2)
    require_equal(get_visible_texts(org, "b", 1), [], "new to b in tick 1")
    require_equal(get_visible_texts(org, "b", 2), ["a 1"], "new to b in tick 2")


@covers("MSG-4", "MSG-8")
def only_readable_outboxes_are_seen(bench: Bench) -> None:
    """An agent never sees an entry without read permission, even as the target."""
    org = bench.make_org(lambda call: make_addressed_reply("c", f"{call.agent} {call.tick}"))
    org.add_agent("a")
    org.add_agent("b")
    org.add_agent("c", "b")
    org.add_agent("d")
    org.run_ticks(2)
    require_equal(get_visible_texts(org, "c", 1), ["b 1"], "new to c, which may read b only")
    require_equal(get_visible_texts(org, "c", 2), ["b 2"], "new to c in tick 2")
    require_equal(
        get_visible_texts(org, "d", 2) + get_visible_texts(org, "d", 2, "known"),
        [],
        "what d sees, which may read nobody",
    )


def make_addressed_reply(target: Any, text: str) -> dict[str, Any]:
    """Return a reply with a message to a target."""
    return {"outbox_entries": [{"kind": "message", "payload": {"text": text, "target": target}, "tags": []}]}


@covers("MSG-7")
def an_entry_with_a_target_is_new_to_it_only(bench: Bench) -> None:
    """An entry is new to its targets only; other readers see the entry as known."""
    targets = {"a": "c", "b": ["d", "C"]}
    org = bench.make_org(lambda call: make_addressed_reply(targets.get(call.agent, "*"), f"{call.agent} {call.tick}"))
    for name in ("a", "b", "c", "d"):
        org.add_agent(name, "*")
    org.run_ticks()
    require_equal(get_visible_texts(org, "b", 1), [], "new to b")
    require_equal(get_visible_texts(org, "c", 1), ["a 1", "b 1"], "new to c, whom both name")
    require_equal(get_visible_texts(org, "d", 1), ["b 1", "c 1"], "new to d")
    require_equal(get_visible_texts(org, "d", 1, "known"), ["a 1"], "known to d")


@covers("MSG-9", "MSG-10", "MSG-11")
def entries_by_hand_count_when_they_are_what_they_say(bench: Bench) -> None:
    """A hand-written file is an entry if name, folder and content agree. An entry of a later tick waits."""
    org = bench.make_org()
    org.add_agent("ada", "*")
    org.add_agent("pat", schedule={"run_every_n_ticks": 99})
    org.add_entry("pat", 0, "right", "right")
    org.add_entry("pat", 3, "later", "later")
    valid = json.loads((org.folder / "agents/pat/outbox/00000000_right.json").read_bytes())
    invalid: dict[str, Any] = {
        "00000000_renamed": valid,
        "00000000_stranger": {**valid, "id": "stranger", "agent": "ada"},
        "00000000_early": {**valid, "id": "early", "tick": 1},
        "00000000_more": {**valid, "id": "more", "extra": 1},
        "00000000_kind": {**valid, "id": "kind", "kind": "gossip"},
        "notes": {**valid, "id": "notes"},
    }
    for name, entry in invalid.items():
        text = {"text": name}
        org.write_file(f"agents/pat/outbox/{name}.json", {**entry, "payload": text})
    org.write_file("agents/pat/outbox/00000000_torn.json", b'{"id": "torn", "tick": 0, "agent": "pa')
    org.run_ticks(3)
    require_equal(get_visible_texts(org, "ada", 1), ["right"], "new in tick 1")
    require_equal(get_visible_texts(org, "ada", 2), [], "new in tick 2, to which one of tick 3 does not belong")
    require_equal(
        get_visible_texts(org, "ada", 3) + get_visible_texts(org, "ada", 3, "known"),
        ["later", "right"],
        "seen in tick 3",
    )


@covers("MSG-12", "REP-2", "REP-3")
def a_failed_turn_writes_nothing_and_has_read_nothing(bench: Bench) -> None:
    """A turn without a valid reply writes no entry and no memory, and its inbox is new again."""

    def answer(call: Call) -> Any:
        return "I would rather not." if call.turn == (1, "bob") else answer_with_position(call)

    org = bench.make_org(answer)
    for name in ("ada", "bob", "cy"):
        org.add_agent(name, "*")
    org.run_ticks(2)
    require_equal(load_texts(org.folder, "bob"), ["bob 2"], "entries of bob, whose first turn failed")
    require_equal(get_visible_texts(org, "cy", 1), ["ada 1"], "new to cy, whose turn comes after one that failed")
    require_equal(get_visible_texts(org, "bob", 2), ["ada 1", "cy 1", "ada 2"], "new to bob after a turn that failed")


@covers("MSG-14")
def what_finds_no_room_stays_unread(bench: Bench) -> None:
    """A turn sees up to `inbox_limit` new entries, oldest first; further entries stay new for the next turn."""
    org = bench.make_org()
    org.write_file("config/org.json", {"inbox_limit": 2})
    org.add_agent("ada", "pat")
    org.add_agent("pat", schedule={"run_every_n_ticks": 99})
    for number in range(5):
        org.add_entry("pat", 0, f"e{number}", f"text {number}")
    org.run_ticks(3)
    visible_texts = [get_visible_texts(org, "ada", tick) for tick in (1, 2, 3)]
    require_equal(
        visible_texts, [["text 0", "text 1"], ["text 2", "text 3"], ["text 4"]], "new in three ticks with room for two"
    )


@covers("RET-1", "RET-2")
def old_entries_go_once_they_were_seen(bench: Bench) -> None:
    """Entries past `retention_ticks` are removed, but only after every reader has seen new entries."""
    org = bench.make_org(lambda call: answer_with_position(call) if call.turn == (1, "ada") else make_reply())
    org.write_file("config/org.json", {"retention_ticks": 1})
    org.add_agent("ada")
    org.add_agent("slow", "ada", schedule={"run_every_n_ticks": 5})
    org.add_agent("zed")
    org.run_ticks(4)
    require_equal(load_texts(org.folder, "ada"), ["ada 1"], "entries of ada before slow has read")
    org.run_ticks(3)
    require_equal(get_visible_texts(org, "slow", 5), ["ada 1"], "new to slow in its first turn")
    require_equal(load_texts(org.folder, "ada"), [], "entries of ada once slow has read")
