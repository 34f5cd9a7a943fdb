"""`lemming gates`: what it says of a call is what becomes of it; what an agent could cause, and the table."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lemming.capabilities.gates.default_gates import standard_gates
from lemming.capabilities.gates.gate_evaluation import evaluate_gates
from lemming.capabilities.gates.gate_format import GateRule
from lemming.capabilities.gates.gate_judges import evaluate_partially
from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.org.config import load_config
from lemming.libraries.conditions.predicates import evaluate
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree

FILES = {"allow_read": ["./shared", "./workspace"], "allow_write": ["./shared", "./workspace"]}
TOOLS = ["file_*", "shell", "http_get"]


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def gates(base: Path, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert run(["-C", str(base), "gates", *words]) == status
    out, err = capsys.readouterr()
    return out if status == 0 else err


def objects(base: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gates(base, capsys, *words, "--json").splitlines()]


GATES = [
    {"at": "call", "tool": "file_write", "deny": ["forbidden"], "then": "block", "because": "not that word"},
    {"at": "call", "redact": ["[0-9]{4}"], "then": "rewrite"},
    {"at": "call", "tool": "file_write", "max_length": 60, "then": "warn"},
    {"at": "call", "tool": "file_list", "args": {"path": ["workspace*"]}, "then": "pass"},
    {"at": "call", "when": {"field": "own", "op": "is", "value": False}, "then": "block"},
    {"at": "call", "tool": "file_search", "then": "stop"},
    {"at": "call", "tool": "file_append", "then": "ask"},
    {"at": "result", "tool": "file_list", "deny": ["x"], "then": "warn"},
]
CALLS = [
    call("file_write", path="workspace/a", content="fine"),
    call("file_write", path="workspace/a", content="forbidden"),
    call("file_write", path="workspace/a", content="call 5551"),
    call("file_write", path="workspace/a", content="y" * 80),
    call("file_write", path="shared/a", content="fine"),
    call("file_list", path="workspace"),
    call("file_list", path="."),
    call("file_search", pattern="x"),
    call("file_append", path="workspace/a", content="x"),
    call("file_append", path="workspace/a"),
    call("shell", command="id"),
    call("http_post", url="https://example.org", body="x"),
    call("nothing"),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("at", range(len(CALLS)))
def test_what_it_says_of_a_call_is_what_becomes_of_it(base: Path, capsys: pytest.CaptureFixture[str], at: int) -> None:
    wanted = CALLS[at]
    script = [{"tick": 1, "step": 0, "reply": say("calling", tool_calls=[wanted])}, {"reply": say("done")}]
    permissions = {"read_outboxes": ["human"], "tools": TOOLS[:1], "file_access": FILES}
    ada = resume("ada", permissions=permissions, turn={"max_steps": 2})
    human = resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]})
    make_org(base, ada, human, script=script, org={"gates": GATES})
    before = tree(base)
    (said,) = objects(base, capsys, "explain", "ada", wanted["tool"], json.dumps(wanted["args"]))
    assert tree(base) == before
    run_once(base, clock=FrozenClock())
    (done,) = [it for it in journal_lines(base, 1) if it["type"] == "tool_finished"]
    if not said["granted"]:
        assert done["outcome"] in ("denied", "not_found")
        assert done["output"] == said["why_not_granted"]
        return
    spoken = [(it["line"], it["then"]) for it in said["steps"] if it["then"] not in (None, "pass")]
    told = [(it["line"], it["then"]) for it in done.get("verdicts", ()) if it["at"] == "call"]
    assert told == spoken or said["wrong"]
    outcome = {"pass": ("ok",), "ask": ("pending",), "block": ("refused",), "stop": ("refused",)}
    fails = said["wrong"] and said["then"] in ("pass", "ask")
    assert done["outcome"] in (("invalid_args",) if fails else outcome[said["then"]])
    if said["then"] == "pass" and wanted["tool"] == "file_write":
        written = (base / "agents/ada/workspace/a").read_text()
        assert written == said["args_after"]["content"]


def test_it_says_which_lines_were_asked_and_whom_the_last_one_asks(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"at": "call", "tool": "shell", "then": "ask", "persons": ["zoe"], "expires": 3}
    ada = resume("ada", permissions={"read_outboxes": ["*"], "tools": TOOLS}, gates=[own])
    people = [resume(name, model={"key": "human"}, permissions={"read_outboxes": ["*"]}) for name in ("human", "zoe")]
    make_org(base, ada, *people, org={"gates": [{"at": "call", "redact": ["s3cret"], "then": "rewrite"}]})
    text = gates(base, capsys, "explain", "ada", "shell", "command=echo s3cret")
    assert "config/org.json#/gates/0  rewrites it" in text
    assert 'arguments after the gates: {"command": "echo [redacted]"}' in text
    assert "it waits for the approval of zoe, for 3 ticks (agents/ada/resume.json#/gates/0)" in text
    assert "human" not in text
    text = gates(base, capsys, "explain", "ada", "http_post")
    assert "no gate is evaluated: http_post: refused by permissions.tools" in text
    assert 'did you mean "ada"' in gates(base, capsys, "explain", "adda", "shell", status=2)
    assert "trust tracking is off" in gates(base, capsys, "explain", "ada", "shell", "--trust", "outside", status=2)


def test_it_tells_what_each_word_of_trust_would_change(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ada = resume("ada", permissions={"read_outboxes": ["human"], "tools": TOOLS, "file_access": FILES})
    human = resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]})
    make_org(base, ada, human, org=standard_gates())
    text = gates(base, capsys, "explain", "ada", "shell", "command=id")
    assert "at trust agent" in text
    assert "it runs (no gate stops it)" in text
    assert "at trust outside: it waits for approval by a person (config/org.json#/gates/1)" in text
    (low,) = objects(base, capsys, "explain", "ada", "shell", "command=id", "--trust", "outside")
    assert (low["then"], low["line"], low["persons"]) == ("ask", "config/org.json#/gates/1", ["human"])
    for path, then in (("workspace/a", "pass"), ("shared/a", "ask")):
        words = ["explain", "ada", "file_write", f"path={path}", "content=x", "--trust", "outside"]
        assert objects(base, capsys, *words)[0]["then"] == then
    wrong = gates(base, capsys, "explain", "ada", "shell", "--trust", "outsid", status=2)
    assert 'did you mean "outside"' in wrong


def test_a_function_is_named_and_not_asked(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "asked_by_gates.py").write_text(
        "from pathlib import Path\nfrom lemming.capabilities.gates.gate_evaluation import check\n"
        f"Path({str(tmp_path / 'imported')!r}).touch()\n"
        f"@check\ndef nosy(seen):\n    Path({str(tmp_path / 'asked')!r}).touch()\n    return 'no'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = {"plugins": ["asked_by_gates"], "gates": [{"at": "call", "check": "nosy", "then": "block"}]}
    make_org(base, resume("ada", permissions={"tools": ["file_list"]}), org=settings)
    text = gates(base, capsys, "explain", "ada", "file_list", "path=.")
    assert "config/org.json#/gates/0  asks the function nosy" in text
    assert "unless the function nosy says otherwise: config/org.json#/gates/0 then blocks it" in text
    assert not (tmp_path / "imported").exists()
    assert not (tmp_path / "asked").exists()


def test_the_list_is_in_the_order_of_asking(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silent = {"at": "out", "then": "block"}
    make_org(base, resume("ada", gates=[silent]), resume("bob", gates=[silent]), org={"gates": GATES[:2]})
    lines = [it["line"] for it in objects(base, capsys, "list")]
    of_org = ["config/org.json#/gates/0", "config/org.json#/gates/1"]
    assert lines == [*of_org, "agents/ada/resume.json#/gates/0", "agents/bob/resume.json#/gates/0"]
    assert [it["line"] for it in objects(base, capsys, "list", "--agent", "bob")] == [
        *of_org,
        "agents/bob/resume.json#/gates/0",
    ]
    assert "not that word" in gates(base, capsys, "list")


def test_the_table_is_printed_and_put_into_the_settings_once(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_org(base, resume("ada"), org={"retention_ticks": 7})
    assert json.loads(gates(base, capsys, "standard")) == standard_gates()
    gates(base, capsys, "standard", "--write")
    plain = json.loads((base / "config/org.json").read_text())
    assert plain == {**plain, **standard_gates(), "retention_ticks": 7}
    assert "trust" in load_config(base).org.extensions
    before = (base / "config/org.json").read_bytes()
    assert "already has gates" in gates(base, capsys, "standard", "--write", status=2)
    assert (base / "config/org.json").read_bytes() == before


def test_the_table_keeps_what_is_said_of_trust(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trust = {"rules": [{"from": "bob", "is": "known"}]}
    make_org(base, resume("ada"), resume("bob"), org={"trust": trust})
    gates(base, capsys, "standard", "--write")
    plain = json.loads((base / "config/org.json").read_text())
    assert plain["trust"] == trust
    assert plain["gates"] == standard_gates()["gates"]


@pytest.mark.parametrize("own", [True, False, None])
@pytest.mark.parametrize("trust", ["outside", "known", "agent", "owner"])
@pytest.mark.parametrize("kind", ["read", "write", "send", "execute", "administer"])
def test_what_the_table_says_of_each_class(kind: str, trust: str, own: bool | None) -> None:
    rules = rules_from(standard_gates()["gates"])
    facts = {"tool": "t", "class": kind, "trust": trust, "args": {}}
    facts |= {} if own is None else {"own": own}
    calls = [rule for rule in rules if rule.gate.at == "call"]
    looked = evaluate_gates(calls, {}, lambda _: facts, about="t")
    asks = trust == "outside" and (kind in ("send", "execute", "administer") or (kind == "write" and own is not True))
    assert looked.then == ("ask" if asks else "pass")


def rules_from(plain: list[dict[str, Any]]) -> tuple[GateRule, ...]:
    from lemming.capabilities.gates.gate_format import Gate
    from lemming.kernel.files.json_documents import to_value

    gates = [to_value(Gate, it) for it in plain]
    return tuple(GateRule(f"config/org.json#/gates/{place}", gate) for place, gate in enumerate(gates))


def test_a_partly_known_condition_is_decided_only_where_unknown_fields_do_not_matter() -> None:
    is_path = {"field": "args.path", "op": "is", "value": "a"}
    is_owner = {"field": "trust", "op": "is", "value": "owner"}
    for condition, trust in product(
        (is_path, {"all": [is_path, is_owner]}, {"any": [is_path, {"not": is_owner}]}, {"not": {"any": [is_path]}}),
        ("outside", "owner"),
    ):
        foreseen = evaluate_partially(condition, {"trust": trust})
        truths = {evaluate(condition, {"trust": trust, "args": {"path": path}}) for path in ("a", "b")}
        assert truths == ({True, False} if foreseen is None else {foreseen})


def test_the_noun_alone_lists_the_gates(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_org(base, resume("ada"), org={"gates": GATES})
    assert gates(base, capsys) == gates(base, capsys, "list")
    assert len(objects(base, capsys)) == len(GATES)
