"""How long a function may take: the tightest of its own limit, the agent's and the turn's."""

from __future__ import annotations

import os
import textwrap
import threading
from pathlib import Path

import pytest
from patience import PATIENCE_S
from workshop import Workshop, call

from lemming.testing import SkippingClock

pytestmark = pytest.mark.usefixtures("untried")


def test_the_tightest_limit_holds_and_a_turns_time_over_no_call_is_made(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org")
    clock, begun = SkippingClock(), shop.base / "begun"
    os.mkfifo(begun)
    code = """
        @tool(timeout_s=3600)
        def hang() -> str:
            with open("begun", "w"):
                threading.Event().wait()

        @tool
        def later(number: int) -> int:
            return number
        """
    shop.file(f"import threading\n{textwrap.dedent(code)}")

    def skip_the_turns_time() -> None:
        with begun.open():
            clock.pause(PATIENCE_S)

    threading.Thread(target=skip_the_turns_time, daemon=True).start()
    shop.run(call("hang"), call("later", number=1), turn={"deadline_s": PATIENCE_S}, clock=clock)
    hang, later = shop.finished()
    assert (hang["outcome"], later["outcome"]) == ("timed_out", "skipped")
    assert later["output"] == "later was not called: the turn's time, 300 s, is over"
    shop.run(call("hang"), turn={"tool_timeout_s": 0.2})
    assert shop.finished(2)[0]["output"].startswith("hang: it took longer than 0.2 s")
    shop.org.close()
