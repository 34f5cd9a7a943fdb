"""Looks that the disk refuses, one after the other: what is asked, or a tick, is the same or stops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fault_injection import fail_nth_lookup, restore_image, take_image

from lemming.engine import load_tick, run_once
from lemming.kernel.base.errors import DiskError
from lemming.testing import FrozenClock, tree


def asked_with_each_look_refused(base: Path, number: int, ask: Callable[[], Any]) -> Any:
    """Ask once for each look below a folder, which is refused, and return what is said in peace.

    Whenever something else would be said, it is the disk's trouble, and that is so at least once.
    """
    with fail_nth_lookup(base, 0, number) as looks:
        peace = ask()
    stops = 0
    for at, look in enumerate([*looks], start=1):
        with fail_nth_lookup(base, at, number):
            try:
                assert ask() == peace, look
            except DiskError:
                stops += 1
    assert stops
    return peace


def run_with_each_look_refused(base: Path, number: int, is_meant: Callable[[str], bool]) -> dict[str, bytes]:
    """Run a tick, once for each look that is meant ("stat a/b.txt"), which is refused; return its files.

    Each run stops, and the next comes to the files of a run in peace, or it has come to them itself.
    """
    image, to = take_image(base), load_tick(base) + 1
    calm, stops = restore_image(image, base.parent / "calm"), 0
    with fail_nth_lookup(calm, 0, number) as looks:
        run_once(calm, clock=FrozenClock())
    peace = tree(calm)
    for at in (place for place, look in enumerate([*looks], start=1) if is_meant(look)):
        again = restore_image(image, base.parent / f"again {at}")
        with fail_nth_lookup(again, at, number):
            try:
                run_once(again, clock=FrozenClock())
            except DiskError:
                stops += 1
        if load_tick(again) < to:
            run_once(again, clock=FrozenClock())
        assert tree(again) == peace, looks[at - 1]
    assert stops
    return peace
