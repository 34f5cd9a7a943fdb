"""The search of the documentation, opened from the disk, is handed copies, as a worker is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SHIM = Path(__file__).parents[2] / "docs/search_from_disk.js"
WORKER = "onmessage = ({ data }) => { data.input = [data.input]; postMessage(data); data.input = null; };"
PAGE = """
const worker = new Worker("worker.js"), asked = { input: "rewind" };
worker.onmessage = ({ data }) => (document.title = JSON.stringify([asked, data]));
worker.postMessage(asked);
"""


def test_what_the_search_does_to_a_question_does_not_change_what_was_typed(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "worker.js").write_text(WORKER)
    (tmp_path / "index.html").write_text(f"<body><script>{SHIM.read_text()}{PAGE}</script>")
    tab = browser.new_page()
    tab.goto((tmp_path / "index.html").as_uri())
    tab.wait_for_function("document.title !== ''")
    assert tab.title() == '[{"input":"rewind"},{"input":["rewind"]}]'
