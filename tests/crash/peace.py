"""An organisation of the corpus, run tick by tick, and what becomes of it when nothing goes wrong."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest import mock

from bill import Bill
from corpus import BY_NAME
from fault_injection import Image, restore_image, take_image

from lemming.capabilities.toolbox.functions.function_import import Sources
from lemming.capabilities.toolbox.functions.worker_pool import FunctionWorkers
from lemming.engine import load_tick, persist_tick, recorded_report, run_once
from lemming.kernel.base.errors import Problem
from lemming.kernel.journal.journal_file import Durability, is_committed, journal_ticks
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tick.tick_counter import load_counter
from lemming.kernel.tick.tick_hooks import previous_reading
from lemming.testing import FrozenClock, tree


@dataclass(frozen=True)
class Stage:
    """What an organisation is before one of its ticks, and the calls asked for until then."""

    files: Image
    paid: list[str]


@dataclass(frozen=True)
class Ideal:
    """An organisation before each of its ticks, and what became of it when nothing went wrong."""

    stages: list[Stage]
    files: dict[str, bytes]
    calls: frozenset[str]
    totals: list[dict[str, Any]]

    @property
    def start(self) -> Image:
        return self.stages[0].files


class folder:  # noqa: N801 - used like a function
    """A new folder, which is gone when the block ends."""

    def __enter__(self) -> Path:
        self._above = Path(mkdtemp(prefix="lemming-crash-"))
        return self._above / "org"

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._above)


@cache
def ideal(name: str, durability: Durability) -> Ideal:
    case, bill, kept = BY_NAME[name], Bill(), dict[bytes, bytes]()
    with folder() as base:
        case.build(base, {"durability": durability, "max_parallel": case.at_once})
        let_rest(base)
        stages = [Stage(thrifty(take_image(base), kept), [])]
        while take_tick(base, case.ticks, bill):
            stages.append(Stage(thrifty(take_image(base), kept), [*bill.calls]))
        assert not bill.repeated
        return Ideal(stages, tree(base), frozenset(bill.calls), totals(base, case.ticks))


def thrifty(image: Image, kept: dict[bytes, bytes]) -> Image:
    """Return an image that shares with others what files of the same bytes hold."""
    return {path: content and kept.setdefault(content, content) for path, content in image.items()}


def run(base: Path, ticks: int, bill: Bill) -> None:
    """Run until the last tick of a case is over, with a fresh engine for every tick."""
    let_rest(base)
    while take_tick(base, ticks, bill):
        pass


def take_tick(base: Path, ticks: int, bill: Bill) -> bool:
    """Run the next tick with a fresh engine, and return whether there was one.

    After power loss the counter may stand one tick behind the journals: the next run would move it on.
    """
    tick = load_tick(base)
    following = tick + is_committed(base, tick)
    if following <= ticks:
        with _nothing_takes_time(), mock.patch.object(FunctionWorkers, "load_in_worker", _try_out):
            run_once(base, clock=clock_in(base, following), notify=bill.hear)
        return True
    if tick <= ticks:
        read_at = previous_reading(base, ticks + 1, [ticks]) if load_counter(base)[1] else ""
        persist_tick(base, ticks + 1, read_at=read_at)
    return False


@contextlib.contextmanager
def _nothing_takes_time() -> Iterator[None]:
    """Let what is measured for journals and logs be 0: the same files come to the very same files."""
    log = mock.patch("lemming.kernel.logging_config._now", return_value="2026-01-01T00:00:00.000000Z")
    with mock.patch.object(time, "perf_counter", return_value=0.0), log:
        yield


_try_out_anew = FunctionWorkers.load_in_worker
_FINE: set[tuple[bytes, ...]] = set()
"""Code of functions that a process has loaded without a problem."""


def _try_out(
    workers: FunctionWorkers, files: Sequence[str], sources: Sources, settings: OrgSettings
) -> Sequence[Problem]:
    """Start no process for code that one has loaded before: each tick, in each copy, would have its own."""
    code = tuple(sources[file] for file in sorted(sources))
    if code in _FINE:
        return ()
    problems = _try_out_anew(workers, files, sources, settings)
    if not problems:
        _FINE.add(code)
    return problems


def clock_in(base: Path, tick: int) -> FrozenClock:
    """Return a clock that goes an hour a tick where somebody goes by it, and else stands still."""
    clock = FrozenClock()
    newest = max([tick, *journal_ticks(base)[-1:]])  # the counter may be one behind
    clock.advance(3600 * (newest - 1) * _has_calendar(base))
    return clock


def _has_calendar(base: Path) -> bool:
    """Return whether there is one; the one look that a trial refuses is the engine's."""
    file = base / "config/calendar.json"
    with contextlib.suppress(OSError):
        return file.exists()
    return file.exists()


def put_back(files: Image, base: Path) -> None:
    """Put files into a folder that holds nothing yet, as they are found later."""
    restore_image(files, base)
    let_rest(base)


def let_rest(base: Path) -> None:
    """Let a resume that is no JSON look as if it had stood there for long: nobody is saving it."""
    with contextlib.suppress(FileNotFoundError):
        os.utime(base / "agents/torn/resume.json", (0, 0))


def totals(base: Path, ticks: int) -> list[dict[str, Any]]:
    """Return what the journals say of every tick."""
    reports = [recorded_report(base, tick) for tick in range(1, ticks + 1)]
    return [report.totals if report else {} for report in reports]
