"""Views: what the page shows, as JSON values out of files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.kernel.base.errors import UsageError
from lemming.queries.views.view_registry import VIEWS, build_view
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, say


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ada and Bob, who have each said something in one tick, and a person."""
    base = tmp_path_factory.mktemp("views")
    human = resume("human", model={"key": "human"})
    answers = [{"agent": "ada", "reply": say("fine")}, {"agent": "bob", "reply": say("so am I")}]
    make_org(base, resume("ada"), resume("bob"), human, script=answers)
    run_once(base, clock=FrozenClock())
    return base


NEEDED = {"why": {"target": "agents/ada/resume.json"}, "agent": {"name": "ada"}}


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_shows_an_organisation_that_is_well_as_json(org: Path, name: str) -> None:
    assert json.loads(json.dumps(shown := build_view(org, name, NEEDED.get(name)))) == shown


@pytest.mark.parametrize("name", VIEWS)
def test_no_view_writes_anything(org: Path, name: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in org.rglob("*")}
    build_view(org, name, NEEDED.get(name))
    assert {path: path.stat().st_mtime_ns for path in org.rglob("*")} == before


def test_a_parameter_that_is_none_of_a_views_is_refused_by_its_nearest_name(org: Path) -> None:
    with pytest.raises(UsageError, match="limit"):
        build_view(org, "agents", {"limits": "3"})


def test_a_parameter_that_a_view_needs_is_asked_for(org: Path) -> None:
    with pytest.raises(UsageError, match="agent requires name"):
        build_view(org, "agent")


def test_a_number_must_be_one(org: Path) -> None:
    with pytest.raises(UsageError, match="limit must be a number"):
        build_view(org, "agents", {"limit": "many"})


def test_the_head_says_what_was_spent_and_that_nothing_runs(org: Path) -> None:
    head = build_view(org, "header")
    assert (head["tick"], head["state"], head["waiting"], head["troubles"]) == (2, "stopped", 0, [])
    assert head["spent"]["credits"] == 2


def test_an_organisation_with_broken_settings_says_so_in_its_head(org: Path, base: Path) -> None:
    make_org(base, resume("ada"))
    (base / "config/org.json").write_text("{")
    head = build_view(base, "header")
    assert head["state"] == "broken"
    assert "config/org.json" in head["why"]


def test_agents_are_told_by_what_they_do_and_said_last(org: Path) -> None:
    rows = {row["name"]: row for row in build_view(org, "agents")["rows"]}
    assert rows["ada"]["last"]["text"] == "fine"
    assert rows["human"]["state"] == "person"


def test_a_window_of_agents_is_only_that(org: Path) -> None:
    shown = build_view(org, "agents", {"offset": "1", "limit": "1"})
    assert (shown["total"], [row["name"] for row in shown["rows"]]) == (3, ["ada"])


def texts(shown: dict[str, Any]) -> list[str]:
    return [entry["text"] for entry in shown["entries"]]


def test_the_feed_goes_on_where_it_stopped(org: Path) -> None:
    first = build_view(org, "feed", {"limit": "1"})
    rest = build_view(org, "feed", {"limit": "1", "before": first["before"]})
    assert sorted(texts(first) + texts(rest)) == ["fine", "so am I"]
    assert rest["before"] is None


def test_the_feed_is_found_by_agent_and_by_words(org: Path) -> None:
    assert texts(build_view(org, "feed", {"agent": "bob"})) == ["so am I"]
    assert texts(build_view(org, "feed", {"find": "FINE"})) == ["fine"]
    assert texts(build_view(org, "feed", {"kind": "report"})) == []


@pytest.mark.parametrize("name", VIEWS)
def test_a_broken_agent_is_told_of_and_ends_nothing_else(org: Path, base: Path, name: str) -> None:
    shutil.copytree(org, base)
    (base / "agents/ada/resume.json").write_text('{"name": 3\n')
    (base / "agents/bob/turns.jsonl").write_text("not a turn\n")
    shown = build_view(base, name, NEEDED.get(name))
    if name == "agents":
        assert [row["state"] for row in shown["rows"]] == ["person", "broken", "broken"]


def test_a_broken_counter_is_what_is_wrong(org: Path, base: Path) -> None:
    shutil.copytree(org, base)
    (base / "tick.json").write_text("{")
    assert "tick.json" in build_view(base, "header")["why"]


def test_a_copy_without_its_journals_is_shown(org: Path, base: Path) -> None:
    shutil.copytree(org, base)
    shutil.rmtree(base / "logs")
    (base / "tick.json").unlink()
    assert build_view(base, "header")["tick"] == 2
    assert len(build_view(base, "feed")["entries"]) == 2


def test_an_agent_that_fails_again_and_again_is_told_so(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"error": "AuthenticationFailed"}])
    for _ in range(3):
        run_once(base, clock=FrozenClock())
    row = build_view(base, "agents")["rows"][0]
    assert (row["state"], row["error"], row["times"], row["since_tick"]) == ("failing", "AuthenticationFailed", 3, 1)


def test_a_tick_that_was_interrupted_is_told_from_one_that_goes_on(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"))
    with pytest.raises(Crash), crash_at(30):
        run_once(base, clock=FrozenClock())
    assert build_view(base, "header")["state"] == "interrupted"
    assert "working" not in [row["state"] for row in build_view(base, "agents")["rows"]]


def test_a_folder_whose_name_is_no_agents_takes_no_view_down(org: Path, tmp_path: Path) -> None:
    odd = shutil.copytree(org, tmp_path / "org")
    (odd / "agents/No Agent\x1b[2J").mkdir()
    (odd / "agents/No Agent\x1b[2J/resume.json").write_text("{}")
    for name in VIEWS:
        build_view(odd, name, NEEDED.get(name))
