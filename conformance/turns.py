"""Checks of model replies, their effects, and their cost."""

from __future__ import annotations

import json
import os
from typing import Any

from conformance.answering import Call, make_reply
from conformance.bench import Bench, answer_with_position
from conformance.check import covers
from conformance.reading import (
    filter_by_type,
    load_ledger,
    load_records,
    load_state_files,
    load_texts,
    require,
    require_equal,
)


@covers("REP-1")
def a_reply_that_is_not_the_contract_is_asked_for_again(bench: Bench) -> None:
    """A model gets a single correction unless the resume says otherwise; a missing list means an empty list."""

    def answer(call: Call) -> Any:
        if call.agent == "cy":
            return {"notes": "quiet"}
        return answer_with_position(call) if call.number else "not JSON"

    org = bench.make_org(answer)
    org.add_agent("ada")
    org.add_agent("bob", turn={"repairs": 0})
    org.add_agent("cy", turn={"repairs": 0})
    org.run_ticks()
    calls = sorted((call.agent, call.number) for call in org.calls)
    require_equal(calls, [("ada", 0), ("ada", 1), ("bob", 0), ("cy", 0)], "calls")
    require_equal(load_texts(org.folder, "ada"), ["ada 1"], "entries after a correction")
    statuses = {line["agent"]: line["status"] for line in filter_by_type(load_records(org.folder, 1), "turn_committed")}
    require_equal(statuses, {"ada": "done", "bob": "failed", "cy": "done"}, "what became of the turns")


@covers("REP-1", "REP-8")
def a_key_beyond_the_contract_is_left_out(bench: Bench) -> None:
    """An unknown key in a reply is ignored; a reply without any of the four keys is corrected."""
    org = bench.make_org(lambda call: {"extra": {**make_reply("x"), "sudo": True}, "none": {}}[call.agent])
    for name in ("extra", "none"):
        org.add_agent(name)
    org.run_ticks()
    calls = sorted((call.agent, call.number) for call in org.calls)
    require_equal(calls, [("extra", 0), ("none", 0), ("none", 1)], "calls")
    turns = filter_by_type(load_records(org.folder, 1), "turn_committed")
    require_equal([turn["agent"] for turn in turns if turn["status"] == "failed"], ["none"], "turns that failed")
    require_equal(load_texts(org.folder, "extra"), ["x"], "entries of a reply with a key too many")


@covers("REP-7")
def an_entry_that_stays_wrong_is_left_out(bench: Bench) -> None:
    """An entry of an unknown kind is corrected once; then the other entries are accepted."""
    reply = make_reply("wrong", "right")
    reply["outbox_entries"][0]["kind"] = "shout"
    org = bench.make_org(lambda call: reply)
    org.add_agent("ada")
    org.run_ticks()
    require_equal([call.number for call in org.calls], [0, 1], "calls")
    require_equal(load_texts(org.folder, "ada"), ["right"], "entries")


@covers("REP-8")
def a_wrong_optional_part_costs_no_question(bench: Bench) -> None:
    """Invalid memories, tags and calls are dropped without a correction; valid parts are accepted."""
    reply = make_reply("x", memory_updates=[{"key": "../x", "value": 1}, {"key": "k", "value": 2}], tool_calls=[{}])
    reply["outbox_entries"][0]["tags"] = "urgent"
    org = bench.make_org(lambda call: reply)
    org.add_agent("ada")
    org.run_ticks()
    require_equal([call.number for call in org.calls], [0], "calls")
    require_equal(load_texts(org.folder, "ada"), ["x"], "entries")
    require((org.folder / "agents/ada/memory/k.json").exists(), "the sound memory is kept")


@covers("REP-4", "FIL-8")
def a_memory_is_a_file(bench: Bench) -> None:
    """A memory update is written to a separate file, and shown in the agent's next turn."""
    values: dict[str, Any] = {"plan": ["a", {"b": 1.5}], "note": "caf\u00e9"}
    updates = [{"key": key, "value": value} for key, value in values.items()]
    org = bench.make_org(lambda call: {"memory_updates": updates} if call.tick == 1 else make_reply())
    org.add_agent("ada")
    org.run_ticks(2)
    for key, value in values.items():
        raw = (org.folder / f"agents/ada/memory/{key}.json").read_bytes()
        memory = json.loads(raw)
        require_equal(list(memory), ["key", "value", "timestamp", "agent"], "keys of a memory")
        require_equal((memory["key"], memory["value"], memory["agent"]), (key, value, "ada"), "a memory")
        require_equal(raw, json.dumps(memory, indent=2, ensure_ascii=False).encode() + b"\n", "the bytes of a memory")
    require_equal(org.calls[1].values["memory"], dict(sorted(values.items())), "memory in the next turn")


@covers("REP-4")
def a_memory_key_leads_nowhere_else(bench: Bench) -> None:
    """A memory key is a name: a path outside the folder writes nothing."""
    bad = ["../resume", "a/b", ".hidden", "", "-x", "x" * 121]
    org = bench.make_org(lambda call: {**make_reply("x"), "memory_updates": [{"key": key, "value": 1} for key in bad]})
    org.add_agent("ada")
    old_files = load_state_files(org.folder)
    org.run_ticks()
    new = {path for path in load_state_files(org.folder).keys() - old_files.keys() if "outbox" not in path}
    require_equal(new, {"tick.json", "agents/ada/turns.jsonl"}, "new files")
    require_equal(
        {path for path in old_files if load_state_files(org.folder)[path] != old_files[path]},
        set(),
        "files that changed",
    )


@covers("REP-5", "REP-6")
def tools_check_permissions_themselves(bench: Bench) -> None:
    """A tool without permission, or a file without permission, is denied."""
    paths = {"own": "workspace/x.txt", "up": "../bob/resume.json", "root": "/tmp/conformance.txt"}  # noqa: S108
    calls = [{"tool": "file_write", "args": {"path": path, "content": "x"}} for path in paths.values()]
    org = bench.make_org(lambda call: {"tool_calls": calls} if call.tick == 1 else make_reply("done"))
    org.add_agent("ada", permissions={"tools": ["file_write"]})
    org.add_agent("bob")
    old_files = load_state_files(org.folder)
    org.run_ticks(3)
    results = {call.turn: [result["success"] for result in call.values["results"]] for call in org.calls}
    require_equal(results[2, "ada"], [True, False, False], "results of ada, which may write its workspace")
    require_equal(results[2, "bob"], [False, False, False], "results of bob, which may use no tool")
    require_equal(results[3, "ada"], [], "results that are shown a second time")
    new_files = load_state_files(org.folder)
    require_equal(new_files.get("agents/ada/workspace/x.txt"), b"x", "the file that was granted")
    require_equal([path for path in old_files if new_files[path] != old_files[path]], [], "files that changed")


@covers("CRE-1", "CRE-2")
def no_call_is_made_that_cannot_be_paid(bench: Bench) -> None:
    """A call is made only if the remaining credits cover the minimum cost; corrections count."""
    org = bench.make_org(lambda call: "no" if call.agent == "bad" else answer_with_position(call))
    org.write_file("config/models.json", {"default": org.make_model_entry(per_call=2)})
    org.add_agent("ada", credits={"max_credits": 5})
    org.add_agent("bad", credits={"max_credits": 3})
    org.add_agent("none", credits={"max_credits": 0})
    org.run_ticks(4)
    callers = [call.agent for call in org.calls]
    require_equal(
        (callers.count("ada"), callers.count("bad"), callers.count("none")),
        (2, 1, 0),
        "calls of 5, 3 and 0 credits at 2",
    )
    require_equal(load_ledger(org.folder, "ada")[-1]["credits"], 4, "credits that ada has spent")
    require_equal(load_ledger(org.folder, "bad")[-1]["credits"], 2, "credits that a failed turn has spent")


@covers("CRE-3")
def an_allocation_overrides_the_resume(bench: Bench) -> None:
    """`config/credits.json` sets an agent's limit, regardless of the resume."""
    org = bench.make_org()
    org.add_agent("more", credits={"max_credits": 1})
    org.add_agent("less", credits={"max_credits": 9})
    org.write_file("config/credits.json", {"more": {"max_credits": 2}, "less": {"max_credits": 1}})
    org.run_ticks(3)
    callers = [call.agent for call in org.calls]
    require_equal((callers.count("more"), callers.count("less")), (2, 1), "calls of those with 2 and with 1")


@covers("LED-1", "LED-2")
def a_ledger_has_totals(bench: Bench) -> None:
    """Each turn adds a line of totals; a torn last line is ignored and removed by the next turn."""
    org = bench.make_org()
    org.add_agent("ada", credits={"max_credits": 3})
    org.run_ticks(2)
    file = org.folder / "agents/ada/turns.jsonl"
    file.write_bytes(file.read_bytes() + b'{"tick":3,"status":"do')
    org.run_ticks()
    require_equal([(line["tick"], line["turns"], line["credits"]) for line in load_ledger(org.folder, "ada")],
         [(1, 1, 1), (2, 2, 2), (3, 3, 3)], "tick, turns and credits")  # fmt: skip
    require(b"do{" not in file.read_bytes(), "a torn line was written on")
    require_equal(len(org.calls), 3, "calls of an agent with 3 credits")


@covers("PRM-1")
def what_the_engine_makes_is_its_owners(bench: Bench) -> None:
    """Outboxes, memories and journals are accessible to their owner only."""
    org = bench.make_org(lambda call: {**make_reply("x"), "memory_updates": [{"key": "k", "value": 1}]})
    org.add_agent("ada")
    mask = os.umask(0o022)
    try:
        org.run_ticks()
    finally:
        os.umask(mask)
    modes = {
        path: (org.folder / path).stat().st_mode & 0o777
        for path in ("agents/ada/outbox", "agents/ada/memory", "logs", "logs/ticks/00000001.jsonl")
    }
    require_equal({path: oct(mode) for path, mode in modes.items() if mode & 0o077}, {}, "modes that let others look")
