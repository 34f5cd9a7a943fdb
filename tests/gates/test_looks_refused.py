"""Where the disk does not say what a gate goes by, it neither passes nor blocks: the run ends."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import load_tick, run_once
from lemming.kernel.base.errors import DiskError
from lemming.testing import FrozenClock, make_org, resume, say, tree
from lemming.testing.faults import refuse_look, restore, take_image

ACCESS = ["./shared", "./workspace"]
PATHS = ("shared/kept", "shared/link", "shared/new", "workspace/own")
BY_PATH = {"args": {"path": ["shared/new"]}}
BY_WHAT_IS_WRITTEN = {"class": "write", "when": {"field": "own", "op": "is", "value": False}}


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize(
    ("blocks", "written"), [(BY_PATH, "shared/new"), (BY_WHAT_IS_WRITTEN, "agents/ada/workspace/own")]
)
def test_a_look_that_is_refused_is_no_verdict(
    base: Path, blocks: dict[str, Any], written: str, number: int
) -> None:
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
    peace = refused_one_by_one(base, number, names)
    files = {place: peace.get(place) for place in ("shared/kept", "shared/new", "agents/ada/workspace/own")}
    assert files == dict.fromkeys(files) | {"shared/kept": b"kept", written: b"x"}


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_is_no_word_on_what_was_spent(base: Path, number: int) -> None:
    spends = {"at": "spend", "calls": 2, "per": "organisation", "window": {"ticks": 3}, "then": "block"}
    make_org(base, resume("ada"), org={"gates": [spends], "durability": "off"}, script=[{"reply": say("x")}])
    run_once(base, clock=FrozenClock())
    peace = refused_one_by_one(base, number, {"ticks", "sealed", "00000000.jsonl", "00000001.jsonl"})
    assert b'"turns":2' in peace["agents/ada/turns.jsonl"]


def refused_one_by_one(base: Path, number: int, names: set[str]) -> dict[str, bytes]:
    """Run a tick, once for each look at something of these names, which is refused; return its files.

    Each run stops, and the next comes to the files of a run in peace, or it has come to them itself.
    """
    image, to = take_image(base), load_tick(base) + 1
    calm, stops = restore(image, base.parent / "calm"), 0
    with refuse_look(calm, 0, number) as looks:
        run_once(calm, clock=FrozenClock())
    peace = tree(calm)
    for at in (place for place, look in enumerate(looks, start=1) if look.split("/")[-1] in names):
        again = restore(image, base.parent / f"again {at}")
        with refuse_look(again, at, number):
            try:
                run_once(again, clock=FrozenClock())
            except DiskError:
                stops += 1
        if load_tick(again) < to:
            run_once(again, clock=FrozenClock())
        assert tree(again) == peace, looks[at - 1]
    assert stops
    return peace
