"""Checks: what a model may answer, what comes of it, and what it may cost."""

from __future__ import annotations

import json
import os
from typing import Any

from conformance.answering import Call, say
from conformance.bench import Bench, silent
from conformance.check import holds
from conformance.reading import files_of, ledger_of, of_type, records_of, require, same, texts_of


@holds("REP-1")
def a_reply_that_is_not_the_contract_is_asked_for_again(bench: Bench) -> None:
    """A model gets one correction unless the resume says otherwise; a missing list is an empty one."""

    def answer(call: Call) -> Any:
        if call.agent == "cy":
            return {"notes": "quiet"}
        return silent(call) if call.number else "not JSON"

    org = bench.org(answer)
    org.agent("ada")
    org.agent("bob", turn={"repairs": 0})
    org.agent("cy", turn={"repairs": 0})
    org.tick()
    made = sorted((call.agent, call.number) for call in org.calls)
    same(made, [("ada", 0), ("ada", 1), ("bob", 0), ("cy", 0)], "calls")
    same(texts_of(org.folder, "ada"), ["ada 1"], "entries after a correction")
    statuses = {
        line["agent"]: line["status"] for line in of_type(records_of(org.folder, 1), "turn_committed")
    }
    same(statuses, {"ada": "done", "bob": "failed", "cy": "done"}, "what became of the turns")


@holds("REP-1", "REP-8")
def a_key_beyond_the_contract_is_left_out(bench: Bench) -> None:
    """A reply with a fifth key is taken without it; one with none of the four is asked for again."""
    org = bench.org(lambda call: {"extra": {**say("x"), "sudo": True}, "none": {}}[call.agent])
    for name in ("extra", "none"):
        org.agent(name)
    org.tick()
    made = sorted((call.agent, call.number) for call in org.calls)
    same(made, [("extra", 0), ("none", 0), ("none", 1)], "calls")
    turns = of_type(records_of(org.folder, 1), "turn_committed")
    same([turn["agent"] for turn in turns if turn["status"] == "failed"], ["none"], "turns that failed")
    same(texts_of(org.folder, "extra"), ["x"], "entries of a reply with a key too many")


@holds("REP-7")
def an_entry_that_stays_wrong_is_left_out(bench: Bench) -> None:
    """An entry of a kind that is none is asked for again; then the other entries are taken without it."""
    reply = say("wrong", "right")
    reply["outbox_entries"][0]["kind"] = "shout"
    org = bench.org(lambda call: reply)
    org.agent("ada")
    org.tick()
    same([call.number for call in org.calls], [0, 1], "calls")
    same(texts_of(org.folder, "ada"), ["right"], "entries")


@holds("REP-8")
def a_wrong_optional_part_costs_no_question(bench: Bench) -> None:
    """A memory, tags and a call that are none are left out; the entry and the other memory are taken."""
    reply = say("x", memory_updates=[{"key": "../x", "value": 1}, {"key": "k", "value": 2}], tool_calls=[{}])
    reply["outbox_entries"][0]["tags"] = "urgent"
    org = bench.org(lambda call: reply)
    org.agent("ada")
    org.tick()
    same([call.number for call in org.calls], [0], "calls")
    same(texts_of(org.folder, "ada"), ["x"], "entries")
    require((org.folder / "agents/ada/memory/k.json").exists(), "the sound memory is kept")


@holds("REP-4", "FIL-8")
def a_memory_is_a_file(bench: Bench) -> None:
    """A memory update is written as a file of its own, and shown in the agent's next turn."""
    values: dict[str, Any] = {"plan": ["a", {"b": 1.5}], "note": "caf\u00e9"}
    updates = [{"key": key, "value": value} for key, value in values.items()]
    org = bench.org(lambda call: {"memory_updates": updates} if call.tick == 1 else say())
    org.agent("ada")
    org.tick(2)
    for key, value in values.items():
        raw = (org.folder / f"agents/ada/memory/{key}.json").read_bytes()
        plain = json.loads(raw)
        same(list(plain), ["key", "value", "timestamp", "agent"], "keys of a memory")
        same((plain["key"], plain["value"], plain["agent"]), (key, value, "ada"), "a memory")
        same(raw, json.dumps(plain, indent=2, ensure_ascii=False).encode() + b"\n", "the bytes of a memory")
    same(org.calls[1].values["memory"], dict(sorted(values.items())), "memory in the next turn")


@holds("REP-4")
def a_memory_key_leads_nowhere_else(bench: Bench) -> None:
    """A memory's key is a name: one that leads out of the folder writes nothing."""
    bad = ["../resume", "a/b", ".hidden", "", "-x", "x" * 121]
    org = bench.org(lambda call: {**say("x"), "memory_updates": [{"key": key, "value": 1} for key in bad]})
    org.agent("ada")
    before = files_of(org.folder)
    org.tick()
    new = {path for path in files_of(org.folder).keys() - before.keys() if "outbox" not in path}
    same(new, {"tick.json", "agents/ada/turns.jsonl"}, "new files")
    same({path for path in before if files_of(org.folder)[path] != before[path]}, set(), "files that changed")


def _calling(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool_calls": [{"tool": tool, "args": args}]}


@holds("REP-5", "REP-6")
def tools_check_permissions_themselves(bench: Bench) -> None:
    """A tool that the resume does not name and a file that it does not grant are denied."""
    writes = {"own": "workspace/x.txt", "up": "../bob/resume.json", "root": "/tmp/conformance.txt"}  # noqa: S108
    calls = [{"tool": "file_write", "args": {"path": path, "content": "x"}} for path in writes.values()]
    org = bench.org(lambda call: {"tool_calls": calls} if call.tick == 1 else say("done"))
    org.agent("ada", permissions={"tools": ["file_write"]})
    org.agent("bob")
    before = files_of(org.folder)
    org.tick(3)
    results = {call.turn: [result["success"] for result in call.values["results"]] for call in org.calls}
    same(results[2, "ada"], [True, False, False], "results of ada, which may write its workspace")
    same(results[2, "bob"], [False, False, False], "results of bob, which may use no tool")
    same(results[3, "ada"], [], "results that are shown a second time")
    after = files_of(org.folder)
    same(after.get("agents/ada/workspace/x.txt"), b"x", "the file that was granted")
    same([path for path in before if after[path] != before[path]], [], "files that changed")


@holds("CRE-1", "CRE-2")
def no_call_is_made_that_cannot_be_paid(bench: Bench) -> None:
    """A call is made only if the least that it costs is left; corrections count."""
    org = bench.org(lambda call: "no" if call.agent == "bad" else silent(call))
    org.write("config/models.json", {"default": org.model(per_call=2)})
    org.agent("ada", credits={"max_credits": 5})
    org.agent("bad", credits={"max_credits": 3})
    org.agent("none", credits={"max_credits": 0})
    org.tick(4)
    made = [call.agent for call in org.calls]
    same(
        (made.count("ada"), made.count("bad"), made.count("none")),
        (2, 1, 0),
        "calls of 5, 3 and 0 credits at 2",
    )
    same(ledger_of(org.folder, "ada")[-1]["credits"], 4, "credits that ada has spent")
    same(ledger_of(org.folder, "bad")[-1]["credits"], 2, "credits that a failed turn has spent")


@holds("CRE-3")
def an_allocation_overrides_the_resume(bench: Bench) -> None:
    """`config/credits.json` says what an agent may spend, whatever its resume says."""
    org = bench.org()
    org.agent("more", credits={"max_credits": 1})
    org.agent("less", credits={"max_credits": 9})
    org.write("config/credits.json", {"more": {"max_credits": 2}, "less": {"max_credits": 1}})
    org.tick(3)
    made = [call.agent for call in org.calls]
    same((made.count("more"), made.count("less")), (2, 1), "calls of those with 2 and with 1")


@holds("LED-1", "LED-2")
def a_ledger_has_totals(bench: Bench) -> None:
    """Each turn adds a line of totals; a torn last line is passed over and goes with the next turn."""
    org = bench.org()
    org.agent("ada", credits={"max_credits": 3})
    org.tick(2)
    file = org.folder / "agents/ada/turns.jsonl"
    file.write_bytes(file.read_bytes() + b'{"tick":3,"status":"do')
    org.tick()
    same([(line["tick"], line["turns"], line["credits"]) for line in ledger_of(org.folder, "ada")],
         [(1, 1, 1), (2, 2, 2), (3, 3, 3)], "tick, turns and credits")  # fmt: skip
    require(b"do{" not in file.read_bytes(), "a torn line was written on")
    same(len(org.calls), 3, "calls of an agent with 3 credits")


@holds("PRM-1")
def what_the_engine_makes_is_its_owners(bench: Bench) -> None:
    """What the engine makes for outboxes, memories and journals is for their owner only."""
    org = bench.org(lambda call: {**say("x"), "memory_updates": [{"key": "k", "value": 1}]})
    org.agent("ada")
    mask = os.umask(0o022)
    try:
        org.tick()
    finally:
        os.umask(mask)
    modes = {
        path: (org.folder / path).stat().st_mode & 0o777
        for path in ("agents/ada/outbox", "agents/ada/memory", "logs", "logs/ticks/00000001.jsonl")
    }
    same({path: oct(mode) for path, mode in modes.items() if mode & 0o077}, {}, "modes that let others look")
