"""Settings that vanish under a running engine, which is killed before they come back."""

from __future__ import annotations

from pathlib import Path

import fault_injection
import pytest

from lemming.engine import run_once, ticks
from lemming.kernel.base.errors import ConfigError
from lemming.testing import FrozenClock, make_org, resume, say, tree

ORG = "config/org.json"
BLOCKED = [{"at": "call", "class": "write", "then": "block"}]


def writer_in(base: Path) -> Path:
    """Make an organisation whose agent tries to write in each tick what a gate blocks."""
    call = {"tool": "file_write", "args": {"path": "shared/forbidden.txt", "content": "x"}}
    access = {"allow_read": ["./shared"], "allow_write": ["./shared"]}
    ada = resume(
        "ada",
        permissions={"tools": ["file_write"], "file_access": access, "read_outboxes": ["*"]},
        turn={"max_steps": 2},
    )
    script = [{"step": 0, "reply": say("trying", tool_calls=[call])}, {"reply": say("blocked")}]
    return make_org(base, ada, resume("bob"), script=script, org={"gates": BLOCKED})


def test_an_engine_that_is_killed_without_its_settings_goes_on_when_they_are_back_and_not_before(
    base: Path, tmp_path: Path
) -> None:
    writer_in(base)
    running = ticks(base, interval_s=0, max_ticks=2, clock=FrozenClock())
    next(running)
    said = (base / ORG).read_bytes()
    (base / ORG).unlink()
    left = list[fault_injection.CrashPoint]()
    with fault_injection.watch_crash_points(base, "kill", left.append):
        assert next(running).is_complete
    (base / ORG).write_bytes(said)
    whole = tree(base)
    assert len(left) > 10
    for point in left[::2]:
        folder = fault_injection.restore_image(point.image, tmp_path / f"left {point.number}")
        with pytest.raises(ConfigError, match="the file does not exist"):
            run_once(folder, clock=FrozenClock())
        assert fault_injection.take_image(folder / "agents") == {
            path.removeprefix("agents/"): content for path, content in point.image.items() if path.startswith("agents/")
        }
        (folder / ORG).write_bytes(said)
        if run_once(folder, clock=FrozenClock()).tick == 2:
            assert tree(folder) == whole, point.change
        assert not (folder / "shared/forbidden.txt").exists()
