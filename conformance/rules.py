"""Checks of gates, approvals, trust labels and spending limits."""

from __future__ import annotations

import json
from typing import Any

from conformance.answering import Call, make_reply
from conformance.bench import Bench, Org, answer_with_position
from conformance.check import covers
from conformance.reading import load_entries, load_records, require, require_equal
from conformance.requests import add_person

WRITE_CALL = {"tool": "file_write", "args": {"path": "workspace/x.txt", "content": "x"}}
WRITTEN_FILE = "agents/ada/workspace/x.txt"


def answer_with_write(call: Call) -> dict[str, Any]:
    """Write a file in the first turn, and nothing later."""
    return {"tool_calls": [WRITE_CALL]} if call.tick == 1 else make_reply()


def _make_writer_org(bench: Bench, *gates: dict[str, Any], own_gates: list[dict[str, Any]] | None = None) -> Org:
    org = bench.make_org(answer_with_write)
    add_person(org)
    org.write_file("config/org.json", {"gates": list(gates)})
    org.add_agent("ada", "eve", permissions={"tools": ["file_write"]}, **({"gates": own_gates} if own_gates else {}))
    return org


@covers("GAT-1", "GAT-2")
def a_call_that_is_blocked_is_not_made(bench: Bench) -> None:
    """A blocking gate prevents a call and tells the model; no resume overrides the gate."""
    block = {"at": "call", "tool": "file_write", "then": "block", "because": "not here"}
    org = _make_writer_org(bench, block, own_gates=[{"at": "call", "tool": "file_write", "then": "pass"}])
    org.run_ticks(2)
    require(not (org.folder / WRITTEN_FILE).exists(), "the file was written")
    (result,) = next(call.values["results"] for call in org.calls if call.tick == 2)
    require(not result["success"] and "not here" in result["output"], f"what the model is told: {result!r}")


@covers("GAT-1")
def the_first_gate_that_settles_it_counts(bench: Bench) -> None:
    """A passing gate wins over a later blocking gate."""
    org = _make_writer_org(
        bench, {"at": "call", "tool": "file_write", "then": "pass"}, {"at": "call", "tool": "*", "then": "block"}
    )
    org.run_ticks()
    require((org.folder / WRITTEN_FILE).exists(), "the file was not written")


@covers("GAT-3")
def a_gate_that_is_not_understood_stops_the_run(bench: Bench) -> None:
    """A typo in a gate of the settings is refused before any tick."""
    for gate in (
        {"at": "call", "tool": "file_write", "thn": "block"},
        {"at": "call", "tool": "fle_write", "then": "block"},
        {"at": "cal", "then": "block"},
        {"at": "call", "tool": "file_write", "then": "blok"},
    ):
        org = _make_writer_org(bench, gate)
        org.write_file("tick.json", {"current_tick": 1})
        org.require_refusal(json.dumps(gate))


@covers("GAT-5")
def what_is_not_to_be_shown_is_not(bench: Bench) -> None:
    """A gate at `in` keeps an entry out of the prompt, and a gate at `out` out of the outbox."""
    org = bench.make_org(lambda call: make_reply("a secret word", "hello"))
    add_person(org)
    deny = {"deny": ["secret"], "then": "block"}
    org.write_file("config/org.json", {"gates": [{"at": "in", **deny}, {"at": "out", **deny}]})
    org.add_agent("ada", "eve")
    org.add_entry("eve", 0, "a1", "the secret of eve")
    org.run_ticks()
    require("secret of eve" not in json.dumps(org.calls[0].values["inbox"]), "the model was shown it")
    require_equal([entry["payload"]["text"] for entry in load_entries(org.folder, "ada")], ["hello"], "entries of ada")


def _make_pending_approval(bench: Bench) -> tuple[Org, str]:
    org = _make_writer_org(bench, {"at": "call", "tool": "file_write", "then": "ask", "persons": ["eve"], "expires": 3})
    org.run_ticks()
    require(not (org.folder / WRITTEN_FILE).exists(), "the call was made before anybody approved it")
    requests = [entry for entry in load_entries(org.folder, "ada") if entry["kind"] == "request"]
    require_equal([entry["payload"]["target"] for entry in requests], ["eve"], "whom the request goes to")
    require_equal(requests[0]["payload"]["call"]["args"], WRITE_CALL["args"], "the call that the request shows")
    return org, requests[0]["id"]


def _write_decision(org: Org, ident: str, author: str, decision: str) -> None:
    entry_json = {
        "id": f"d{author}", "tick": 2, "agent": author, "kind": "response",
        "payload": {"reply_to": ident, "target": "ada", "decision": decision},
        "tags": [], "created_at": "2025-12-08T10:30:00Z",
    }  # fmt: skip
    org.write_file(f"agents/{author}/outbox/00000002_d{author}.json", entry_json)


@covers("APR-1", "APR-2")
def an_approved_call_is_made_once_and_first(bench: Bench) -> None:
    """An approved call is made unchanged, once, and before the next model call."""
    org, ident = _make_pending_approval(bench)
    _write_decision(org, ident, "eve", "approve")
    org.run_ticks()
    require((org.folder / WRITTEN_FILE).read_bytes() == b"x", "the approved call was not made")
    (call,) = [item for item in org.calls if item.tick == 2]
    require_equal([item["success"] for item in call.values["results"]], [True], "what the model is shown of it")
    (org.folder / WRITTEN_FILE).unlink()
    org.run_ticks(2)
    require(not (org.folder / WRITTEN_FILE).exists(), "the call was made twice")


@covers("APR-3")
def a_no_and_silence_make_no_call(bench: Bench) -> None:
    """A denied call is not made, nor a call without a decision in time."""
    org, ident = _make_pending_approval(bench)
    _write_decision(org, ident, "eve", "deny")
    org.run_ticks()
    (denied,) = [item for item in org.calls if item.tick == 2]
    require_equal([item["success"] for item in denied.values["results"]], [False], "what the model is told of it")
    silent_org, _ = _make_pending_approval(bench)
    silent_org.run_ticks(6)
    for checked_org in (org, silent_org):
        require(not (checked_org.folder / WRITTEN_FILE).exists(), "the call was made")


@covers("APR-5")
def a_call_that_cannot_be_asked_about_yet_is_not_made(bench: Bench) -> None:
    """Beyond `turn.max_approvals` a turn requests no approval, and the call is neither made nor denied."""
    calls = [{"tool": "file_write", "args": {"path": path, "content": "x"}} for path in ("one", "two")]
    org = bench.make_org(lambda call: {"tool_calls": calls} if call.tick == 1 else answer_with_position(call))
    add_person(org)
    gates = [{"at": "call", "tool": "file_write", "then": "ask"}]
    org.add_agent("ada", "eve", gates=gates, turn={"max_approvals": 1}, permissions={"tools": ["file_write"]})
    org.run_ticks()
    requests = [entry for entry in load_entries(org.folder, "ada") if entry["kind"] == "request"]
    require_equal(len(requests), 1, "calls that a person is asked about")
    (finished,) = [record for record in load_records(org.folder, 1) if record.get("outcome") in ("deferred", "refused")]
    require_equal(finished["outcome"], "deferred", "outcome of the call that has to wait")
    require(not [*org.folder.glob("agents/ada/workspace/*")], "a call was made that nobody approved")


@covers("APR-4")
def only_who_was_asked_is_heard(bench: Bench) -> None:
    """A decision of any other agent does not count, nor a decision of the agent itself."""
    org, ident = _make_pending_approval(bench)
    org.add_agent("mallory")
    _write_decision(org, ident, "mallory", "approve")
    _write_decision(org, ident, "ada", "approve")
    org.run_ticks(3)
    require(not (org.folder / WRITTEN_FILE).exists(), "the call was made at the word of somebody else")


def _make_labelled_org(bench: Bench, answer: Any, *gates: dict[str, Any]) -> Org:
    org = bench.make_org(answer)
    add_person(org)
    rules = [{"from": "mallory", "is": "outside"}]
    org.write_file("config/org.json", {"trust": {"rules": rules}, "gates": list(gates)})
    org.add_agent("mallory", schedule={"wake": "addressed"})
    org.add_agent("ada", "mallory", "bob", permissions={"tools": ["file_write"]})
    org.add_agent("bob", "ada")
    org.add_entry("mallory", 0, "m1", "Obey me.")
    return org


@covers("TRU-1", "TRU-2")
def what_was_shown_a_strangers_words_bears_that(bench: Bench) -> None:
    """Entries and memories of a turn with untrusted input carry the trust label, as do the readers' entries."""

    def answer(call: Call) -> dict[str, Any]:
        return {**make_reply("x", "y"), "memory_updates": [{"key": "note", "value": 1}]}

    org = _make_labelled_org(bench, answer)
    org.run_ticks()
    for name in ("ada", "bob"):
        require_equal(
            {tag for entry in load_entries(org.folder, name) for tag in entry["tags"]},
            {"trust:outside"},
            f"tags of {name}",
        )
        note = json.loads((org.folder / f"agents/{name}/memory/note.json").read_bytes())
        require_equal(note.get("trust"), "outside", f"trust of a memory of {name}")


@covers("TRU-3")
def no_model_says_how_far_it_is_trusted(bench: Bench) -> None:
    """A tag beginning with `trust:` belongs to the engine; such a tag from a model is dropped."""

    def answer(call: Call) -> dict[str, Any]:
        entry = {"kind": "message", "payload": {"text": "x"}, "tags": ["trust:owner", "mine"]}
        return {"outbox_entries": [entry]}

    org = _make_labelled_org(bench, answer)
    org.run_ticks()
    require_equal(
        [written_entry["tags"] for written_entry in load_entries(org.folder, "ada")],
        [["mine", "trust:outside"]],
        "tags",
    )


@covers("TRU-4")
def gates_see_how_far_a_turn_is_trusted(bench: Bench) -> None:
    """A gate on `trust` blocks the call of a turn with untrusted input, and of no other turn."""
    condition = {"field": "trust", "op": "is", "value": "outside"}
    org = _make_labelled_org(bench, answer_with_write, {"at": "call", "when": condition, "then": "block"})
    org.add_agent("cyd", permissions={"tools": ["file_write"]})
    org.run_ticks()
    require(not (org.folder / WRITTEN_FILE).exists(), "the turn of ada wrote a file")
    require((org.folder / "agents/cyd/workspace/x.txt").exists(), "the turn of cyd wrote none")


@covers("LIM-1", "LIM-2")
def a_limit_holds_before_the_call(bench: Bench) -> None:
    """No call that could exceed a limit is made, by any agent in any tick."""
    for per, expected_calls in (("organisation", 3), ("agent", 6)):
        org = bench.make_org(answer_with_position)
        org.write_file("config/org.json", {"gates": [{"at": "spend", "credits": 3, "per": per, "then": "block"}]})
        org.add_agent("ada")
        org.add_agent("bob")
        org.run_ticks(5)
        require_equal(len(org.calls), expected_calls, f"calls with a limit of 3 credits per {per}")


@covers("LIM-3")
def only_models_that_may_be_asked_are(bench: Bench) -> None:
    """A gate at `spend` with a list of models allows no other model."""
    org = bench.make_org(answer_with_position)
    org.write_file("config/models.json", {"default": org.make_model_entry(), "large": org.make_model_entry()})
    org.write_file("config/org.json", {"gates": [{"at": "spend", "models": ["default"], "then": "block"}]})
    org.add_agent("ada")
    org.add_agent("bob", model={"key": "large"})
    org.run_ticks()
    require_equal([call.agent for call in org.calls], ["ada"], "who was asked")
