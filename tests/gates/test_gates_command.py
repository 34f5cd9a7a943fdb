"""`lemming gates`: the list in the order of asking, and the table."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lemming.capabilities.gates.gate_evaluation import evaluate_gates
from lemming.capabilities.gates.gate_format import GateRule
from lemming.capabilities.gates.gate_judges import evaluate_partially
from lemming.capabilities.gates.gates_command import standard_gates
from lemming.cli import run
from lemming.kernel.org.config import load_config
from lemming.libraries.conditions.predicates import evaluate
from lemming.testing import make_org, resume


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
    assert 'did you mean "ada"' in gates(base, capsys, "list", "--agent", "adda", status=2)
    assert "lemming rehearse" in gates(base, capsys, "explain", "ada", "shell", status=2)


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
