"""What the engine adds to a turn, as a ratio to writing the same files bare.

A turn here: read one neighbour's new entry, ask a scripted model (no waiting), write one entry and one
memory, one line in the ledger, in the activity log and in the engine's log, and the journal. The floor
writes the same bytes to the same files with plain Python: new and replaced files beside their place and
renamed, lines appended to files that are opened for each turn. Both with durability "off".
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from lemming.engine import run_once
from lemming.testing import make_org, resume, say, tree

WARM_TICKS = 3
APPENDED = (".jsonl", ".log")


def measure_overhead(folder: Path, sizes: list[int], rounds: int) -> str:
    """Return a table: CPU and wall time per turn of engine and floor, and the median of their ratios."""
    lines = [
        "| agents | engine CPU us/turn | floor CPU us/turn | ratio CPU | engine wall us/turn | ratio wall |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_row(folder / str(size), size, rounds) for size in sizes]
    return "\n".join(lines) + "\n"


def _row(folder: Path, size: int, rounds: int) -> str:
    base = make_ring(folder / "org", size)
    for _ in range(WARM_TICKS):
        run_once(base)
    engine, floor = [], []
    for number in range(rounds):
        before = tree(base, without=(".lemming",))
        engine.append(_timed(lambda: run_once(base)))
        after = tree(base, without=(".lemming",))
        bare = folder / f"bare{number}"
        shutil.copytree(base, bare)
        work = written_between(before, after, size)
        floor.append(_timed(lambda bare=bare, work=work: write_bare(bare, work)))  # type: ignore[misc]
        shutil.rmtree(bare)
    shutil.rmtree(folder)
    cpu = statistics.median(e[0] / f[0] for e, f in zip(engine, floor, strict=True))
    wall = statistics.median(e[1] / f[1] for e, f in zip(engine, floor, strict=True))
    us = [
        statistics.median(side[which] for side in pairs) / size * 1e6
        for pairs, which in ((engine, 0), (floor, 0), (engine, 1))
    ]
    return f"| {size} | {us[0]:.0f} | {us[1]:.0f} | {cpu:.1f} | {us[2]:.0f} | {wall:.1f} |"


def make_ring(base: Path, size: int) -> Path:
    """Make an organisation in which every agent reads the one before it."""
    names = [f"a{number:05d}" for number in range(size)]
    resumes = [
        resume(name, permissions={"read_outboxes": [names[number - 1]]}) for number, name in enumerate(names)
    ]
    reply = say("a sentence of an ordinary length", memory_updates=[{"key": "state", "value": {"n": 1}}])
    return make_org(base, *resumes, script=[{"reply": reply}], org={"durability": "off"})


Work = list[tuple[str, bytes, bool]]


def written_between(before: dict[str, bytes], after: dict[str, bytes], turns: int) -> Work:
    """Return (path, bytes, is appended) for all that a tick wrote; shared logs in one piece a turn."""
    work: Work = []
    for path, content in after.items():
        old = before.get(path, b"")
        if content == old:
            continue
        if not path.endswith(APPENDED):
            work.append((path, content, False))
            continue
        new = content[len(old) :]
        pieces = turns if path.startswith("logs/") else 1
        step = -(-len(new) // pieces)
        work += [(path, new[at : at + step], True) for at in range(0, len(new), step)]
    return work


def write_bare(base: Path, work: Work) -> None:
    """Write the same bytes with nothing around it."""
    root = str(base)
    for path, content, is_appended in work:
        target = f"{root}/{path}"
        place = target if is_appended else f"{target}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if is_appended else os.O_TRUNC)
        descriptor = os.open(place, flags, 0o644)
        os.write(descriptor, content)
        os.close(descriptor)
        if not is_appended:
            os.rename(place, target)


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return (CPU seconds, wall seconds)."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall
