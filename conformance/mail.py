"""Checks: what an entry is, and who is shown which."""

from __future__ import annotations

import json
from typing import Any

from conformance.answering import Call, say
from conformance.bench import Bench, Org, silent
from conformance.check import holds
from conformance.reading import entries_of, entry_id, require, same, texts_of

SEVEN = ["id", "tick", "agent", "kind", "payload", "tags", "created_at"]


def shown(org: Org, agent: str, tick: int, key: str = "inbox") -> list[str]:
    """Return the texts that an agent was shown in a tick."""
    (call,) = [call for call in org.calls if call.turn == (tick, agent)]
    return call.texts(key)


@holds("MSG-1", "MSG-2", "MSG-3", "FIL-8")
def an_entry_is_a_file_with_seven_keys(bench: Bench) -> None:
    """An entry's id, author, tick and name are the engine's; the bytes are laid out as specified."""
    claims = {"id": "mine", "agent": "bob", "tick": 99, "created_at": "1999-01-01T00:00:00Z"}
    entries = [
        {"kind": kind, "payload": {"text": "caf\u00e9", "n": 1}, "tags": ["t"], **claims}
        for kind in ("message", "report")
    ]
    org = bench.org(lambda call: {"outbox_entries": entries})
    org.agent("ada")
    org.agent("bob", schedule={"run_every_n_ticks": 9})
    org.tick()
    files = sorted((org.folder / "agents/ada/outbox").iterdir())
    expected = sorted(f"00000001_{entry_id(1, 'ada', index)}.json" for index in (0, 1))
    same([file.name for file in files], expected, "the names of the entries of tick 1")
    for file in files:
        plain = json.loads(file.read_bytes())
        same(list(plain), SEVEN, "keys of an entry")
        same((plain["tick"], plain["agent"]), (1, "ada"), "tick and author")
        same(plain["id"], file.stem.partition("_")[2], "the id in the file and in its name")
        require(not plain["created_at"].startswith("1999"), "created_at is the model's")
        laid_out = json.dumps(plain, indent=2, ensure_ascii=False).encode() + b"\n"
        same(file.read_bytes(), laid_out, "the bytes of an entry")
    same(entries_of(org.folder, "bob"), [], "entries of bob, in whose name ada wrote")


@holds("MSG-4", "MSG-6", "MSG-13")
def a_turn_sees_what_was_written_before_it(bench: Bench) -> None:
    """A turn is shown entries of earlier ticks and of turns before it in its own, each as new once."""
    org = bench.org()
    for name in ("a", "b", "c"):
        org.agent(name, "*")
    org.tick(3)
    same(shown(org, "a", 1), [], "new to a in tick 1")
    same(shown(org, "b", 1), ["a 1"], "new to b in tick 1")
    same(shown(org, "c", 1), ["a 1", "b 1"], "new to c in tick 1")
    same(shown(org, "a", 2), ["b 1", "c 1"], "new to a in tick 2")
    same(shown(org, "b", 2), ["c 1", "a 2"], "new to b in tick 2")
    same(shown(org, "a", 3), ["b 2", "c 2"], "new to a in tick 3")
    same(shown(org, "b", 2, "known"), ["a 1"], "known to b in tick 2")
    same(shown(org, "a", 3, "own"), ["a 1", "a 2"], "a's own in tick 3")


@holds("MSG-5")
def with_visibility_tick_nobody_sees_the_tick_under_way(bench: Bench) -> None:
    """With `"visibility": "tick"` a turn sees entries of earlier ticks only."""
    org = bench.org()
    org.write("config/org.json", {"visibility": "tick"})
    for name in ("a", "b"):
        org.agent(name, "*")
    org.tick(2)
    same(shown(org, "b", 1), [], "new to b in tick 1")
    same(shown(org, "b", 2), ["a 1"], "new to b in tick 2")


@holds("MSG-4", "MSG-8")
def only_readable_outboxes_are_seen(bench: Bench) -> None:
    """What a resume does not let an agent read it is not shown, not even when it is the target."""
    org = bench.org(lambda call: say_to("c", f"{call.agent} {call.tick}"))
    org.agent("a")
    org.agent("b")
    org.agent("c", "b")
    org.agent("d")
    org.tick(2)
    same(shown(org, "c", 1), ["b 1"], "new to c, which may read b only")
    same(shown(org, "c", 2), ["b 2"], "new to c in tick 2")
    same(shown(org, "d", 2) + shown(org, "d", 2, "known"), [], "what d sees, which may read nobody")


def say_to(target: Any, text: str) -> dict[str, Any]:
    """Return a reply with one message to somebody."""
    return {"outbox_entries": [{"kind": "message", "payload": {"text": text, "target": target}, "tags": []}]}


@holds("MSG-7")
def an_entry_with_a_target_is_new_to_it_only(bench: Bench) -> None:
    """An entry is new to those that its target names; others who may read it know it."""
    targets = {"a": "c", "b": ["d", "C"]}
    org = bench.org(lambda call: say_to(targets.get(call.agent, "*"), f"{call.agent} {call.tick}"))
    for name in ("a", "b", "c", "d"):
        org.agent(name, "*")
    org.tick()
    same(shown(org, "b", 1), [], "new to b")
    same(shown(org, "c", 1), ["a 1", "b 1"], "new to c, whom both name")
    same(shown(org, "d", 1), ["b 1", "c 1"], "new to d")
    same(shown(org, "d", 1, "known"), ["a 1"], "known to d")


@holds("MSG-9", "MSG-10", "MSG-11")
def entries_by_hand_count_when_they_are_what_they_say(bench: Bench) -> None:
    """A file put into an outbox is an entry if name, folder and content agree; one of a later tick waits."""
    org = bench.org()
    org.agent("ada", "*")
    org.agent("pat", schedule={"run_every_n_ticks": 99})
    org.entry("pat", 0, "right", "right")
    org.entry("pat", 3, "later", "later")
    right = json.loads((org.folder / "agents/pat/outbox/00000000_right.json").read_bytes())
    wrong: dict[str, Any] = {
        "00000000_renamed": right,
        "00000000_stranger": {**right, "id": "stranger", "agent": "ada"},
        "00000000_early": {**right, "id": "early", "tick": 1},
        "00000000_more": {**right, "id": "more", "extra": 1},
        "00000000_kind": {**right, "id": "kind", "kind": "gossip"},
        "notes": {**right, "id": "notes"},
    }
    for name, plain in wrong.items():
        text = {"text": name}
        org.write(f"agents/pat/outbox/{name}.json", {**plain, "payload": text})
    org.write("agents/pat/outbox/00000000_torn.json", b'{"id": "torn", "tick": 0, "agent": "pa')
    org.tick(3)
    same(shown(org, "ada", 1), ["right"], "new in tick 1")
    same(shown(org, "ada", 2), [], "new in tick 2, to which one of tick 3 does not belong")
    same(shown(org, "ada", 3) + shown(org, "ada", 3, "known"), ["later", "right"], "seen in tick 3")


@holds("MSG-12", "REP-2", "REP-3")
def a_failed_turn_writes_nothing_and_has_read_nothing(bench: Bench) -> None:
    """A turn whose replies are not the contract writes no entry and no memory; its inbox is new again."""

    def answer(call: Call) -> Any:
        return "I would rather not." if call.turn == (1, "bob") else silent(call)

    org = bench.org(answer)
    for name in ("ada", "bob", "cy"):
        org.agent(name, "*")
    org.tick(2)
    same(texts_of(org.folder, "bob"), ["bob 2"], "entries of bob, whose first turn failed")
    same(shown(org, "cy", 1), ["ada 1"], "new to cy, whose turn comes after one that failed")
    same(shown(org, "bob", 2), ["ada 1", "cy 1", "ada 2"], "new to bob after a turn that failed")


@holds("MSG-14")
def what_finds_no_room_stays_unread(bench: Bench) -> None:
    """A turn is shown up to `inbox_limit` new entries, the oldest first; the rest is new the next time."""
    org = bench.org()
    org.write("config/org.json", {"inbox_limit": 2})
    org.agent("ada", "pat")
    org.agent("pat", schedule={"run_every_n_ticks": 99})
    for number in range(5):
        org.entry("pat", 0, f"e{number}", f"text {number}")
    org.tick(3)
    seen = [shown(org, "ada", tick) for tick in (1, 2, 3)]
    same(
        seen, [["text 0", "text 1"], ["text 2", "text 3"], ["text 4"]], "new in three ticks with room for two"
    )


@holds("RET-1", "RET-2")
def old_entries_go_once_they_were_seen(bench: Bench) -> None:
    """Entries past `retention_ticks` are removed, but none before everybody was shown what is new to it."""
    org = bench.org(lambda call: silent(call) if call.turn == (1, "ada") else say())
    org.write("config/org.json", {"retention_ticks": 1})
    org.agent("ada")
    org.agent("slow", "ada", schedule={"run_every_n_ticks": 5})
    org.agent("zed")
    org.tick(4)
    same(texts_of(org.folder, "ada"), ["ada 1"], "entries of ada before slow has read")
    org.tick(3)
    same(shown(org, "slow", 5), ["ada 1"], "new to slow in its first turn")
    same(texts_of(org.folder, "ada"), [], "entries of ada once slow has read")
