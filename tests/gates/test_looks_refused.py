"""Where the disk does not say what a gate goes by, it neither passes nor blocks: the run ends."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from refused import run_with_each_look_refused

from lemming.engine import run_once
from lemming.testing import FrozenClock, make_org, resume, say

ACCESS = ["./shared", "./workspace"]
PATHS = ("shared/kept", "shared/link", "shared/new", "workspace/own")
BY_PATH = {"args": {"path": ["shared/new"]}}
BY_WHAT_IS_WRITTEN = {"class": "write", "when": {"field": "own", "op": "is", "value": False}}


@pytest.mark.sample(2)
@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize(
    ("blocks", "written"), [(BY_PATH, "shared/new"), (BY_WHAT_IS_WRITTEN, "agents/ada/workspace/own")]
)
def test_a_look_that_is_refused_is_no_verdict(base: Path, blocks: dict[str, Any], written: str, number: int) -> None:
    access = {"allow_read": ACCESS, "allow_write": ACCESS}
    permissions = {"tools": ["file_write"], "read_outboxes": [], "file_access": access}
    calls = [{"tool": "file_write", "args": {"path": path, "content": "x"}} for path in PATHS]
    make_org(
        base,
        resume("ada", permissions=permissions),
        org={"gates": [{"at": "call", **blocks, "then": "block"}], "durability": "off"},
        script=[{"reply": say("written", tool_calls=calls)}],
    )
    (base / "shared").mkdir()
    (base / "shared/kept").write_text("kept")
    (base / "shared/link").symlink_to("kept")
    names = {path.split("/")[-1] for path in PATHS} | {"shared"}
    peace = run_with_each_look_refused(base, number, lambda look: look.split("/")[-1] in names)
    files = {place: peace.get(place) for place in ("shared/kept", "shared/new", "agents/ada/workspace/own")}
    assert files == dict.fromkeys(files) | {"shared/kept": b"kept", written: b"x"}


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_is_no_word_on_what_was_spent(base: Path, number: int) -> None:
    spends = {"at": "spend", "calls": 2, "per": "organisation", "window": {"ticks": 3}, "then": "block"}
    make_org(base, resume("ada"), org={"gates": [spends], "durability": "off"}, script=[{"reply": say("x")}])
    run_once(base, clock=FrozenClock())
    names = {"ticks", "sealed", "00000000.jsonl", "00000001.jsonl"}
    peace = run_with_each_look_refused(base, number, lambda look: look.split("/")[-1] in names)
    assert b'"turns":2' in peace["agents/ada/turns.jsonl"]
