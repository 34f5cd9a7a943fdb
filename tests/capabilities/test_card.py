"""What a capability says stands on the page in a card, in a real browser, and stays text."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_MS

from lemming.dashboard.page_server import serve_page
from lemming.dashboard.report_builder import write_report
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.turn.descriptions import DescribeQuery, OrgQuery
from lemming.kernel.turn.preparation import CapabilityStatus
from lemming.kernel.turn.turn_hooks import Capability
from lemming.libraries.capability_registration import register_capability
from lemming.queries.views.view_registry import build_view
from lemming.testing import make_org, resume

sys.path.insert(0, str(Path(__file__).parents[1] / "dashboard"))

from page_org import HOSTILE

BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")


@pytest.fixture
def org(base: Path) -> Iterator[Path]:
    """An organisation of twenty with a capability that says something hostile of each."""

    @register_capability
    class Boasts(Capability):
        name = "boasts"
        describes = (CapabilityStatus,)

        def describe(self, query: DescribeQuery) -> Iterator[CapabilityStatus]:
            assert isinstance(query, OrgQuery)
            yield from (CapabilityStatus(name, HOSTILE) for name in query.agents)

    yield make_org(base, *(resume(f"a{number:02}") for number in range(20)), org={"capabilities": {"boasts": {}}})
    unregister("capability", "boasts")


def test_a_card_shows_some_and_says_how_many_more(org: Path) -> None:
    (card,) = build_view(org, "agents")["capabilities"]
    assert (card["name"], len(card["facts"]), card["left_out"]) == ("boasts", 12, 8)


def test_a_report_has_the_card_too(org: Path, tmp_path: Path) -> None:
    write_report(Organisation(org), tmp_path / "report")
    told = "".join(file.read_text() for file in (tmp_path / "report").rglob("overview*"))
    assert "boasts" in told


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None, reason="no chromium here: apt install chromium-headless-shell")
def test_a_card_is_made_of_texts(org: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver, serve_page(org, port=0, token="a-token-of-the-tests") as address:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.set_default_timeout(PATIENCE_MS)
        tab.goto(address)
        tab.wait_for_selector(".card h3:text-is('boasts')")
        as_shown = HOSTILE.replace("\u202e", "⟨U+202E⟩").replace("\u202c", "⟨U+202C⟩")
        assert tab.locator(".card dd").first.text_content() == as_shown
        assert tab.locator("main script, main img").count() == 0
        assert "owned" not in tab.title()
        browser.close()
