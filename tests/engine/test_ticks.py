"""A tick from outside: who runs, what is written, what the report says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lemming.engine import get_firing_agents, load_tick, persist_tick, run_forever, run_once, run_tick, ticks
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ConfigError, CorruptState, NotAnOrg, TickAlreadyCommitted
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.org.schedule import AgentSchedule
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree


def entry_texts(base: Path, agent: str) -> list[str]:
    return [entry.payload["text"] for entry in read_outbox_entries(base, agent)]


def test_run_once_writes_the_entry_and_moves_the_tick(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("hello", kind="report")}])
    report = run_once(base, clock=FrozenClock())
    assert report.tick == 1
    assert [turn.status for turn in report.turns] == ["done"]
    (entry,) = read_outbox_entries(base, "ada")
    assert (entry.tick, entry.agent, entry.kind, entry.payload) == (1, "ada", "report", {"text": "hello"})
    assert entry.created_at == "2026-01-01T00:00:00.000Z"
    assert json.loads((base / "tick.json").read_text()) == {"current_tick": 2}


def test_an_entry_file_has_the_seven_keys_of_the_guide_and_nothing_else(base: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    (file,) = (base / "agents/ada/outbox").iterdir()
    plain = json.loads(file.read_text())
    assert list(plain) == ["id", "tick", "agent", "kind", "payload", "tags", "created_at"]
    assert file.name == f"00000001_{plain['id']}.json"


def test_run_tick_leaves_tick_json_alone(base: Path) -> None:
    make_org(base, resume("ada"))
    persist_tick(base, 5)
    run_tick(base, 5)
    assert load_tick(base) == 5


def test_run_once_goes_on_after_run_tick_has_run_the_tick(base: Path) -> None:
    make_org(base, resume("ada"))
    run_tick(base, 1)
    assert run_once(base).tick == 2
    assert load_tick(base) == 3


def test_a_committed_tick_is_reported_again_and_not_run_again(base: Path) -> None:
    make_org(base, resume("ada"), resume("zed", schedule={"run_every_n_ticks": 2}), {"name": "broken"})
    first = run_tick(base, 1, clock=FrozenClock())
    before = tree(base)
    again = run_tick(base, 1)
    assert again.was_recorded
    assert again.turns == first.turns
    assert tree(base) == before


def test_a_tick_counter_moved_back_by_hand_is_refused_with_the_way_out(base: Path) -> None:
    make_org(base, resume("ada"))
    for _ in range(3):
        run_once(base)
    persist_tick(base, 2)
    with pytest.raises(TickAlreadyCommitted, match='"current_tick": 4'):
        run_once(base)


def test_an_end_between_the_counter_and_the_last_line_is_tidied_up(base: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    journal = base / "logs/ticks/00000001.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))
    run_once(base)
    assert journal_lines(base, 1)[-1]["type"] == "tick_committed"
    assert load_tick(base) == 3


@pytest.mark.parametrize("content", ["", "{", "[]", '{"current_tick": "4"}', '{"current_tick": -1}', '{"tick": 4}'])
def test_an_unreadable_tick_counter_stops_the_engine_and_the_journals_tell_the_number(base: Path, content: str) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    (base / "tick.json").write_text(content)
    with pytest.raises(CorruptState, match='"current_tick": 2'):
        run_once(base)


def test_a_missing_tick_counter_is_tick_1_only_in_a_fresh_org(base: Path) -> None:
    make_org(base, resume("ada"))
    assert load_tick(base) == 1
    run_once(base)
    (base / "tick.json").unlink()
    with pytest.raises(CorruptState, match="does not exist"):
        run_once(base)


def test_a_folder_without_agents_is_no_organisation(base: Path) -> None:
    base.mkdir()
    with pytest.raises(NotAnOrg, match="lemming init"):
        run_once(base)


def test_agents_fire_by_the_formula_and_in_the_order_of_fire_point_and_name() -> None:
    def agent(name: str, every: int, offset: int) -> Agent:
        schedule = AgentSchedule(run_every_n_ticks=every, phase_offset=offset)
        return Agent(name=name, instructions="x", schedule=schedule)

    agents = [agent("d", 4, 0), agent("c", 1, 0), agent("b", 4, 3), agent("a", 2, 1), agent("e", 1, -7)]
    assert [found.name for found in get_firing_agents(agents, 5)] == ["c", "e", "b", "a"]
    assert [found.name for found in get_firing_agents(agents, 8)] == ["c", "d", "e"]


def test_run_forever_yields_a_report_a_tick_and_stops_after_max_ticks(base: Path) -> None:
    make_org(base, resume("ada"))
    assert [report.tick for report in ticks(base, interval_s=0, max_ticks=2)] == [1, 2]
    run_forever(base, interval_s=0, max_ticks=1)
    assert entry_texts(base, "ada") == ["hello"] * 3


def test_the_report_says_why_an_agent_had_no_turn_and_counts_those_not_due(base: Path) -> None:
    make_org(
        base,
        resume("ada"),
        resume("human", model={"key": "human"}),
        resume("late", schedule={"run_every_n_ticks": 5}),
        {"name": "odd"},
    )
    report = run_once(base)
    why = {turn.agent: (turn.status, turn.reason) for turn in report.turns}
    assert why["ada"] == ("done", "")
    assert why["human"] == ("skipped", "a person speaks for it")
    assert (report.not_due, "late" in why) == (1, False)
    assert why["odd"][0] == "failed"
    assert "instructions" in why["odd"][1]


@pytest.mark.parametrize(
    ("broken", "why"),
    [({"model": {"key": "no-such-key"}}, "does not exist"), ({"context": [{"file": "/etc/passwd"}]}, "allow_read")],
)
def test_one_agents_trouble_does_not_stop_the_others(base: Path, broken: dict[str, object], why: str) -> None:
    make_org(base, resume("ada"), resume("bad", **broken), resume("zed"))
    report = run_once(base)
    assert [(turn.agent, turn.status) for turn in report.turns] == [("ada", "done"), ("bad", "failed"), ("zed", "done")]
    assert why in report.turns[1].reason


def test_an_outbox_that_is_a_link_fails_that_agent_only(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada"), resume("bad"), resume("zed"))
    (tmp_path / "elsewhere").mkdir()
    (base / "agents/bad/outbox").symlink_to(tmp_path / "elsewhere")
    report = run_once(base)
    assert {turn.agent: turn.status for turn in report.turns} == {"ada": "done", "bad": "failed", "zed": "done"}
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert "symbolic link" in report.turns[1].reason


def test_expired_entries_are_removed_at_the_end_of_a_tick(base: Path) -> None:
    make_org(base, resume("ada"), org={"retention_ticks": 2})
    for _ in range(5):
        run_once(base)
    assert [entry.tick for entry in read_outbox_entries(base, "ada")] == [3, 4, 5]
    assert [r["files"] for r in journal_lines(base, 5) if r["type"] == "entries_expired"] == [
        [f"agents/ada/outbox/{name}" for name in sorted(expired_names())]
    ]


def expired_names() -> list[str]:
    from lemming.kernel.messages import entry_id

    return [f"00000002_{entry_id(2, 'ada', 0)}.json"]


def test_a_provider_that_cannot_be_made_fails_only_those_who_use_it(base: Path) -> None:
    models = {"odd": {"provider": "scripted", "options": {"fil": "x"}}}
    make_org(base, resume("ada"), resume("bad", model={"key": "odd"}), models=models)
    ada, bad = run_once(base).turns
    assert (ada.status, bad.status, bad.error) == ("done", "failed", "Unusable")
    assert 'did you mean "file"?' in bad.reason


def test_a_plugin_that_cannot_be_imported_stops_the_engine_and_says_which(base: Path) -> None:
    make_org(base, resume("ada"), org={"plugins": ["no_such_module_here"]})
    with pytest.raises(ConfigError, match="no_such_module_here"):
        run_once(base)


def test_a_server_without_structured_output_is_asked_in_the_guides_own_form(base: Path) -> None:
    options = {"base_url": "http://127.0.0.1:9/v1", "json": "object"}
    models = {
        "plain": {"provider": "openai", "model": "m", "prompt": "full", "options": options, "attempts": 1},
        "strict": {
            "provider": "openai",
            "model": "m",
            "prompt": "full",
            "options": {**options, "json": "schema"},
            "attempts": 1,
        },
    }
    make_org(base, resume("ada", model={"key": "plain"}), resume("bob", model={"key": "strict"}), models=models)
    report = run_once(base)
    assert [turn.error for turn in report.turns] == ["Unavailable", "Unavailable"]
    ada, bob = (r for r in journal_lines(base, 1) if r["type"] == "turn_started")
    assert ada["schema"] is None
    assert '"value": "any JSON"' in ada["prompt"][-1]["content"]
    assert bob["schema"]["required"] == ["outbox_entries", "tool_calls", "memory_updates", "notes"]
    assert "value_json" in bob["prompt"][-1]["content"]


def test_a_report_comes_back_whole_from_a_line_that_leaves_out_what_says_nothing() -> None:
    plain = TurnReport(agent="ada", status="done", end="done", calls=1, credits=1.0, cost_usd=0.0)
    assert [*plain.as_journal_json()] == [
        "agent", "status", "end", "entries", "memory", "files", "calls", "credits", "cost_usd",
        "input_tokens", "output_tokens",
    ]  # fmt: skip
    spoken = TurnReport(agent="ada", status="failed", end="failed", reason="it broke", error="TurnBroke")
    for report in (plain, spoken):
        assert TurnReport.from_json(report.as_journal_json()) == report
        assert {**report.as_json(), **report.as_journal_json()} == report.as_json()
