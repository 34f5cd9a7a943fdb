"""The README's picture: the page with agents at work.

`LEMMING_CRASH_POINTS=all LEMMING_PICTURE=$PWD/docs/pictures/page.png pytest tests/dashboard/test_picture.py` makes it anew.
"""

from __future__ import annotations

import os
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from page_org import HeldClock, make_desk

from lemming.dashboard.page_server import serve_page
from lemming.engine import run_once
from lemming.testing import say, write_script

SIZE = {"width": 1280, "height": 720}


def take(browser: Any, base: Path, picture: Path) -> None:
    """Take the picture while two agents of the desk are at work."""
    make_desk(base)
    shutil.rmtree(base / "agents/stranger")
    answers = [{"agent": name, "delay_s": 1, "reply": say("It is on its way.")} for name in ("desk", "refunds")]
    write_script(base, [*answers, {"reply": say("Filed.")}])
    clock = HeldClock()
    engine = threading.Thread(target=partial(run_once, base, clock=clock), daemon=True)
    with serve_page(base, port=0) as address:
        tab = browser.new_page(viewport=SIZE, color_scheme="light", device_scale_factor=1)
        tab.goto(address)
        tab.goto(f"{tab.url.partition('#')[0]}#/agents")
        tab.wait_for_selector(".part-agents .rows")
        engine.start()
        tab.wait_for_selector(".row:has-text('desk') .pill.working")
        tab.wait_for_selector(".menu .badge")
        tab.screenshot(path=picture)
        tab.close()
    clock.released.set()
    engine.join()


@pytest.mark.long
def test_the_picture_shows_agents_at_work(browser: Any, tmp_path: Path) -> None:
    picture = Path(os.environ.get("LEMMING_PICTURE") or tmp_path / "page.png")
    take(browser, tmp_path / "desk", picture)
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    assert (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) == (SIZE["width"], SIZE["height"])
