"""The README's picture: the page with agents at work.

`LEMMING_PICTURE=$PWD/docs/pictures/page.png pytest tests/dashboard/test_picture.py` makes it anew.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from page_org import make_desk

from lemming.dashboard.serving import page_of
from lemming.engine import run_once
from lemming.testing import say, write_script

SIZE = {"width": 1280, "height": 720}
AT_WORK_S = 4.0


def take(browser: Any, base: Path, picture: Path) -> None:
    """Take the picture while two agents of the desk are at work."""
    make_desk(base)
    shutil.rmtree(base / "agents/stranger")
    answers = [
        {"agent": name, "delay_s": AT_WORK_S, "reply": say("It is on its way.")}
        for name in ("desk", "refunds")
    ]
    write_script(base, [*answers, {"reply": say("Filed.")}])
    engine = threading.Thread(target=run_once, args=(base,))
    with page_of(base, port=0) as address:
        tab = browser.new_page(viewport=SIZE, color_scheme="light", device_scale_factor=1)
        tab.goto(address)
        tab.goto(f"{tab.url.partition('#')[0]}#/agents")
        tab.wait_for_selector(".part-agents .rows")
        engine.start()
        tab.wait_for_selector(".row:has-text('desk') .pill.working")
        tab.wait_for_selector(".menu .badge")
        tab.screenshot(path=picture)
        tab.close()
    engine.join()


@pytest.mark.long
def test_the_picture_shows_agents_at_work(browser: Any, tmp_path: Path) -> None:
    picture = Path(os.environ.get("LEMMING_PICTURE") or tmp_path / "page.png")
    take(browser, tmp_path / "desk", picture)
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    assert (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) == (SIZE["width"], SIZE["height"])
