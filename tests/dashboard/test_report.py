"""`lemming export report`: the page on disk, in a real browser without any server, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from page_org import HOSTILE, SEEN, make_desk
from terminal import typed_at

from lemming.dashboard.report_builder import SIZE_LIMITS_MB, write_report
from lemming.engine import run_once
from lemming.kernel.org.organisation import Organisation
from lemming.testing import FrozenClock, make_org, resume, say

FILES_SAY = '{"__proto__": {"owned": true}, "text": "</script><!-- \u2028 -->"}'


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = make_desk(tmp_path_factory.mktemp("desk") / "org")
    notes = base / "agents/stranger/workspace"
    notes.mkdir(exist_ok=True)
    (notes / "<script>.txt").touch()
    (notes / "notes.json").write_text(FILES_SAY)
    return base


@pytest.fixture(scope="module")
def report(org: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report with spaces & signs #1") / "out"
    write_report(Organisation(org), folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def index_of(folder: Path) -> dict[str, Any]:
    text = (folder / "data/index.js").read_text()
    found = re.fullmatch(r'Lemming\.put\("index", (".*")\);\n', text)
    assert found
    index: dict[str, Any] = json.loads(json.loads(found[1]))
    return index


# --- what is written ---------------------------------------------------------------------------------


def test_the_same_organisation_gives_the_same_bytes(org: Path, report: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere/org"
    shutil.copytree(org, copy)
    os.utime(copy / "tick.json", (time.time() - 5000,) * 2)
    before = contents(copy)
    write_report(Organisation(copy), tmp_path / "again")
    assert contents(tmp_path / "again") == contents(report)
    assert contents(copy) == before, "looking changes nothing"


def test_a_folder_with_something_else_is_refused_and_left_alone(
    org: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/index.html").write_text("<p>mine</p>")
    (tmp_path / "a-file").touch()
    lemming = typed_at(org, capsys)
    for folder in (tmp_path / "letters", tmp_path / "a-file", org / "report", org):
        assert lemming("report", "--html", str(folder)).status == 2
    assert contents(tmp_path / "letters") == {"index.html": b"<p>mine</p>"}
    assert not (org / "report").exists()


def test_a_report_is_replaced_and_what_it_has_no_more_is_gone(org: Path, report: Path, tmp_path: Path) -> None:
    shutil.copytree(report, tmp_path / "out")
    (tmp_path / "out/mine.txt").write_text("not of the report")
    made = write_report(Organisation(org), tmp_path / "out", "3")
    there = contents(tmp_path / "out")
    assert {*there} == {*made.files, "mine.txt"}
    assert "data/tick-2.js" not in there


def test_what_is_left_out_is_said(org: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = typed_at(org, capsys)("report", "--html", str(tmp_path / "out"), "--ticks", "2..2", "--json")
    told = json.loads(ran.out)
    assert told["left_out"] == ["ticks after 2", "ticks before 2"]
    assert told["ticks"] == [2, 2]
    assert {*told["files"]} == {*contents(tmp_path / "out")}
    assert told["bytes"] == sum(map(len, contents(tmp_path / "out").values()))
    index = index_of(tmp_path / "out")
    assert index["page"]["left_out"] == "ticks after 2; ticks before 2"
    feed = (tmp_path / "out/data/feed-0.js").read_text()
    assert {*re.findall(r'\\"tick\\":(\d+),\\"kind', feed)} == {"2"}


def test_turns_are_told_in_short_once_there_is_much(org: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("feed", "threads"):  # what they leave is for ticks
        monkeypatch.setitem(SIZE_LIMITS_MB, kind, 0.0)
    monkeypatch.setitem(SIZE_LIMITS_MB, "ticks", 0.0001)
    made = write_report(Organisation(org), tmp_path / "out")
    assert "all of tick 3 and those before but the strip" in made.left_out
    monkeypatch.setitem(SIZE_LIMITS_MB, "ticks", 1.0)
    write_report(Organisation(org), tmp_path / "out")
    size = (tmp_path / "out/data/tick-3.js").stat().st_size
    monkeypatch.setitem(SIZE_LIMITS_MB, "ticks", (size + 4000) / 1e6)
    made = write_report(Organisation(org), tmp_path / "out")
    assert "prompts, answers and changes of tick 2 and those before" in made.left_out
    keys = index_of(tmp_path / "out")["files"]
    assert any(key.startswith("turn\n") for key in keys["tick-3"])
    assert [key for key in keys["tick-2"] if not key.startswith("tick\n")] == []


def test_where_entries_came_from_is_bounded_by_entry_and_its_end_is_said(
    org: Path, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(report, tmp_path / "out")
    trees = sorted((tmp_path / "out/data").glob("why-*.js"))
    assert len(trees) > 5
    monkeypatch.setitem(SIZE_LIMITS_MB, "trees", 0.0)
    monkeypatch.setattr("lemming.dashboard.report_builder.MAX_FAILED_TREES", 2)
    told = list[str]()
    made = write_report(Organisation(org), tmp_path / "out", progress=told.append)
    assert [it for it in made.left_out if it.startswith("where most entries came from")]
    assert not [*(tmp_path / "out/data").glob("why-*.js")]
    assert "tick 3" in told
    assert sum(SIZE_LIMITS_MB.values()) < 20


def test_no_address_in_it_leads_out_of_its_folder(report: Path) -> None:
    page = (report / "index.html").read_text()
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(addresses) > 15
    assert [it for it in addresses if not (report / it).is_file()] == []


def test_an_organisation_before_its_first_tick_has_a_report(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada"))
    made = write_report(Organisation(base), tmp_path / "out")
    assert (made.ticks, made.left_out) == ([], [])
    assert "ada" in (tmp_path / "out/index.html").read_text()


def test_what_is_broken_is_told_in_its_place(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("hello")}])
    run_once(base, clock=FrozenClock())
    (base / "logs/ticks/00000001.jsonl").write_text("{not a journal\n")
    write_report(Organisation(base), tmp_path / "out")
    assert any(key.startswith("tick\n") for key in index_of(tmp_path / "out")["errors"])
    (base / "config/org.json").write_text("{")
    write_report(Organisation(base), tmp_path / "out")
    index = index_of(tmp_path / "out")
    assert index["header"]["state"] == "broken"
    assert {"agents", "feed", "map", "waiting"} <= index["errors"].keys()


# --- in a browser ----------------------------------------------------------------------------------------


@contextmanager
def opened(browser: Any, folder: Path, part: str = "", **how: Any) -> Iterator[Any]:
    """Open a report from disk; nothing may go wrong in it, and nothing may be asked for but its files."""
    from in_browser import borrowed  # skips where no browser can be driven

    wrong = list[str]()
    listeners = {
        "pageerror": lambda error: wrong.append(str(error)),
        "console": lambda line: wrong.append(line.text),
        "requestfailed": lambda asked: wrong.append(asked.url),
        "request": lambda asked: asked.url.startswith(folder.as_uri()) or wrong.append(asked.url),
    }
    with borrowed(browser, listeners, **how) as tab:
        tab.goto(f"{(folder / 'index.html').as_uri()}{'#/' + part if part else ''}")
        if how.get("java_script_enabled", True):
            tab.wait_for_selector(".state.report")
            tab.wait_for_selector("main .loading", state="detached")
        yield tab
    assert wrong == []


SHOWS = {
    "waiting": "May I pay 49.00 EUR back to Ms Okafor?",
    "agents": "Front desk",
    "feed": "billing confirms a double payment",
    "ticks": "ticks 1 to 3",
    "tick?number=2": "Tick 2",
    "tick?number=2&agent=refunds": "Output",
    "why?target=agents/billing/outbox/": "Where this came from",
    "map": "all agents",
    "map?agent=desk": "desk and its neighbours",
    "money": "spent in all",
    "money?by=day": "by day",
    "findings": "looked at ticks 1 to 3",
    "past": "What tick 3 changed",
    "past?new=2&agent=desk": "What tick 2 changed",
    "agent?name=desk": "Front desk",
    "agent?name=desk&show=prompt": "would be sent now",
    "agent?name=desk&show=turns": "tick 3",
}


def test_every_part_opens_from_disk(browser: Any, org: Path, report: Path) -> None:
    said = next((org / "agents/billing/outbox").glob("00000002_*")).name
    with opened(browser, report) as tab:
        for part, words in SHOWS.items():
            address = part + said if part.endswith("outbox/") else part
            tab.evaluate("address => { location.hash = '#/' + address }", address)
            tab.wait_for_selector(f"main >> text={words}")
            assert tab.locator(".failure").count() == 0, part


def test_nothing_in_it_offers_to_change_anything(browser: Any, report: Path) -> None:
    with opened(browser, report, "waiting") as tab:
        assert tab.locator("main button, main textarea").count() == 0
        tab.evaluate("location.hash = '#/feed'")
        tab.wait_for_selector("ol.entries")
        assert tab.locator("form.write").count() == 0
        with pytest.raises(Exception, match="A report only shows"):
            tab.evaluate("Lemming.act('send', {text: 'x'})")


def test_entries_are_filtered_and_threads_followed_from_disk(browser: Any, report: Path) -> None:
    with opened(browser, report, "feed?agent=billing&kind=response&find=NOVEMBER") as tab:
        assert tab.locator("li.entry").count() == 1
        tab.click("p.thread a")
        tab.wait_for_selector("text=one request, and all that was said for it")
        tab.wait_for_selector("main >> text=Was order 4711 really paid twice?")
        assert tab.locator("li.entry").count() == 2


@pytest.mark.long
def test_what_is_not_there_is_said_in_its_place(browser: Any, org: Path, tmp_path: Path) -> None:
    write_report(Organisation(org), tmp_path / "out", "2")
    with opened(browser, tmp_path / "out", "tick?number=1") as tab:
        assert tab.inner_text(".failure") == "Not in this report: tick 1"
        assert "Not in this report: ticks after 2; ticks before 2." in tab.inner_text("main")


def test_hostile_texts_stay_texts(browser: Any, report: Path) -> None:
    with opened(browser, report, "feed?agent=stranger") as tab:
        tab.wait_for_selector("li.entry")
        assert SEEN in tab.text_content("ol.entries")
        tab.evaluate("location.hash = '#/agent?name=stranger&show=workspace'")
        tab.click("text=notes.json")
        tab.wait_for_selector("ul.files-of pre")
        assert tab.text_content("ul.files-of pre") == FILES_SAY.replace("\u2028", "⟨U+2028⟩")
        assert "owned" not in tab.title()
        assert tab.evaluate("({}).owned") is None
        assert tab.locator("main script, main img").count() == 0


def test_without_javascript_there_is_a_summary(browser: Any, report: Path) -> None:
    with opened(browser, report, java_script_enabled=False) as tab:
        said = tab.inner_text("body")
        assert "billing confirms a double payment" in said
        assert "desk" in said
        assert "ticks 1 to 3" in said
        assert HOSTILE.split("\u202e")[0].strip() in said
        assert tab.locator("noscript script, noscript img").count() == 0
