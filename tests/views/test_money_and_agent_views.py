"""Money over time, one agent, why, and the past."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from looked_at import newsdesk

from lemming.engine import run_once
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.libraries.outbox_files import write_person_entry
from lemming.queries.cost_report import compute_costs
from lemming.queries.editable_files import load_raw_text, validate_text
from lemming.queries.views.agent_view import build_agent_view
from lemming.queries.views.changes_view import build_past_view
from lemming.queries.views.header_view import build_header_view, build_status
from lemming.queries.views.money_view import UNNAMED_MODEL, build_money_view
from lemming.queries.views.view_registry import build_view
from lemming.queries.views.why_view import build_why_view
from lemming.testing import FrozenClock, make_org, resume, say


def test_columns_add_up_to_what_the_ledgers_say(desk: Path) -> None:
    shown, known = build_money_view(desk), compute_costs(desk, "agent")
    assert [column["name"] for column in shown["columns"]] == ["1", "2", "3", "4"]
    assert sum(column["credits"] for column in shown["columns"]) == float(known.total.credits)
    assert sum(column["cost_usd"] for column in shown["columns"]) == pytest.approx(float(known.total.cost_usd))
    for column in shown["columns"]:
        assert sum(column["agents"]["credits"].values()) == column["credits"]
        assert sum(column["models"]["cost_usd"].values()) == pytest.approx(column["cost_usd"])
    by_agent = {row["agent"]: row["credits"] for row in shown["agents"]}
    assert by_agent == {name: float(row.credits) for name, row in known.rows.items() if row.calls}


def test_of_more_ticks_than_are_shown_at_most_it_says_that_there_are_older_ones(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lemming.queries.views.money_view.MAX_TICKS", 2)
    for asked, ticks in ((50, [3, 4]), (2, [3, 4]), (1, [4, 4]), (0, [4, 4]), (-1, [4, 4])):
        shown = build_money_view(desk, ticks=asked)
        assert (shown["ticks"], shown["older"]) == (ticks, True), asked


def test_whoever_spent_it_counts_on_every_screen(base: Path) -> None:
    make_org(base, *(resume(name, credits={"max_credits": 20}) for name in ("ada", "bob", "cid", "dan")))
    (base / "agents/Not a name").mkdir()
    run_once(base, clock=FrozenClock())
    org = Organisation(base)
    assert build_status(org)["spent"]["credits"] == 4.0
    (base / "agents/bob/resume.json").write_text("{")
    (base / "agents/dan/resume.json").unlink()
    gone = (base / "agents/cid").rename(base / "cid")
    shown = build_money_view(org)
    assert {(row["agent"], row["standing"]): row["credits"] for row in shown["agents"]} == {
        ("ada", "present"): 1.0,
        ("bob", "broken"): 1.0,
        ("cid", "removed"): 1.0,
        ("dan", "broken"): 1.0,
    }
    spent = build_header_view(org)["spent"]
    assert spent["credits"] == shown["total"]["credits"] == float(compute_costs(org, "agent").total.credits) == 4.0
    assert (spent["used_up"], spent["max"]) == (1.0, 20.0)
    assert build_agent_view(org, name="bob")["money"]["credits"] == 1.0
    gone.rename(base / "agents/cid")
    assert build_status(org)["spent"] == build_header_view(org)["spent"]
    assert build_header_view(org)["spent"]["credits"] == 4.0


def test_a_damaged_ledger_leaves_out_its_own_agent_and_no_removed_one(base: Path) -> None:
    make_org(base, *(resume(name) for name in ("ada", "bob", "cid")))
    org = Organisation(base)
    for _ in range(2):
        run_once(org, clock=FrozenClock())
    shutil.rmtree(base / "agents/cid")
    ledger = base / "agents/bob/turns.jsonl"
    sound = ledger.read_bytes()
    for each in (org, Organisation(base)):  # which has counted before, and which has not
        build_header_view(each)
        ledger.write_bytes(b"no ledger\n")
        shown = build_money_view(each)
        rows = {(row["agent"], row["standing"]): row["credits"] for row in shown["agents"]}
        assert rows == {("ada", "present"): 2.0, ("cid", "removed"): 2.0}
        assert [damage.startswith("agents/bob/turns.jsonl") for damage in shown["damaged"]] == [True]
        assert build_header_view(each)["spent"]["credits"] == shown["total"]["credits"] == 4.0
        assert "agents/bob/turns.jsonl" in str(build_header_view(each)["troubles"])
        ledger.write_bytes(sound)
        assert build_header_view(each)["spent"]["credits"] == 6.0
        assert [row["agent"] for row in build_money_view(each)["agents"] if row["standing"] == "removed"] == ["cid"]


def test_who_was_an_agent_and_is_a_person_now_takes_no_limit_from_the_others(base: Path) -> None:
    make_org(base, resume("ada", credits={"max_credits": 20}), resume("bob"), models={"me": {"provider": "human"}})
    run_once(base, clock=FrozenClock())
    (base / "agents/bob/resume.json").write_text(json.dumps(resume("bob", model={"key": "me"}, credits={})))
    shown = build_money_view(Organisation(base))
    assert {row["agent"]: row["standing"] for row in shown["agents"]} == {"ada": "present", "bob": "retired"}
    assert (shown["total"]["credits"], shown["total"]["max_credits"]) == (2.0, 20.0)


def test_days_are_those_of_the_organisations_time_zone(base: Path) -> None:
    make_org(base, resume("ada"), org={"timezone": "Asia/Tokyo"})
    clock = FrozenClock()
    for _ in range(3):
        run_once(base, clock=clock)
        clock.advance(16 * 3600)
    shown = build_view(base, "money", {"by": "day"})
    assert [(it["name"], it["calls"]) for it in shown["columns"]] == [("2026-01-01", 1), ("2026-01-02", 2)]
    with pytest.raises(UsageError, match="must be tick or day"):
        build_money_view(base, by="hour")


def test_only_those_who_spent_most_are_named(base: Path) -> None:
    names = [f"a{number}" for number in range(9)]
    make_org(base, *(resume(name) for name in names))
    run_once(base, clock=FrozenClock())
    (column,) = build_money_view(base)["columns"]
    assert column["agents"]["credits"] == {**dict.fromkeys(names[:7], 1.0), "": 2.0}


class Nameless(Backend):
    """A model that does not say what it is called."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        return Reply(text=to_line(say("hello")))


def test_what_a_model_without_a_name_costs_counts(base: Path) -> None:
    register_provider("nameless", Nameless)
    make_org(base, resume("ada", model={"key": "it"}), models={"it": {"provider": "nameless"}})
    run_once(base, clock=FrozenClock())
    (column,) = build_money_view(base)["columns"]
    assert (column["credits"], column["models"]["credits"]) == (1.0, {UNNAMED_MODEL: 1.0})


def test_what_may_be_spent_stands_beside_it(base: Path) -> None:
    limit = {"at": "spend", "credits": 20, "per": "organisation", "window": "24h", "then": "block"}
    newsdesk(base, gates=[limit])
    shown = build_money_view(base)
    assert shown["limits"][0]["limits"] == {"credits": 20.0}
    assert (shown["limits"][0]["per"], shown["limits"][0]["window"]) == ("organisation", "1 day")
    assert next(row for row in shown["agents"] if row["agent"] == "editor")["max_credits"] == 50


def test_an_agent_is_shown_with_its_files_its_memory_and_its_turns(desk: Path) -> None:
    shown = build_view(desk, "agent", {"name": "editor", "file": "draft.txt"})
    assert shown["resume"]["text"].encode() == load_raw_text(desk, "agents/editor/resume.json")
    assert shown["memory"]["values"] == [{"key": "news", "text": "rolls", "chars": 5, "trust": ""}]
    assert shown["workspace"]["files"] == [{"path": "draft.txt", "is_link": False, "bytes": 9}]
    assert shown["file"]["text"] == "320 rolls"
    assert [turn["tick"] for turn in shown["turns"]] == [4, 3, 2, 1]
    assert shown["turns"][-1]["end"] == "waits"
    assert shown["readers"]["read_by"] == ["checker", "human"]
    assert shown["prompt"] is None


def test_the_next_prompt_is_what_the_model_would_be_sent(desk: Path) -> None:
    shown = build_agent_view(desk, name="editor", prompt=1)["prompt"]
    assert shown["tick"] == 5
    assert shown["messages"][0]["role"] == "system"
    assert build_agent_view(desk, name="human", prompt=1)["prompt"]["why_not"] == "no model is ever asked for it"


@pytest.mark.parametrize("file", ["../resume.json", "/etc/passwd", "link.txt", "../../checker/resume.json", ""])
def test_no_file_outside_the_workspace_is_shown(desk: Path, base: Path, file: str) -> None:
    shutil.copytree(desk, base)
    (base / "agents/editor/workspace/link.txt").symlink_to("/etc/passwd")
    listed = build_agent_view(base, name="editor")["workspace"]["files"]
    assert {"path": "link.txt", "is_link": True, "bytes": 11} in listed
    if file:
        with pytest.raises(UsageError):
            build_agent_view(base, name="editor", file=file)


def test_a_name_that_is_no_agents_is_refused_before_anything_is_read(desk: Path) -> None:
    for name in ("..", "../desk", "nobody", "ed itor"):
        with pytest.raises(UsageError, match="does not exist"):
            build_agent_view(desk, name=name)


def test_a_resume_that_is_broken_is_shown_with_what_is_wrong_with_it(desk: Path, base: Path) -> None:
    shutil.copytree(desk, base)
    (base / "agents/poet/resume.json").write_text('{"name": "poet",\n "instructions": 5}')
    shown = build_agent_view(base, name="poet")
    assert shown["is_broken"]
    (problem,) = [it for it in shown["resume"]["problems"] if it["severity"] == "error"]
    assert problem["line"] == 2


def test_a_text_is_checked_as_if_it_stood_in_the_file(desk: Path) -> None:
    raw = load_raw_text(desk, "agents/poet/resume.json").replace(b'"scripted"', b'"nobody"')
    (problem,) = [it for it in validate_text(desk, "agents/poet/resume.json", raw) if it.severity == "error"]
    assert "nobody" in problem.message
    line = raw.decode().splitlines()[problem.line - 1]
    assert '"nobody"' in line
    assert line[problem.column - 1 :].startswith('"key": "nobody"')


def test_why_tells_the_tree_behind_a_sentence(desk: Path) -> None:
    shown = build_view(desk, "why", {"target": "editor/memory/news"})
    turn = shown["target"]["turn"]
    assert (turn["tick"], turn["agent"]) == (4, "editor")
    assert {seen["what"] for seen in turn["saw"]} >= {"entry", "memory"}
    assert build_view(desk, "why", {"target": "editor/memory/news", "grep": "no such words"})["is_found"] is False
    with pytest.raises(UsageError, match="is unknown"):
        build_why_view(desk, target="abc123")


def test_why_finds_what_was_written_since_it_looked_last(desk: Path, base: Path) -> None:
    shutil.copytree(desk, base)
    org = Organisation(base)
    build_why_view(org, target="editor/memory/news")
    sent = write_person_entry(
        base, "human", tick=5, kind="message", payload={"text": "x" * 9000}, tags=[], created_at=""
    )
    shown = build_why_view(org, target=sent.id)["target"]
    assert (shown["by"], shown["chars"], len(shown["text"])) == ("person", 9000, 4000)
    run_once(base, clock=FrozenClock())
    assert build_why_view(org, target="editor/memory/news")["target"]["turn"]["tick"] == 5


def test_the_past_tells_what_a_tick_changed_and_how_two_differ(desk: Path) -> None:
    one = build_view(desk, "past", {"new": "1", "agent": "editor"})
    assert {file["path"] for file in one["files"]} >= {"agents/editor/workspace/draft.txt"}
    assert {file["path"].split("/")[1] for file in one["files"]} == {"editor"}
    assert "+320 rolls" in one["diff"]
    assert "no history is kept" in one["remark"]
    memory = next(file for file in build_past_view(desk, new=2)["files"] if file["path"].endswith("news.json"))
    assert (memory["change"], memory["added"], memory["removed"]) == ("added", 6, 0)
    assert memory["said"]["kind"] == "memory"
    assert memory["said"]["says"].startswith("news: ")
    said = [file["said"]["says"] for file in build_past_view(desk, new=1)["files"] if "/outbox/" in file["path"]]
    assert said
    assert all(said)
    draft = next(file for file in one["files"] if file["path"].endswith("draft.txt"))
    assert draft["said"] is None
    assert not [file for file in build_past_view(desk, new=3)["files"] if file["path"].endswith("news.json")], (
        "it is alike"
    )
    two = build_view(desk, "past", {"old": "1", "new": "3"})
    assert "agents/editor/memory/news.json" in {file["path"] for file in two["files"]}
    assert build_past_view(desk)["new"] == 4
    with pytest.raises(UsageError):
        build_past_view(desk, new=99)
