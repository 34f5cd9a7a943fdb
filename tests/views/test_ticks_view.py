"""The strip of ticks, and one tick with its turns as bars and one of them whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from looked_at import newsdesk

from lemming.engine import run_once
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.journal_records import ModelReplied
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.journal_sealing import seal_old_journals
from lemming.queries.views.tick_view import build_tick_view, build_ticks_view, build_timing
from lemming.queries.views.view_registry import build_view
from lemming.read_model.tick_queries import load_newest_ticks
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, say, tree


def test_the_strip_tells_of_each_tick_how_it_ended_at_worst_and_what_it_cost(desk: Path) -> None:
    strip = build_ticks_view(desk)
    told = [(it["tick"], it["worst"], it["status"]) for it in strip["ticks"]]
    assert told == [(number, "failed", "committed") for number in (1, 2, 3, 4)]
    first = strip["ticks"][0]
    assert first["ends"] == {"done:done": 1, "failed:bad_reply": 1, "waiting:waits": 1}
    assert (first["turns"], first["entries"], first["calls"]) == (3, 3, 3)
    assert first["cost_usd"] == pytest.approx(0.003462)
    assert (strip["next_tick"], strip["older"], strip["is_running"]) == (5, False, False)


def test_the_strip_is_paged_from_the_newest_back(desk: Path) -> None:
    newest = build_view(desk, "ticks", {"count": "2"})
    assert [it["tick"] for it in newest["ticks"]] == [3, 4]
    assert newest["older"]
    older = build_view(desk, "ticks", {"count": "2", "before": "3"})
    assert [it["tick"] for it in older["ticks"]] == [1, 2]
    assert not older["older"]


def test_ticks_in_which_nobody_took_a_turn_are_counted_between_the_others(base: Path) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 3, "phase_offset": 0}))
    for _ in range(6):
        run_once(base, clock=FrozenClock())
    assert [(it["tick"], it["quiet_before"]) for it in build_ticks_view(base)["ticks"]] == [(3, 0), (6, 2)]
    assert build_tick_view(base, number=4)["state"] == "quiet"


def test_a_glance_says_what_the_records_say(desk: Path) -> None:
    for number in (1, 2, 3, 4):
        (glance,), record = load_newest_ticks(desk, 1, before=number + 1), load_tick_record(desk, number)
        assert glance.totals == pytest.approx(record.totals)
        assert glance.begun == len(record.started)
        assert glance.shown == {name: it.entries for name, it in record.started.items()}
        reports = {name: it.report for name, it in record.ended.items()}
        assert {n: s["credits"] for n, s in glance.spent.items()} == {n: r.credits for n, r in reports.items()}
        assert {n: s["cost_usd"] for n, s in glance.spent.items()} == {n: r.cost_usd for n, r in reports.items()}
        assert {n: s["model"] for n, s in glance.spent.items()} == dict.fromkeys(reports, "m-1")
        written = {entry["id"]: name for name, r in reports.items() for entry in r.entries}
        assert {entry: author for entry, (author, _) in glance.wrote.items()} == written


def test_words_of_agents_that_look_like_records_are_not_taken_for_any(base: Path) -> None:
    text = '"calls":9,"credits":9.0,"cost_usd":9.0,"input_tokens":9,"output_tokens":9 "at":"2030-01-01"'
    make_org(base, resume("ada"), script=[{"reply": say(text, notes=text)}])
    run_once(base, clock=FrozenClock())
    (glance,) = load_newest_ticks(base, 1, before=2)
    assert glance.spent["ada"]["credits"] == 1.0
    assert glance.last_at.startswith("2026-01-01")


def test_packed_journals_are_looked_at_like_the_others(base: Path) -> None:
    make_org(base, resume("ada"), org={"durability": "off"})
    for _ in range(105):
        run_once(base, clock=FrozenClock())
    before = load_newest_ticks(Organisation(base), 11, before=106)
    assert seal_old_journals(base, 106, 1)
    assert load_newest_ticks(Organisation(base), 11, before=106) == before
    older = build_ticks_view(base, before=100, count=3)
    assert [it["tick"] for it in older["ticks"]] == [97, 98, 99]
    assert older["older"]


def test_a_tick_that_was_interrupted_says_how_far_it_came(base: Path) -> None:
    newsdesk(base)
    with pytest.raises(Crash), crash_at(14):
        run_once(base)
    (only,) = build_ticks_view(base)["ticks"]
    assert only["status"] == "interrupted"
    assert only["begun"] > only["turns"]
    shown = build_tick_view(base)
    assert shown["state"] == "interrupted"
    under_way = {row["agent"] for row in shown["rows"] if row["status"] == "working"}
    is_open = {name for name, bars in shown["timing"]["bars"].items() if bars and bars[-1]["end_ms"] is None}
    assert under_way
    assert is_open == under_way


def test_a_damaged_journal_is_one_tick_that_says_so(desk: Path, base: Path) -> None:
    shutil.copytree(desk, base)
    (base / "logs/ticks/00000002.jsonl").write_bytes(b"nothing\nof the kind\n")
    shown = build_ticks_view(base)["ticks"]
    assert [it["status"] for it in shown] == ["committed", "damaged", "committed", "committed"]
    assert "line 1 is damaged" in shown[1]["problem"]


def test_a_turn_is_shown_whole_with_its_prompt_and_the_files_it_wrote(desk: Path) -> None:
    shown = build_view(desk, "tick", {"number": "1", "agent": "editor"})
    turn = shown["turn"]
    assert turn["prompt"][0]["role"] == "system"
    assert "Write about the rolls." in turn["prompt"][-1]["content"]
    assert turn["answers"][0]["text"].startswith("{")
    assert [use["tool"] for use in turn["tools"]] == ["file_write"]
    assert turn["contents"]["agents/editor/workspace/draft.txt"] == "320 rolls"
    assert [row["end"] for row in shown["rows"]] == ["done", "waits", "bad_reply"]


def test_bars_lie_where_the_answers_came_in_the_tick(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"))
    run_once(base)
    timing = build_tick_view(base)["timing"]
    assert timing["is_exact"]
    for (bar,) in timing["bars"].values():
        assert 0 <= bar["begin_ms"] <= bar["end_ms"] <= timing["end_ms"]


def test_answers_of_an_earlier_recording_are_laid_one_after_another(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"))
    run_once(base, clock=FrozenClock())
    record = load_tick_record(base, 1)
    for answer in (it for it in record.records if isinstance(it, ModelReplied)):
        vars(answer).update(at="2020-01-01T00:00:00.000Z", duration_ms=700)
    timing = build_timing(record, ["ada", "bob"])
    assert not timing["is_exact"]
    assert timing["end_ms"] == 1400
    assert sorted(bar["begin_ms"] for bars in timing["bars"].values() for bar in bars) == [0, 700]


def test_what_is_not_there_is_named(desk: Path, base: Path) -> None:
    assert build_tick_view(desk, number=1, agent="human")["no_turn"].endswith("in tick 1: a person speaks for it")
    assert build_tick_view(desk, number=1, agent="nobody")["no_turn"].endswith("it was not there")
    with pytest.raises(UsageError, match="has not run"):
        build_tick_view(desk, number=99)
    make_org(base)
    with pytest.raises(UsageError, match="no tick has run yet"):
        build_tick_view(base)
    assert build_ticks_view(base)["ticks"] == []


def test_looking_writes_nothing(desk: Path) -> None:
    before = tree(desk, without=())
    for name, parameters in (
        ("ticks", {}), ("tick", {"number": "1", "agent": "editor"}), ("map", {}), ("money", {}),
        ("agent", {"name": "editor", "prompt": "1"}), ("past", {"new": "2"}),
        ("why", {"target": "editor/memory/news"}),
    ):  # fmt: skip
        build_view(desk, name, parameters)
    assert tree(desk, without=()) == before
