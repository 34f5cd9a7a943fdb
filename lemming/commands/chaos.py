"""`lemming chaos`: kill the engine again and again on a copy of the organisation, and compare."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NoReturn

import typer

from lemming.commands.narration import Narrator
from lemming.commands.options import Here, option
from lemming.commands.screen import counted, show, tell
from lemming.commands.trust import require_agreement
from lemming.evals.copy_org import BILL_FILE, copy_org
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files import fs
from lemming.kernel.journal.events import Event
from lemming.kernel.journal.file import last_record
from lemming.kernel.journal.records import ModelReplied, TickCommitted
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import takes_turns
from lemming.testing import tree

TICK_ENDED = (0, 1, 5, 6)  # what `run-once` ends with when the tick is over; docs/cli.md
_DIGEST = re.compile(rb'"[0-9a-f]{64}"')
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@dataclass
class Tally:
    """What the kills came to. `doubled`, `lost` and `different` name files, against a run in peace.

    `at_once`: how many turns may be under way, and so how many calls in flight, when a kill comes.
    """

    seed: int
    at_once: int = 1
    ticks: int = 0
    kills: int = 0
    recoveries: int = 0
    calls: int = 0
    calls_repeated: int = 0
    doubled: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)

    @property
    def is_as_promised(self) -> bool:
        """Whether the files are those of a run in peace and no kill cost more than the calls in flight."""
        most = self.kills * self.at_once
        return not (self.doubled or self.lost or self.different) and self.calls_repeated <= most


def chaos(
    here: Here,
    kills: Annotated[int, option("--kills", "How often to kill.", min=1, max=10_000)] = 20,
    seed: Annotated[int, option("--seed", "Chooses the moments.")] = 0,
    answers: Annotated[
        int | None,
        option("--here N", "No copy: begin a tick of this organisation, and kill it after N answers.", min=1),
    ] = None,
) -> None:
    """Kill the engine on a copy of the organisation, and compare with a run in peace.

    A real process runs tick after tick and is killed (SIGKILL) at moments that the seed chooses. The copy
    is temporary; its models answer from the journals, or with a stand-in, so nothing is paid and nothing
    outside the copy is touched: tools with effects outside are not called.

    With --here nothing is copied: one tick begins as with run-once, and this very process is killed when
    so many answers of models are in the journal. See with run-once what becomes of it.

    Exit status: 0 the files are the same and no kill repeated more than the calls in flight, 1 they are not.

    \b
    Examples:
      lemming chaos
      lemming chaos --kills 100 --seed 7
      lemming chaos --here 1 || lemming run-once
      lemming chaos --json | jq .calls_repeated
    """
    base = here.org
    require_agreement(base, can_ask=not here.as_json)
    if answers is not None:
        _kill_here(base, answers, as_json=here.as_json)
    with TemporaryDirectory(prefix="lemming-chaos-") as folder:
        tally = _count_damage(Path(base), Path(folder), kills, seed, quiet=here.as_json)
    if not here.shows("chaos", {**asdict(tally), "is_as_promised": tally.is_as_promised}):
        _show(tally)
    if not tally.is_as_promised:
        raise typer.Exit(1)


def _kill_here(base: OrgPath, answers: int, *, as_json: bool) -> NoReturn:
    from lemming import engine

    narrator, left = Narrator(base, threading.Event(), as_json=as_json), answers

    def hear_or_die(event: Event) -> None:
        nonlocal left
        narrator.hear(event)
        left -= isinstance(event, ModelReplied)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    report = engine.run_once(base, notify=hear_or_die)
    narrator.ended(report)
    came = answers - left
    hint = f"lemming chaos --here {came}, in a tick like this" if came else "in a tick in which models answer"
    raise UsageError(f"the tick had {counted(came, 'answer')}; nothing was killed", hint=hint)


def _count_damage(base: Path, folder: Path, kills: int, seed: int, *, quiet: bool) -> Tally:
    calm = copy_org(base, folder / "calm", kills=kills)
    wild = copy_org(base, folder / "wild", kills=kills)
    tally, first = Tally(seed=seed, at_once=turns_at_once(wild)), load_tick(wild)
    chance = random.Random(seed)  # noqa: S311 - no secret
    longest = _run_once(calm)
    while tally.kills < kills:
        tally.recoveries += _is_interrupted(wild)
        tally.kills += _is_killed(wild, chance.uniform(0, longest))
        if not quiet:
            tell(f"tick {load_tick(wild)}: {tally.kills} of {counted(kills, 'kill')}")
    tally.recoveries += _is_interrupted(wild)
    _run_once(wild)
    while load_tick(calm) < load_tick(wild):
        _run_once(calm)
    tally.ticks = load_tick(wild) - first
    _compare(tally, calm, wild)
    return tally


def turns_at_once(base: Path) -> int:
    """Return how many turns of a tick may be under way at the same time."""
    config, agents = load_config(base), survey_agents(base).agents.values()
    asking = sum(takes_turns(agent, config) for agent in agents)
    return 1 if config.org.executor == "serial" else max(1, min(config.org.parallel, asking))


def _is_killed(base: Path, after_s: float) -> bool:
    """Start an engine and kill it so long after it took the lock; return whether it was still at work."""
    engine = _start(base)
    try:
        _, said = engine.communicate(timeout=after_s)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.communicate()
        return engine.returncode < 0
    _require_tick_ended(engine.returncode, said)
    return False


def _run_once(base: Path) -> float:
    """Run one tick in peace, and return for how many seconds the engine was at work."""
    engine, began = _start(base), time.perf_counter()
    _, said = engine.communicate()
    _require_tick_ended(engine.returncode, said)
    return time.perf_counter() - began


def _start(base: Path) -> subprocess.Popen[str]:
    """Start a process that runs one tick, and return when it has taken the lock."""
    command = [sys.executable, "-P", "-m", "lemming", "-C", str(base), "run-once", "--quiet", "--trust"]
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    search = [str(Path(__file__).parents[2]), *(os.path.abspath(folder) for folder in given)]
    engine = subprocess.Popen(
        command,
        cwd=base.parent,  # not where we are: Python would import what lies there
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while engine.poll() is None and _holder(base) != engine.pid:
        time.sleep(0.001)
    return engine


def _require_tick_ended(status: int, said: str) -> None:
    if status not in TICK_ENDED:
        raise LemmingError(
            f"the engine ended with {status} on the copy: {said.strip()}", hint="see `lemming doctor`"
        )


def _holder(base: Path) -> Any:
    try:
        plain = parse(fs.read_bytes(base / paths.LOCK_FILE, 4096))
    except (OSError, JsonProblem):
        return None
    return plain.get("pid") if isinstance(plain, dict) else None


def _is_interrupted(base: Path) -> bool:
    record = last_record(base, load_tick(base))
    return record is not None and not isinstance(record, TickCommitted)


def _compare(tally: Tally, calm: Path, wild: Path) -> None:
    asked = Counter((wild / BILL_FILE).read_text().splitlines()) if (wild / BILL_FILE).exists() else Counter()
    tally.calls, tally.calls_repeated = asked.total(), asked.total() - len(asked)
    expected, found = _timeless(calm), _timeless(wild)
    tally.doubled = sorted(found.keys() - expected.keys())
    tally.lost = sorted(expected.keys() - found.keys())
    tally.different = sorted(path for path in expected.keys() & found.keys() if expected[path] != found[path])


def _timeless(base: Path) -> dict[str, bytes]:
    """Return an organisation's files, the times of day in them blanked; settings of the copy left out."""
    return {path: _blanked(path, raw) for path, raw in tree(base).items() if not path.startswith("config/")}


def _blanked(path: str, raw: bytes) -> bytes:
    """Return a file without times of day, and a ledger without the digests of files that hold one."""
    return _TIME.sub(b"-", _DIGEST.sub(b"-", raw) if path.endswith("/turns.jsonl") else raw)


def _show(tally: Tally) -> None:
    recovered = counted(tally.recoveries, "recovery", "recoveries")
    show(f"{counted(tally.kills, 'kill')} in {counted(tally.ticks, 'tick')}, {recovered}")
    most = "one" if tally.at_once == 1 else f"{tally.at_once}, the turns at once,"
    show(f"calls: {tally.calls}, {tally.calls_repeated} of them repeated (at most {most} a kill)")
    show(f"files doubled: {len(tally.doubled)}, lost: {len(tally.lost)}, different: {len(tally.different)}")
    for path in [*tally.doubled, *tally.lost, *tally.different]:
        show(f"  {path}")
    same = "the files are those of a run in peace" if tally.is_as_promised else "this is not as promised"
    tell(f"{same} (seed {tally.seed})", style="green" if tally.is_as_promised else "red")
