"""Waiting is an inbox: one item whole, why it waits, and what a person decides, with keys and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_browser import borrowed, opened, playwright
from page_org import LETTER

from lemming.dashboard.page_server import serve_page
from lemming.engine import run_once
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.obligations.write_decisions import decide
from lemming.testing import FrozenClock, make_org, resume, say, write_script


def last_of(org: Path) -> dict[str, Any]:
    return read_outbox_entries(org, "human")[-1].payload


UNDER = "it => (document.elementFromPoint(it.x + 5, it.y + 5) || document.body).closest('li.open')"


def show(tab: Any, asker: str = "writer") -> None:
    tab.click(f".queue a:has-text('{asker}')")
    tab.wait_for_selector(f".item h3:has-text('{asker}')")


def call_of(org: Path, agent: str, tool: str, **args: Any) -> None:
    """Have an agent ask for one more call."""
    call = {"tool": tool, "args": args}
    write_script(org, [{"agent": agent, "step": 0, "reply": say("Please.", tool_calls=[call])}, {"reply": say("")}])
    run_once(org, clock=FrozenClock())


def test_the_page_lands_where_something_waits(browser: Any, address: str) -> None:
    with borrowed(browser, {}) as tab:
        tab.goto(address)
        tab.wait_for_selector(".inbox .item h3:has-text('refunds')")


@pytest.mark.long
def test_an_item_says_what_is_wanted_and_why_and_leads_to_its_turn(browser: Any, address: str) -> None:
    with opened(browser, address, "waiting") as tab:
        show(tab)
        assert "wants to write shared/letters/okafor.txt" in tab.inner_text(".item h3")
        because = tab.locator(".because li:has-text('billing answered'):has-text('on 3 and on 5 November')")
        assert "trust: agent" in because.inner_text()
        because.locator("text=why?").click()
        tab.wait_for_selector(".part-why .root")
        tab.go_back()
        tab.click(".item header a:has-text('the turn that asks')")
        tab.wait_for_selector(".whole .from:has-text('writer')")


def test_a_call_is_approved_in_two_keys_and_the_focus_is_on_the_next(browser: Any, address: str, org: Path) -> None:
    with opened(browser, address, "waiting") as tab:
        tab.keyboard.press("j")
        tab.wait_for_selector(".item h3:has-text('writer')")
        tab.keyboard.press("a")
        tab.wait_for_selector("[role=status]:has-text('Approved: writer goes on with it in its next turn')")
        tab.wait_for_selector(".item:focus h3:has-text('refunds')")
    assert last_of(org)["decision"] == "approve"


@pytest.mark.long
def test_what_was_decided_is_taken_back_until_the_next_tick_begins(browser: Any, address: str, org: Path) -> None:
    before = len(read_outbox_entries(org, "human"))
    with opened(browser, address, "waiting") as tab:
        show(tab)
        tab.click("button:has-text('Approve')")
        tab.wait_for_selector(".queue .over:has-text('writer'):has-text('approved')")
        assert len(read_outbox_entries(org, "human")) == before + 1
        tab.keyboard.press("u")
        tab.wait_for_selector(".queue .open:has-text('writer')")
        assert len(read_outbox_entries(org, "human")) == before
        tab.click("button:has-text('Approve')")
        tab.wait_for_selector("[role=status]:has-text('Approved')")
        run_once(org, clock=FrozenClock())
        tab.keyboard.press("u")
        tab.wait_for_selector("[role=status]:has-text('cannot be withdrawn')")
    assert len(read_outbox_entries(org, "human")) == before + 1


def test_stopping_to_ask_is_a_second_step_that_shows_the_line_and_how_it_is_taken_back(
    browser: Any, address: str, org: Path
) -> None:
    settings = org / "config/org.json"
    before = settings.read_bytes()
    with opened(browser, address, "waiting") as tab:
        show(tab)
        tab.click("text=Other ways")
        tab.click("text=Stop asking about this…")
        tab.wait_for_selector('.always li:has-text(\'"approved": {"writer": ["file_write"]}\')')
        said = tab.inner_text(".always")
        assert "may call file_write, with any arguments" in said
        assert 'take "file_write" out at config/org.json#/gates/0/approved/writer' in said
        assert settings.read_bytes() == before
        tab.click("text=Write this line, and approve")
        tab.wait_for_selector("[role=status]:has-text('from now on without asking')")
    assert json.loads(settings.read_text())["gates"][0]["approved"] == {"writer": ["file_write"]}
    assert last_of(org)["decision"] == "approve"


def test_a_call_is_edited_beside_what_was_asked_for(browser: Any, address: str, org: Path) -> None:
    with opened(browser, address, "waiting") as tab:
        show(tab)
        tab.keyboard.press("e")
        tab.fill(".form label:has-text('content') textarea", LETTER.replace("49.00", "94.00"))
        assert "94.00 EUR" in tab.inner_text(".form .diff .added")
        assert "49.00 EUR" in tab.inner_text(".form .diff .gone")
        tab.click("text=Approve as edited")
        tab.wait_for_selector("[role=status]:has-text('Approved, with content changed')")
    assert last_of(org)["args"]["content"] == LETTER.replace("49.00", "94.00")


def test_a_path_outside_is_refused_as_it_is_edited(browser: Any, address: str, org: Path) -> None:
    before = len(read_outbox_entries(org, "human"))
    with opened(browser, address, "waiting") as tab:
        show(tab)
        tab.keyboard.press("e")
        tab.fill(".form label:has-text('path') textarea", "../../../../etc/x")
        tab.click("text=Approve as edited")
        tab.wait_for_selector(".item .failure:has-text('path')")
        assert tab.input_value(".form label:has-text('path') textarea") == "../../../../etc/x"
    assert len(read_outbox_entries(org, "human")) == before


def test_a_call_is_denied_with_a_reason(browser: Any, address: str, org: Path) -> None:
    with opened(browser, address, "waiting") as tab:
        show(tab)
        tab.keyboard.press("d")
        tab.keyboard.type("not on a Friday")
        tab.click(".item button.danger:has-text('Deny')")
        tab.wait_for_selector("[role=status]:has-text('Denied: not on a Friday')")
    assert last_of(org)["reason"] == "not on a Friday"


@pytest.mark.long
def test_what_is_decided_elsewhere_says_so_in_its_place_and_keeps_what_was_typed(
    browser: Any, address: str, org: Path
) -> None:
    with opened(browser, address, "waiting") as tab:
        show(tab)
        tab.keyboard.press("e")
        tab.fill(".form label:has-text('content') textarea", "Mine.")
        place = tab.locator(".item button.primary").bounding_box()
        waits = read_outbox_entries(org, "writer")[-1]
        decide(org, waits.id, "approve", person="human")
        tab.wait_for_selector(".item .over:has-text('decided elsewhere'):has-text('human: approved it')")
        assert tab.input_value(".form label:has-text('content') textarea") == "Mine."
        under = tab.evaluate(UNDER, place)
        assert under is None  # nothing else has moved under the finger
        assert tab.locator(".item button.primary").is_disabled()
        assert [it.split("\n")[0] for it in tab.locator(".queue li").all_inner_texts()]
        playwright.expect(tab.locator(".queue li")).to_have_count(2)


def test_what_is_half_typed_outlasts_a_look_at_another_part(browser: Any, address: str) -> None:
    with opened(browser, address, "waiting") as tab:
        tab.fill(".form input[inputmode=decimal]", "49.5")
        tab.keyboard.press("Escape")
        tab.click(".menu a:has-text('Agents')")
        tab.wait_for_selector(".part-agents .rows")
        tab.click(".menu a:has-text('Waiting')")
        assert tab.input_value(".form input[inputmode=decimal]") == "49.5"


def test_a_form_shows_the_schemas_words_and_names_what_is_wrong(browser: Any, address: str, org: Path) -> None:
    with opened(browser, address, "waiting") as tab:
        form = tab.locator(".item .form")
        said = form.inner_text()
        assert said.count("double") == 1  # a choice stands there once
        assert "May it be paid?" in said
        form.locator("input[value=yes]").check()
        form.locator("input[inputmode=decimal]").fill("much")
        form.locator("input[value=double]").check()
        form.locator("button.primary").click()
        tab.wait_for_selector(".failure:has-text('amount')")
        form.locator("input[inputmode=decimal]").fill("49.5")
        form.locator("button.primary").click()
        tab.wait_for_selector(".queue .over:has-text('refunds')")
    payload = last_of(org)
    assert (payload["ok"], payload["amount"], payload["reason"]) == (True, 49.5, "double")


def test_what_is_approved_hides_no_signs(browser: Any, org: Path) -> None:
    call_of(org, "desk", "file_write", path="shared/letters/\u202etxt.sh", content="rm\u200b x")
    with serve_page(org, port=0) as address, opened(browser, address, "waiting") as tab:
        show(tab, "desk")
        shown = tab.locator(".item pre:has-text('/dev/null')").inner_text()
        assert "⟨U+202E⟩txt.sh" in shown
        assert "rm⟨U+200B⟩ x" in shown
        assert "\u202e" not in tab.inner_text("body")


def test_who_looks_only_has_no_buttons_that_write(browser: Any, org: Path) -> None:
    with serve_page(org, port=0, is_read_only=True) as address, opened(browser, address, "waiting") as tab:
        show(tab)
        tab.wait_for_selector(".because li")
        assert tab.locator("main button").count() == 0
        before = len(read_outbox_entries(org, "human"))
        tab.keyboard.press("a")
        tab.keyboard.press("u")
        playwright.expect(tab.locator(".queue .open")).to_have_count(2)
    assert len(read_outbox_entries(org, "human")) == before


def test_the_fourth_of_what_waits_is_approved_in_four_keys(browser: Any, tmp_path: Path) -> None:
    names = ("ada", "bob", "cyd", "dan")
    may: dict[str, Any] = {"read_outboxes": ["*"], "tools": ["file_write"]}
    calls = [{"tool": "file_write", "args": {"path": "a.txt", "content": "a"}}]
    script = [{"agent": name, "tick": 1, "step": 0, "reply": say("", tool_calls=calls)} for name in names]
    base = make_org(
        tmp_path / "org",
        *(resume(name, permissions=may) for name in names),
        resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"], "tools": []}),
        models={"human": {"provider": "human"}},
        org={"gates": [{"at": "call", "tool": "file_write", "then": "ask"}]},
        script=[*script, {"reply": say("")}],
    )
    run_once(base, clock=FrozenClock())
    with serve_page(base, port=0) as address, opened(browser, address, "waiting") as tab:
        tab.wait_for_selector(".item h3:has-text('ada')")
        for key, shown in (("j", "bob"), ("j", "cyd"), ("j", "dan")):
            tab.keyboard.press(key)
            tab.wait_for_selector(f".item h3:has-text('{shown}')")
        tab.keyboard.press("a")
        tab.wait_for_selector("[role=status]:has-text('Approved: dan')")
    assert [it.payload["decision"] for it in read_outbox_entries(base, "human")] == ["approve"]
