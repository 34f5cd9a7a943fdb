"""Five questions of somebody who has never seen the page, each answered within two clicks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_MS

from lemming.dashboard.page_server import serve_page
from lemming.libraries.outbox_files import read_outbox_entries

QUESTIONS: dict[str, tuple[list[str], list[str]]] = {
    "what needs me": ([], [".queue:has-text('2 wait for you')", ".item h3:has-text('refunds')"]),
    "why does it want that": ([], [".because:has-text('billing answered'):has-text('on 3 and on 5 November')"]),
    "what is going on": (
        [".menu a:has-text('Agents')"],
        [".head .state:has-text('no engine runs')", ".row:has-text('writer') .pill:text-is('waiting')"],
    ),
    "what went wrong with this agent": (
        [".menu a:has-text('Agents')", ".row .agent-name:has-text('watcher')"],
        [".now .pill.failing", ".now .reason:has-text('3 times in a row: scripted: the script says so')"],
    ),
    "what did it cost": (
        [".menu a:has-text('Money')"],
        [".spent a.line:has-text('desk'):has-text('3 of 40')", ".head:has-text('13 of 280 credits')"],
    ),
}
"""What is clicked, and what answers it."""


@contextmanager
def landed(browser: Any, org: Path) -> Iterator[Any]:
    """Open the page as its address is opened, and wait for what it lands on."""
    with serve_page(org, port=0) as address:
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        context.set_default_timeout(PATIENCE_MS)
        tab = context.new_page()
        tab.goto(address)
        tab.wait_for_selector(".inbox .because li")
        yield tab
        context.close()


@pytest.mark.long
def test_each_question_is_answered_in_two_clicks_without_scrolling(browser: Any, org: Path) -> None:
    with landed(browser, org) as tab:
        for question, (clicks, answers) in QUESTIONS.items():
            assert len(clicks) <= 2, question
            for place in clicks:  # the first is one of the menu, which is there on every part
                tab.click(place)
            for answer in answers:
                box = tab.locator(answer).first.bounding_box()
                assert box is not None
                assert box["y"] + min(box["height"], 36) <= 900, f"{question}: it is in sight"


def test_what_is_asked_is_approved_in_two_clicks_with_its_reason_read(browser: Any, org: Path) -> None:
    with landed(browser, org) as tab:
        tab.click(".queue a:has-text('writer')")
        tab.wait_for_selector(".because:has-text('desk reported')")
        tab.click(".decide button.primary")
        tab.wait_for_selector(".queue li.over:has-text('writer')")
    assert read_outbox_entries(org, "human")[-1].payload["decision"] == "approve"
