"""What holds between a crash and the run that continues: settings change, people edit, machines reboot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import persist_tick, run_once, run_tick
from lemming.kernel.base.errors import CorruptState, TickAlreadyCommitted
from lemming.kernel.journal.engine_events import Event, ModelAsked, ProblemFound
from lemming.kernel.journal.journal_records import TurnEnded
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.memory import load_memory
from lemming.libraries.memory_files import save_memory
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import Crash, FrozenClock, make_org, resume, say


def remembering(text: str) -> dict[str, Any]:
    return say(text, memory_updates=[{"key": "k", "value": text}])


@pytest.fixture
def interrupted(base: Path) -> Path:
    """An organisation that died when bob's model was asked, after ada's turn was committed."""
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": remembering("news")}])
    with pytest.raises(Crash):
        run_once(base, notify=die_when_asked("bob"), clock=FrozenClock(boot_id="first"))
    return base


def die_when_asked(agent: str) -> Any:
    def watch(event: Event) -> None:
        if isinstance(event, ModelAsked) and event.agent == agent:
            raise Crash

    return watch


def test_a_budget_lowered_meanwhile_does_not_undo_a_turn_that_was_committed(interrupted: Path) -> None:
    (interrupted / "config/credits.json").write_text('{"ada": {"max_credits": 0}}')
    run_once(interrupted, clock=FrozenClock(boot_id="second"))
    ledger = interrupted / "agents/ada/turns.jsonl"
    turns = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [(turn["status"], turn["credits"]) for turn in turns] == [("done", 1.0)]


def test_an_answer_that_had_arrived_is_used_at_the_price_it_had(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": remembering("news")}])

    def die_when_written(event: Event) -> None:
        if isinstance(event, TurnEnded):
            raise Crash

    with pytest.raises(Crash):
        run_once(base, notify=die_when_written)
    journal = base / "logs/ticks/00000001.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"turn_committed"' not in line))
    models = json.loads((base / "config/models.json").read_text())
    models["scripted"]["per_call"] = 50
    (base / "config/models.json").write_text(json.dumps(models))
    (turn,) = run_once(base).turns
    assert (turn.status, turn.credits) == ("done", 1.0)


def test_what_a_person_did_meanwhile_is_kept_while_the_machine_stayed_up(interrupted: Path) -> None:
    save_memory(interrupted, "ada", "k", "by a person")
    (entry,) = read_outbox_entries(interrupted, "ada")
    (interrupted / entry.file).unlink()
    run_once(interrupted, clock=FrozenClock(boot_id="first"))
    assert load_memory(interrupted, "ada", "k") == "by a person"
    assert read_outbox_entries(interrupted, "ada") == []


def test_after_a_power_cut_the_files_of_a_committed_turn_are_written_again(interrupted: Path) -> None:
    (interrupted / "agents/ada/memory/k.json").write_bytes(b"")
    (entry,) = read_outbox_entries(interrupted, "ada")
    (interrupted / entry.file).unlink()
    run_once(interrupted, clock=FrozenClock(boot_id="second"))
    assert load_memory(interrupted, "ada", "k") == "news"
    assert len(read_outbox_entries(interrupted, "ada")) == 1


def test_no_credit_for_the_correction_fails_the_turn(base: Path) -> None:
    make_org(base, resume("ada", credits={"max_credits": 1}), script=[{"reply": "garbage"}])
    (turn,) = run_once(base).turns
    assert (turn.status, turn.error) == ("failed", "ContractError")
    assert "out of credits" in turn.reason
    assert read_state(base, "ada").turns == 0


def test_an_unusable_entry_does_not_keep_a_reader_awake(base: Path) -> None:
    make_org(base, resume("ada", schedule={"wake": "changed"}), resume("human", model={"key": "human"}))
    outbox = base / "agents/human/outbox"
    outbox.mkdir()
    (outbox / "00000001_bad.json").write_text("{")
    statuses = [run_once(base).turns[0].status for _ in range(3)]
    assert statuses == ["done", "skipped", "skipped"]


def test_a_context_file_of_its_own_making_does_not_wake_an_agent(base: Path) -> None:
    write = {"tool": "file_write", "args": {"path": "n.txt", "content": "again"}}
    make_org(
        base,
        resume(
            "ada",
            schedule={"wake": "changed"},
            permissions={"tools": ["file_write"]},
            context=[{"file": "./workspace/n.txt"}],
        ),
        script=[{"tick": 1, "reply": say("x", tool_calls=[write])}, {"reply": say("y")}],
    )
    (base / "agents/ada/workspace").mkdir()
    (base / "agents/ada/workspace/n.txt").write_text("first")
    assert [run_once(base).turns[0].status for _ in range(3)] == ["waiting", "skipped", "skipped"]


def test_the_next_line_of_a_file_is_news_to_an_agent_that_takes_lines(base: Path) -> None:
    make_org(
        base, resume("ada", schedule={"wake": "changed"}, context=[{"file": "./workspace/n.txt", "take": "next_line"}])
    )
    (base / "agents/ada/workspace").mkdir()
    (base / "agents/ada/workspace/n.txt").write_text("one\ntwo\n")
    assert [run_once(base).turns[0].status for _ in range(3)] == ["done", "done", "done"]


def test_a_tick_before_one_that_has_begun_is_refused(base: Path) -> None:
    make_org(base, resume("ada"))
    persist_tick(base, 5)
    run_once(base)
    with pytest.raises(TickAlreadyCommitted, match="tick 5 has started"):
        run_tick(base, 3)
    persist_tick(base, 0)
    with pytest.raises(TickAlreadyCommitted, match='"current_tick": 6'):
        run_once(base)


def test_an_interrupted_tick_cannot_be_stepped_over(interrupted: Path) -> None:
    persist_tick(interrupted, 9)
    with pytest.raises(CorruptState, match="tick 1 was interrupted in the turn of bob"):
        run_once(interrupted)


def test_a_failed_turn_keeps_only_what_happened_outside(base: Path) -> None:
    calls = [{"tool": "memory_read", "args": {}}]
    make_org(
        base,
        resume("ada", turn={"max_steps": 2, "repairs": 0}),
        script=[{"step": 0, "reply": say("x", tool_calls=calls)}, {"reply": "garbage"}],
    )
    for _ in range(3):
        assert run_once(base).turns[0].status == "failed"
    assert read_state(base, "ada").results == ()


def test_an_unknown_tool_and_an_unknown_key_are_said_at_a_run_once(base: Path) -> None:
    make_org(base, resume("ada", permissions={"tools": ["teleport"]}, motto="calm"))
    said: list[str] = []
    watch = lambda event: said.append(str(event.problem)) if isinstance(event, ProblemFound) else None  # noqa: E731
    run_once(base, notify=watch)
    assert ['unknown key "motto"' in said[0], 'tool "teleport" does not exist' in said[1]] == [True, True], said
