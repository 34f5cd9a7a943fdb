"""`lemming why` in an organisation with a long past: found without reading it all, told in few lines."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from asked_why import HIRE, ask, one, seen
from typed import typed

from lemming.engine import run_once
from lemming.journal_tools.provenance.provenance_tree import build_provenance
from lemming.journal_tools.provenance.write_log import WriteLog
from lemming.kernel.messages import entry_id
from lemming.libraries.journal_sealing import seal_old_journals
from lemming.libraries.memory_files import save_memory
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, make_org, resume, say

Capsys = pytest.CaptureFixture[str]


@pytest.mark.long
def test_hundreds_of_ticks_are_no_matter_for_patience(base: Path) -> None:
    make_org(base, resume("ada"), org={"durability": "off"}, script=[{"reply": say("x")}])
    save_memory(base, "ada", "goal", "sell")
    for _ in range(150):
        run_once(base, clock=FrozenClock())
    began = time.process_time()
    newest = read_outbox_entries(base, "ada", 1)[0].id
    assert one(seen(ask(base, newest)), "memory").by == "person"  # known only once every journal was read
    assert time.process_time() - began < 5


def test_ticks_in_which_nobody_took_a_turn_are_not_taken_for_lost_ones(base: Path) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 3}))
    save_memory(base, "ada", "capital", "Lyon")
    for _ in range(6):
        run_once(base)
    thing = ask(base, "ada/memory/capital")
    assert (thing.by, thing.remark) == ("person", "written by a person")
    (base / "logs/ticks/00000003.jsonl").unlink()
    assert ask(base, "ada/memory/capital").remark.endswith("in tick 1, 2, 3, whose journals are missing or unreadable")


def test_entries_that_stand_elsewhere_in_the_tree_are_counted_and_no_others(base: Path, capsys: Capsys) -> None:
    make_org(base, resume("ada"), resume("bob", permissions={"read_outboxes": ["ada"]}))
    for _ in range(9):
        run_once(base)
    words = ["why", entry_id(9, "bob", 0), "--depth"]
    short = typed(capsys, base, *words, "1").out
    assert "shown elsewhere" not in short
    assert all(entry_id(tick, "ada", 0) in short for tick in range(1, 10))
    deep = typed(capsys, base, *words, "10").out
    assert "more entries of ada, bob, ticks 1 to 7: shown elsewhere" in deep
    assert all(entry_id(tick, name, 0) in deep for tick in range(1, 10) for name in ("ada", "bob"))
    assert "shown elsewhere, or" not in deep
    assert "more entries of" not in typed(capsys, base, *words, "10", "--all").out


def busy(base: Path) -> Path:
    """Four agents that read everybody and call tools, of whom one writes what another takes up."""
    permissions = {"read_outboxes": ["*"], "tools": ["list_agents", "memory_read"]}
    call = [{"tool": "list_agents", "args": {}}]
    return make_org(
        base,
        *(resume(name, permissions=permissions) for name in ("ada", "bob", "cyd", "dan")),
        script=[
            {"agent": "ada", "tick": 6, "reply": say("the ferry sank", tool_calls=call)},
            {"agent": "dan", "tick": 7, "reply": say("ferry accident", tool_calls=call)},
            {"reply": say("nothing new", tool_calls=call)},
        ],
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("depth", ["1", "3", "10"])
def test_in_a_busy_organisation_the_entry_that_caused_a_text_is_shown(base: Path, capsys: Capsys, depth: str) -> None:
    busy(base)
    for _ in range(7):
        run_once(base)
    out = typed(capsys, base, "why", entry_id(7, "dan", 0), "--depth", depth).out
    lines = out.splitlines()
    assert any("the ferry sank" in line for line in lines)
    own = [line for line in lines if line.startswith(("   ├─", "   └─"))]
    kinds = ["result" if "result " in line else "entry" for line in own]
    assert kinds == sorted(kinds)  # entries come before results
    assert kinds.count("result") == 1  # that of the turn before; this turn's own came after its reply
    assert max(map(len, lines)) <= 160


def test_only_the_branches_that_contain_a_text_are_shown_on_request(base: Path, capsys: Capsys) -> None:
    busy(base)
    for _ in range(7):
        run_once(base)
    words = ["why", entry_id(7, "dan", 0), "--grep"]
    out = typed(capsys, base, *words, "FERRY sank").out
    assert "the ferry sank" in out
    assert "result" not in out
    (told,) = typed(capsys, base, *words, "ferry sank", "--json").objects
    waiting, leaves = [told["target"]], []
    while waiting:
        thing = waiting.pop()
        waiting += thing["turn"]["saw"] if thing["turn"] else []
        leaves += [thing["text"]] if not (thing["turn"] and thing["turn"]["saw"]) else []
    assert set(leaves) == {"the ferry sank"}
    assert 'nothing in this tree contains "volcano"' in typed(capsys, base, *words, "volcano").err


def test_a_deep_tree_stays_within_the_width_of_a_file(base: Path, capsys: Capsys) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("long " * 60)}])
    for _ in range(20):
        run_once(base)
    out = typed(capsys, base, "why", entry_id(20, "bob", 0), "--depth", "40").out
    assert max(map(len, out.splitlines())) <= 160


def test_only_journals_that_can_matter_are_taken_apart(base: Path) -> None:
    make_org(base, resume("ada", permissions={}))
    for _ in range(5):
        run_once(base)
    journal = base / "logs/ticks/00000001.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b"hello", b"jello", 1))
    writings = WriteLog(base)
    assert build_provenance(writings, entry_id(5, "ada", 0), depth=1).turn
    assert writings.damaged == set()  # whether a turn wrote the resume was asked of it, and it names none
    assert ask(base, entry_id(1, "ada", 0)).by == "unknown"


@pytest.mark.long
def test_a_resume_that_an_earlier_turn_wrote_is_found_in_a_packed_journal(base: Path) -> None:
    make_org(
        base,
        resume("hr", permissions={"read_outboxes": [], "tools": ["create_agent"]}),
        org={"durability": "off"},
        script=[{"agent": "hr", "tick": 1, "reply": say("hiring", tool_calls=[HIRE])}, {"reply": say("hello")}],
    )
    for _ in range(102):
        run_once(base, clock=FrozenClock())
    assert seal_old_journals(base, 102, 1)
    assert not (base / "logs/ticks/00000001.jsonl").exists()
    maker = one(seen(ask(base, entry_id(2, "eve", 0), depth=1)), "file")
    assert (maker.author, maker.position) == ("hr", (1, 0))


def remembering(base: Path) -> Path:
    """Ada remembers something in tick 2 only, and reads it in every turn."""
    news = say("so", memory_updates=[{"key": "news", "value": "rolls"}])
    make_org(
        base,
        resume("ada", permissions={}),
        script=[{"agent": "ada", "tick": 2, "reply": news}, {"reply": say("hello")}],
    )
    for _ in range(6):
        run_once(base, clock=FrozenClock())
    return base


@pytest.mark.parametrize("kept", [0, 2], ids=["no line", "the newest lines"])
def test_a_memory_is_followed_past_a_ledger_that_does_not_reach_back(base: Path, kept: int) -> None:
    ledger = remembering(base) / "agents/ada/turns.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[len(lines) - kept :]))
    assert one(seen(ask(base, entry_id(6, "ada", 0), depth=1)), "memory").position == (2, 0)


def test_a_memory_whose_turn_the_ledger_leaves_out_is_not_taken_for_an_edit(base: Path) -> None:
    news = [{"key": "news", "value": "rolls"}], [{"key": "news", "value": "bread"}]
    make_org(
        base,
        resume("ada", permissions={}),
        script=[
            {"agent": "ada", "tick": 1, "reply": say("so", memory_updates=news[0])},
            {"agent": "ada", "tick": 2, "reply": say("so", memory_updates=news[1])},
            {"reply": say("hello")},
        ],
    )
    for _ in range(3):
        run_once(base, clock=FrozenClock())
    ledger = base / "agents/ada/turns.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(lines[0] + lines[2])
    assert one(seen(ask(base, entry_id(3, "ada", 0), depth=1)), "memory").position == (2, 0)
    assert ask(base, "ada/memory/news").position == (2, 0)
